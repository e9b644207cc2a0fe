"""Reads for pages and the API: the catalog, one event, and its public seating plan."""

import gzip
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import msgspec
from django.contrib.postgres.aggregates import ArrayAgg
from django.core.cache import cache
from django.db import connection
from django.db.models import Max, OuterRef, Q, Subquery, Sum
from django.db.models.functions import Coalesce
from django.utils.text import slugify

from apps.events import event_views, registries
from apps.events.models import Category, Event, Seat, Section
from apps.events.models.catalog import lines_of, tags_of
from apps.events.plans import Area, StoredLayout, areas_of, stored_layout
from apps.events.plans.geometry import area_outline, rows_outline
from apps.events.pricing import PricePolicy
from apps.kernel import clock
from apps.kernel.db import sql
from apps.kernel.fastpath.cache import RefreshingCache

CATALOG_MAX = 200
SEARCH_CHARACTERS_MAX = 100
SEARCH_WORDS_MAX = 8
PLAN_CACHE_SECONDS = 3_600
FEW_MAX = 100
FEW_SHARE = 0.2
"""At most so many tickets, and at most this share of the capacity, are "only … left"."""
PLANS_MAX = 64
PLAN_BYTES_MAX = 64 * 1024 * 1024
"""Plans kept in one process, and their compressed size. The oldest are removed first."""
DRAWING_BYTES_MAX = 4 * 1024 * 1024
"""A larger drawing, compressed, is not kept in Redis: its labels are no names of seats."""
_PLAN_COMPRESSION, _DRAWING_COMPRESSION = 6, 1

_event_page = sql.load("apps.events", "event_page")


@dataclass(frozen=True, slots=True)
class EventCard:
    """An event in the catalog. `state`: on_sale | upcoming | sold_out | closed | canceled. `available` is None while
    counts are unknown; `has_open_lobby`: visitors gather for an on-sale that has not opened yet."""

    slug: str
    name: str
    description: str
    venue_name: str
    city: str
    timezone: str
    starts_at: datetime
    state: str
    opens_at: datetime
    closes_at: datetime | None
    lobby_opens_at: datetime | None
    has_open_lobby: bool
    currency: str
    from_price_minor: int | None
    available: int | None
    capacity: int
    judged_at: datetime
    """When `state` was computed, by the database's clock."""
    summary: str
    performers: tuple[str, ...]
    tags: tuple[str, ...]
    language: str
    """A value of `Language`."""

    @property
    def has_few_left(self) -> bool:
        """Whether tickets were sold or held and only a few are left. The pages' scripts decide in the same way."""
        left = self.available
        return left is not None and left < self.capacity and left <= min(FEW_MAX, self.capacity * FEW_SHARE)

    @property
    def moments(self) -> tuple[datetime, ...]:
        """Moments at which time alone changes the card: lobby opens, on-sale opens or closes, event starts."""
        known = (self.lobby_opens_at, self.opens_at, self.closes_at, self.starts_at)
        return tuple(moment for moment in known if moment is not None)


@dataclass(frozen=True, slots=True)
class SectionOffer:
    slug: str
    name: str
    kind: str
    capacity: int
    available: int | None
    needs_access: bool
    prices: tuple[event_views.PriceView, ...]
    """Prices with fees and tax, like `from_price_minor`."""


@dataclass(frozen=True, slots=True)
class EventDetails:
    """What only the event's own page shows."""

    organizer: str
    """The organizer's slug."""
    organizer_name: str
    organizer_email: str
    address: str
    latitude: float | None
    longitude: float | None
    doors_at: datetime | None
    ends_at: datetime | None
    has_room: bool
    """Whether the event has a waiting room."""
    moved_from: datetime | None
    """The start before the latest change of it; None if it was never changed."""


