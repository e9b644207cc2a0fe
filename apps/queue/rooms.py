"""What is done to a room: by its operators, each act on record with who, when and why, and by the stock."""

import uuid

from django.db import connection

from apps.events import facade as events
from apps.queue import board, exceptional, lobby
from apps.queue.admitting import admit_next, refill
from apps.queue.errors import ActRefused
from apps.queue.models import AdmissionBatch, QueueEntry, RoomAct, WaitingRoom
from apps.queue.room import SYSTEM, lock_room, record, save_room
from ticketing.kernel import clock, transactions

RATE_MAX = 100_000
ACTIVE_MAX = 1_000_000
ADMIT_MAX = 10_000

_State = WaitingRoom.State
# From closed a room opens by itself, with the on-sale; a lobby ends in no other way.
MOVES: dict[str, tuple[str, ...]] = {
    _State.OFF: (_State.OPEN, _State.PAUSED),
    _State.CLOSED: (_State.OFF,),
    _State.OPEN: (_State.PAUSED, _State.DRAINED, _State.OFF),
    _State.PAUSED: (_State.OPEN, _State.DRAINED, _State.OFF),
    _State.DRAINED: (_State.OPEN, _State.PAUSED),
}


def open_room(event_id: int) -> None:
    """The event has its room: closed until its lobby or on-sale opens, or off where the organiser wants none. What a
    lobby's draw will be made from is committed to. Runs inside the transaction that publishes it."""
    event = events.get_event_by_id(event_id)
    wish = event.policy.room
    given = (
        {"state": _State.OFF}
        if wish is None
        else {
            "state": _State.CLOSED,
            "rate_per_second": wish.rate_per_second,
            "active_max": wish.active_max,
            "lobby_opens_at": wish.lobby_opens_at,
        }
    )
    _, is_new = WaitingRoom.objects.get_or_create(event_id=event_id, defaults=given)
    if is_new and wish is not None and wish.lobby_opens_at is not None:
        lobby.commit(event)


def set_state(event_id: int, state: str, *, who: str, why: str = "") -> bool:
    """The room is in this state; False if it was already. Raises ActRefused for a move that there is not."""
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        before = room.state
        if before == state:
            return False
        if state not in MOVES.get(before, ()):
            raise ActRefused(f"a room that is {before} cannot become {state}")
        now = clock.now_on(cursor)
        refill(room, now)
        room.state = state
        save_room(cursor, room)
        record(cursor, room.event_id, now, who, RoomAct.What.STATE, f"{before} → {state}", why)
        board.renew_after_commit(event_id)
    return True


def set_limits(event_id: int, *, rate_per_second: int, active_max: int, who: str, why: str = "") -> bool:
    """The room lets in at this rate, up to this many at once; False if it did already. Raises ActRefused.

    A cap below what is active now sends nobody out: nobody is let in until there is room again.
    """
    if not 1 <= rate_per_second <= RATE_MAX or not 0 <= active_max <= ACTIVE_MAX:
        raise ActRefused(f"the rate must be between 1 and {RATE_MAX}, the cap between 0 and {ACTIVE_MAX}")
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        before = (room.rate_per_second, room.active_max)
        if before == (rate_per_second, active_max):
            return False
        now = clock.now_on(cursor)
        refill(room, now)  # What has passed was at the old rate.
        room.rate_per_second, room.active_max = rate_per_second, active_max
        if room.rate_now is not None:
            room.rate_now = min(room.rate_now, rate_per_second)
        save_room(cursor, room)
        detail = f"{before[0]}/s, {before[1]} active → {rate_per_second}/s, {active_max} active"
        record(cursor, room.event_id, now, who, RoomAct.What.LIMITS, detail, why)
        board.renew_after_commit(event_id)
    return True


def admit_now(event_id: int, count: int, *, who: str, why: str = "") -> int:
    """Up to `count` of those next in line are let in, also while the room is paused; how many. Raises ActRefused.

    Within the cap of active shoppers and the stock. The rate's budget pays for it: the line waits until it is paid off,
    so that over time no more than the rate are let in.
    """
    if not 1 <= count <= ADMIT_MAX:
        raise ActRefused(f"admit between 1 and {ADMIT_MAX}")
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        if room.state not in (_State.OPEN, _State.PAUSED):
            raise ActRefused(f"the room is {room.state}: nobody is let in by hand")
        now = clock.now_on(cursor)
        admitted = admit_next(cursor, room, now, reason=AdmissionBatch.Reason.OPERATOR, most=count)
        record(cursor, room.event_id, now, who, RoomAct.What.ADMIT, f"{len(admitted)} of {count}", why)
        board.renew_after_commit(event_id)
    return len(admitted)


def remove(entry_id: uuid.UUID, *, who: str, why: str = "") -> bool:
    """The entry is out of the line; False if it had ended already. What it holds stays its own until it ends."""
    entry = QueueEntry.objects.filter(pk=entry_id).first()
    if entry is None:
        raise ActRefused("there is no such place")
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, entry.event_id)
        entry = QueueEntry.objects.select_for_update(no_key=True).get(pk=entry_id)
        if entry.status not in QueueEntry.LIVE:
            return False
        now = clock.now_on(cursor)
        was, entry.status, entry.ended_at = entry.status, QueueEntry.Status.LEFT, now
        entry.save(update_fields=["status", "ended_at"])
        record(cursor, room.event_id, now, who, RoomAct.What.REMOVE, f"number {entry.number}, {was}", why)
    exceptional.note(entry.event_id, entry.number, entry.pk)
    return True


def report_supply(event_id: int, *, available: int, held: int) -> None:
    """The room knows the stock: nobody is let in while nothing is available, and once nothing is held either it is
    drained for good, and says so to whoever waits. Reported by the app that has the stock."""
    known = (
        WaitingRoom.objects.filter(event_id=event_id).values_list("supply_available", "supply_held", "state").first()
    )
    if known is None:
        return
    if known[:2] == (available, held) and (available + held > 0 or known[2] not in (_State.OPEN, _State.PAUSED)):
        return
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        now = clock.now_on(cursor)
        room.supply_available, room.supply_held, room.supply_at = available, held, now
        if available + held == 0 and room.state in (_State.OPEN, _State.PAUSED):
            before, room.state = room.state, _State.DRAINED
            why = "nothing is free and nothing is held"
            record(cursor, room.event_id, now, SYSTEM, RoomAct.What.STATE, f"{before} → drained", why)
            board.renew_after_commit(event_id)
        save_room(cursor, room)


def rooms_in_use() -> list[int]:
    """Events whose room lets people in or may again: those to report the stock of."""
    return list(
        WaitingRoom.objects.filter(state__in=(_State.OPEN, _State.PAUSED))
        .order_by("event_id")
        .values_list("event_id", flat=True)
    )
