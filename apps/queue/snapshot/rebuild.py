"""The copy in Redis made anew by hand, and proof that nobody changed place meanwhile.

There is nothing to replay: the copy is one small value, and the order lies in PostgreSQL and nowhere else.
"""

import hashlib
import time
from dataclasses import dataclass

from django.db import connection

from apps.kernel.db import sql
from apps.queue.snapshot import room_snapshot
from apps.queue.snapshot.room_snapshot import RoomSnapshot

CHUNK_MAX = 50_000
"""Places digested by one statement: no read of the line is long."""

_order_digest = sql.load("apps.queue", "order_digest")


@dataclass(frozen=True, slots=True)
class EntryOrder:
    """The order of an event's places, those below a number."""

    entry_count: int
    digest: str
    """SHA-256 over the digests of its pieces, in hex."""


@dataclass(frozen=True, slots=True)
class RebuildResult:
    board: RoomSnapshot
    bytes_count: int
    seconds: float
    """From the loss of the copy until it was read back."""
    before: EntryOrder
    after: EntryOrder
    checking_seconds: float

    @property
    def is_same_order(self) -> bool:
        return self.before == self.after


def digest_order(event_id: int, *, before_number: int) -> EntryOrder:
    """The order of the event's places below this number, as PostgreSQL has it."""
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
    """The event's copy in Redis is gone and made anew from PostgreSQL; the order of its places before and after.

    Raises redis.RedisAway, and WaitingRoom.DoesNotExist for an event without a room. May be done at any time: while
    there is no copy, polls read PostgreSQL. Numbers handed out meanwhile are above those that are compared.
    """
    limit = room_snapshot.read_snapshot(event_id).next_number
    begun = time.perf_counter()
    before = digest_order(event_id, before_number=limit)
    checked = time.perf_counter()
    board, bytes_count = room_snapshot.replace_copy(event_id)
    rebuilt = time.perf_counter()
    after = digest_order(event_id, before_number=limit)
    checking = time.perf_counter() - rebuilt + checked - begun
    return RebuildResult(board, bytes_count, rebuilt - checked, before, after, checking)
