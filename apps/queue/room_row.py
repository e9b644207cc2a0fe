"""The room's row, locked: what everybody who joins, admits or acts on a room decides from and writes back.

Plain statements on whatever cursor the caller has, so that the same code runs in Django's transactions and on the
connections of group commit, which Django does not know.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from apps.kernel.db import sql, transactions
from apps.queue.models import RoomAct, WaitingRoom

SYSTEM = "system"
"""Who does what happens by itself, on record. No person is recorded under this name: the proof shows it."""

_PACKAGE = "apps.queue"
_lock_rooms = sql.load(_PACKAGE, "lock_rooms", prepared=True)
_save_room = sql.load(_PACKAGE, "save_room", prepared=True)
_record_act = sql.load(_PACKAGE, "record_act")


@dataclass(slots=True)
class Room:
    """A room as it is under its lock: change it and save it before the transaction ends. Fields as in the model, in
    the order of `lock_rooms.sql`."""

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

    @property
    def rate(self) -> float:
        """Admissions per second in force: what the shop's health allows now, else what the operator set."""
        return self.rate_per_second if self.rate_now is None else self.rate_now


_FIELDS = [field.name for field in fields(Room)]


def lock_rooms(cursor: sql.Cursor, event_ids: Sequence[int]) -> dict[int, Room]:
    """The rooms of these events by event, locked in id order until the caller's transaction ends: the first locks of
    the whole system. Without those that there are not. Joins the caller's transaction."""
    transactions.require_transaction(cursor)
    (done,) = sql.execute_batch(cursor, [lock_rooms_call(event_ids)])
    return rooms_from_rows(done.rows)


def lock_rooms_call(event_ids: Sequence[int]) -> sql.Call:
    """The same lock, for a transaction that sends it together with what comes next; `rooms_from_rows` reads it."""
    return _lock_rooms.call(event_ids=sorted(set(event_ids)))


def rooms_from_rows(rows: Iterable[tuple[Any, ...]]) -> dict[int, Room]:
    """What `lock_rooms_call` gave."""
    rooms = [Room(*row) for row in rows]
    return {room.event_id: room for room in rooms}


def lock_room(cursor: sql.Cursor, event_id: int) -> Room:
    """The one room, locked likewise. Raises WaitingRoom.DoesNotExist."""
    room = lock_rooms(cursor, [event_id]).get(event_id)
    if room is None:
        raise WaitingRoom.DoesNotExist(f"event {event_id} has no room")
    return room


def save_room(cursor: sql.Cursor, room: Room) -> None:
    """The room's row is as `room` says, whole: it was read under the lock that the caller still has."""
    transactions.require_transaction(cursor)
    (done,) = sql.execute_batch(cursor, [save_room_call(room)])
    if done.touched != 1:
        raise RuntimeError(f"the room of event {room.event_id} is gone")


def save_room_call(room: Room) -> sql.Call:
    """The same, for a transaction that sends it together with others: it has touched one row."""
    return _save_room.call(**{name: getattr(room, name) for name in _FIELDS})


def record_act(
    cursor: sql.Cursor, event_id: int, at: datetime, who: str | None, what: RoomAct.What, detail: str, why: str = ""
) -> None:
    """The act is on record, in the transaction that does it. `who` None: it happened by itself."""
    transactions.require_transaction(cursor)
    # An operator who calls themselves "system" would have their hand published as nobody's.
    name = SYSTEM if who is None else f"operator {who}" if who == SYSTEM else who
    _record_act.count(
        cursor,
        event_id=event_id,
        at=at,
        who=_to_plain_text(name)[:150],
        what=str(what),
        detail=detail[:200],
        why=_to_plain_text(why)[:200],
    )


def _to_plain_text(text: str) -> str:
    """The text in one line without what the database could not store or a terminal would obey."""
    return "".join(character if character.isprintable() else " " for character in text)