@dataclass(frozen=True, slots=True)
class EventPage:
    event_id: int
    card: EventCard
    hold_seconds: int
    seats_per_reservation: int
    per_buyer_cap: int | None
    presale: event_views.Presale | None
    """None: the event has none, or it has ended."""
    sections: tuple[SectionOffer, ...]
    price_policy: PricePolicy
    details: EventDetails
    legal_kinds: tuple[str, ...]
    """The kinds of its current legal pages."""


class _Row(NamedTuple):
    """The columns of a card. Up to `lobby_opens_at` they are the card's first fields, with `status` for `state`."""

    slug: str
    name: str
    description: str
    venue_name: str
    city: str
    timezone: str
    starts_at: datetime
    status: str
    opens_at: datetime
    closes_at: datetime | None
    lobby_opens_at: datetime | None
    currency: str
    prices_minor: list[int | None]
    """Face prices of its categories; [None] from Django if the event has no categories."""
    tax_rates: list[int | None]
    """Tax rates of the same categories, in the same order."""
    summary: str
    performers: str
    tags: str
    language: str
    ticket_fee_minor: int
    ticket_fee_rate: int
    order_fee_minor: int
    waives_fees_when_free: bool
    tax_rate: int
    tax_included: bool

    @property
    def price_policy(self) -> PricePolicy:
        return event_views.policy_of(*self[-6:])


_COLUMNS = (
    "slug", "name", "description", "venue__name", "venue__city", "venue__timezone", "starts_at", "status",
    "on_sale__opens_at", "on_sale__closes_at", "on_sale__room_lobby_opens_at", "currency", "prices_minor", "tax_rates",
    "summary", "performers", "tags", "language",
    "on_sale__ticket_fee_minor", "on_sale__ticket_fee_rate", "on_sale__order_fee_minor",
    "on_sale__waives_fees_when_free", "on_sale__tax_rate", "on_sale__tax_included",
)  # fmt: skip
"""The same columns for the ORM."""


def list_catalog(search: str = "", *, offset: int = 0, limit: int = CATALOG_MAX) -> list[EventCard]:
    """Return public events that have not started, soonest first. Search words must all occur in name, venue or city."""
    now = clock.now()
    events = Event.objects.exclude(status=Event.Status.DRAFT).filter(starts_at__gt=now)
    words = search.replace("\x00", " ")[:SEARCH_CHARACTERS_MAX].split()
    for word in words[:SEARCH_WORDS_MAX]:
        events = events.filter(
            Q(name__icontains=word) | Q(venue__name__icontains=word) | Q(venue__city__icontains=word)
        )
    # The ids of the page first: with the columns of `_cards`, PostgreSQL would aggregate the categories of all events.
    return _cards(list(events.order_by("starts_at", "slug").values_list("pk", flat=True)[offset : offset + limit]), now)


def list_cards(event_ids: Sequence[int]) -> list[EventCard]:
    """Return the public ones of these events, in the order of the ids."""
    return _cards(event_ids, clock.now())


def _cards(event_ids: Sequence[int], now: datetime) -> list[EventCard]:
    events = Event.objects.exclude(status=Event.Status.DRAFT).filter(pk__in=event_ids)
    of_event = Section.objects.filter(event=OuterRef("pk")).order_by().values("event")
    capacities = of_event.annotate(total=Sum("capacity"))
    priced = events.annotate(
        prices_minor=ArrayAgg("categories__price_minor", order_by="categories__id"),
        tax_rates=ArrayAgg("categories__tax_rate", order_by="categories__id"),
        capacity=Coalesce(Subquery(capacities.values("total")), 0),
    )
    found = {event_id: columns for event_id, *columns in priced.values_list("pk", "capacity", *_COLUMNS)}
    available = registries.availability(event_views.section_slugs(found))
    return [
        _card(_Row(*found[event_id][1:]), now, available.get(event_id), found[event_id][0])
        for event_id in event_ids
        if event_id in found
    ]


