"""Replaces a live hold by another selection, in the transaction of the new hold, which keeps the old deadline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from apps.kernel.db import sql
from apps.kernel.http import problems
from apps.reservations.errors import PaymentInProgress, ReservationExpired
from apps.reservations.holds.requests import HoldRequest
from apps.reservations.holds.seat_choice.free_runs import FreeSeat
from apps.reservations.models import Reservation

_PACKAGE = "apps.reservations"
_lock_replaced_skipping = sql.load(_PACKAGE, "lock_replaced_skipping")
_lock_replaced_waiting = sql.load(_PACKAGE, "lock_replaced_waiting")
_seats_of_reservations = sql.load(_PACKAGE, "seats_of_reservations")
_live_lines = sql.load(_PACKAGE, "live_lines")


@dataclass(frozen=True, slots=True)
class Replaced:
    """A reservation that a request replaces, as read under its lock."""

    id: UUID
    entry_id: UUID
    buyer: str
    event_id: int
    status: str
    expires_at: datetime
    seat_count: int
    access_code: str | None = None
    """The access code that admitted it, in its stored form; the replacement keeps it."""
    seats: dict[int, FreeSeat] = field(default_factory=dict)
    """Its seats by id. They count as free for the replacement only."""
    quantities: dict[int, int] = field(default_factory=dict)
    """Its general admission by section id."""

    def refusal(self, entry_id: UUID, event_id: int, now: datetime) -> problems.Problem | None:
        """Return why this entry may not replace it; None if it may."""
        if self.entry_id != entry_id or self.event_id != event_id:
            return problems.NotOwner()
        if self.status == Reservation.Status.PAYING:
            return PaymentInProgress()
        if self.status == Reservation.Status.CONFIRMED:
            return PaymentInProgress("These tickets are paid for. Cancel the order instead.")
        if self.status != Reservation.Status.PENDING_PAYMENT or self.expires_at <= now:
            return ReservationExpired("Your reservation has ended. Choose your tickets again.")
        return None


ReplacedById = Mapping[UUID, Replaced]


def lock_replaced(cursor: sql.Cursor, reservation_ids: Sequence[UUID], *, waiting: bool) -> ReplacedById:
    """Lock these reservations in id order until the transaction ends and return them with their contents. Without
    `waiting`, skip those that another transaction has locked. Lock order: after entries, before inventory."""
    ids = sorted(set(reservation_ids))
    if not ids:
        return {}
    lock = _lock_replaced_waiting if waiting else _lock_replaced_skipping
    found = {row[0]: Replaced(*row) for row in lock.rows(cursor, reservation_ids=ids)}
    for owner, *seat in _seats_of_reservations.rows(cursor, reservation_ids=list(found)):
        found[owner].seats[seat[0]] = FreeSeat(*seat)
    for _, owner, section_id, seat_id, quantity in _live_lines.rows(cursor, reservation_ids=list(found)):
        if seat_id is None:
            found[owner].quantities[section_id] = found[owner].quantities.get(section_id, 0) + quantity
    return found


def read_seats_of(cursor: sql.Cursor, reservation_id: UUID) -> dict[int, FreeSeat]:
    """Return the seats of the reservation by id, read without a lock."""
    rows = _seats_of_reservations.rows(cursor, reservation_ids=[reservation_id])
    return {seat[0]: FreeSeat(*seat) for _, *seat in rows}


def replaced_by(request: HoldRequest, replaced: ReplacedById) -> Replaced | None:
    """Return the locked reservation that the request replaces, if it replaces one."""
    return replaced[request.replaces] if request.replaces is not None else None


def seats_released_by(request: HoldRequest, replaced: ReplacedById) -> Mapping[int, FreeSeat]:
    """Return the seats, by id, of the reservation that the request replaces."""
    released = replaced_by(request, replaced)
    return released.seats if released is not None else {}


def added_seat_count(request: HoldRequest, replaced: ReplacedById) -> int:
    """Return by how much the buyer's count grows if the request wins. A reservation made before the buyer logged in
    counted for the guest, so replacing it lowers nothing."""
    released = replaced_by(request, replaced)
    is_same_buyer = released is not None and released.buyer == request.buyer
    return request.seat_count - (released.seat_count if released is not None and is_same_buyer else 0)
