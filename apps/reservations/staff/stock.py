"""Blocks and unblocks seats and tickets, and changes general-admission capacity, also during the sale.

Stock is blocked as house seats or as out of use. Only free stock can be blocked, and a section cannot shrink below what
is held, sold or blocked. Each change is all or nothing, decided under the same locks as a hold, in the same order
(seats by id, then the general-admission row). Seats are added only by a new plan; seats that must leave a running sale
are blocked as out of use.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from django.db import DatabaseError, connection

from apps.events import facade as events
from apps.kernel.db import arrays, sql, transactions
from apps.kernel.http import problems
from apps.reservations.errors import NotEnoughLeft, SeatsUnavailable
from apps.reservations.inventory.log import Change, record
from apps.reservations.lifecycle import after_commit
from apps.reservations.lifecycle.changes import StockChange
from apps.reservations.lifecycle.gate_counts import read_transaction_id
from apps.reservations.lifecycle.release import sweep
from apps.reservations.models import BlockedFor, InventoryChange, SeatInventory
from apps.reservations.staff.large_changes import changing_alone
from apps.reservations.staff.selection import Selection, find_seats, find_section, listed

LOCK_WAIT_MS = 2_000
STATEMENT_MS = 15_000
"""One statement may change thousands of seats here; buyers' transactions have a shorter timeout."""
QUANTITY_MAX = events.CAPACITY_MAX

_PACKAGE = "apps.reservations"
_lock_stock_seats = sql.load(_PACKAGE, "lock_stock_seats")
_lock_stock_general_admission = sql.load(_PACKAGE, "lock_stock_general_admission")
_live_lines_on_seats = sql.load(_PACKAGE, "live_lines_on_seats")
_block_seats = sql.load(_PACKAGE, "block_seats")
_unblock_seats = sql.load(_PACKAGE, "unblock_seats")
_set_stock_general_admission = sql.load(_PACKAGE, "set_stock_general_admission")

_Status = SeatInventory.Status
_Result = TypeVar("_Result")


class ChangedMeanwhile(problems.Problem):
    """The data was changed after the user saw it. Nothing was done."""

    type, status, title = (
        "changed-meanwhile",
        409,
        "This was changed since you opened the page. Check it and try again.",
    )


class InventoryMissing(problems.Problem):
    """A part of the plan has no inventory row. Nothing was done."""

    type, status, title = "inventory-missing", 409, "The inventory lacks a row and must be repaired first."


class CapacityInUse(problems.Problem):
    """The new capacity is below the number of tickets in use; `least` is the lowest possible."""

    type, status, title = "capacity-in-use", 409, "More tickets than that are held, sold or blocked."


@dataclass(frozen=True, slots=True)
class SeatState:
    """A locked seat."""

    seat_id: int
    section_id: int
    category_id: int
    status: int
    blocked_for: str

    @property
    def is_taken(self) -> bool:
        return self.status in (_Status.HELD, _Status.SOLD)

    @property
    def word(self) -> str:
        """ "available", "held" or "sold", or the reason of its block."""
        return self.blocked_for or str(_Status(self.status).label)


@dataclass(frozen=True, slots=True)
class GeneralAdmissionCounts:
    """The counts of a general-admission section."""

    capacity: int
    blocked: int
    house: int
    taken: int
    """Held and sold."""

    @property
    def free(self) -> int:
        return self.capacity - self.blocked - self.taken

    def blocked_for(self, reason: str) -> int:
        return self.house if reason == BlockedFor.HOUSE else self.blocked - self.house


