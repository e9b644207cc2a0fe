"""What is done to a room: by its operators, each act on record with who, when and why, and by the stock."""

import uuid
from collections.abc import Mapping
from datetime import datetime
from functools import partial

from django.db import connection, transaction

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.queue.errors import ActRefused
from apps.queue.lobby import lobby
from apps.queue.models import AdmissionBatch, QueueEntry, RoomAct, WaitingRoom
from apps.queue.room.admission import admit_next, refill
from apps.queue.room.rate_control import keep_within_bounds
from apps.queue.room_row import Room, lock_room, record_act, save_room
from apps.queue.snapshot import exceptions, room_snapshot

RATE_MAX = 100_000
CLAIM_SECONDS_MIN = 2
"""Half of it must be longer than a board may be old: else who asks in time could be told of a moment before."""
ACTIVE_MAX = 1_000_000
ADMIT_MAX = 10_000
WINDOW_SECONDS_MAX = 86_400
MESSAGE_CHARACTERS_MAX = 280

_State = WaitingRoom.State
# From closed a room opens by itself, with the on-sale; a lobby ends in no other way.
STATE_TRANSITIONS: dict[str, tuple[str, ...]] = {
    _State.OFF: (_State.OPEN, _State.PAUSED),
    _State.CLOSED: (_State.OFF,),
    _State.OPEN: (_State.PAUSED, _State.DRAINED, _State.OFF),
    _State.PAUSED: (_State.OPEN, _State.DRAINED, _State.OFF),
    _State.DRAINED: (_State.OPEN, _State.PAUSED),
}


def create_room(event_id: int) -> None:
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
        lobby.create_commitment(event)


def set_state(event_id: int, state: str, *, who: str, why: str = "") -> bool:
    """The room is in this state; False if it was already. Raises ActRefused for a move that there is not."""
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        before = room.state
        if before == state:
            return False
        if state not in STATE_TRANSITIONS.get(before, ()):
            raise ActRefused(f"a room that is {before} cannot become {state}")
        now = clock.now_on(cursor)
        refill(room, now)
        room.state = state
        save_room(cursor, room)
        record_act(cursor, room.event_id, now, who, RoomAct.What.STATE, f"{before} → {state}", why)
        room_snapshot.renew_after_commit(event_id)
    return True


def set_limits(
    event_id: int,
    *,
    rate_per_second: int | None = None,
    active_max: int | None = None,
    claim_seconds: int | None = None,
    admission_seconds: int | None = None,
    who: str,
    why: str = "",
) -> bool:
    """The room lets in at this rate, up to this many at once, and gives them so long to come and to start; what is
    None stays. False if all of it was so already. Raises ActRefused, nothing changed.

    A cap below what is active now sends nobody out: nobody is let in until there is room again. Other windows are for
    those who are let in from now on.
    """
    given = {
        "rate_per_second": rate_per_second,
        "active_max": active_max,
        "claim_seconds": claim_seconds,
        "admission_seconds": admission_seconds,
    }
    wanted = {name: value for name, value in given.items() if value is not None}
    require_limits(wanted)
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        changes = {name: value for name, value in wanted.items() if getattr(room, name) != value}
        if not changes:
            return False
        before = _describe_limits(room)
        now = clock.now_on(cursor)
        refill(room, now)  # What has passed was at the old rate.
        rate_before = room.rate
        for name, value in changes.items():
            setattr(room, name, value)
        keep_within_bounds(room, rate_before, now)
        save_room(cursor, room)
        detail = f"{before} → {_describe_limits(room)}"
        if changes.keys() & {"claim_seconds", "admission_seconds"}:
            detail += f"; {room.claim_seconds} s to come, {room.admission_seconds} s to start"
        record_act(cursor, event_id, now, who, RoomAct.What.LIMITS, detail, why)
        room_snapshot.renew_after_commit(event_id)
    return True


LIMITS: dict[str, tuple[str, int, int]] = {
    "rate_per_second": ("rate", 1, RATE_MAX),
    "active_max": ("cap", 0, ACTIVE_MAX),
    "claim_seconds": ("time to come", CLAIM_SECONDS_MIN, WINDOW_SECONDS_MAX),
    "admission_seconds": ("time to start", 1, WINDOW_SECONDS_MAX),
}
"""Each limit: what people call it, the least and the most."""


