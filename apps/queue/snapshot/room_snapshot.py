"""The public state of a waiting room as one small value: a poll reads only this and its own token.

PostgreSQL is authoritative. The gatekeeper writes a copy to Redis after each tick, so that no process needs to query
PostgreSQL. Each process caches the copy for 0.1 s. If Redis is unavailable or its copy is old or invalid, each process
reads PostgreSQL instead, with one statement per 0.1 s. A snapshot shows the state of the queue; it never admits a
visitor.

A snapshot's age is bounded: CACHE_SECONDS in the process plus COPY_FRESH_SECONDS in Redis are less than the shortest
`next_poll`. So a client that respects `next_poll` never sees the head go back, whichever process responds.
"""

import logging
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Annotated, Literal

import msgspec
from django.db import DatabaseError, connection, transaction
from msgspec import Meta
from redis import Redis
from redis.exceptions import ResponseError

from apps.events import facade as events
from apps.kernel import clock, redis
from apps.kernel.db import sql
from apps.kernel.fastpath import cache
from apps.queue.models import WaitingRoom

logger = logging.getLogger(__name__)

CACHE_SECONDS = 0.1
COPY_FRESH_SECONDS = 0.6
"""Longer than two ticks, so that two failed ones are tolerated."""
COPY_TTL_MS = 600
"""A copy expires when it is too old to be used."""
BYTES_MAX = 4_096
"""Far above any real snapshot: longer values are not decoded."""
OBSERVED_SECONDS = 120
"""For how long the use of a room's slots is observed, at least, once it has been open that long."""
CACHED_ROOMS_MAX = 1_000
"""Rooms cached by a process."""

_PACKAGE = "apps.queue"
_room_snapshots = sql.load(_PACKAGE, "room_snapshots")
_rooms_to_copy = sql.load(_PACKAGE, "rooms_to_copy")


