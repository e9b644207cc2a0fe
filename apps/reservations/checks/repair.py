"""Reads and repairs locked inventory rows. Only for repairs and compensations: buyers' holds and releases are in
`holds.transaction`, `payment` and `lifecycle.release`.

Everything here joins the caller's transaction. Lock order: reservations, seats, general-admission rows, each by id.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

from apps.kernel.db import sql, transactions
from apps.reservations.inventory import log
from apps.reservations.models import InventoryChange, Reservation, SeatInventory

Kind = InventoryChange.Kind
_Status = SeatInventory.Status

_PACKAGE = "apps.reservations"
_lock_reservation = sql.load(_PACKAGE, "lock_reservation")
_lock_seats_waiting = sql.load(_PACKAGE, "lock_seats_waiting")
_lock_general_admission = sql.load(_PACKAGE, "lock_general_admission")
_seat = sql.load(_PACKAGE, "reconcile_seat")
_set_seat = sql.load(_PACKAGE, "set_seat")
_general_admission = sql.load(_PACKAGE, "reconcile_general_admission")
_set_general_admission = sql.load(_PACKAGE, "set_general_admission")
_reservations_missing_lines = sql.load(_PACKAGE, "reservations_missing_lines")


@dataclass(frozen=True, slots=True)
class Seat:
    """A seat's row, the reservation that it names, and the live or confirmed reservations with a live line on it."""

    id: int
    event_id: int
    section_id: int
    status: int
    owner: UUID | None
    owner_status: str | None
    """None: the reservation does not exist."""
    owner_seat_count: int | None
    owner_line_quantity: int
    owner_has_line: bool
    standing: Sequence[UUID]

    @property
    def reservation_ids(self) -> set[UUID]:
        return {*self.standing, *([self.owner] if self.owner is not None else [])}

    @property
    def has_standing_owner(self) -> bool:
        return self.owner_status in Reservation.LIVE_OR_CONFIRMED


@dataclass(frozen=True, slots=True)
class GeneralAdmissionCounts:
    """A general-admission row, and the sum of its live lines in live and confirmed reservations."""

    section_id: int
    section: str
    event_id: int
    capacity: int
    blocked: int
    house: int
    taken: int
    by_lines: int

    @property
    def room(self) -> int:
        """The number of tickets that may be taken."""
        return self.capacity - self.blocked

    @property
    def excess(self) -> int:
        """The number of tickets held or sold beyond `room`."""
        return max(0, self.by_lines - self.room)


@dataclass(frozen=True, slots=True)
class Reason:
    """The recorded reason of a change."""

    kind: InventoryChange.Kind
    who: str
    why: str


def lock(
    cursor: sql.Cursor,
    *,
    reservations: Iterable[UUID] = (),
    seats: Iterable[int] = (),
    sections: Iterable[int] = (),
) -> None:
    """Lock all these rows in the lock order. Reservations that do not exist are skipped."""
    transactions.require_transaction(cursor)
    for reservation_id in sorted(set(reservations)):
        _lock_reservation.rows(cursor, reservation_id=reservation_id)
    seat_ids, section_ids = sorted(set(seats)), sorted(set(sections))
    if seat_ids:
        _lock_seats_waiting.rows(cursor, seat_ids=seat_ids)
    if section_ids:
        _lock_general_admission.rows(cursor, section_ids=section_ids)


def read_seat(cursor: sql.Cursor, seat_id: int) -> Seat | None:
    """Read the seat's current state; None without an inventory row."""
    rows = _seat.rows(cursor, seat_id=seat_id)
    return Seat(seat_id, *rows[0]) if rows else None


def read_general_admission(cursor: sql.Cursor, section_ids: Iterable[int]) -> list[GeneralAdmissionCounts]:
    """Read the current state of these general-admission rows."""
    rows = _general_admission.rows(cursor, section_ids=sorted(set(section_ids)))
    return [GeneralAdmissionCounts(*row) for row in rows]


def find_reservation_missing_lines(cursor: sql.Cursor, row: GeneralAdmissionCounts) -> UUID | None:
    """Return a live or confirmed reservation whose lines in the section may be incomplete: it may lose tickets if the
    locked row is lowered to the sum of its lines. None if there is none, or if the row would not be lowered."""
    if row.by_lines >= row.taken:
        return None
    rows = _reservations_missing_lines.rows(cursor, event_id=row.event_id, section_id=row.section_id)
    return rows[0][0] if rows else None


def set_seat_owner(cursor: sql.Cursor, seat: Seat, owner: UUID | None, reason: Reason) -> bool:
    """Assign the locked seat to `owner`, or free it if None, and record the change; return whether it changed."""
    status = _Status.AVAILABLE
    if owner is not None:
        # The caller has the reservation locked, so its status cannot change.
        owner_status = Reservation.objects.values_list("status", flat=True).get(pk=owner)
        status = _Status.SOLD if owner_status == Reservation.Status.CONFIRMED else _Status.HELD
    if (seat.status, seat.owner) == (status, owner):
        return False
    if _set_seat.count(cursor, seat_id=seat.id, status=status, reservation_id=owner) != 1:
        raise RuntimeError(f"seat {seat.id} has no inventory row")
    quantity = -1 if owner is not None and seat.status == _Status.AVAILABLE else 1
    before, after = _seat_state(seat.status, seat.owner), _seat_state(status, owner)
    record(reason, seat.event_id, seat.section_id, quantity=quantity, before=before, after=after, seat_id=seat.id)
    return True


def set_counts(cursor: sql.Cursor, row: GeneralAdmissionCounts, reason: Reason, *, taken: int, give: int = 0) -> bool:
    """Set the locked row's taken count, unblock `give` house seats, and record that; return whether it changed."""
    if taken == row.taken and give == 0:
        return False
    after = {"taken": taken, "blocked": row.blocked - give, "house": row.house - give}
    if _set_general_admission.count(cursor, section_id=row.section_id, **after) != 1:
        raise RuntimeError(f"section {row.section_id} has no general-admission row")
    before = {"taken": row.taken, "blocked": row.blocked, "house": row.house}
    quantity = give or row.taken - taken
    record(reason, row.event_id, row.section_id, quantity=quantity, before=before, after=after)
    return True


def record(
    reason: Reason,
    event_id: int,
    section_id: int | None,
    *,
    quantity: int,
    before: dict[str, Any],
    after: dict[str, Any],
    seat_id: int | None = None,
) -> None:
    """Record a change of the inventory."""
    change = log.Change(section_id, seat_id, quantity, before, after)
    with connection.cursor() as cursor:
        log.record(cursor, event_id, reason.kind, [change], who=reason.who, why=reason.why)


def _seat_state(status: int, owner: UUID | None) -> dict[str, Any]:
    return {"status": _Status(status).label, "reservation": None if owner is None else str(owner)}