def get_event_page(slug: str) -> EventPage:
    """Return all data of the event's page. Raises EventNotFound, also for a draft."""
    if not sql.is_text(slug):
        raise event_views.EventNotFound(slug)
    return _read_event_page(slug, is_draft=False)


def get_draft_page(slug: str) -> EventPage:
    """Return the data of the page that a draft would have if it were published now. Raises EventNotFound, also without
    an on-sale."""
    return _read_event_page(slug, is_draft=True)


def _read_event_page(slug: str, *, is_draft: bool) -> EventPage:
    # Raw SQL: with the ORM, compiling the query and filling the models took longer than PostgreSQL's response.
    with connection.cursor() as cursor:
        rows = _event_page.rows(cursor, slug=slug, is_draft=is_draft)
    if not rows:
        raise event_views.EventNotFound(slug)
    ((event_id, hold_seconds, seats_max, buyer_max, condition, until, ends, *rest, legal_kinds, now),) = rows
    row, details = rest[: len(_COLUMNS)], EventDetails(*rest[len(_COLUMNS) :])
    presale = event_views.Presale(condition, until, ends) if condition and now < until else None
    read = _Row(*row)
    policy = read.price_policy
    available: dict[int, int] | None
    if is_draft:
        sections = draft_sections(event_id)
        available = {section.id: section.capacity for section in sections}
    else:
        sections = event_views.list_sections(event_id)
        slugs = {section.id: section.slug for section in sections}
        available = registries.availability({event_id: slugs}).get(event_id)
    offers = tuple(
        SectionOffer(
            slug=section.slug,
            name=section.name,
            kind=section.kind,
            capacity=section.capacity,
            available=None if available is None else available.get(section.id, 0),
            needs_access=section.needs_access,
            prices=section.at_full_prices(policy).prices,
        )
        for section in sections
    )
    card = _card(read, now, available, sum(section.capacity for section in sections))
    limits = (hold_seconds, seats_max, buyer_max)
    return EventPage(event_id, card, *limits, presale, offers, policy, details, tuple(legal_kinds))


def _card(row: _Row, now: datetime, available_by_section: dict[int, int] | None, capacity: int) -> EventCard:
    available = None if available_by_section is None else sum(available_by_section.values())
    state = event_views.selling_state(row.status, row.starts_at, row.opens_at, row.closes_at, now)
    return EventCard(
        *row[:7],
        "sold_out" if state == "on_sale" and available == 0 else state,
        *row[8:11],
        has_open_lobby=state == "upcoming" and row.lobby_opens_at is not None and row.lobby_opens_at <= now,
        currency=row.currency,
        from_price_minor=min(
            (
                row.price_policy.place_total_minor(price_minor, tax_rate)
                for price_minor, tax_rate in zip(row.prices_minor, row.tax_rates, strict=True)
                if price_minor is not None
            ),
            default=None,
        ),
        available=available,
        capacity=capacity,
        judged_at=now,
        summary=row.summary,
        performers=lines_of(row.performers),
        tags=tags_of(row.tags),
        language=row.language,
    )


def get_poster(slug: str) -> tuple[str, str]:
    """Return the event's own poster (empty if it has none) and its name. Raises EventNotFound."""
    event_views.get_event(slug)
    poster, name = Event.objects.values_list("poster", "name").get(slug=slug)
    return poster, name


def plan_version(slug: str) -> str:
    """Return a value that changes whenever the event's public plan does, without building the plan.

    Raises EventNotFound.
    """
    return event_views.plan_version(event_views.get_event(slug).id)


class PlanDocument(NamedTuple):
    compressed: bytes
    """The JSON, compressed with gzip."""

    @property
    def body(self) -> bytes:
        return gzip.decompress(self.compressed)


def plan_document(slug: str, version: str = "") -> PlanDocument:
    """Return the public plan as JSON: geometry and prices, the same for every visitor, without availability. `version`
    is its `plan_version`; empty: it is read.

    Seats are columns, in the order of their ids (`event_views.seat_ids_in_plan_order`). Raises EventNotFound.
    """
    return _plans.read((slug, version or plan_version(slug)))


