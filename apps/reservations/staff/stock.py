"""What staff take off sale and put back, also while the sale runs: seats and places blocked for the house or out of
use, and the capacity of general admission.

Only what is free is blocked, and a section never shrinks below what is held, sold or blocked: all or nothing, decided
under the same locks as a hold, in the same order (seats by id, then the general-admission row). Seats are added by a
new plan only; taking seats out of a running sale is blocking them as out of use.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from django.db import DatabaseError, connection

from apps.events import facade as events
from apps.kernel.db import sql, transactions
from apps.kernel.http import problems
from apps.reservations.errors import NotEnoughLeft, SeatsUnavailable
from apps.reservations.inventory.log import Change, record
from apps.reservations.lifecycle import after_commit
from apps.reservations.lifecycle.changes import StockChange
from apps.reservations.lifecycle.release import sweep
from apps.reservations.models import BlockedFor, InventoryChange, SeatInventory
from apps.reservations.staff.selection import Selection, find_seats, find_section, listed

LOCK_WAIT_MS = 2_000
STATEMENT_MS = 15_000
"""Thousands of seats are one statement here; a shopper's transaction never gets this long."""
PLACES_MAX = events.CAPACITY_MAX

_PACKAGE = "apps.reservations"
_lock_stock_seats = sql.load(_PACKAGE, "lock_stock_seats")
_lock_stock_places = sql.load(_PACKAGE, "lock_stock_places")
_live_lines_on_seats = sql.load(_PACKAGE, "live_lines_on_seats")
_block_seats = sql.load(_PACKAGE, "block_seats")
_unblock_seats = sql.load(_PACKAGE, "unblock_seats")
_set_stock_places = sql.load(_PACKAGE, "set_stock_places")
_read_clock = sql.load(_PACKAGE, "read_clock")

_Status = SeatInventory.Status
_Result = TypeVar("_Result")


class ChangedMeanwhile(problems.Problem):
    """Somebody else changed what this was decided by. Nothing was done."""

    type, status, title = "changed-meanwhile", 409, "Somebody changed this meanwhile; look again."


class InventoryMissing(problems.Problem):
    """The plan has what the inventory has no row for. Nothing was done."""

    type, status, title = "inventory-missing", 409, "The inventory lacks a row; it must be put right first."


class CapacityInUse(problems.Problem):
    """`least` is how far the section could shrink."""

    type, status, title = "capacity-in-use", 409, "More than that is held, sold or blocked."


@dataclass(frozen=True, slots=True)
class SeatState:
    """A seat under its lock."""

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
        """available, held or sold; or why it is blocked."""
        return self.blocked_for or str(_Status(self.status).label)


@dataclass(frozen=True, slots=True)
class PlaceCounts:
    """A general-admission section's figures."""

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
    """All chosen seats are off sale for this reason, or none; how many that changed: what is blocked for another
    reason gets this one, what is blocked for this one stays.

    `only_free`: those that are held or sold are left to their buyers instead, and the rest is blocked. Raises Invalid,
    SeatsUnavailable naming who stands in the way.
    """
    _require_reason(reason)
    names = find_seats(event, selection)
    return retry_after_sweep(event, lambda: _block(event, names, reason, who=who, why=why, only_free=only_free))


def _block(
    event: events.EventView, names: Mapping[int, str], reason: str, *, who: str, why: str, only_free: bool
) -> int:
    with stock_transaction() as cursor:
        states = lock_seats(event, cursor, names)
        taken = [state for state in states if state.is_taken]
        if taken and not only_free:
            raise refusal(taken, names, "Nothing was blocked")
        wanted = [state for state in states if not state.is_taken and state.blocked_for != reason]
        if not wanted:
            return 0
        ids = [state.seat_id for state in wanted]
        touched = _block_seats.count(cursor, seat_ids=ids, blocked_for=reason)
        assert touched == len(ids), f"{touched} of {len(ids)} locked seats blocked"
        _record_seats(cursor, event, InventoryChange.Kind.BLOCKED, wanted, reason, who=who, why=why)
    # What was blocked for another reason was off sale before.
    _notify_seats(event, [state for state in wanted if not state.blocked_for], -1)
    return len(wanted)


def unblock_seats(event: events.EventView, selection: Selection, *, who: str, why: str = "", reason: str = "") -> int:
    """What is blocked of the chosen seats is on sale again, for this reason or for any; how many. Others stay as they
    are. Raises Invalid, SeatsUnavailable naming those that somebody has although they are blocked."""
    if reason:
        _require_reason(reason)
    names = find_seats(event, selection)
    with stock_transaction() as cursor:
        states = lock_seats(event, cursor, names)
        wanted = [state for state in states if state.blocked_for and reason in ("", state.blocked_for)]
        if not wanted:
            return 0
        ids = [state.seat_id for state in wanted]
        _require_no_lines(event, cursor, ids, names)
        touched = _unblock_seats.count(cursor, seat_ids=ids)
        assert touched == len(ids), f"{touched} of {len(ids)} locked seats unblocked"
        _record_seats(cursor, event, InventoryChange.Kind.UNBLOCKED, wanted, "available", who=who, why=why)
    _notify_seats(event, wanted, 1)
    return len(wanted)


