"""A live hold given up for another selection: only together with the new hold, and never for a later deadline."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from apps.kernel.db import sql
from apps.kernel.http import problems
from apps.reservations.errors import PaymentInProgress, ReservationExpired, ReservationNotFound
from apps.reservations.holds.best_available import FreeSeat
from apps.reservations.models import Reservation

_PACKAGE = "apps.reservations"
_lock_replaced_skipping = sql.load(_PACKAGE, "lock_replaced_skipping")
_lock_replaced_waiting = sql.load(_PACKAGE, "lock_replaced_waiting")
_seats_of_reservations = sql.load(_PACKAGE, "seats_of_reservations")
_live_lines = sql.load(_PACKAGE, "live_lines")


@dataclass(slots=True)
class Replaced:
    """A reservation that somebody wants to replace, as it is under its lock."""

    id: UUID
    entry_id: UUID
    buyer: str
    event_id: int
    status: str
    expires_at: datetime
    seat_count: int
    access_code: str | None = None
    """The access code that let it in, as it is written: who replaces it keeps that."""
    seats: dict[int, FreeSeat] = field(default_factory=dict)
    """What it holds, by seat id: free for who replaces it, and for nobody else."""
    places: dict[int, int] = field(default_factory=dict)
    """General admission, by section id."""

    def refusal(self, entry_id: UUID, event_id: int, now: datetime) -> problems.Problem | None:
        """Why this entry may not replace it; None if it may."""
        if self.entry_id != entry_id or self.event_id != event_id:
            return problems.NotOwner()
        if self.status == Reservation.Status.PAYING:
            return PaymentInProgress()
        if self.status == Reservation.Status.CONFIRMED:
            return PaymentInProgress("This reservation is paid; cancel its order instead.")
        if self.status != Reservation.Status.PENDING_PAYMENT or self.expires_at <= now:
            return ReservationExpired("The reservation to replace has ended; choose without it.")
        return None


def lock_replaced(cursor: sql.Cursor, reservation_ids: Sequence[UUID], *, waiting: bool) -> dict[UUID, Replaced]:
    """Those of these reservations that are there, locked in id order until the transaction ends, with what they hold;
    without `waiting` those that nobody else has locked. Reservations come after entries and before all inventory."""
    ids = sorted(set(reservation_ids))
    if not ids:
        return {}
    lock = _lock_replaced_waiting if waiting else _lock_replaced_skipping
    found = {row[0]: Replaced(*row) for row in lock.rows(cursor, reservation_ids=ids)}
    for owner, *seat in _seats_of_reservations.rows(cursor, reservation_ids=list(found)):
        found[owner].seats[seat[0]] = FreeSeat(*seat)
    for _, owner, section_id, seat_id, quantity in _live_lines.rows(cursor, reservation_ids=list(found)):
        if seat_id is None:
            found[owner].places[section_id] = found[owner].places.get(section_id, 0) + quantity
    return found


def not_found(*, waiting: bool) -> problems.Problem:
    """What the absence of a reservation to replace means: passed over it may be somebody's who decides it now."""
    return ReservationNotFound() if waiting else problems.Busy()
