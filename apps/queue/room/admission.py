"""Admission: the one function behind the gatekeeper's tick, a join into an empty queue, and an operator's admission.

Every caller holds the lock on the room's row, which contains the numbers, the rate's budget and the leader's epoch. Two
callers that counted the active shoppers without this lock would both fill the same free slots.
"""

import logging
import math
import uuid
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import connection

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.queue.errors import StaleLeader
from apps.queue.lobby.lobby import open_if_due
from apps.queue.models import AdmissionBatch, WaitingRoom
from apps.queue.room_row import Room, lock_room, save_room

logger = logging.getLogger(__name__)

BURST_SECONDS = 0.5
"""The budget holds at most what the rate allows in this time, but at least one admission."""
LATE_SECONDS_MAX = 2.0
"""After a late tick it holds what the rate allows for the time since the tick before, up to this time: while ticks are
late, because many rooms are in use, each room still has its rate. A room without waiting visitors is not ticked: the
first of them to come again find BURST_SECONDS."""
RETURN_SECONDS = 900
"""A visitor who missed their turn can return with the old number for this time after the claim time."""
BUSY_GRACE_SECONDS = 5
"""A slot stays occupied for this time after the reservation's deadline: if payment begins at the last moment, the later
deadline is written to the entry only after that commit."""
CLOCK_BACK_SECONDS = 2
"""If the room's last tick is this far in the future, the database's clock has been set back since."""
LATELY_SECONDS = 10
FREE_BATCH_MAX = 500
OFF_BATCH_MAX = 5_000
TICK_LOCK_MS = 1_000
TICK_STATEMENT_MS = 5_000
TICK_IDLE_MS = 5_000
"""A leader that hangs during a tick loses the room's lock after this time, before waiting joins time out twice."""

_PACKAGE = "apps.queue"
_admit = sql.load(_PACKAGE, "admit")
_count_active = sql.load(_PACKAGE, "count_active")
_expire_admissions = sql.load(_PACKAGE, "expire_admissions")
_note_no_shows = sql.load(_PACKAGE, "note_no_shows")
_expire_away = sql.load(_PACKAGE, "expire_away")
_record_batch = sql.load(_PACKAGE, "record_batch")
_rooms_to_tick = sql.load(_PACKAGE, "rooms_to_tick")


def burst(rate_per_second: float, passed_seconds: float = 0) -> float:
    """Return the budget's maximum, this time after the tick before."""
    return max(1.0, rate_per_second * max(BURST_SECONDS, min(passed_seconds, LATE_SECONDS_MAX)))


def refill(room: Room, now: datetime, *, had_waiting: bool = True) -> None:
    """Add to the room's budget the admissions that its rate allows for the time until `now`, up to a burst, which is
    larger after a late tick of a room that had waiting visitors.

    Changes the locked room; the caller saves it.
    """
    if room.ticked_at is None:
        room.budget = burst(room.rate)
    else:
        passed = max(0.0, (now - room.ticked_at).total_seconds())
        most = burst(room.rate, passed if had_waiting else 0)
        room.budget = min(most, room.budget + passed * room.rate)
        if now > room.ticked_at - timedelta(seconds=CLOCK_BACK_SECONDS):
            now = max(now, room.ticked_at)  # No time is counted twice.
        # If the clock was set back, count from the new time: otherwise no visitor would be admitted until the old time.
    room.ticked_at = now


def admit_next(
    cursor: sql.Cursor,
    room: Room,
    now: datetime,
    *,
    reason: AdmissionBatch.Reason,
    most: int | None = None,
    present: Collection[uuid.UUID] = (),
    only_marked: bool = False,
) -> dict[uuid.UUID, int]:
    """Admit priority entries and then, unless `only_marked`, the lowest waiting numbers, as many as all caps allow.
    Return the admitted entries with their numbers.

    The entries in `present` have arrived already and start shopping at once. Joins the transaction that has the room
    locked, and saves the room. Without `most` the rate's budget decides. With it (an operator's number) the budget may
    become negative; later ticks then admit fewer, so that the rate holds over time.

    Both the number of active shoppers and the stock limit admission: one free ticket is reserved for each admitted
    shopper without a hold. It is one, not the average purchase, or the last tickets would be offered to no visitor.
    Nothing is reserved for a shopper with a hold, whose tickets are not free, until the hold is released or expires. A
    room that is off has no caps.

    Priority entries count toward every cap, have their own batch record, and do not move the head, so that they change
    no other position.
    """
    transactions.require_transaction(cursor)
    refill(room, now, had_waiting=reason != AdmissionBatch.Reason.EMPTY_LINE)
    is_off = room.state == WaitingRoom.State.OFF
    active = 0
    if is_off:
        allowed = OFF_BATCH_MAX
    else:
        free_slots(cursor, room.event_id)
        ((active, choosing),) = _count_active.rows(cursor, event_id=room.event_id)
        allowed = min(math.floor(room.budget) if most is None else most, room.active_max - active)
        if room.supply_available is not None:
            allowed = min(allowed, room.supply_available - choosing)
    marked: dict[uuid.UUID, int] = {}
    in_turn: dict[uuid.UUID, int] = {}
    if allowed > 0:
        for entry_id, number, is_marked in _admit.rows(
            cursor,
            event_id=room.event_id,
            most=allowed,
            only_marked=only_marked,
            numbered_through=room.numbered_through,
            now=now,
            present=list(present),
            admission_seconds=room.admission_seconds,
            claim_seconds=room.claim_seconds,
        ):
            (marked if is_marked else in_turn)[entry_id] = number
    room.head = max(room.head, *in_turn.values()) if in_turn else room.head
    if not is_off:
        for numbers, why in ((marked, AdmissionBatch.Reason.MARKED), (in_turn, reason)):
            if numbers:
                room.budget -= len(numbers)
                active += len(numbers)
                _record_batch.count(
                    cursor,
                    event_id=room.event_id,
                    at=now,
                    reason=str(why),
                    from_number=min(numbers.values()),
                    to_number=max(numbers.values()),
                    count=len(numbers),
                    active_count=active,
                    active_max=room.active_max,
                    epoch=room.epoch,
                )
    save_room(cursor, room)
    return marked | in_turn