def block_places(
    event: events.EventView,
    section: str,
    quantity: int,
    reason: str,
    *,
    who: str,
    why: str = "",
    seen: int | None = None,
) -> PlaceCounts:
    """So many more places of the general-admission section are off sale for this reason; its figures then.

    `seen`: how many were blocked when this was decided; another number now refuses it, so that a form sent twice
    blocks once. Raises Invalid, NotEnoughLeft, ChangedMeanwhile.
    """
    _require_reason(reason)
    _require_quantity(quantity)

    def change(places: PlaceCounts, name: str) -> PlaceCounts:
        _require_seen(places, seen)
        if quantity > places.free:
            raise NotEnoughLeft(
                f"Only {places.free:,} of {name} are free: of {places.capacity:,} places {places.taken:,} are held or "
                f"sold and {places.blocked:,} blocked. Nothing was blocked.",
                available=places.free,
            )
        house = quantity if reason == BlockedFor.HOUSE else 0
        return PlaceCounts(places.capacity, places.blocked + quantity, places.house + house, places.taken)

    return _change_places(event, section, InventoryChange.Kind.BLOCKED, change, who=who, why=why)


def unblock_places(
    event: events.EventView,
    section: str,
    quantity: int,
    reason: str,
    *,
    who: str,
    why: str = "",
    seen: int | None = None,
) -> PlaceCounts:
    """So many of the places blocked for this reason are on sale again; the section's figures then. Raises Invalid,
    NotEnoughLeft, ChangedMeanwhile, as `block_places`."""
    _require_reason(reason)
    _require_quantity(quantity)

    def change(places: PlaceCounts, name: str) -> PlaceCounts:
        _require_seen(places, seen)
        there = places.blocked_for(reason)
        if quantity > there:
            words = BlockedFor(reason).label
            raise NotEnoughLeft(f"Only {there:,} of {name} are {words}. Nothing was put on sale.", available=there)
        house = quantity if reason == BlockedFor.HOUSE else 0
        return PlaceCounts(places.capacity, places.blocked - quantity, places.house - house, places.taken)

    return _change_places(event, section, InventoryChange.Kind.UNBLOCKED, change, who=who, why=why)


def resize(event: events.EventView, section: str, capacity: int, *, who: str, why: str = "") -> PlaceCounts:
    """The general-admission section has this many places, for the public and for the sale; its figures then. It never
    shrinks below what is held, sold or blocked. Raises Invalid, CapacityInUse saying how far it could go."""

    def change(places: PlaceCounts, name: str) -> PlaceCounts:
        least = places.taken + places.blocked
        if capacity < least:
            raise CapacityInUse(
                f"{name} cannot shrink below {least:,}: {places.taken:,} are held or sold and {places.blocked:,} are "
                "blocked.",
                least=least,
            )
        return PlaceCounts(capacity, places.blocked, places.house, places.taken)

    return _change_places(event, section, InventoryChange.Kind.RESIZED, change, who=who, why=why, capacity=capacity)


def _change_places(
    event: events.EventView,
    slug: str,
    kind: InventoryChange.Kind,
    change: Callable[[PlaceCounts, str], PlaceCounts],
    *,
    who: str,
    why: str,
    capacity: int | None = None,
) -> PlaceCounts:
    section = find_section(event, slug, general_admission=True)

    def act() -> PlaceCounts:
        with stock_transaction() as cursor:
            if capacity is not None:
                # What the public is told, first: the inventory's row is the hot one, and is locked last.
                events.resize_section(section.id, capacity)
            figures = _lock_stock_places.rows(cursor, section_id=section.id)
            if not figures:
                raise _missing(event, section.name)
            before = PlaceCounts(*figures[0])
            after = change(before, section.name)
            if after == before:
                return after
            _set_stock_places.count(
                cursor, section_id=section.id, capacity=after.capacity, blocked=after.blocked, house=after.house
            )
            quantity = after.capacity - before.capacity or abs(after.blocked - before.blocked)
            ((now,),) = _read_clock.rows(cursor)
            done = Change(section.id, None, quantity, _to_json(before), _to_json(after))
            record(cursor, event.id, kind, [done], who=who, why=why, now=now)
        after_commit.notify_stock_changed([StockChange(event.id, {section.id: after.free - before.free})])
        return after

    return retry_after_sweep(event, act)


