"""What a room shows to everybody, as one small value: a poll reads this and its own token, and nothing else.

PostgreSQL says what is true. The gatekeeper writes a copy to Redis after its tick, so that any number of processes ask
PostgreSQL for nothing, and each process keeps what it read for a tenth of a second. Without Redis, or with a copy that
is old or not ours, PostgreSQL is read instead: one statement per process and tenth of a second. A board says where the
line stands; it never lets anybody in.

How old it may be is bounded: CACHE_SECONDS in the process, COPY_FRESH_SECONDS in Redis, together less than the
shortest `next_poll`. So whoever asks no sooner than told sees the head go forward only, whichever process answers.
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
from apps.queue.models import WaitingRoom

logger = logging.getLogger(__name__)

CACHE_SECONDS = 0.1
COPY_FRESH_SECONDS = 0.6
"""Two ticks may fail to write it."""
COPY_TTL_MS = 600
"""What is too old to be believed goes away by itself."""
BYTES_MAX = 4_096
"""No board comes near this: what is longer is not read."""
MEASURED_SECONDS = 120
MEASURED_MIN_COUNT = 5
CACHED_ROOMS_MAX = 1_000
"""Rooms that a process remembers."""

_PACKAGE = "apps.queue"
_boards = sql.load(_PACKAGE, "boards")
_boards_to_copy = sql.load(_PACKAGE, "boards_to_copy")


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
    """In force, per second."""
    rate_ceiling: Annotated[int, Meta(ge=1)]
    admitted_count: Count
    admitted_seconds: Annotated[float, Meta(ge=0)]
    """So many were let in during the last so many seconds, MEASURED_SECONDS at most."""
    active_max: Count
    claim_seconds: Annotated[int, Meta(ge=1)]
    admission_seconds: Annotated[int, Meta(ge=1)]
    supply_available: Count | None
    supply_held: Count | None
    message: str
    message_at: datetime | None
    lobby_count: Count
    """Entries the lobby has had."""
    is_frozen: bool
    """Nobody enters the lobby any more."""
    is_drawn: bool
    """Every entrant of the lobby has a number."""
    chain_head: str
    """Of the first-come hash chain, in hex; empty before its first link."""
    epoch: Count
    opens_at: datetime | None = None
    """In a lobby: when it is drawn, which is the on-sale's opening."""
    version: Literal[2] = 2
    """Of this form. A copy of another form is nobody's."""

    @property
    def measured_rate(self) -> float | None:
        """Admissions per second as they went lately; None where too few did to say."""
        if self.admitted_count < MEASURED_MIN_COUNT or self.admitted_seconds < 1:
            return None
        return self.admitted_count / self.admitted_seconds

    @property
    def full_rate(self) -> float:
        """Admissions per second with every slot taken, should everybody keep theirs for as long as they may choose."""
        return min(self.rate, max(1, self.active_max) / self.admission_seconds)

    @property
    def stage(self) -> str:
        """Of the lobby: `lobby` until it opens, `drawing` until everybody in it has a number, then empty."""
        if self.state == WaitingRoom.State.LOBBY:
            return "lobby"
        return "drawing" if self.lobby_count and not self.is_drawn else ""


class _CacheSlot:
    """One room's board as this process read it last, and the lock under which one thread reads it for all."""

    __slots__ = ("fresh_until", "is_invalidated", "lock", "snapshot")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.snapshot: RoomSnapshot | None = None
        self.fresh_until = 0.0
        """On the process's monotonic clock."""
        self.is_invalidated = False

    def get_fresh(self, number: int) -> RoomSnapshot | None:
        board = self.snapshot
        if board is None or time.monotonic() >= self.fresh_until or board.next_number <= number:
            return None
        return board


_cache: dict[int, _CacheSlot] = {}


def get_snapshot(event_id: int, *, with_number: int = 0) -> RoomSnapshot:
    """The room's board; `with_number`: one that knows of this number, so that whoever just joined is not told of a
    moment before. Raises WaitingRoom.DoesNotExist."""
    kept = _cache.get(event_id)
    if kept is None:
        if len(_cache) >= CACHED_ROOMS_MAX:
            _cache.clear()
        kept = _cache.setdefault(event_id, _CacheSlot())
    board = kept.get_fresh(with_number)
    if board is not None:
        return board
    with kept.lock:
        board = kept.get_fresh(with_number)  # As somebody read it while we waited.
        if board is not None:
            return board
        last = kept.snapshot
        is_fresh = last is not None and time.monotonic() < kept.fresh_until
        board = None if kept.is_invalidated or is_fresh else _read_copy(event_id)
        if board is None or board.next_number <= with_number or (last is not None and _is_behind(board, last)):
            kept.is_invalidated = False
            board = read_snapshot(event_id)
            _write_copies([board], only_missing=True)
        kept.snapshot, kept.fresh_until = board, time.monotonic() + CACHE_SECONDS
        return board


def peek(event_id: int) -> tuple[RoomSnapshot, float] | None:
    """The board that this process read last, and for how many seconds it has been older than CACHE_SECONDS (negative:
    it is not yet); None without one. Asks nobody."""
    kept = _cache.get(event_id)
    board = None if kept is None else kept.snapshot
    return None if kept is None or board is None else (board, time.monotonic() - kept.fresh_until)


def _is_behind(board: RoomSnapshot, last: RoomSnapshot) -> bool:
    return board.head < last.head or board.next_number < last.next_number or board.epoch < last.epoch