def block_seats(
    event: events.EventView, selection: Selection, reason: str, *, who: str, why: str = "", only_free: bool = False
) -> int:
    """Block all selected seats for this reason, or none; return how many changed.

    Seats blocked for another reason get this one. With `only_free`, held and sold seats are skipped. Raises Invalid,
    SeatsUnavailable naming the held and sold seats, and problems.Busy.
    """
    _require_reason(reason)
    names = find_seats(event, selection)

    def act() -> int:
        with stock_transaction() as cursor:
            states = lock_seats(event, cursor, names)
            taken = [state for state in states if state.is_taken]
            if taken and not only_free:
                raise refusal(taken, names, "Nothing was blocked")
            wanted = [state for state in states if not state.is_taken and state.blocked_for != reason]
            if not wanted:
                return 0
            ids = [state.seat_id for state in wanted]
            touched = _block_seats.count(cursor, seat_ids=arrays.numbers(ids), blocked_for=reason)
            assert touched == len(ids), f"{touched} of {len(ids)} locked seats blocked"
            changes = [Change(state.section_id, state.seat_id, 1, state.word, reason) for state in wanted]
            record(cursor, event.id, InventoryChange.Kind.BLOCKED, changes, who=who, why=why)
            transaction_id = read_transaction_id(cursor)
        # Seats that were blocked for another reason were not on sale before.
        _notify_seats(event, [state for state in wanted if not state.blocked_for], -1, transaction_id)
        return len(wanted)

    with changing_alone(event.organizer_id, len(names)):
        return retry_after_sweep(event, act)


def unblock_seats(event: events.EventView, selection: Selection, *, who: str, why: str = "", reason: str = "") -> int:
    """Unblock those of the selected seats that are blocked, for this reason or any; return how many.

    Raises Invalid, and SeatsUnavailable naming blocked seats that belong to a reservation (a fault).
    """
    if reason:
        _require_reason(reason)
    names = find_seats(event, selection)
    with changing_alone(event.organizer_id, len(names)), stock_transaction() as cursor:
        states = lock_seats(event, cursor, names)
        wanted = [state for state in states if state.blocked_for and reason in ("", state.blocked_for)]
        if not wanted:
            return 0
        ids = [state.seat_id for state in wanted]
        _require_no_lines(event, cursor, ids, names)
        touched = _unblock_seats.count(cursor, seat_ids=arrays.numbers(ids))
        assert touched == len(ids), f"{touched} of {len(ids)} locked seats unblocked"
        changes = [Change(state.section_id, state.seat_id, 1, state.word, "available") for state in wanted]
        record(cursor, event.id, InventoryChange.Kind.UNBLOCKED, changes, who=who, why=why)
        transaction_id = read_transaction_id(cursor)
    _notify_seats(event, wanted, 1, transaction_id)
    return len(wanted)


def block_general_admission(
    event: events.EventView,
    section: str,
    quantity: int,
    reason: str,
    *,
    who: str,
    why: str = "",
    seen: int | None = None,
) -> GeneralAdmissionCounts:
    """Block `quantity` more tickets of a general-admission section for this reason; return its new counts.

    `seen` is the blocked count that the user saw; if it has changed, the call is refused, so that a form sent twice
    blocks once. Raises Invalid, NotEnoughLeft and ChangedMeanwhile.
    """
    _require_reason(reason)
    _require_quantity(quantity)

    def change(counts: GeneralAdmissionCounts, name: str) -> GeneralAdmissionCounts:
        if quantity > counts.free:
            raise NotEnoughLeft(
                f"Only {counts.free:,} tickets of {name} are free: of {counts.capacity:,}, {counts.taken:,} are held "
                f"or sold and {counts.blocked:,} blocked. Nothing was blocked.",
                available=counts.free,
            )
        house = quantity if reason == BlockedFor.HOUSE else 0
        return GeneralAdmissionCounts(counts.capacity, counts.blocked + quantity, counts.house + house, counts.taken)

    return _change_general_admission(event, section, InventoryChange.Kind.BLOCKED, change, who=who, why=why, seen=seen)