def _read_plan(key: tuple[str, str]) -> PlanDocument:
    slug, _ = key
    return PlanDocument(gzip.compress(msgspec.json.encode(_plan(slug)), _PLAN_COMPRESSION, mtime=0))


class _PlanCache(RefreshingCache[tuple[str, str], PlanDocument]):
    """The plans of this process, by slug and version: to build one takes tenths of a second of a processor for a large
    venue. Threads that need the same plan wait for one of them to build it."""

    def _keep(self, values: Mapping[tuple[str, str], PlanDocument], begun: float) -> None:
        kept = {key: (entry.begun, len(entry.value.compressed)) for key, entry in self._kept.copy().items()}
        size = sum(size for _, size in kept.values()) + sum(len(plan.compressed) for plan in values.values())
        for key in sorted(kept, key=kept.__getitem__):
            if size <= PLAN_BYTES_MAX and len(kept) + len(values) <= PLANS_MAX:
                break
            size -= kept.pop(key)[1]
            self._kept.pop(key, None)
        super()._keep(values, begun)


_plans = _PlanCache(_read_plan, fresh_seconds=PLAN_CACHE_SECONDS, stale_seconds=0, most=PLANS_MAX)


_DRAFT_COLUMNS = (
    "guid", "section", "row", "number", "x", "y", "category", "accessible", "companion", "row_index",
)  # fmt: skip
"""Of the rows that `_encoded_drawing` expects."""


def draft_sections(event_id: int) -> list[event_views.SectionView]:
    """Return the sections that a draft would have: those of its plan, with ids below 0, and general admission. A
    category without a price is left out."""
    event = Event.objects.select_related("plan").defer("poster").get(pk=event_id)
    return _draft_sections(event_id, _draft_layout(event))


def _draft_sections(event_id: int, layout: StoredLayout) -> list[event_views.SectionView]:
    prices = {
        row.key: event_views.PriceView(row.key, row.name, row.color, row.price_minor, row.tax_rate)
        for row in Category.objects.filter(event_id=event_id)
    }
    found = []
    for position, section in enumerate(layout.sections):
        categories = section.seats["category"]
        used = {layout.categories[category] for category in set(categories)}
        offered = sorted((prices[key] for key in used if key in prices), key=lambda price: -price.price_minor)
        kind, count = Section.Kind.RESERVED, len(categories)
        found.append(event_views.SectionView(-1 - position, section.slug, section.name, kind, count, tuple(offered)))
    return [*found, *event_views.list_sections(event_id)]


def draft_plan_document(event_id: int) -> bytes:
    """Return the public plan that a draft would have, as JSON. Seats without a price are left out."""
    event = Event.objects.select_related("plan").defer("poster").get(pk=event_id)
    layout = _draft_layout(event)
    keys = dict(Category.objects.filter(event_id=event_id).values_list("key", "pk"))
    category_ids = [keys.get(name) for name in layout.categories]
    rows: list[tuple[Any, ...]] = []
    for position, section in enumerate(layout.sections):
        columns = {
            **section.seats,
            "section": [-1 - position] * len(section.seats["guid"]),
            "category": [category_ids[category] for category in section.seats["category"]],
        }
        seats = zip(*(columns[name] for name in _DRAFT_COLUMNS), strict=True)
        rows += [seat for seat, category in zip(seats, columns["category"], strict=True) if category is not None]
    sections, categories = _draft_sections(event_id, layout), _categories_of(event)
    encoded = _encoded_drawing(event, sections, categories, rows, None)
    drawing = msgspec.json.decode(encoded, type=_Drawing)
    return msgspec.json.encode(_plan_with(event, sections, categories, drawing))


def _draft_layout(event: Event) -> StoredLayout:
    return StoredLayout((), ()) if event.plan is None else stored_layout(event.plan.layout)


