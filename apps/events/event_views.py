"""Events, sections and seats for other code: frozen values and ids, never model instances."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import groupby, starmap
from typing import Any

from django.core.management.base import CommandError
from django.db import connection
from django.db.models import Q

from apps.events.models import Category, Event, OnSale, Seat, Section
from apps.events.pricing import DEFAULT_PRICE_POLICY, PricePolicy
from apps.kernel import clock
from apps.kernel.db import arrays, reads, sql
from apps.kernel.fastpath.cache import BatchRefreshingCache
from apps.kernel.http import problems

# These statements run on nearly every request. With the ORM, compiling a query and filling models took longer than
# PostgreSQL's response.
_public_events = sql.load("apps.events", "public_events")
_events_by_id = sql.load("apps.events", "events_by_id", prepared=True)
_section_rows = sql.load("apps.events", "section_views")
_section_slugs = sql.load("apps.events", "section_slugs")
_seats_of_section = sql.load("apps.events", "seats_of_section")
_seats_by_guid = sql.load("apps.events", "seats_by_guid", prepared=True)
_seats_by_id = sql.load("apps.events", "seats_by_id", prepared=True)
_seat_guids = sql.load("apps.events", "seat_guids", prepared=True)
_plan_version = sql.load("apps.events", "plan_version")
_prices = sql.load("apps.events", "prices", prepared=True)

_ID_MAX = 2**63 - 1
PLAN_FORMAT = 4  # part of every plan version; increment it when the format of plan.json changes


class EventNotFound(problems.NotFound):
    """No published or canceled event has this slug."""

    def __init__(self, slug: str) -> None:
        super().__init__("There is no such event.")
        self.slug = slug


def selling_state(
    status: str, starts_at: datetime, opens_at: datetime, closes_at: datetime | None, at: datetime
) -> str:
    """Return `EventView.selling_state`, computed from plain values."""
    if status == Event.Status.CANCELED:
        return "canceled"
    if (closes_at is not None and at >= closes_at) or at >= starts_at:
        return "closed"
    return "upcoming" if at < opens_at else "on_sale"


@dataclass(frozen=True, slots=True)
class WaitingRoomSettings:
    """The waiting room as configured by the organizer; the queue app has its current state."""

    rate_per_second: int
    active_max: int
    lobby_opens_at: datetime | None = None
    """From this time until the on-sale opens, visitors gather in a lobby; a draw then numbers them. None: no lobby."""


@dataclass(frozen=True, slots=True)
class Presale:
    """From the opening of the on-sale until this time only visitors who meet the condition may join and hold. The
    condition is `code`: a valid access code of the event; `account`: an account with a confirmed email address; or
    `sign_up`: such an account that signed up for the draw, by joining the lobby before `sign_up_closes_at`."""

    condition: str
    until: datetime
    sign_up_closes_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules of the on-sale. All fields but `room` and `presale` are in the column order of `public_events.sql`."""

    opens_at: datetime
    closes_at: datetime | None
    hold_seconds: int
    payment_seconds: int
    grace_seconds: int
    seats_per_reservation_max: int
    per_buyer_max: int | None
    oversell: str = OnSale.Oversell.CANCEL_NEWEST
    """How an oversell is compensated: cancel_newest or house_seats."""
    room: WaitingRoomSettings | None = None
    """None: no waiting room, all visitors may shop at once."""
    presale: Presale | None = None


@dataclass(frozen=True, slots=True)
class EventView:
    id: int
    slug: str
    name: str
    venue_name: str
    city: str
    timezone: str
    starts_at: datetime
    currency: str
    status: str
    policy: Policy
    price_policy: PricePolicy = DEFAULT_PRICE_POLICY
    organizer_id: int = 0
    doors_at: datetime | None = None
    """None: not announced."""
    ends_at: datetime | None = None
    """None: not announced."""
    terms_since: datetime | None = None
    """Since when the limits and fees hold for new reservations; None: since the publication. For an earlier reservation
    see `revisions.terms`."""
    publishes_report: bool = False
    """Whether a report of the sale may be published after it."""
    address: str = ""
    """The venue's street and number; may be empty."""

    @property
    def address_line(self) -> str:
        """The venue's name, street and city in one line, without those that are not known."""
        return ", ".join(part for part in (self.venue_name, self.address, self.city) if part)

    def selling_state(self, at: datetime) -> str:
        """Return upcoming, on_sale, closed or canceled at this moment. "Sold out" depends on the stock, which this app
        does not know."""
        return selling_state(self.status, self.starts_at, self.policy.opens_at, self.policy.closes_at, at)

    def presale_at(self, at: datetime) -> Presale | None:
        """Return the presale if it has not ended at this moment, also before it begins; else None."""
        presale = self.policy.presale
        return presale if presale is not None and at < presale.until else None

    def is_sign_up_open(self, at: datetime) -> bool:
        """Return whether visitors can sign up for the draw at this moment: from the opening of the lobby until sign-up
        closes."""
        presale, room = self.policy.presale, self.policy.room
        closes_at = None if presale is None else presale.sign_up_closes_at
        if closes_at is None or room is None or room.lobby_opens_at is None:
            return False
        return self.selling_state(at) == "upcoming" and room.lobby_opens_at <= at < closes_at

    @property
    def is_public(self) -> bool:
        return self.status != Event.Status.DRAFT

    def is_over(self, at: datetime) -> bool:
        """Return whether sales have ended: closed or canceled."""
        return self.selling_state(at) in ("closed", "canceled")


