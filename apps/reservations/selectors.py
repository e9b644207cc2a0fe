"""Immutable views of reservations."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

from django.db import connection

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import model_rows, sql
from apps.reservations.errors import ReservationNotFound
from apps.reservations.models import Reservation, ReservationTransition

_read_reservations = sql.load("apps.reservations", "read_reservations", prepared=True)
_lines = sql.load("apps.reservations", "lines_of_reservations", prepared=True)


@dataclass(frozen=True, slots=True)
class HeldSeat:
    line_id: int
    seat_pk: int
    seat_id: str
    section_pk: int
    section: str
    section_name: str
    row: str
    number: str
    category: str
    category_name: str
    price_minor: int
    tax_rate: int | None

    @property
    def label(self) -> str:
        return f"{self.section_name}, row {self.row}, seat {self.number}"


@dataclass(frozen=True, slots=True)
class HeldGeneralAdmission:
    """A line of general-admission tickets."""

    line_id: int
    section_pk: int
    section: str
    section_name: str
    category: str
    quantity: int
    price_minor: int
    """The price of one ticket."""
    tax_rate: int | None

    def label(self, place: int) -> str:
        return f"{self.section_name}, {place} of {self.quantity}" if self.quantity > 1 else self.section_name


@dataclass(frozen=True, slots=True)
class ReservationView:
    id: UUID
    event_id: int
    event_slug: str
    entry_id: UUID
    account_id: int | None
    buyer: str
    email: str
    status: str
    expires_at: datetime
    pay_deadline: datetime | None
    total_minor: int
    """The sum of the face values; `bill` has the amount to pay."""
    currency: str
    seat_count: int
    created_at: datetime
    confirmed_at: datetime | None
    seats: tuple[HeldSeat, ...]
    general_admission: tuple[HeldGeneralAdmission, ...]
    price_policy: events.PricePolicy
    event: events.EventView = field(repr=False, compare=False)
    """As it was read with the reservation."""
    per_buyer_max: int | None = None
    """The purchase cap under which it was made; None: no cap."""
    has_access_code: bool = False
    """Whether it was held with an access code, which also applies to the hold that replaces it."""

    @property
    def reserved_until(self) -> datetime:
        """The current deadline."""
        return self.pay_deadline or self.expires_at

    @property
    def is_live(self) -> bool:
        return self.status in Reservation.LIVE

    @property
    def is_pending(self) -> bool:
        """Whether it is live and its payment has not begun."""
        return self.status == Reservation.Status.PENDING_PAYMENT

    @property
    def by_section(self) -> dict[int, int]:
        """The number of seats and general-admission tickets by section id."""
        counts = Counter(seat.section_pk for seat in self.seats)
        for held in self.general_admission:
            counts[held.section_pk] += held.quantity
        return counts

    @property
    def bill_items(self) -> Iterator[events.BillItem]:
        """Each seat and ticket, at the price fixed by the hold."""
        for seat in self.seats:
            yield events.BillItem(seat.line_id, 1, seat.label, seat.category_name, seat.price_minor, seat.tax_rate)
        for held in self.general_admission:
            for place in range(1, held.quantity + 1):
                yield events.BillItem(
                    held.line_id, place, held.label(place), held.category, held.price_minor, held.tax_rate
                )

    @property
    def bill(self) -> events.Bill:
        """The amount to pay without a promo code."""
        return events.calculate_bill(self.bill_items, self.price_policy)

    def contract(self) -> dict[str, Any]:
        """Return the reservation in the format of the public API."""
        tickets = self.general_admission[0] if self.general_admission else None
        return {
            "reservation_id": str(self.id),
            "reserved_until": clock.iso(self.reserved_until),
            "seats": [seat.seat_id for seat in self.seats],
            "ga_section": tickets.section if tickets else None,
            "ga_quantity": tickets.quantity if tickets else 0,
            "total_minor": self.total_minor,
            "currency": self.currency,
            "status": self.status,
            "bill": self.bill.contract(),
        }

    def shown(self) -> dict[str, Any]:
        """Return the reservation as pages show it: its current deadline, lines with prices, bill and event."""
        return {
            "id": self.id,
            "status": self.status,
            "expires_at": self.reserved_until,
            "bill": self.bill,
            "currency": self.currency,
            "event": self.event,
            "seats": [
                {
                    "section": seat.section_name,
                    "row": seat.row,
                    "number": seat.number,
                    "price_minor": seat.price_minor,
                    "category": seat.category_name,
                }
                for seat in self.seats
            ],
            "general_admission": [
                {
                    "section": held.section_name,
                    "quantity": held.quantity,
                    "price_minor": held.price_minor,
                    "subtotal_minor": held.quantity * held.price_minor,
                }
                for held in self.general_admission
            ],
        }


def get_reservation(reservation_id: UUID) -> ReservationView:
    """Return the reservation. After its deadline it reads as expired even before the sweep. Raises
    ReservationNotFound."""
    found = find_reservations([reservation_id])
    if not found:
        raise ReservationNotFound
    return found[reservation_id]


def find_reservations(reservation_ids: Collection[UUID]) -> dict[UUID, ReservationView]:
    """Return these reservations by id, without unknown ids. After its deadline a reservation reads as expired even
    before the sweep."""
    with connection.cursor() as cursor:
        rows = _read_reservations.rows(cursor, reservation_ids=list(reservation_ids))
    return {view.id: view for view in view_reservations(model_rows.build_instances(Reservation, rows))}


def held_times(reservation_ids: Collection[UUID]) -> dict[UUID, datetime]:
    """Return when these reservations were made, by id, without unknown ids."""
    return dict(Reservation.objects.filter(pk__in=reservation_ids).values_list("pk", "created_at"))


def has_live(event_id: int, held_until: datetime) -> bool:
    """Return whether a reservation of the event that was made until then may still become an order or be paid."""
    made = Reservation.objects.filter(event_id=event_id, created_at__lte=held_until)
    return made.filter(status__in=Reservation.LIVE).exists()


def live_reservation_of(entry_id: UUID) -> ReservationView | None:
    """Return the entry's live reservation, unless its deadline has passed."""
    views = view_reservations(Reservation.objects.filter(entry_id=entry_id, status__in=Reservation.LIVE))
    return views[0] if views and views[0].is_live else None


