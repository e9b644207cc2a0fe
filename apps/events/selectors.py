"""Reads for pages and the API: the catalog, and one event."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from django.contrib.postgres.aggregates import ArrayAgg
from django.db import connection
from django.db.models import OuterRef, Q, Subquery, Sum
from django.db.models.functions import Coalesce

from apps.events import event_views, registries
from apps.events.models import Event, Section
from apps.events.models.catalog import lines_of, tags_of
from apps.events.pricing import PricePolicy
from apps.events.public_plan import documents
from apps.kernel import clock
from apps.kernel.db import sql

CATALOG_MAX = 200
SEARCH_CHARACTERS_MAX = 100
SEARCH_WORDS_MAX = 8
FEW_MAX = 100
FEW_SHARE = 0.2
"""At most so many tickets, and at most this share of the capacity, are "only … left"."""

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
        sections = documents.draft_sections(event_id)
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
