"""Manual rebuild of a room's copy in Redis, with a check that the order of the queue did not change.

Nothing is replayed: the copy is one small value, and the order is stored only in PostgreSQL.
"""

import hashlib
import time
from dataclasses import dataclass

from django.db import connection

from apps.kernel.db import sql
from apps.queue.snapshot import room_snapshot
from apps.queue.snapshot.room_snapshot import RoomSnapshot

CHUNK_MAX = 50_000
"""Entries digested by one statement, to keep each read of the queue short."""

_order_digest = sql.load("apps.queue", "order_digest")


@dataclass(frozen=True, slots=True)
class EntryOrder:
    """The order of an event's entries below a number."""

    entry_count: int
    digest: str
    """SHA-256 over the digests of its chunks, in hex."""


@dataclass(frozen=True, slots=True)
class RebuildResult:
    snapshot: RoomSnapshot
    bytes_count: int
    seconds: float
    """From the deletion of the copy until it was read back."""
    before: EntryOrder
    after: EntryOrder
    checking_seconds: float

    @property
    def is_same_order(self) -> bool:
        return self.before == self.after


def digest_order(event_id: int, *, before_number: int) -> EntryOrder:
    """Return the order of the event's entries below this number, from PostgreSQL."""
    digest, count, after = hashlib.sha256(), 0, 0
    while True:
        with connection.cursor() as cursor:
            ((in_piece, last, piece),) = _order_digest.rows(
                cursor, event_id=event_id, after=after, before=before_number, most=CHUNK_MAX
            )
        if not in_piece:
            return EntryOrder(count, digest.hexdigest())
        digest.update(bytes.fromhex(piece))
        count, after = count + in_piece, last


def rebuild(event_id: int) -> RebuildResult:
    """Delete the event's copy in Redis, write it again from PostgreSQL, and compare the order before and after.

    Raises redis.RedisUnavailable, and WaitingRoom.DoesNotExist for an event without a room. Safe at any time: without
    a copy, polls read PostgreSQL. Numbers assigned meanwhile are above the compared ones.
    """
    limit = room_snapshot.read_snapshot(event_id).next_number
    begun = time.perf_counter()
    before = digest_order(event_id, before_number=limit)
    checked = time.perf_counter()
    snapshot, bytes_count = room_snapshot.replace_copy(event_id)
    rebuilt = time.perf_counter()
    after = digest_order(event_id, before_number=limit)
    checking = time.perf_counter() - rebuilt + checked - begun
    return RebuildResult(snapshot, bytes_count, rebuilt - checked, before, after, checking)
