"""Events, sections and seats as other code reads them: frozen values and ids, never model instances."""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from typing import Any

from django.db import connection
from django.db.models import Max, Q

from apps.events.models import Category, Event, OnSale, Seat, Section
from apps.events.pricing import DEFAULT_PRICE_POLICY, PricePolicy
from apps.kernel import clock
from apps.kernel.db import arrays, sql
from apps.kernel.http import problems

# What every call of the crowd asks for: by the ORM, compiling the query and filling models cost the site more than
# PostgreSQL's answer.
_event_rows = sql.load("apps.events", "event_views")
_section_rows = sql.load("apps.events", "section_views")
_section_slugs = sql.load("apps.events", "section_slugs")
_seat_rows = sql.load("apps.events", "seat_views")
_seat_guids = sql.load("apps.events", "seat_guids", prepared=True)
_prices = sql.load("apps.events", "prices", prepared=True)

_ID_MAX = 2**63 - 1
_PLAN_FORMAT = 3  # part of every plan's version: raise it when the document changes form


class EventNotFound(problems.NotFound):
    """No published or canceled event has this slug."""

    def __init__(self, slug: str) -> None:
        super().__init__("There is no such event.")
        self.slug = slug


def selling_state(
    status: str, starts_at: datetime, opens_at: datetime, closes_at: datetime | None, at: datetime
) -> str:
    """As `EventView.selling_state`, from the bare values."""
    if status == Event.Status.CANCELED:
        return "canceled"
    if (closes_at is not None and at >= closes_at) or at >= starts_at:
        return "closed"
    return "upcoming" if at < opens_at else "on_sale"


@dataclass(frozen=True, slots=True)
class WaitingRoomSettings:
    """The waiting room that the organiser wants; what the room is now is the queue's to say."""

    rate_per_second: int
    active_max: int
    lobby_opens_at: datetime | None = None
    """From then until the on-sale opens people gather, and are numbered by a draw; None: no lobby."""


@dataclass(frozen=True, slots=True)
class Policy:
    """The on-sale's rules, units in the names."""

    opens_at: datetime
    closes_at: datetime | None
    hold_minutes: int
    payment_minutes: int
    grace_seconds: int
    seats_per_reservation_max: int
    per_buyer_max: int | None
    room: WaitingRoomSettings | None = None
    """None: no waiting room, everyone is let in at once."""
    oversell: str = OnSale.Oversell.CANCEL_NEWEST
    """How an oversell would be made up for: cancel_newest or house_seats."""


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

    def selling_state(self, at: datetime) -> str:
        """One of upcoming, on_sale, closed, canceled: derived from the policy at a moment. "Sold out" needs the
        stock, which this app does not know."""
        return selling_state(self.status, self.starts_at, self.policy.opens_at, self.policy.closes_at, at)

    @property
    def is_public(self) -> bool:
        return self.status != Event.Status.DRAFT

    def is_over(self, at: datetime) -> bool:
        """Whether nobody can buy at it any more: sales have closed, or it is canceled."""
        return self.selling_state(at) in ("closed", "canceled")


@dataclass(frozen=True, slots=True)
class PriceView:
    category: str
    name: str
    color: str
    price_minor: int
    tax_rate: int | None = None
    """None: the event's."""

    def at_full_price(self, policy: PricePolicy) -> "PriceView":
        """The same at what a buyer cannot avoid: with the ticket's fee and the tax."""
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
    """General admission only: its one category."""
    needs_access: bool = False
    """Nobody holds here without an access code."""

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
    """Its category's; None: the event's."""


@lru_cache(maxsize=1_024)
def policy_of(*columns: int) -> PricePolicy:
    """The price policy of an on-sale's columns, in their order; the same object for the same values."""
    return PricePolicy(*columns)  # type: ignore[arg-type]  # Two of them are truth values.


def _event_views(event_id: int | None = None, slugs: Sequence[str] | None = None) -> list[EventView]:
    with connection.cursor() as cursor:
        rows = _event_rows.rows(cursor, event_id=event_id, slugs=slugs)
    return [_event_view(*row) for row in rows]


