"""Who is let in, and when: the one function behind the tick, the join into an empty line and the operator's hand.

Everybody who admits has the room's row locked: it carries the numbers, the rate's budget and the leader's epoch. Two
admitters that only counted before they admitted would each fill the same free slots.
"""

import logging
import math
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

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
"""So much of the rate may be saved up while nobody waits; at least one admission."""
RETURN_SECONDS = 900
"""Who missed the turn may still come back this long after the claim time, to the old number."""
BUSY_GRACE_SECONDS = 5
"""A slot stays busy so long past what the entry says: when paying begins at the last moment, the entry hears of the
later deadline only after that commit."""
CLOCK_BACK_SECONDS = 2
"""A room that was ticked so long after now was ticked by a clock that has been set back since."""
FREE_BATCH_MAX = 500
OFF_BATCH_MAX = 5_000
TICK_LOCK_MS = 1_000
TICK_STATEMENT_MS = 5_000
TICK_IDLE_MS = 5_000
"""A leader that hangs in the middle of a tick gives the room back after so long: before the joins that wait for it have
waited twice for its lock."""

_PACKAGE = "apps.queue"
_admit = sql.load(_PACKAGE, "admit")
_count_active = sql.load(_PACKAGE, "count_active")
_expire_admissions = sql.load(_PACKAGE, "expire_admissions")
_note_no_shows = sql.load(_PACKAGE, "note_no_shows")
_expire_away = sql.load(_PACKAGE, "expire_away")
_record_batch = sql.load(_PACKAGE, "record_batch")
_rooms_to_tick = sql.load(_PACKAGE, "rooms_to_tick")


@dataclass(frozen=True, slots=True)
class Admitted:
    """Entry ids and numbers that this call let in."""

    numbers: dict[uuid.UUID, int]

    def __len__(self) -> int:
        return len(self.numbers)


def burst(rate_per_second: float) -> float:
    """The most the budget may hold."""
    return max(1.0, rate_per_second * BURST_SECONDS)


def refill(room: Room, now: datetime) -> None:
    """The room's budget counts what its rate has allowed up to `now`, fractions and all, and no more than a burst.

    Changes the locked room; whoever locked it saves it.
    """
    most = burst(room.rate)
    if room.ticked_at is None:
        room.budget = most
    else:
        passed = max(0.0, (now - room.ticked_at).total_seconds())
        room.budget = min(most, room.budget + passed * room.rate)
        if now > room.ticked_at - timedelta(seconds=CLOCK_BACK_SECONDS):
            now = max(now, room.ticked_at)  # No moment is counted twice.
        # Else the rate is counted from now on: waiting until the old time comes again, nobody would be let in.
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
) -> Admitted:
    """Who is marked and then, unless `only_marked`, the lowest waiting numbers are ready, as many as all caps allow;
    `present` ones have come and shop from now on.

    Joins the transaction that has the room locked, and saves the room. Without `most` the rate's budget decides; with
    it (an operator's number) the budget may go below zero, so that the line pays for it and the rate holds over time.

    Active shoppers and the stock bound both: those who are in and hold nothing yet have one free place each put by for
    them. One and not what people buy on average: with more than one, the last places would be offered to nobody. Who
    holds something counts no more, for what is held is not available; who gave it back or let it lapse counts again. A
    room that is off has no caps.

    Marked ones count in every cap, have a record of their own, and do not move the head: nobody's place in line
    depends on them.
    """
    transactions.require_transaction(cursor)
    refill(room, now)
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
    return Admitted(marked | in_turn)


def active_count(event_id: int) -> int:
    """Slots that are not free, claimed or not, as they were a moment ago: for showing, not for deciding."""
    with connection.cursor() as cursor:
        ((active, *_),) = _count_active.rows(cursor, event_id=event_id)
    return int(active)


def free_slots(cursor: sql.Cursor, event_id: int) -> int:
    """Slots whose time is over are free, of this event; how many. Passes over entries that somebody is just using."""
    transactions.require_transaction(cursor)
    freed = _expire_admissions.count(cursor, limit=FREE_BATCH_MAX, event_id=event_id, grace_seconds=BUSY_GRACE_SECONDS)
    return freed + _note_no_shows.count(cursor, limit=FREE_BATCH_MAX, event_id=event_id)


def expire_admissions(limit: int = FREE_BATCH_MAX) -> int:
    """Up to `limit` admissions that ran out unused are ended, as many no-shows have lost their slot, and as many that
    stayed away for good are ended; how many in all. Of every event: rooms in which nobody waits are not ticked."""
    with transactions.write(), connection.cursor() as cursor:
        return (
            _expire_admissions.count(cursor, limit=limit, event_id=None, grace_seconds=BUSY_GRACE_SECONDS)
            + _note_no_shows.count(cursor, limit=limit, event_id=None)
            + _expire_away.count(cursor, limit=limit, return_seconds=RETURN_SECONDS)
        )


def tick(event_id: int, epoch: int) -> int:
    """One tick of one room by the leader of this epoch: opened if it is time, slots freed, and as many let in as rate,
    cap and stock allow; how many. Raises Fenced, nothing done, where a younger leader has been."""
    limits = {"lock_ms": TICK_LOCK_MS, "statement_ms": TICK_STATEMENT_MS, "idle_ms": TICK_IDLE_MS}
    with transactions.write(**limits), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        if room.epoch > epoch:
            raise StaleLeader(f"epoch {epoch} meets {room.epoch} in the room of event {event_id}")
        room.epoch = epoch
        now = clock.now_on(cursor)
        if room.state in (WaitingRoom.State.CLOSED, WaitingRoom.State.LOBBY):
            open_if_due(cursor, room, events.get_event_by_id(event_id), now)
        if room.state not in (WaitingRoom.State.OPEN, WaitingRoom.State.OFF):
            # Paused or drained since it was found due: nobody is let in, but the room knows its leader.
            save_room(cursor, room)
            return 0
        return len(admit_next(cursor, room, now, reason=AdmissionBatch.Reason.TICK))


def due_rooms() -> list[int]:
    """Events in whose room a tick may have something to do."""
    with connection.cursor() as cursor:
        rows = _rooms_to_tick.rows(cursor)
    # Most have long to wait, and whether they still have to is asked once for all of them.
    to_open = {event_id for event_id, state, _ in rows if state in (WaitingRoom.State.CLOSED, WaitingRoom.State.LOBBY)}
    selling = set(events.selling_event_ids()) if to_open else set()
    return [event_id for event_id, _, is_due in rows if event_id not in to_open or is_due or event_id in selling]