@contextmanager
def stock_transaction() -> Iterator[sql.Cursor]:
    """The cursor of one transaction that changes the stock, with limits of its own. Raises Busy where buyers or other
    staff kept what it waited for; then nothing was changed."""
    try:
        with transactions.write(lock_ms=LOCK_WAIT_MS, statement_ms=STATEMENT_MS), connection.cursor() as cursor:
            yield cursor
    except DatabaseError as error:
        if not transactions.is_transient(error):
            raise
        raise problems.Busy("Others are busy with these places just now. Nothing was changed; try again.") from error


def lock_seats(event: events.EventView, cursor: sql.Cursor, names: Mapping[int, str]) -> list[SeatState]:
    """These seats, by id with their public ids, as they are under their locks, taken in id order. Joins the transaction
    of this cursor. Raises InventoryMissing."""
    transactions.require_transaction(cursor)
    states = [SeatState(*row) for row in _lock_stock_seats.rows(cursor, seat_ids=sorted(names))]
    if len(states) < len(names):
        raise _missing(
            event, listed(sorted(names[seat_id] for seat_id in names.keys() - {one.seat_id for one in states}))
        )
    return states


def _missing(event: events.EventView, what: str) -> InventoryMissing:
    return InventoryMissing(
        f"Not in the inventory: {what}. Nothing was changed; manage.py reconcile {event.slug} --repair adds what is "
        "missing."
    )


def _require_no_lines(
    event: events.EventView, cursor: sql.Cursor, seat_ids: Sequence[int], names: Mapping[int, str]
) -> None:
    """No reservation's line is on these locked, blocked seats: put on sale, such a seat could be sold to nobody. A line
    comes only with the seat's lock. Raises SeatsUnavailable."""
    holders = {names[seat_id]: holder for seat_id, holder in _live_lines_on_seats.rows(cursor, seat_ids=list(seat_ids))}
    if holders:
        said = listed([f"{guid} is reservation {holder}'s" for guid, holder in sorted(holders.items())])
        raise SeatsUnavailable(
            f"Blocked, and yet {said}. Nothing was put on sale; manage.py reconcile {event.slug} --repair gives a seat "
            "to whose it is.",
            unavailable=sorted(holders),
        )


def refusal(taken: Sequence[SeatState], names: Mapping[int, str], nothing: str) -> SeatsUnavailable:
    """Why seats that have buyers cannot be changed, and which they are."""
    held = sorted(names[state.seat_id] for state in taken if state.status == _Status.HELD)
    sold = sorted(names[state.seat_id] for state in taken if state.status == _Status.SOLD)
    parts = [f"{listed(seats)} {verb}" for seats, verb in ((held, "held"), (sold, "sold")) if seats]
    return SeatsUnavailable(
        f"Not free ({len(taken):,} of {len(names):,}): {'; '.join(parts)}. {nothing}.",
        unavailable=[*held, *sold],
    )


def _record_seats(
    cursor: sql.Cursor,
    event: events.EventView,
    kind: InventoryChange.Kind,
    seats: Sequence[SeatState],
    after: str,
    *,
    who: str,
    why: str,
) -> None:
    ((now,),) = _read_clock.rows(cursor)
    changes = [Change(seat.section_id, seat.seat_id, 1, seat.word, after) for seat in seats]
    record(cursor, event.id, kind, changes, who=who, why=why, now=now)


def _notify_seats(event: events.EventView, seats: Sequence[SeatState], each: int) -> None:
    """Who keeps counts hears of the seats that came on sale, or went off it, by this commit."""
    if seats:
        free = {section: each * count for section, count in Counter(seat.section_id for seat in seats).items()}
        after_commit.notify_stock_changed([StockChange(event.id, free)])


def retry_after_sweep(event: events.EventView, act: Callable[[], _Result]) -> _Result:
    """What `act` came to; where buyers stood in the way whose time was up, they are ended and it is tried once more."""
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
    # Also where there was nothing to sweep: somebody else's sweep may have been first by a moment.
    return act()


def _to_json(places: PlaceCounts) -> dict[str, int]:
    return {"capacity": places.capacity, "house": places.house, "out_of_use": places.blocked - places.house}


def _require_reason(reason: str) -> None:
    if reason not in BlockedFor.values:
        raise problems.Invalid({"reason": f"{reason[:40]!r} is none of {', '.join(BlockedFor.values)}"})


def _require_quantity(quantity: int) -> None:
    if not 1 <= quantity <= PLACES_MAX:
        raise problems.Invalid({"quantity": f"must be between 1 and {PLACES_MAX:,}"})


def _require_seen(places: PlaceCounts, seen: int | None) -> None:
    if seen is not None and seen != places.blocked:
        raise ChangedMeanwhile(f"{places.blocked:,} are blocked by now, not {seen:,}. Look again; nothing was done.")
