"""Rebuilds a room's copy in Redis on request, and checks that the order of the queue did not change.

The copy is one small value, so there is nothing to replay. The order is stored only in PostgreSQL.
"""

import hashlib
import time
from dataclasses import dataclass

from django.db import connection

from apps.kernel.db import sql
from apps.queue.snapshot import room_snapshot
from apps.queue.snapshot.room_snapshot import RoomSnapshot

CHUNK_MAX = 50_000
"""Entries that one statement digests; the limit keeps each statement short."""

_order_digest = sql.load("apps.queue", "order_digest")


@dataclass(frozen=True, slots=True)
class EntryOrder:
    """The number and the digest of an event's entries below a limit, in the order of the queue."""

    entry_count: int
    digest: str
    """SHA-256 over the digests of the chunks, in hex."""


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
    """Read the event's entries with numbers below this one from PostgreSQL; return their count and the digest."""
    digest, count, after = hashlib.sha256(), 0, 0
    while True:
        with connection.cursor() as cursor:
            ((chunk_count, last_number, chunk_digest),) = _order_digest.rows(
                cursor, event_id=event_id, after=after, before=before_number, most=CHUNK_MAX
            )
        if not chunk_count:
            return EntryOrder(count, digest.hexdigest())
        digest.update(bytes.fromhex(chunk_digest))
        count, after = count + chunk_count, last_number


def rebuild(event_id: int) -> RebuildResult:
    """Delete the event's copy in Redis, write it again from PostgreSQL, and compare the order before and after.

    Raises redis.RedisUnavailable, and WaitingRoom.DoesNotExist for an event without a room. It may run at any time:
    while there is no copy, polls read PostgreSQL, and entries that join meanwhile get numbers above the compared ones.
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