def view_reservations(
    reservations: Iterable[Reservation], known: Mapping[int, events.EventView] = MappingProxyType({})
) -> list[ReservationView]:
    """Return views of these rows, in order. `known` contains events that the caller has just read."""
    rows = list(reservations)
    if not rows:
        return []
    event_ids = {row.event_id for row in rows}
    # Deadlines matter for live reservations only.
    has_live = any(row.status in Reservation.LIVE for row in rows)
    calls = [_lines.call(reservation_ids=[row.pk for row in rows])]
    if unknown := event_ids - known.keys():
        calls.append(events.events_call(list(unknown)))
    if has_live:
        calls.append(clock.now_call())
    with connection.cursor() as cursor:
        read = [result.rows for result in sql.execute_batch(cursor, calls)]
    now = read.pop()[0][0] if has_live else None
    by_event = {**known, **(events.read_events(read.pop()) if unknown else {})}
    lines = [_Line(*line) for line in read.pop()]
    lines_of = defaultdict[UUID, list[_Line]](list)
    for line in lines:
        lines_of[line.reservation_id].append(line)
    seats = events.seats_by_id(line.seat_id for line in lines if line.seat_id is not None)
    sections = events.sections_by_id(line.section_id for line in lines if line.seat_id is None)
    views = []
    for row in rows:
        terms = events.terms_at(by_event[row.event_id], row.created_at)
        own = lines_of[row.pk]
        deadline = row.pay_deadline or row.expires_at
        lapsed = now is not None and row.status in Reservation.LIVE and deadline <= now
        views.append(
            ReservationView(
                id=row.pk,
                event_id=row.event_id,
                event_slug=by_event[row.event_id].slug,
                entry_id=row.entry_id,
                account_id=row.account_id,
                buyer=row.buyer,
                email=row.email,
                status=Reservation.Status.EXPIRED if lapsed else row.status,
                expires_at=row.expires_at,
                pay_deadline=row.pay_deadline,
                total_minor=row.total_minor,
                currency=row.currency,
                seat_count=row.seat_count,
                created_at=row.created_at,
                confirmed_at=row.confirmed_at,
                seats=tuple(
                    _held_seat(line.id, line.price_minor, seats[line.seat_id])
                    for line in own
                    if line.seat_id is not None
                ),
                general_admission=tuple(
                    HeldGeneralAdmission(
                        line_id=line.id,
                        section_pk=line.section_id,
                        section=sections[line.section_id].slug,
                        section_name=sections[line.section_id].name,
                        category=sections[line.section_id].prices[0].category,
                        quantity=line.quantity,
                        price_minor=line.price_minor,
                        tax_rate=sections[line.section_id].prices[0].tax_rate,
                    )
                    for line in own
                    if line.seat_id is None
                ),
                price_policy=terms.price_policy,
                event=by_event[row.event_id],
                per_buyer_max=terms.per_buyer_max,
                has_access_code=row.access_code_id is not None,
            )
        )
    return views


class _Line(NamedTuple):
    id: int
    reservation_id: UUID
    section_id: int
    seat_id: int | None
    quantity: int
    price_minor: int
    """The price of one seat or ticket."""


def _held_seat(line_id: int, price_minor: int, seat: events.SeatView) -> HeldSeat:
    return HeldSeat(
        line_id=line_id,
        seat_pk=seat.id,
        seat_id=seat.guid,
        section_pk=seat.section_id,
        section=seat.section_slug,
        section_name=seat.section_name,
        row=seat.row,
        number=seat.number,
        category=seat.category,
        category_name=seat.category_name,
        price_minor=price_minor,
        tax_rate=seat.tax_rate,
    )


@dataclass(frozen=True, slots=True)
class TransitionView:
    """A change of a reservation's state, from its ledger. `from_status` is empty for the hold itself."""

    at: datetime
    from_status: str
    to_status: str
    who: str
    why: str


def list_transitions(reservation_id: UUID) -> list[TransitionView]:
    """Return the reservation's ledger, oldest first."""
    rows = ReservationTransition.objects.filter(reservation=reservation_id).order_by("id")
    return [TransitionView(row.at, row.from_status, row.to_status, row.who, row.why) for row in rows]