def require_limits(wanted: Mapping[str, int]) -> None:
    """Returns if every limit is one that a room may have. Raises ActRefused."""
    for name, value in wanted.items():
        called, least, most = LIMITS[name]
        if not least <= value <= most:
            raise ActRefused(f"the {called} must be between {least} and {most}")


def _describe_limits(room: Room) -> str:
    return f"{room.rate_per_second}/s, {room.active_max} active"


def set_message(event_id: int, text: str, *, who: str, why: str = "") -> bool:
    """Everybody waiting reads this plain text, or nothing any more if it is empty; False if it was so already.
    Raises ActRefused."""
    text = "\n".join(line.strip() for line in text.strip().splitlines())
    if len(text) > MESSAGE_CHARACTERS_MAX:
        raise ActRefused(f"a message has at most {MESSAGE_CHARACTERS_MAX} characters; this one has {len(text)}")
    if any(not character.isprintable() and character != "\n" for character in text):
        raise ActRefused("a message is plain text, without control characters")
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        if room.message == text:
            return False
        now = clock.now_on(cursor)
        room.message, room.message_at = text, now if text else None
        save_room(cursor, room)
        record_act(cursor, event_id, now, who, RoomAct.What.MESSAGE, text or "cleared", why)
        room_snapshot.renew_after_commit(event_id)
    return True


def let_through(entry_id: uuid.UUID, *, who: str, why: str = "") -> bool:
    """The place is marked, so that it goes ahead of all others: True if it is in now, False if it waits for a free
    slot or for the opening and is first then. Within the cap and the stock, also while the room is paused; the head
    stays where it is. Raises ActRefused."""
    event_id = QueueEntry.objects.filter(pk=entry_id).values_list("event_id", flat=True).first()
    if event_id is None:
        raise ActRefused("there is no such place")
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        entry = QueueEntry.objects.select_for_update(no_key=True).get(pk=entry_id)
        if room.state == _State.DRAINED:
            raise ActRefused("the room is drained: there is nothing to let anybody through to")
        if entry.status == QueueEntry.Status.READY:
            raise ActRefused("this visitor is in already")
        if entry.status not in QueueEntry.LIVE:
            raise ActRefused(f"this place has ended: {entry.status}")
        if entry.marked:
            raise ActRefused("this place is marked already; it is first as soon as a slot is free")
        now = clock.now_on(cursor)
        admitted = mark_priority(cursor, room, entry, QueueEntry.Mark.OPERATOR, now)
        record_act(cursor, event_id, now, who, RoomAct.What.LET_THROUGH, describe_entry(entry), why)
    return admitted


def mark_priority(
    cursor: sql.Cursor,
    room: Room,
    entry: QueueEntry,
    by: QueueEntry.Mark,
    now: datetime,
    *,
    present: bool = False,
    also_paused: bool = True,
) -> bool:
    """The locked entry goes ahead of all unmarked ones, and with it every marked one that a free slot allows is let in
    now; whether this one was. `present`: its visitor is here and shops at once. Joins the caller's transaction, which
    has the room and the entry locked."""
    entry.marked = by
    entry.status = QueueEntry.Status.WAITING  # Who was away is in line again.
    entry.save(update_fields=["marked", "status"])
    room_snapshot.renew_after_commit(room.event_id)
    transaction.on_commit(partial(exceptions.mark_exceptional, room.event_id, entry.number, entry.pk))
    if room.state not in (_State.OPEN, _State.OFF) and not (also_paused and room.state == _State.PAUSED):
        return False
    marked = QueueEntry.objects.filter(
        event_id=room.event_id, status=QueueEntry.Status.WAITING, number__isnull=False
    ).exclude(marked="")
    count = marked.count()
    if not count:
        return False  # A place of the lobby that has no number yet.
    # So many and no more: nobody's turn comes by this act but that of the marked ones.
    admitted = admit_next(
        cursor,
        room,
        now,
        reason=AdmissionBatch.Reason.MARKED,
        most=count,
        present=[entry.pk] if present else [],
        only_marked=True,  # One of those counted may leave before they are let in.
    )
    return entry.pk in admitted.numbers


def describe_entry(entry: QueueEntry) -> str:
    """The place as the record names it, without anything personal."""
    return "a place in the lobby" if entry.number is None else f"number {entry.number}"