def _event_view(
    id_: int, slug: str, name: str, venue: str, city: str, timezone: str, starts_at: datetime, currency: str,
    status: str, opens_at: datetime, closes_at: datetime | None, hold_minutes: int, payment_minutes: int,
    grace_seconds: int, seats_per_reservation_max: int, per_buyer_max: int | None, oversell: str,
    room_rate: int | None, room_active_max: int | None, lobby_opens_at: datetime | None, *price_policy: int,
) -> EventView:  # fmt: skip
    room = (
        None
        if room_rate is None or room_active_max is None
        else WaitingRoomSettings(room_rate, room_active_max, lobby_opens_at)
    )
    policy = Policy(
        opens_at=opens_at,
        closes_at=closes_at,
        hold_minutes=hold_minutes,
        payment_minutes=payment_minutes,
        grace_seconds=grace_seconds,
        seats_per_reservation_max=seats_per_reservation_max,
        per_buyer_max=per_buyer_max,
        oversell=oversell,
        room=room,
    )
    return EventView(
        id_, slug, name, venue, city, timezone, starts_at, currency, status, policy, policy_of(*price_policy)
    )


def get_event(slug: str) -> EventView:
    """The public event with this slug. Raises EventNotFound; a draft is not found."""
    found = get_events([slug])
    if not found:
        raise EventNotFound(slug)
    return found[slug]


def get_events(slugs: Iterable[str]) -> dict[str, EventView]:
    """The public events among these, by slug; one query for all of them."""
    asked = [slug for slug in slugs if sql.is_text(slug)]
    return {event.slug: event for event in _event_views(slugs=asked)} if asked else {}


def get_event_by_id(event_id: int) -> EventView:
    """The event with this id, whatever its status. Raises EventNotFound."""
    # From an address it may be of any length.
    found = _event_views(event_id=event_id) if 0 < event_id <= _ID_MAX else []
    if not found:
        raise EventNotFound(str(event_id))
    return found[0]


def list_events() -> list[EventView]:
    """All public events, soonest first."""
    return _event_views()


def selling_event_ids(at: datetime | None = None) -> list[int]:
    """Published events whose selling period contains the moment (the database's clock unless given)."""
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
    """The event's price tiers, in their order."""
    return list_categories_of([event_id])[event_id]


def list_categories_of(event_ids: Iterable[int]) -> dict[int, list[CategoryView]]:
    """The same for many events; one query for all of them."""
    found: dict[int, list[CategoryView]] = {event_id: [] for event_id in event_ids}
    for row in Category.objects.filter(event_id__in=list(found)):
        found[row.event_id].append(CategoryView(row.pk, row.key, row.name, row.color, row.price_minor))
    return found


def list_sections(event_id: int) -> list[SectionView]:
    """The event's sections by position, each with the prices found in it, dearest first."""
    return list_sections_of([event_id])[event_id]


def list_sections_of(event_ids: Iterable[int]) -> dict[int, list[SectionView]]:
    """The same for many events; one query for all of them."""
    found: dict[int, list[SectionView]] = {event_id: [] for event_id in event_ids}
    with connection.cursor() as cursor:
        rows = _section_rows.rows(cursor, event_ids=list(found))
    for section, lines in groupby(rows, lambda row: row[:8]):
        prices = tuple(PriceView(*line[8:]) for line in lines if line[8] is not None)
        event_id, id_, slug, name, kind, capacity, category_id, needs_access = section
        found[event_id].append(SectionView(id_, slug, name, kind, capacity, prices, category_id, needs_access))
    return found


def section_ids(event_ids: Iterable[int]) -> dict[int, list[int]]:
    """The ids of each event's sections by position; one query for all of them."""
    return {event_id: list(slugs) for event_id, slugs in section_slugs(event_ids).items()}


def section_slugs(event_ids: Iterable[int]) -> dict[int, dict[int, str]]:
    """What each event's sections are called, by id, in order of position; one query for all of them."""
    found: dict[int, dict[int, str]] = {event_id: {} for event_id in event_ids}
    with connection.cursor() as cursor:
        for event_id, section_id, slug in _section_slugs.rows(cursor, event_ids=list(found)):
            found[event_id][section_id] = slug
    return found


_ALL_SEATS = dict.fromkeys(("section_id", "event_id", "guids", "seat_ids", "limit"), None) | {"offset": 0}