def unblock_general_admission(
    event: events.EventView,
    section: str,
    quantity: int,
    reason: str,
    *,
    who: str,
    why: str = "",
    seen: int | None = None,
) -> GeneralAdmissionCounts:
    """Unblock `quantity` of the tickets blocked for this reason; return the section's new counts. `seen` and errors are
    as for blocking."""
    _require_reason(reason)
    _require_quantity(quantity)

    def change(counts: GeneralAdmissionCounts, name: str) -> GeneralAdmissionCounts:
        blocked = counts.blocked_for(reason)
        if quantity > blocked:
            label = BlockedFor(reason).label
            raise NotEnoughLeft(
                f"Only {blocked:,} tickets of {name} are blocked: {label}. Nothing was unblocked.", available=blocked
            )
        house = quantity if reason == BlockedFor.HOUSE else 0
        return GeneralAdmissionCounts(counts.capacity, counts.blocked - quantity, counts.house - house, counts.taken)

    return _change_general_admission(
        event, section, InventoryChange.Kind.UNBLOCKED, change, who=who, why=why, seen=seen
    )


def resize(event: events.EventView, section: str, capacity: int, *, who: str, why: str = "") -> GeneralAdmissionCounts:
    """Set a general-admission section's capacity, in the plan and the inventory; return its new counts. Raises Invalid,
    and CapacityInUse with the lowest possible capacity."""

    def change(counts: GeneralAdmissionCounts, name: str) -> GeneralAdmissionCounts:
        least = counts.taken + counts.blocked
        if capacity < least:
            raise CapacityInUse(
                f"{name} cannot shrink below {least:,}: {counts.taken:,} are held or sold and {counts.blocked:,} are "
                "blocked.",
                least=least,
            )
        return GeneralAdmissionCounts(capacity, counts.blocked, counts.house, counts.taken)

    return _change_general_admission(
        event, section, InventoryChange.Kind.RESIZED, change, who=who, why=why, capacity=capacity
    )


def _change_general_admission(
    event: events.EventView,
    slug: str,
    kind: InventoryChange.Kind,
    change: Callable[[GeneralAdmissionCounts, str], GeneralAdmissionCounts],
    *,
    who: str,
    why: str,
    seen: int | None = None,
    capacity: int | None = None,
) -> GeneralAdmissionCounts:
    section = find_section(event, slug, general_admission=True)

    def act() -> GeneralAdmissionCounts:
        with stock_transaction() as cursor:
            if capacity is not None:
                # Change the plan first, because the contended inventory row is locked last.
                events.resize_section(section.id, capacity)
            figures = _lock_stock_general_admission.rows(cursor, section_id=section.id)
            if not figures:
                raise _missing(event, section.name)
            before = GeneralAdmissionCounts(*figures[0])
            if seen is not None and seen != before.blocked:
                raise ChangedMeanwhile(
                    f"{before.blocked:,} tickets are blocked now, not {seen:,}. Nothing was changed."
                )
            after = change(before, section.name)
            if after == before:
                return after
            _set_stock_general_admission.count(
                cursor, section_id=section.id, capacity=after.capacity, blocked=after.blocked, house=after.house
            )
            quantity = after.capacity - before.capacity or abs(after.blocked - before.blocked)
            done = Change(section.id, None, quantity, _to_json(before), _to_json(after))
            record(cursor, event.id, kind, [done], who=who, why=why)
            transaction_id = read_transaction_id(cursor)
        free = {section.id: after.free - before.free}
        after_commit.notify_stock_changed([StockChange(event.id, free, transaction_id)])
        return after

    return retry_after_sweep(event, act)


@contextmanager
def stock_transaction() -> Iterator[sql.Cursor]:
    """Open a transaction for changing the stock, with its own timeouts. Raises Busy, with nothing changed, if buyers or
    other staff held the locks too long."""
    try:
        with transactions.write(lock_ms=LOCK_WAIT_MS, statement_ms=STATEMENT_MS), connection.cursor() as cursor:
            yield cursor
    except DatabaseError as error:
        if not transactions.is_transient(error):
            raise
        raise problems.Busy(
            "These seats or tickets are being changed by others. Nothing was changed; try again."
        ) from error


