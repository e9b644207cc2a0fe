"""The copy in Redis made anew by hand, and proof that nobody changed place meanwhile.

There is nothing to replay: the copy is one small value, and the order lies in PostgreSQL and nowhere else.
"""

import hashlib
import time
from dataclasses import dataclass

from django.db import connection

from apps.kernel.db import sql
from apps.queue.snapshot import room_snapshot as boards
from apps.queue.snapshot.room_snapshot import Board

PIECE_MAX = 50_000
"""Places digested by one statement: no read of the line is long."""

_order_digest = sql.load("apps.queue", "order_digest")


@dataclass(frozen=True, slots=True)
class Order:
    """The order of an event's places, those below a number."""

    places_count: int
    digest: str
    """SHA-256 over the digests of its pieces, in hex."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    board: Board
    bytes_count: int
    seconds: float
    """From the loss of the copy until it was read back."""
    before: Order
    after: Order
    checking_seconds: float

    @property
    def is_same_order(self) -> bool:
        return self.before == self.after


def order_of(event_id: int, *, before_number: int) -> Order:
    """The order of the event's places below this number, as PostgreSQL has it."""
    digest, count, after = hashlib.sha256(), 0, 0
    while True:
        with connection.cursor() as cursor:
            ((in_piece, last, piece),) = _order_digest.rows(
                cursor, event_id=event_id, after=after, before=before_number, most=PIECE_MAX
            )
        if not in_piece:
            return Order(count, digest.hexdigest())
        digest.update(bytes.fromhex(piece))
        count, after = count + in_piece, last


def rebuild(event_id: int) -> Rebuilt:
    """The event's copy in Redis is gone and made anew from PostgreSQL; the order of its places before and after.

    Raises redis.RedisAway, and WaitingRoom.DoesNotExist for an event without a room. May be done at any time: while
    there is no copy, polls read PostgreSQL. Numbers handed out meanwhile are above those that are compared.
    """
    limit = boards.read(event_id).next_number
    begun = time.perf_counter()
    before = order_of(event_id, before_number=limit)
    checked = time.perf_counter()
    board, bytes_count = boards.replace_copy(event_id)
    rebuilt = time.perf_counter()
    after = order_of(event_id, before_number=limit)
    checking = time.perf_counter() - rebuilt + checked - begun
    return Rebuilt(board, bytes_count, rebuilt - checked, before, after, checking)