def find_entry_id(event_id: int, whom: str) -> uuid.UUID:
    """The id of the place that an operator names, by its number or its id. Raises ActRefused."""
    rows = QueueEntry.objects.filter(event_id=event_id)
    if whom.isascii() and whom.isdigit() and len(whom) <= 18:
        found = rows.filter(number=int(whom)).values_list("pk", flat=True).first()
    else:
        try:
            found = rows.filter(pk=uuid.UUID(whom)).values_list("pk", flat=True).first()
        except ValueError:
            raise ActRefused(f"{whom[:80]!r} is neither a number in line nor a place's id") from None
    if found is None:
        raise ActRefused(f"nobody has the place {whom[:80]} in this line")
    return found


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
        record_act(cursor, room.event_id, now, who, RoomAct.What.ADMIT, f"{len(admitted)} of {count}", why)
        room_snapshot.renew_after_commit(event_id)
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
        record_act(cursor, room.event_id, now, who, RoomAct.What.REMOVE, f"{describe_entry(entry)}, {was}", why)
    exceptions.mark_exceptional(entry.event_id, entry.number, entry.pk)
    return True


def was_removed(entry_id: uuid.UUID) -> bool:
    """Whether an operator took this place out of the line: the act and the place's end are of one moment."""
    entry = QueueEntry.objects.filter(pk=entry_id, status=QueueEntry.Status.LEFT).first()
    if entry is None or entry.ended_at is None:
        return False
    return RoomAct.objects.filter(event_id=entry.event_id, at=entry.ended_at, what=RoomAct.What.REMOVE).exists()


def report_supply(event_id: int, *, available: int, held: int, read_at: datetime | None = None) -> None:
    """The room knows the stock: nobody is let in while nothing is available, and once nothing is held either it is
    drained for good, and says so to whoever waits. Reported by the app that has the stock.

    `read_at`: by the database's clock, before the stock was read; None: just now. A report that was held up (its
    process hung) is nothing to drain a room by that has heard later ones since.
    """
    report_supplies({event_id: (available, held)}, read_at=read_at)


def report_supplies(supplies: Mapping[int, tuple[int, int]], *, read_at: datetime | None = None) -> None:
    """The same of many rooms: what is available and what is held, by event, all read at one moment."""
    rooms = WaitingRoom.objects.filter(event_id__in=list(supplies)).order_by("event_id")
    for event_id, *known, state in rooms.values_list("event_id", "supply_available", "supply_held", "state"):
        available, held = supplies[event_id]
        if known != [available, held] or (available + held == 0 and state in (_State.OPEN, _State.PAUSED)):
            _save_supply(event_id, available, held, read_at)


def _save_supply(event_id: int, available: int, held: int, read_at: datetime | None) -> None:
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        now = clock.now_on(cursor)
        if read_at is not None and room.supply_at is not None and read_at < room.supply_at <= now:
            return
        room.supply_available, room.supply_held, room.supply_at = available, held, read_at or now
        if available + held == 0 and room.state in (_State.OPEN, _State.PAUSED):
            _drain(cursor, room, now, "nothing is free and nothing is held")
        save_room(cursor, room)


def drain_ended_rooms() -> int:
    """Rooms that let people in or may again, of events that sell no more, are drained and say so to whoever waits; how
    many. Else they would go on letting people in to where nothing can be bought."""
    in_use = rooms_in_use()
    selling = set(events.selling_event_ids()) if in_use else set()
    return sum(_drain_if_over(event_id) for event_id in in_use if event_id not in selling)


def _drain_if_over(event_id: int) -> bool:
    event = events.get_event_by_id(event_id)
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        now = clock.now_on(cursor)
        if not event.is_over(now) or room.state not in (_State.OPEN, _State.PAUSED):
            return False
        why = "the event is canceled" if event.selling_state(now) == "canceled" else "sales have closed"
        _drain(cursor, room, now, why)
        save_room(cursor, room)
    return True


def _drain(cursor: sql.Cursor, room: Room, now: datetime, why: str) -> None:
    before, room.state = room.state, _State.DRAINED
    record_act(cursor, room.event_id, now, None, RoomAct.What.STATE, f"{before} → drained", why)
    room_snapshot.renew_after_commit(room.event_id)


def rooms_in_use() -> list[int]:
    """Events whose room lets people in or may again: those to report the stock of."""
    return list(
        WaitingRoom.objects.filter(state__in=(_State.OPEN, _State.PAUSED))
        .order_by("event_id")
        .values_list("event_id", flat=True)
    )
