"""The locked row of a room, which joins, admissions and operations read, change and save.

The functions run plain statements on the caller's cursor, so the same code serves Django's transactions and the
connections of group commit.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from apps.kernel.db import sql, transactions
from apps.queue.models import RoomAct, WaitingRoom

SYSTEM = "system"
"""The recorded operator of automatic changes. No person is recorded under this name, since the proof publishes it."""

_PACKAGE = "apps.queue"
_lock_rooms = sql.load(_PACKAGE, "lock_rooms", prepared=True)
_save_room = sql.load(_PACKAGE, "save_room", prepared=True)
_record_act = sql.load(_PACKAGE, "record_act")


@dataclass(slots=True)
class Room:
    """A locked room, to be changed and saved before the transaction ends. Fields as in the model, in the column order
    of `lock_rooms.sql`; without the times of erasures, which the queue does not need."""

    event_id: int
    state: str
    rate_per_second: int
    rate_floor: int | None
    rate_now: float | None
    active_max: int
    claim_seconds: int
    admission_seconds: int
    next_number: int
    head: int
    epoch: int
    ticked_at: datetime | None
    budget: float
    supply_available: int | None
    supply_held: int | None
    supply_at: datetime | None
    message: str
    message_at: datetime | None
    chain_head: bytes
    lobby_opens_at: datetime | None
    lobby_count: int
    numbered_through: int | None
    network_key: bytes | None

    @property
    def rate(self) -> float:
        """The current admissions per second: set by rate control, else by the operator."""
        return self.rate_per_second if self.rate_now is None else self.rate_now


_FIELDS = [field.name for field in fields(Room)]


def lock_rooms_call(event_ids: Sequence[int]) -> sql.Call:
    """Return the statement that locks the rooms of these events in id order until the caller's transaction ends.

    These are the first locks of the lock order. The statement is sent in a batch with others; `rooms_from_rows` parses
    its rows.
    """
    return _lock_rooms.call(event_ids=sorted(set(event_ids)))


def rooms_from_rows(rows: Iterable[tuple[Any, ...]]) -> dict[int, Room]:
    """Parse the rows of `lock_rooms_call`."""
    rooms = [Room(*row) for row in rows]
    return {room.event_id: room for room in rooms}


def lock_room(cursor: sql.Cursor, event_id: int) -> Room:
    """Lock one event's room until the caller's transaction ends, and return it. Raises WaitingRoom.DoesNotExist."""
    transactions.require_transaction(cursor)
    (done,) = sql.execute_batch(cursor, [lock_rooms_call([event_id])])
    if not done.rows:
        raise WaitingRoom.DoesNotExist(f"event {event_id} has no room")
    return Room(*done.rows[0])


def save_room(cursor: sql.Cursor, room: Room) -> None:
    """Save all fields of the room, which was read under the lock that the caller still holds."""
    transactions.require_transaction(cursor)
    (done,) = sql.execute_batch(cursor, [save_room_call(room)])
    if done.touched != 1:
        raise RuntimeError(f"the room of event {room.event_id} does not exist")


def save_room_call(room: Room) -> sql.Call:
    """Return the statement of `save_room`, to be sent in a batch with others; it must update one row."""
    return _save_room.call(**{name: getattr(room, name) for name in _FIELDS})


def record_act(
    cursor: sql.Cursor,
    event_id: int,
    at: datetime,
    who: str | None,
    what: RoomAct.What,
    detail: str,
    why: str = "",
    *,
    refusal: str = "",
) -> None:
    """Record an operation in the transaction that performs it. Without `who`, it is an automatic change. With
    `refusal`, it was refused for this reason and changed nothing."""
    transactions.require_transaction(cursor)
    # An operator named "system" must not be published as an automatic change.
    name = SYSTEM if who is None else f"operator {who}" if who == SYSTEM else who
    _record_act.count(
        cursor,
        event_id=event_id,
        at=at,
        who=_to_plain_text(name)[:150],
        what=str(what),
        detail=detail[:200],
        why=_to_plain_text(why)[:200],
        refusal=_to_plain_text(refusal)[:200],
    )


def _to_plain_text(text: str) -> str:
    """Return the text in one line, with spaces for control characters and other unprintable ones."""
    return "".join(character if character.isprintable() else " " for character in text)