def _seats(**asked_by: Any) -> list[SeatView]:
    with connection.cursor() as cursor:
        return [SeatView(*row) for row in _seat_rows.rows(cursor, **(_ALL_SEATS | asked_by))]


def seats_by_guid(event_id: int, guids: Iterable[str]) -> dict[str, SeatView]:
    """The event's seats among these public ids; unknown ids are simply absent."""
    wanted = [guid for guid in guids if sql.is_text(guid)]
    return {seat.guid: seat for seat in _seats(event_id=event_id, guids=wanted)} if wanted else {}


def seat_ids_of_guids(event_id: int, guids: Iterable[str]) -> dict[str, int]:
    """The ids of the event's seats among these public ids; unknown ids are simply absent."""
    wanted = [guid for guid in guids if guid.isprintable()]
    return dict(Seat.objects.filter(event_id=event_id, guid__in=wanted).values_list("guid", "pk"))


def seats_across_events(guid: str) -> dict[int, SeatView]:
    """The seats of this public id, by event: a plan used again has it again. Drafts have none."""
    if not sql.is_text(guid):
        return {}
    public = [event.id for event in list_events()]
    found = dict(Seat.objects.filter(event_id__in=public, guid=guid).values_list("event_id", "pk"))
    seats = seats_by_id(found.values())
    return {event_id: seats[seat_id] for event_id, seat_id in found.items()}


def seats_by_id(seat_ids: Iterable[int]) -> dict[int, SeatView]:
    """These seats by id; unknown ids are simply absent."""
    wanted = list(seat_ids)
    return {seat.id: seat for seat in _seats(seat_ids=wanted)} if wanted else {}


def seat_guids(cursor: sql.Cursor, seat_ids: Iterable[int]) -> dict[int, str]:
    """The public ids of these seats, read on the caller's cursor."""
    ids = list(seat_ids)
    return dict(_seat_guids.rows(cursor, seat_ids=ids)) if ids else {}


def read_prices_call(event_ids: Iterable[int]) -> sql.Call:
    """Category id and price in minor units, as it is now, of every category of these events: for a transaction that
    freezes it into what it writes, and sends this together with its locks."""
    return _prices.call(event_ids=arrays.numbers(event_ids))


def seat_guids_of_section(section_id: int, rows: Collection[str] = ()) -> dict[int, str]:
    """The public ids of the section's seats by id; of these rows only, or of all."""
    seats = Seat.objects.filter(section_id=section_id)
    if rows:
        seats = seats.filter(row__in=[row for row in rows if sql.is_text(row)])
    return dict(seats.values_list("pk", "guid"))


def section_rows(section_id: int) -> list[str]:
    """The names of the section's rows, front first."""
    names = Seat.objects.filter(section_id=section_id).order_by("row_index").values_list("row", flat=True)
    return list(dict.fromkeys(names))


def section_seats(section_id: int, offset: int = 0, limit: int | None = None) -> list[SeatView]:
    """The section's seats row by row, front first."""
    return _seats(section_id=section_id, offset=offset, limit=limit)


def seat_ids_in_plan_order(event_id: int) -> list[int]:
    """The ids of the event's seats in the order of its public plan (`plan.json`): index i there is the i-th id here.

    Publication writes the seats in that order in one load, so the order of ids is the order of the plan.
    """
    return list(Seat.objects.filter(event_id=event_id).order_by("id").values_list("id", flat=True))


def plan_version(event_id: int) -> str:
    """Changes whenever the event's public plan does: cheap, to answer "not modified" without building it.

    Prices, capacities, what needs an access code, and the latest link between a section and a category: moving seats
    writes those anew.
    """
    said_of = ("key", "name", "color", "price_minor", "tax_rate")
    prices = Category.objects.filter(event_id=event_id).values_list(*said_of)
    sections = list(Section.objects.filter(event_id=event_id).values_list("capacity", "needs_access_since"))
    links = Section.categories.through.objects.filter(section__event_id=event_id).aggregate(last=Max("id"))
    currency = Event.objects.values_list("currency", flat=True).get(pk=event_id)
    offered = [(capacity, since is not None) for capacity, since in sections]
    said = f"{_PLAN_FORMAT} {event_id} {currency} {list(prices)} {offered} {links['last']}"
    return hashlib.sha256(said.encode()).hexdigest()[:24]