class _Drawing(msgspec.Struct):
    """What the plan of an event shows whatever the prices are. To make it takes most of the time of a large plan, so it
    is kept in Redis."""

    latest_link: int | None
    """The newest link between a section and a category. Moving seats to other categories makes new ones."""
    section_ids: list[int]
    category_ids: list[int]
    """Sections and categories in the order of the plan, to which `seats` refers."""
    size: msgspec.Raw
    seat_radius: msgspec.Raw
    areas: msgspec.Raw
    outlines: list[msgspec.Raw]
    """One for each section."""
    seats: msgspec.Raw
    """The columns of the seats, in the order of their ids."""


def _plan(slug: str) -> dict[str, Any]:
    event = Event.objects.defer("poster").get(slug=slug)
    # Before the seats, so that no older ones are kept for it.
    links = Section.categories.through.objects.filter(section__event=event)
    latest_link = links.aggregate(latest=Max("id"))["latest"]
    # One for each event, which the next one replaces: it may have megabytes.
    name = f"events:drawing.gz:{event_views.PLAN_FORMAT}:{event.pk}"
    kept = _kept_drawing(name)
    sections, categories = event_views.list_sections(event.pk), _categories_of(event)
    current = latest_link, [section.id for section in sections], [category.pk for category in categories]
    if kept is not None and (kept.latest_link, kept.section_ids, kept.category_ids) == current:
        return _plan_with(event, sections, categories, kept)
    rows = list(
        Seat.objects.filter(event=event)
        .order_by("id")
        .values_list(
            "guid", "section_id", "row", "number", "x", "y", "category_id", "accessible", "companion", "row_index"
        )
    )
    # Read again, since the seats may have others by now.
    sections, categories = event_views.list_sections(event.pk), _categories_of(event)
    encoded = _encoded_drawing(event, sections, categories, rows, latest_link)
    compressed = gzip.compress(encoded, _DRAWING_COMPRESSION, mtime=0)
    if len(compressed) <= DRAWING_BYTES_MAX:
        cache.set(name, compressed, PLAN_CACHE_SECONDS)
    return _plan_with(event, sections, categories, msgspec.json.decode(encoded, type=_Drawing))


def _kept_drawing(name: str) -> _Drawing | None:
    kept = cache.get(name)
    try:
        return msgspec.json.decode(gzip.decompress(kept), type=_Drawing) if isinstance(kept, bytes) else None
    except (OSError, EOFError, zlib.error, msgspec.MsgspecError):  # It is damaged.
        return None


def _categories_of(event: Event) -> list[Category]:
    return list(Category.objects.filter(event=event))


def _plan_with(
    event: Event, sections: Sequence[event_views.SectionView], categories: Sequence[Category], drawing: _Drawing
) -> dict[str, Any]:
    policy = event_views.get_event_by_id(event.pk).price_policy
    category_at = {category.pk: index for index, category in enumerate(categories)}
    return {
        "event": event.slug,
        "currency": event.currency,
        "size": drawing.size,
        "seat_radius": drawing.seat_radius,
        "categories": [
            {
                "key": category.key,
                "name": category.name,
                "color": category.color,
                "price_minor": category.price_minor,
                "full_price_minor": policy.place_total_minor(category.price_minor, category.tax_rate),
            }
            for category in categories
        ],
        "areas": drawing.areas,
        "sections": [
            {
                "id": section.slug,
                "name": section.name,
                "kind": section.kind,
                "capacity": section.capacity,
                "needs_access": section.needs_access,
                "category": category_at.get(section.category_id) if section.category_id is not None else None,
                "outline": outline,
            }
            for section, outline in zip(sections, drawing.outlines, strict=True)
        ],
        "seats": drawing.seats,
    }