Count = Annotated[int, Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class RoomSnapshot:
    """The public state of one room at one moment."""

    event_id: int
    at: datetime
    """By the database's clock."""
    state: str
    head: Count
    next_number: Annotated[int, Meta(ge=1)]
    rate: Annotated[float, Meta(gt=0)]
    """Current admissions per second."""
    rate_ceiling: Annotated[int, Meta(ge=1)]
    active: Count
    """Occupied slots."""
    freed_count: int
    """Slots that were freed during the last `observed_seconds`; when these began, `active_before` were occupied."""
    observed_seconds: Annotated[float, Meta(ge=0)]
    active_before: Count
    admitted_count: Count
    """Entries that were admitted in their turn during the last `observed_seconds`, which moved the head by
    `passed_count`: entries that leave are passed without an admission, and entries that return are admitted without
    moving the head."""
    passed_count: int
    open_seconds: Annotated[float, Meta(ge=0)]
    """Since the room's first admission; 0 before it."""
    active_max: Count
    claim_seconds: Annotated[int, Meta(ge=1)]
    admission_seconds: Annotated[int, Meta(ge=1)]
    supply_available: Count | None
    supply_held: Count | None
    message: str
    message_at: datetime | None
    lobby_count: Count
    """Number of entries in the lobby."""
    is_frozen: bool
    """The lobby is closed."""
    is_drawn: bool
    """Every entrant of the lobby has a number."""
    chain_head: str
    """Head of the first-come hash chain, in hex; empty before its first link."""
    epoch: Count
    opens_at: datetime | None = None
    """In a lobby: the time of the draw, which is the opening of the on-sale."""
    version: Literal[3] = 3
    """The version of this format. A copy in another format is not used."""

    @property
    def stage(self) -> str:
        """The lobby's stage: `lobby` until the on-sale opens, `drawing` until its entrants have numbers, then empty."""
        if self.state == WaitingRoom.State.LOBBY:
            return "lobby"
        return "drawing" if self.lobby_count and not self.is_drawn else ""


class _CacheSlot:
    """The cached snapshot of one room, and the lock under which one thread refreshes it for all."""

    __slots__ = ("fresh_until", "is_invalidated", "lock", "snapshot")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.snapshot: RoomSnapshot | None = None
        self.fresh_until = time.monotonic()
        """On the process's monotonic clock."""
        self.is_invalidated = False

    def get_fresh(self, number: int) -> RoomSnapshot | None:
        snapshot = self.snapshot
        if snapshot is None or time.monotonic() >= self.fresh_until or snapshot.next_number <= number:
            return None
        return snapshot


_cache: dict[int, _CacheSlot] = cache.register({})


def get_snapshot(event_id: int, *, with_number: int = 0) -> RoomSnapshot:
    """Return the room's snapshot. It includes the number `with_number`, so that a visitor who just joined does not get
    an older state. Raises WaitingRoom.DoesNotExist."""
    slot = _cache.get(event_id)
    if slot is None:
        cache.make_room(_cache, CACHED_ROOMS_MAX, lambda one: one.fresh_until)
        slot = _cache.setdefault(event_id, _CacheSlot())
    snapshot = slot.get_fresh(with_number)
    if snapshot is not None:
        return snapshot
    with slot.lock:
        snapshot = slot.get_fresh(with_number)  # Another thread may have read it meanwhile.
        if snapshot is not None:
            return snapshot
        last = slot.snapshot
        is_fresh = last is not None and time.monotonic() < slot.fresh_until
        snapshot = None if slot.is_invalidated or is_fresh else _read_copy(event_id)
        if snapshot is None or snapshot.next_number <= with_number or (last is not None and _is_behind(snapshot, last)):
            slot.is_invalidated = False
            snapshot = read_snapshot(event_id)
            _write_copies([snapshot], only_missing=True)
        slot.snapshot, slot.fresh_until = snapshot, time.monotonic() + CACHE_SECONDS
        return snapshot


def peek(event_id: int) -> tuple[RoomSnapshot, float] | None:
    """Return the cached snapshot and for how many seconds it has been expired (negative: it is still fresh); None if
    there is none. Never reads PostgreSQL or Redis."""
    slot = _cache.get(event_id)
    snapshot = None if slot is None else slot.snapshot
    return None if slot is None or snapshot is None else (snapshot, time.monotonic() - slot.fresh_until)


def _is_behind(snapshot: RoomSnapshot, last: RoomSnapshot) -> bool:
    return snapshot.head < last.head or snapshot.next_number < last.next_number or snapshot.epoch < last.epoch


def read_snapshot(event_id: int) -> RoomSnapshot:
    """Read the room's current snapshot from PostgreSQL. Raises WaitingRoom.DoesNotExist."""
    for snapshot in read_snapshots([event_id]):
        return snapshot
    raise WaitingRoom.DoesNotExist


def read_snapshots(event_ids: Iterable[int]) -> list[RoomSnapshot]:
    """Read the current snapshots of these rooms from PostgreSQL in one statement, and one more for each lobby."""
    with connection.cursor() as cursor:
        rows = _room_snapshots.rows(cursor, event_ids=list(event_ids), window_seconds=OBSERVED_SECONDS)
    snapshots = [RoomSnapshot(*row) for row in rows]
    return [
        _with_opening(snapshot) if snapshot.state == WaitingRoom.State.LOBBY else snapshot for snapshot in snapshots
    ]


def _with_opening(snapshot: RoomSnapshot) -> RoomSnapshot:
    event = events.get_event_by_id(snapshot.event_id)
    if event.is_over(snapshot.at):
        # The on-sale will never open, and the lobby's visitors are shown that. The room's row stays unchanged.
        return replace(snapshot, state=WaitingRoom.State.DRAINED)
    return replace(snapshot, opens_at=event.policy.opens_at)


def invalidate(event_id: int) -> None:
    """Make the next `get_snapshot` in this process read PostgreSQL."""
    slot = _cache.get(event_id)
    if slot is not None:
        slot.is_invalidated, slot.fresh_until = True, 0.0


def renew(event_id: int) -> None:
    """Publish the room's committed state: this process shows it at once, the others within CACHE_SECONDS. Never fails:
    on an error the copy is out of date until the next tick."""
    invalidate(event_id)
    try:
        copy_to_redis([event_id])
    except DatabaseError as error:
        logger.warning("the room snapshot of event %s is renewed with the next tick: %s", event_id, error)


def renew_after_commit(event_id: int) -> None:
    """Call `renew` after the commit of the current transaction on Django's connection."""
    transaction.on_commit(partial(renew, event_id), robust=True)


def copy_to_redis(event_ids: Iterable[int]) -> list[RoomSnapshot]:
    """Read the snapshots of these rooms, write them to Redis if it is available, and return them."""
    wanted = list(event_ids)
    snapshots = read_snapshots(wanted) if wanted else []
    _write_copies(snapshots)
    return snapshots


def replace_copy(event_id: int) -> tuple[RoomSnapshot, int]:
    """Delete the copy, write it again and read it back; return the snapshot and its size in bytes. Raises
    redis.RedisUnavailable, also if another value was read back, and WaitingRoom.DoesNotExist."""
    client = redis.client()
    client.delete(key(event_id))
    snapshot = read_snapshot(event_id)
    raw = encode(snapshot)
    client.set(key(event_id), raw, px=COPY_TTL_MS)
    if _decoder.decode(client.get(key(event_id)) or b"null") != snapshot:
        raise redis.RedisUnavailable("it did not return what was written")
    return snapshot, len(raw)


def rooms_to_copy() -> list[int]:
    """Return the events whose rooms may have many visitors: lobbies, and rooms on sale with waiting entries.

    Other rooms have few polls: the first of them reads PostgreSQL and writes a copy for the others.
    """
    with connection.cursor() as cursor:
        rooms = _rooms_to_copy.rows(cursor)
    selling = set(events.selling_event_ids()) if not all(is_lobby for _, is_lobby in rooms) else set()
    return [event_id for event_id, is_lobby in rooms if is_lobby or event_id in selling]


# --- the copy --------------------------------------------------------------------------------------------------------


def key(event_id: int) -> str:
    return f"room:{{{event_id}}}"


def encode(snapshot: RoomSnapshot) -> bytes:
    return msgspec.json.encode(snapshot)


_decoder = msgspec.json.Decoder(RoomSnapshot)


def decode(raw: bytes, event_id: int) -> RoomSnapshot | None:
    """Decode a copy; return None if it is invalid, of another room, or not recent."""
    if len(raw) > BYTES_MAX:
        return None
    try:
        snapshot = _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if snapshot.event_id != event_id or snapshot.at.tzinfo is None or snapshot.state not in WaitingRoom.State.values:
        return None
    # A copy in a restored Redis is old; one from the future was not written by this deployment.
    age = abs((clock.process_now() - snapshot.at).total_seconds())
    return snapshot if age < COPY_FRESH_SECONDS else None


def _read_copy(event_id: int) -> RoomSnapshot | None:
    if COPY_FRESH_SECONDS <= 0:
        return None

    def get(client: Redis) -> RoomSnapshot | None:
        try:
            raw = client.get(key(event_id))
        except ResponseError:
            raw = b""  # A value of another type.
        if raw is None:
            return None
        snapshot = decode(raw if isinstance(raw, bytes) else raw.encode(), event_id)
        if snapshot is None:
            client.delete(key(event_id))  # So that the next reader of PostgreSQL can write a valid one.
        return snapshot

    return redis.attempt(get)


def _write_copies(snapshots: list[RoomSnapshot], *, only_missing: bool = False) -> None:
    """Write the snapshots to Redis if it is available. `only_missing`: do not overwrite, since another process may have
    written a later one meanwhile."""
    if not snapshots or COPY_FRESH_SECONDS <= 0:
        return

    def put(client: Redis) -> None:
        pipeline = client.pipeline(transaction=False)
        for snapshot in snapshots:
            pipeline.set(key(snapshot.event_id), encode(snapshot), px=COPY_TTL_MS, nx=only_missing)
        pipeline.execute()

    redis.attempt(put)