def active_count(event_id: int) -> int:
    """Return the number of occupied slots, claimed or not. Read without a lock: for display, not for decisions."""
    with connection.cursor() as cursor:
        ((active, *_),) = _count_active.rows(cursor, event_id=event_id)
    return int(active)


def free_slots(cursor: sql.Cursor, event_id: int) -> int:
    """Free this event's slots whose time is over; return how many. Skips entries locked by other transactions."""
    transactions.require_transaction(cursor)
    freed = _expire_admissions.count(cursor, limit=FREE_BATCH_MAX, event_id=event_id, grace_seconds=BUSY_GRACE_SECONDS)
    return freed + _note_no_shows.count(cursor, limit=FREE_BATCH_MAX, event_id=event_id)


def expire_admissions(limit: int = FREE_BATCH_MAX) -> int:
    """Expire admissions of all events, also of rooms that are not ticked because their queue is empty.

    Ends up to `limit` admissions that expired unused, frees the slots of up to `limit` no-shows, and ends up to `limit`
    entries whose visitors did not return. Returns how many in all.
    """
    with transactions.write(), connection.cursor() as cursor:
        return (
            _expire_admissions.count(cursor, limit=limit, event_id=None, grace_seconds=BUSY_GRACE_SECONDS)
            + _note_no_shows.count(cursor, limit=limit, event_id=None)
            + _expire_away.count(cursor, limit=limit, return_seconds=RETURN_SECONDS)
        )


def tick(event_id: int, epoch: int) -> int:
    """Run one tick of one room as leader of this epoch: open it if due, free slots, and admit visitors within rate, cap
    and stock. Returns how many were admitted. If a later leader has ticked the room, raises StaleLeader and changes
    nothing."""
    limits = {"lock_ms": TICK_LOCK_MS, "statement_ms": TICK_STATEMENT_MS, "idle_ms": TICK_IDLE_MS}
    with transactions.write(**limits), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        if room.epoch > epoch:
            raise StaleLeader(f"epoch {epoch} is older than epoch {room.epoch} in the room of event {event_id}")
        room.epoch = epoch
        now = clock.now_on(cursor)
        if room.state in (WaitingRoom.State.CLOSED, WaitingRoom.State.LOBBY):
            open_if_due(cursor, room, events.get_event_by_id(event_id), now)
        if room.state not in (WaitingRoom.State.OPEN, WaitingRoom.State.OFF):
            # Closed, or paused or drained since `due_rooms`: no visitor is admitted, but the room records its leader.
            save_room(cursor, room)
            return 0
        return len(admit_next(cursor, room, now, reason=AdmissionBatch.Reason.TICK))


class DueRooms(NamedTuple):
    """The events whose rooms may need a tick."""

    first: list[int]
    """Those that are to open, that can admit a visitor now, or that have admitted any in the last LATELY_SECONDS."""
    others: list[int]
    """Those that are full or sold out."""


def due_rooms() -> DueRooms:
    """Return the events whose rooms may need a tick."""
    with connection.cursor() as cursor:
        rows = _rooms_to_tick.rows(cursor, lately_seconds=LATELY_SECONDS)
    # Most closed rooms open much later; one query tells which of them are on sale.
    to_open = {row[0] for row in rows if row[1] in (WaitingRoom.State.CLOSED, WaitingRoom.State.LOBBY)}
    selling = set(events.selling_event_ids()) if to_open else set()
    due = DueRooms([], [])
    for event_id, _, is_due, is_first in rows:
        if event_id not in to_open:
            (due.first if is_first else due.others).append(event_id)
        elif is_due or event_id in selling:
            due.first.append(event_id)
    return due