def _encoded_drawing(
    event: Event,
    sections: Sequence[event_views.SectionView],
    categories: Sequence[Category],
    rows: Sequence[tuple[Any, ...]],
    latest_link: int | None,
) -> bytes:
    """Return the drawing of these seats as JSON."""
    layout = event.plan.layout if event.plan is not None else None
    areas = areas_of(layout) if layout is not None else ()
    category_at = {category.pk: index for index, category in enumerate(categories)}
    section_at = {section.id: index for index, section in enumerate(sections)}
    radius = _seat_radius(rows)
    spots: dict[int, list[list[tuple[float, float]]]] = {}
    for (section_id, _), members in groupby(rows, key=lambda row: (row[1], row[9])):
        spots.setdefault(section_id, []).append([(row[4], row[5]) for row in members])
    return msgspec.json.encode(
        {
            "latest_link": latest_link,
            "section_ids": list(section_at),
            "category_ids": list(category_at),
            "size": [_round_coordinate(value) for value in (layout["size"] if layout is not None else (0, 0))],
            "seat_radius": radius,
            "areas": [_area(area) for area in areas],
            "outlines": [_outline(section, spots.get(section.id, []), areas, radius) for section in sections],
            "seats": {
                "id": [row[0] for row in rows],
                "section": [section_at[row[1]] for row in rows],
                "row": [row[2] for row in rows],
                "number": [row[3] for row in rows],
                "x": [_round_coordinate(row[4]) for row in rows],
                "y": [_round_coordinate(row[5]) for row in rows],
                "category": [category_at[row[6]] for row in rows],
                "flags": [(1 if row[7] else 0) | (2 if row[8] else 0) for row in rows],
            },
        }
    )


def _round_coordinate(value: float) -> float | int:
    """Round to one decimal, a tenth of a pixel; whole numbers become integers."""
    rounded = round(value, 1)
    return int(rounded) if rounded == int(rounded) else rounded


def _seat_radius(rows: Sequence[tuple[Any, ...]]) -> float | int:
    """Return a radius at which drawn neighbors do not touch."""
    gaps = sorted(
        ((after[4] - before[4]) ** 2 + (after[5] - before[5]) ** 2) ** 0.5
        for before, after in pairwise(rows[:5_000])
        if before[1] == after[1] and before[2] == after[2]
    )
    real = [gap for gap in gaps if gap > 0]
    return _round_coordinate(real[len(real) // 4] * 0.42) if real else 10


def _outline(
    section: event_views.SectionView, rows: list[list[tuple[float, float]]], areas: tuple[Area, ...], radius: float
) -> list[list[float]]:
    """Return the outline of the section's seats; for general admission, of the plan's area that has its name."""
    if rows:
        line = rows_outline(rows, margin=radius * 1.7)
    else:
        named = (area for area in areas if area.text is not None and slugify(area.text.text) == section.slug)
        line = next((corners for area in named if (corners := area_outline(area))), [])
    return [[_round_coordinate(x), _round_coordinate(y)] for x, y in line]


_SIZES: dict[str, tuple[str, ...]] = {
    "rectangle": ("width", "height"), "circle": ("radius",), "ellipse": ("rx", "ry"), "polygon": (), "text": (),
}  # fmt: skip


def _area(area: Area) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "shape": area.shape,
        "x": _round_coordinate(area.x),
        "y": _round_coordinate(area.y),
        **{name: _round_coordinate(getattr(area, name)) for name in _SIZES[area.shape]},
        "rotation": _round_coordinate(area.rotation),
        "color": area.color,
        "border_color": area.border_color,
    }
    if area.shape == "polygon":
        drawn["points"] = [[_round_coordinate(x), _round_coordinate(y)] for x, y in area.points]
    if area.text is not None:
        text = area.text
        drawn["text"] = {
            "x": _round_coordinate(text.x),
            "y": _round_coordinate(text.y),
            "text": text.text,
            "color": text.color,
            "size": _round_coordinate(text.size),
        }
    return drawn