@dataclass(frozen=True, slots=True)
class PriceView:
    category: str
    name: str
    color: str
    price_minor: int
    tax_rate: int | None = None
    """None: the event's rate."""

    def at_full_price(self, policy: PricePolicy) -> "PriceView":
        """Return the price with unavoidable charges: the ticket's fee and the tax."""
        return replace(self, price_minor=policy.place_total_minor(self.price_minor, self.tax_rate))


@dataclass(frozen=True, slots=True)
class SectionView:
    id: int
    slug: str
    name: str
    kind: str
    capacity: int
    prices: tuple[PriceView, ...]
    category_id: int | None = None
    """General admission only: its category."""
    needs_access: bool = False
    """Whether holds here need an access code."""

    @property
    def is_general_admission(self) -> bool:
        return self.kind == Section.Kind.GENERAL_ADMISSION

    def at_full_prices(self, policy: PricePolicy) -> "SectionView":
        return replace(self, prices=tuple(price.at_full_price(policy) for price in self.prices))


@dataclass(frozen=True, slots=True)
class SeatView:
    id: int
    guid: str
    section_id: int
    section_slug: str
    section_name: str
    row: str
    number: str
    category_id: int
    category: str
    category_name: str
    color: str
    price_minor: int
    accessible: bool
    companion: bool
    tax_rate: int | None = None
    """The tax rate of the seat's category; None: the event's rate."""


@lru_cache(maxsize=1_024)
def policy_of(*columns: int) -> PricePolicy:
    """Return the price policy with these values, in the order of its fields. Equal values share one cached object."""
    return PricePolicy(*columns)  # type: ignore[arg-type]  # Two of the columns are booleans.


def _public_event_views(slugs: Sequence[str] | None = None) -> list[EventView]:
    with connection.cursor() as cursor:
        rows = _public_events.rows(cursor, slugs=slugs)
    return [_event_view(row) for row in rows]


def _event_view(row: tuple[Any, ...]) -> EventView:
    """Return the event of a row of `public_events.sql`: nine columns of the event, eight of its policy, three of its
    waiting room (null without a waiting room), six of its price policy, three of its presale, its organizer, when
    doors open, when the event ends, since when its terms hold, whether it publishes a report, and its address."""
    room = None if row[17] is None else WaitingRoomSettings(*row[17:20])
    presale = Presale(*row[26:29]) if row[26] else None
    policy = Policy(*(*row[9:17], room, presale))
    return EventView(*(*row[:9], policy, policy_of(*row[20:26]), *row[29:35]))


def get_event(slug: str) -> EventView:
    """Return the public event with this slug. Raises EventNotFound, also for a draft."""
    found = get_events([slug])
    if not found:
        raise EventNotFound(slug)
    return found[slug]


def get_event_for_command(slug: str) -> EventView:
    """Return the public event with this slug. Raises CommandError, for a management command."""
    try:
        return get_event(slug)
    except EventNotFound as error:
        raise CommandError(f"{slug[:80]!r}: there is no published event with this slug") from error


def publishes_report(event_id: int) -> bool:
    """Return whether a report of the event's sale may be published."""
    return Event.objects.filter(pk=event_id, publishes_report=True).exists()


def get_events(slugs: Iterable[str]) -> dict[str, EventView]:
    """Return the public events with these slugs, with one query."""
    valid = [slug for slug in slugs if sql.is_text(slug)]
    return {event.slug: event for event in _public_event_views(valid)} if valid else {}


# An organizer's change (sales closed, an event canceled) is known within two seconds.
event_cache: BatchRefreshingCache[str, EventView] = BatchRefreshingCache(
    get_events, missing=EventNotFound, fresh_seconds=1.0, stale_seconds=1.0, most=1_000
)
get_cached_event = event_cache.get
"""Return the public event as it was a moment ago, policy included. Raises EventNotFound."""
peek_event = event_cache.peek


