"""Changes to a room: by operators (recorded with operator, time and reason), by the stock, at the end of sales."""

import uuid
from collections.abc import Mapping
from datetime import datetime
from functools import partial

from django.conf import settings
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
"""Half of this must exceed a snapshot's maximum age, or a visitor who polls in time could get an older state."""
ACTIVE_MAX = 1_000_000
ADMIT_MAX = 10_000
WINDOW_SECONDS_MAX = 86_400
MESSAGE_CHARACTERS_MAX = 280

_State = WaitingRoom.State
# A closed room or lobby opens automatically with the on-sale. A lobby cannot be ended manually.
STATE_TRANSITIONS: dict[str, tuple[str, ...]] = {
    _State.OFF: (_State.OPEN, _State.PAUSED),
    _State.CLOSED: (_State.OFF,),
    _State.OPEN: (_State.PAUSED, _State.DRAINED, _State.OFF),
    _State.PAUSED: (_State.OPEN, _State.DRAINED, _State.OFF),
    _State.DRAINED: (_State.OPEN, _State.PAUSED),
}


def create_room(event_id: int) -> None:
    """Create the event's room: closed until its lobby or on-sale opens, or off if the organizer wants no room.

    Also commits to the draw of a lobby. Runs inside the transaction that publishes the event.
    """
    event = events.get_event_by_id(event_id)
    wanted = event.policy.room
    fields: dict[str, object] = (
        {"state": _State.OFF}
        if wanted is None
        else {
            "state": _State.CLOSED,
            "rate_per_second": wanted.rate_per_second,
            "active_max": wanted.active_max,
            "lobby_opens_at": wanted.lobby_opens_at,
        }
    )
    fields["screening"] = settings.PROOF_OF_WORK_JOIN
    _, is_new = WaitingRoom.objects.get_or_create(event_id=event_id, defaults=fields)
    if is_new and wanted is not None and wanted.lobby_opens_at is not None:
        lobby.create_commitment(event)


def set_state(event_id: int, state: str, *, who: str, why: str = "") -> bool:
    """Set the room's state; return False if it was set already. Raises ActRefused for an invalid transition."""
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


def set_limits(event_id: int, *, who: str, why: str = "", **wanted: int) -> bool:
    """Set the given LIMITS of the room: its rate, its cap of active shoppers, and the seconds to claim and to use an
    admission.

    Returns False if nothing changed. Raises ActRefused, with nothing changed. A cap below the present number of active
    shoppers ends no admission: no visitor is admitted until the number is below it. New times apply to later
    admissions.
    """
    require_limits(wanted)
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        changes = {name: value for name, value in wanted.items() if getattr(room, name) != value}
        if not changes:
            return False
        before = _describe_limits(room)
        now = clock.now_on(cursor)
        refill(room, now)  # The time until now counts at the old rate.
        rate_before = room.rate
        for name, value in changes.items():
            setattr(room, name, value)
        keep_within_bounds(room, rate_before, now)
        save_room(cursor, room)
        detail = f"{before} → {_describe_limits(room)}"
        if changes.keys() & {"claim_seconds", "admission_seconds"}:
            detail += f"; {room.claim_seconds} s to claim, {room.admission_seconds} s to start"
        record_act(cursor, event_id, now, who, RoomAct.What.LIMITS, detail, why)
        room_snapshot.renew_after_commit(event_id)
    return True


LIMITS: dict[str, tuple[str, int, int]] = {
    "rate_per_second": ("rate", 1, RATE_MAX),
    "active_max": ("cap", 0, ACTIVE_MAX),
    "claim_seconds": ("time to claim", CLAIM_SECONDS_MIN, WINDOW_SECONDS_MAX),
    "admission_seconds": ("time to choose", 1, WINDOW_SECONDS_MAX),
}
"""Each limit: its name in messages, its minimum and its maximum."""