def lock_seats(event: events.EventView, cursor: sql.Cursor, names: Mapping[int, str]) -> list[SeatState]:
    """Lock these seats (public ids by id) in id order and return their states. Joins the transaction of this cursor.
    Raises InventoryMissing."""
    transactions.require_transaction(cursor)
    states = [SeatState(*row) for row in _lock_stock_seats.rows(cursor, seat_ids=arrays.numbers(sorted(names)))]
    if len(states) < len(names):
        raise _missing(
            event, listed(sorted(names[seat_id] for seat_id in names.keys() - {one.seat_id for one in states}))
        )
    return states


def _missing(event: events.EventView, what: str) -> InventoryMissing:
    return InventoryMissing(
        f"Not in the inventory: {what}. Nothing was changed; manage.py reconcile {event.slug} --repair adds missing "
        "rows."
    )


def _require_no_lines(
    event: events.EventView, cursor: sql.Cursor, seat_ids: Sequence[int], names: Mapping[int, str]
) -> None:
    """Raise SeatsUnavailable if a live reservation has one of these locked, blocked seats: such a seat could not be
    sold. A reservation gets a line only under the seat's lock."""
    lines = _live_lines_on_seats.rows(cursor, seat_ids=arrays.numbers(seat_ids))
    holders = {names[seat_id]: holder for seat_id, holder in lines}
    if holders:
        owners = listed([f"{guid} belongs to reservation {holder}" for guid, holder in sorted(holders.items())])
        raise SeatsUnavailable(
            f"Cannot unblock: {owners}. Nothing was unblocked; manage.py reconcile {event.slug} --repair assigns "
            "each seat to its reservation.",
            unavailable=sorted(holders),
        )


def refusal(taken: Sequence[SeatState], names: Mapping[int, str], nothing: str) -> SeatsUnavailable:
    """Return the error that names the held and sold seats which prevent a change."""
    held = sorted(names[state.seat_id] for state in taken if state.status == _Status.HELD)
    sold = sorted(names[state.seat_id] for state in taken if state.status == _Status.SOLD)
    parts = [f"{listed(seats)} {verb}" for seats, verb in ((held, "held"), (sold, "sold")) if seats]
    return SeatsUnavailable(
        f"Not free ({len(taken):,} of {len(names):,}): {'; '.join(parts)}. {nothing}.",
        unavailable=[*held, *sold],
    )


def _notify_seats(event: events.EventView, seats: Sequence[SeatState], each: int, transaction_id: int) -> None:
    """After the commit, update the counts with seats that were put on sale (`each` 1) or taken off it (-1)."""
    if seats:
        free = {section: each * count for section, count in Counter(seat.section_id for seat in seats).items()}
        after_commit.notify_stock_changed([StockChange(event.id, free, transaction_id)])


def retry_after_sweep(event: events.EventView, act: Callable[[], _Result]) -> _Result:
    """Return the result of `act`; if it is refused, expire overdue reservations of the event and try once more."""
    try:
        return act()
    except (SeatsUnavailable, NotEnoughLeft, CapacityInUse):
        try:
            while sweep(event_id=event.id, by="stock").reservations:
                pass
        except DatabaseError as error:
            if not transactions.is_transient(error):
                raise
            raise problems.Busy from error
    # Retry even if there was nothing to sweep: another process may have swept a moment earlier.
    return act()


def _to_json(counts: GeneralAdmissionCounts) -> dict[str, int]:
    return {"capacity": counts.capacity, "house": counts.house, "out_of_use": counts.blocked - counts.house}


def _require_reason(reason: str) -> None:
    if reason not in BlockedFor.values:
        raise problems.Invalid({"reason": f"{reason[:40]!r} is none of {', '.join(BlockedFor.values)}"})


def _require_quantity(quantity: int) -> None:
    if not 1 <= quantity <= QUANTITY_MAX:
        raise problems.Invalid({"quantity": f"must be between 1 and {QUANTITY_MAX:,}"})