def cached_slug(slug: str) -> str | None:
    """Return the slug if this process knows an event of this name without reading the database, else None."""
    return None if peek_event(slug) is None else slug


"""Return the cached event, or None if it would have to be read first. For the event loop."""
read_cached_event = event_cache.read
"""Return what `get_cached_event` returns. Blocks if the event has to be read: call it in a thread."""


def get_event_by_id(event_id: int) -> EventView:
    """Return the event with this id, whatever its status. Raises EventNotFound."""
    found = get_events_by_id([event_id])
    if not found:
        raise EventNotFound(str(event_id))
    return found[event_id]


def events_call(event_ids: Sequence[int]) -> sql.Call:
    """Return the statement whose rows `read_events` reads, of the events with these ids, whatever their status."""
    return _events_by_id.call(event_ids=list(event_ids))


def read_events(rows: Iterable[tuple[Any, ...]]) -> dict[int, EventView]:
    """Return the events of these rows, by id."""
    return {event.id: event for event in map(_event_view, rows)}


def get_events_by_id(event_ids: Iterable[int]) -> dict[int, EventView]:
    """Return the events with these ids, whatever their status, without unknown ids, with one query."""
    # An id from a URL may have any length.
    valid = [event_id for event_id in set(event_ids) if 0 < event_id <= _ID_MAX]
    if not valid:
        return {}
    with connection.cursor() as cursor:
        return read_events(_events_by_id.rows(cursor, event_ids=valid))


def list_events() -> list[EventView]:
    """Return all public events, soonest first."""
    return _public_event_views()


def selling_event_ids(at: datetime | None = None) -> list[int]:
    """Return the ids of published events on sale at this moment (by default now, by the database's clock)."""
    moment = at or clock.now()
    return list(
        Event.objects.filter(status=Event.Status.PUBLISHED, on_sale__opens_at__lte=moment, starts_at__gt=moment)
        .filter(Q(on_sale__closes_at__isnull=True) | Q(on_sale__closes_at__gt=moment))
        .order_by("id")
        .values_list("id", flat=True)
    )


@dataclass(frozen=True, slots=True)
class CategoryView:
    id: int
    key: str
    name: str
    color: str
    price_minor: int


def list_categories(event_id: int) -> list[CategoryView]:
    """Return the event's price categories, in their order."""
    return list_categories_of([event_id])[event_id]


def list_categories_of(event_ids: Iterable[int]) -> dict[int, list[CategoryView]]:
    """Return the price categories of several events, with one query."""
    found: dict[int, list[CategoryView]] = {event_id: [] for event_id in event_ids}
    for row in Category.objects.filter(event_id__in=list(found)):
        found[row.event_id].append(CategoryView(row.pk, row.key, row.name, row.color, row.price_minor))
    return found


def list_sections(event_id: int) -> list[SectionView]:
    """Return the event's sections by position, each with its prices, highest first."""
    return list_sections_of([event_id])[event_id]


def list_sections_of(event_ids: Iterable[int]) -> dict[int, list[SectionView]]:
    """Return the sections of several events, with one query."""
    found: dict[int, list[SectionView]] = {event_id: [] for event_id in event_ids}
    for event_id, section in _read_sections(event_ids=list(found), section_ids=None):
        found[event_id].append(section)
    return found


def sections_by_id(ids: Iterable[int]) -> dict[int, SectionView]:
    """Return these sections with their prices, highest first, by id, with one query; none for no ids."""
    wanted = sorted(set(ids))
    return {section.id: section for _, section in _read_sections(event_ids=None, section_ids=wanted)} if wanted else {}


def _read_sections(**filters: list[int] | None) -> Iterator[tuple[int, SectionView]]:
    with connection.cursor() as cursor:
        rows = _section_rows.rows(cursor, **filters)
    for section, lines in groupby(rows, lambda row: row[:8]):
        prices = tuple(PriceView(*line[8:]) for line in lines if line[8] is not None)
        event_id, id_, slug, name, kind, capacity, category_id, needs_access = section
        yield event_id, SectionView(id_, slug, name, kind, capacity, prices, category_id, needs_access)


def section_ids(event_ids: Iterable[int]) -> dict[int, list[int]]:
    """Return the ids of each event's sections by position, with one query."""
    return {event_id: list(slugs_by_id) for event_id, slugs_by_id in section_slugs(event_ids).items()}