def require_limits(wanted: Mapping[str, int]) -> None:
    """Raise ActRefused unless every limit is within its bounds."""
    for name, value in wanted.items():
        called, least, most = LIMITS[name]
        if not least <= value <= most:
            raise ActRefused(f"the {called} must be between {least} and {most}")


def _describe_limits(room: Room) -> str:
    return f"{room.rate_per_second}/s, {room.active_max} active"


def set_message(event_id: int, text: str, *, who: str, why: str = "") -> bool:
    """Set the plain text that all waiting visitors read, or remove it if `text` is empty; return False if it was set
    already. Raises ActRefused."""
    text = "\n".join(line.strip() for line in text.strip().splitlines())
    if len(text) > MESSAGE_CHARACTERS_MAX:
        raise ActRefused(f"a message has at most {MESSAGE_CHARACTERS_MAX} characters; this one has {len(text)}")
    if any(not character.isprintable() and character != "\n" for character in text):
        raise ActRefused("a message is plain text without control characters")
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
    """Give the entry priority over all others, within the cap and the stock, also while the room is paused.

    Returns True if it is admitted now, False if it is admitted first as soon as a slot is free or the room opens. The
    head does not move. Raises ActRefused.
    """
    event_id = QueueEntry.objects.filter(pk=entry_id).values_list("event_id", flat=True).first()
    if event_id is None:
        raise ActRefused("there is no such queue entry")
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        entry = QueueEntry.objects.select_for_update(no_key=True).get(pk=entry_id)
        require_selling(room, clock.now_on(cursor))
        if entry.status == QueueEntry.Status.READY:
            raise ActRefused("this visitor is admitted already")
        if entry.status not in QueueEntry.LIVE:
            raise ActRefused(f"this queue entry has ended: {entry.status}")
        if entry.marked:
            raise ActRefused("this queue entry has priority already; it is admitted as soon as a slot is free")
        now = clock.now_on(cursor)
        admitted = mark_priority(cursor, room, entry, QueueEntry.Mark.OPERATOR, now)
        record_act(cursor, event_id, now, who, RoomAct.What.LET_THROUGH, describe_entry(entry), why)
    return admitted


def require_selling(room: Room, now: datetime) -> None:
    """Raise ActRefused if the room is drained or its event's sale has ended: priority would help no visitor, and a
    published report of the sale has counted the entries with priority."""
    if room.state == _State.DRAINED:
        raise ActRefused("the room is drained: nothing is left to sell")
    if events.get_event_by_id(room.event_id).is_over(now):
        raise ActRefused("the sale has ended")


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
    """Give the locked entry priority, and admit priority entries into free slots; return whether this one was admitted.

    `present`: its visitor has arrived and starts shopping at once. Joins the caller's transaction, which has the room
    and the entry locked.
    """
    entry.marked = by
    entry.status = QueueEntry.Status.WAITING  # An entry that was away is in the queue again.
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
        return False  # An entry in the lobby, which has no number yet.
    # Limited to the priority entries: this operation admits no others.
    admitted = admit_next(
        cursor,
        room,
        now,
        reason=AdmissionBatch.Reason.MARKED,
        most=count,
        present=[entry.pk] if present else [],
        only_marked=True,  # A counted entry may leave before it is admitted.
    )
    return entry.pk in admitted


def describe_entry(entry: QueueEntry) -> str:
    """Return the entry's name in records, without personal data."""
    return "an entry in the lobby" if entry.number is None else f"number {entry.number}"


def find_entry_id(event_id: int, name: str) -> uuid.UUID:
    """Return the id of the entry that an operator named by its number or its id. Raises ActRefused."""
    rows = QueueEntry.objects.filter(event_id=event_id)
    if name.isascii() and name.isdigit() and len(name) <= 18:
        entry_id = rows.filter(number=int(name)).values_list("pk", flat=True).first()
    else:
        try:
            entry_id = rows.filter(pk=uuid.UUID(name)).values_list("pk", flat=True).first()
        except ValueError:
            raise ActRefused(f"{name[:80]!r} is neither a queue number nor an entry's id") from None
    if entry_id is None:
        raise ActRefused(f"there is no entry {name[:80]} in this queue")
    return entry_id