def read_snapshot(event_id: int) -> RoomSnapshot:
    """The room's board as PostgreSQL has it now. Raises WaitingRoom.DoesNotExist."""
    for board in read_snapshots([event_id]):
        return board
    raise WaitingRoom.DoesNotExist


def read_snapshots(event_ids: Iterable[int]) -> list[RoomSnapshot]:
    """The boards of these rooms as PostgreSQL has them now, in one statement (and one more for each lobby)."""
    with connection.cursor() as cursor:
        rows = _boards.rows(cursor, event_ids=list(event_ids), window_seconds=MEASURED_SECONDS)
    boards = [RoomSnapshot(*row) for row in rows]
    return [_with_opening(board) if board.state == WaitingRoom.State.LOBBY else board for board in boards]


def _with_opening(board: RoomSnapshot) -> RoomSnapshot:
    event = events.get_event_by_id(board.event_id)
    if event.is_over(board.at):
        # It will never open: whoever gathered is told so. The room itself stays as its draw was promised.
        return replace(board, state=WaitingRoom.State.DRAINED)
    return replace(board, opens_at=event.policy.opens_at)


def invalidate(event_id: int) -> None:
    """The next `get_snapshot` in this process reads PostgreSQL."""
    kept = _cache.get(event_id)
    if kept is not None:
        kept.is_invalidated, kept.fresh_until = True, 0.0


def clear_cache() -> None:
    """As in a process that has just started."""
    _cache.clear()


def renew(event_id: int) -> None:
    """What has just been committed is what everybody sees, in this process now and in the others within CACHE_SECONDS.
    Never fails: where it cannot, the copy is out of date for a moment more."""
    invalidate(event_id)
    try:
        copy_to_redis([event_id])
    except DatabaseError as error:
        logger.warning("the board of event %s is renewed with the next tick: %s", event_id, error)


def renew_after_commit(event_id: int) -> None:
    """`renew`, once the transaction under way on Django's connection is committed."""
    transaction.on_commit(partial(renew, event_id), robust=True)


def copy_to_redis(event_ids: Iterable[int]) -> list[RoomSnapshot]:
    """The copies in Redis are of this moment, if it is there; the boards."""
    wanted = list(event_ids)
    boards = read_snapshots(wanted) if wanted else []
    _write_copies(boards)
    return boards


def replace_copy(event_id: int) -> tuple[RoomSnapshot, int]:
    """The copy is thrown away, made anew and read back; the board and its size in bytes. Raises redis.RedisAway, also
    where another value came back, and WaitingRoom.DoesNotExist."""
    client = redis.client()
    client.delete(key(event_id))
    board = read_snapshot(event_id)
    raw = encode(board)
    client.set(key(event_id), raw, px=COPY_TTL_MS)
    if _decoder.decode(client.get(key(event_id)) or b"null") != board:
        raise redis.RedisUnavailable("it did not give back what was written")
    return board, len(raw)


def rooms_to_copy() -> list[int]:
    """The events whose room a crowd may be asking about: a lobby's, and those on sale in whose line somebody waits.

    Where nobody waits hardly anybody asks: the first who does reads PostgreSQL, and leaves a copy for the others.
    """
    with connection.cursor() as cursor:
        rooms = _boards_to_copy.rows(cursor)
    selling = set(events.selling_event_ids()) if not all(is_lobby for _, is_lobby in rooms) else set()
    return [event_id for event_id, is_lobby in rooms if is_lobby or event_id in selling]


# --- the copy --------------------------------------------------------------------------------------------------------


def key(event_id: int) -> str:
    return f"room:{{{event_id}}}"


def encode(board: RoomSnapshot) -> bytes:
    return msgspec.json.encode(board)


_decoder = msgspec.json.Decoder(RoomSnapshot)


def decode(raw: bytes, event_id: int) -> RoomSnapshot | None:
    """The board that this text is, if it is one, of this room, and of now."""
    if len(raw) > BYTES_MAX:
        return None
    try:
        board = _decoder.decode(raw)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    if board.event_id != event_id or board.at.tzinfo is None or board.state not in WaitingRoom.State.values:
        return None
    # A copy that came back with a restored Redis is old; one from the future was written by nobody of this house.
    age = abs((clock.process_now() - board.at).total_seconds())
    return board if age < COPY_FRESH_SECONDS else None


def _read_copy(event_id: int) -> RoomSnapshot | None:
    if COPY_FRESH_SECONDS <= 0:
        return None

    def get(client: Redis) -> RoomSnapshot | None:
        try:
            raw = client.get(key(event_id))
        except ResponseError:
            raw = b""  # A value of another kind.
        if raw is None:
            return None
        board = decode(raw if isinstance(raw, bytes) else raw.encode(), event_id)
        if board is None:
            client.delete(key(event_id))  # So that whoever reads PostgreSQL now may put a good one there.
        return board

    return redis.attempt(get)


def _write_copies(boards: list[RoomSnapshot], *, only_missing: bool = False) -> None:
    """The boards are in Redis, if it is there. `only_missing`: where none is, since another process may have written
    a later one meanwhile."""
    if not boards or COPY_FRESH_SECONDS <= 0:
        return

    def put(client: Redis) -> None:
        pipeline = client.pipeline(transaction=False)
        for board in boards:
            pipeline.set(key(board.event_id), encode(board), px=COPY_TTL_MS, nx=only_missing)
        pipeline.execute()

    redis.attempt(put)