def section_slugs(event_ids: Iterable[int]) -> dict[int, dict[int, str]]:
    """Return the slugs of each event's sections by section id, in order of position, with one query."""
    found: dict[int, dict[int, str]] = {event_id: {} for event_id in event_ids}
    with connection.cursor() as cursor:
        for event_id, section_id, slug in _section_slugs.rows(cursor, event_ids=list(found)):
            found[event_id][section_id] = slug
    return found


def read_seats_by_guid(event_id: int, guids: Iterable[str]) -> reads.Read[dict[str, SeatView]]:
    """Read the event's seats with these public ids, by public id, without unknown ids."""
    wanted = [guid for guid in guids if sql.is_text(guid)]
    rows = (yield from reads.one(_seats_by_guid, event_id=event_id, guids=wanted)) if wanted else []
    return {seat.guid: seat for seat in starmap(SeatView, rows)}


def seats_by_guid(event_id: int, guids: Iterable[str]) -> dict[str, SeatView]:
    """Return the same as `read_seats_by_guid` reads. Blocks."""
    return reads.run(read_seats_by_guid(event_id, guids))


def seat_ids_of_guids(event_id: int, guids: Iterable[str]) -> dict[str, int]:
    """Return the ids of the event's seats with these public ids, by public id, without unknown ids."""
    wanted = [guid for guid in guids if guid.isprintable()]
    return dict(Seat.objects.filter(event_id=event_id, guid__in=wanted).values_list("guid", "pk"))


def seats_across_events(guid: str) -> dict[int, SeatView]:
    """Return the seats with this public id, by event: events of one plan share public ids. Drafts have no seats."""
    if not sql.is_text(guid):
        return {}
    public = [event.id for event in list_events()]
    found = dict(Seat.objects.filter(event_id__in=public, guid=guid).values_list("event_id", "pk"))
    seats = seats_by_id(found.values())
    return {event_id: seats[seat_id] for event_id, seat_id in found.items()}


def seats_by_id(seat_ids: Iterable[int]) -> dict[int, SeatView]:
    """Return these seats by id, without unknown ids."""
    wanted = list(seat_ids)
    if not wanted:
        return {}
    with connection.cursor() as cursor:
        rows = _seats_by_id.rows(cursor, seat_ids=wanted)
    return {seat.id: seat for seat in starmap(SeatView, rows)}


def seat_guids(cursor: sql.Cursor, seat_ids: Iterable[int]) -> dict[int, str]:
    """Return the public ids of these seats, read on the caller's cursor."""
    ids = list(seat_ids)
    return dict(_seat_guids.rows(cursor, seat_ids=ids)) if ids else {}


def read_prices_call(event_ids: Iterable[int]) -> sql.Call:
    """Return the statement that reads the current price, in minor units, of every category of these events. A
    transaction sends it together with its locks and stores the prices in the rows that it writes."""
    return _prices.call(event_ids=arrays.numbers(event_ids))


def seat_guids_of_section(section_id: int, rows: Collection[str] = ()) -> dict[int, str]:
    """Return the public ids of the section's seats, by seat id. `rows` limits them to these rows; empty: all rows."""
    seats = Seat.objects.filter(section_id=section_id)
    if rows:
        seats = seats.filter(row__in=[row for row in rows if sql.is_text(row)])
    return dict(seats.values_list("pk", "guid"))


def section_rows(section_id: int) -> list[str]:
    """Return the names of the section's rows, front first."""
    names = Seat.objects.filter(section_id=section_id).order_by("row_index").values_list("row", flat=True)
    return list(dict.fromkeys(names))


def section_seats(section_id: int, offset: int = 0, limit: int | None = None) -> list[SeatView]:
    """Return the section's seats row by row, front first."""
    with connection.cursor() as cursor:
        rows = _seats_of_section.rows(cursor, section_id=section_id, offset=offset, limit=limit)
    return list(starmap(SeatView, rows))


def seat_ids_in_plan_order(event_id: int) -> list[int]:
    """Return the ids of the event's seats in the order of its public plan (`plan.json`).

    Publication inserts the seats in that order with one COPY, so it is the order of their ids."""
    return list(Seat.objects.filter(event_id=event_id).order_by("id").values_list("id", flat=True))


def plan_version(event_id: int) -> str:
    """Return a value that changes whenever the event's public plan does, without building the plan.

    It covers prices, fees and taxes, capacities, access code requirements and the newest link between a section and a
    category, because moving seats creates new links.
    """
    with connection.cursor() as cursor:
        ((shown,),) = _plan_version.rows(cursor, event_id=event_id)
    return hashlib.sha256(f"{PLAN_FORMAT} {event_id} {shown}".encode()).hexdigest()[:24]