def admit_now(event_id: int, count: int, *, who: str, why: str = "") -> int:
    """Admit up to `count` of the next entries, also while the room is paused; return how many. Raises ActRefused.

    Stays within the cap of active shoppers and the stock. The admissions are charged to the rate's budget: ticks admit
    no visitor until it is positive again, so that over time the rate is not exceeded.
    """
    if not 1 <= count <= ADMIT_MAX:
        raise ActRefused(f"admit between 1 and {ADMIT_MAX}")
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        if room.state not in (_State.OPEN, _State.PAUSED):
            raise ActRefused(f"the room is {room.state}: visitors cannot be admitted manually")
        now = clock.now_on(cursor)
        admitted = admit_next(cursor, room, now, reason=AdmissionBatch.Reason.OPERATOR, most=count)
        record_act(cursor, room.event_id, now, who, RoomAct.What.ADMIT, f"{len(admitted)} of {count}", why)
        room_snapshot.renew_after_commit(event_id)
    return len(admitted)


def remove(entry_id: uuid.UUID, *, who: str, why: str = "") -> bool:
    """Remove the entry from the queue; return False if it had ended already. Its reservations are unaffected."""
    entry = QueueEntry.objects.filter(pk=entry_id).first()
    if entry is None:
        raise ActRefused("there is no such queue entry")
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
    """Return whether an operator removed this entry: the recorded act has the same time as the entry's end."""
    entry = QueueEntry.objects.filter(pk=entry_id, status=QueueEntry.Status.LEFT).first()
    if entry is None or entry.ended_at is None:
        return False
    acts = RoomAct.objects.filter(event_id=entry.event_id, at=entry.ended_at, what=RoomAct.What.REMOVE, refusal="")
    return acts.exists()


def record_refusal(event_id: int, what: RoomAct.What, wanted: str, refusal: str, *, who: str, why: str = "") -> None:
    """Record that an operator asked for an operation and why it was refused. Runs in a transaction of its own, because
    that of the operation was rolled back.

    The room is locked, as for every other act: the published list of acts must only grow at its end.
    """
    with transactions.write(), connection.cursor() as cursor:
        lock_room(cursor, event_id)
        detail = _to_one_line(wanted)
        record_act(cursor, event_id, clock.now_on(cursor), who, what, detail, why, refusal=refusal or "refused")


def _to_one_line(text: str) -> str:
    return " ".join("".join(character if character.isprintable() else " " for character in text).split())


def report_supplies(supplies: Mapping[int, tuple[int, int]], *, read_at: datetime | None = None) -> None:
    """Record the stock of events in their rooms: (available, held) by event id. Called by the app that owns the stock.

    No visitor is admitted while nothing is available. Once nothing is held either, the room is drained for good, and
    waiting visitors see that. `read_at` is the database's time before the stock was read; None: now. A delayed report
    (from a process that hung) is ignored if a later one has been recorded.
    """
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
    """Drain the open and paused rooms of events whose sale has ended; return how many. Otherwise they would go on
    admitting visitors who cannot buy anything."""
    in_use = rooms_in_use()
    selling = set(events.selling_event_ids()) if in_use else set()
    return sum(_drain_if_over(event_id) for event_id in in_use if event_id not in selling)


def _drain_if_over(event_id: int) -> bool:
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        # Read under the lock: a change of the event that reopens its sale, and with it the room, takes this lock.
        event = events.get_event_by_id(event_id)
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
    """Return the events with an open or paused room, whose stock must be reported."""
    return list(
        WaitingRoom.objects.filter(state__in=(_State.OPEN, _State.PAUSED))
        .order_by("event_id")
        .values_list("event_id", flat=True)
    )
