"""Random bytes of the system's, fetched many at a time: each journey to the kernel also hands the interpreter to
whichever thread commits meanwhile, and the loop would wait for it to come back, twice for each who joins."""

import os
import time
from collections import deque
from uuid import UUID

SIZE = 16
_FETCHED = 256

# Each is given out once: taking one off is a single step, whatever threads do.
_chunks: deque[bytes] = deque()
# A child of this process would give out the same ones.
os.register_at_fork(after_in_child=_chunks.clear)


def next_bytes() -> bytes:
    """Sixteen random bytes that nobody else has."""
    try:
        return _chunks.pop()
    except IndexError:
        fresh = os.urandom(SIZE * _FETCHED)
    _chunks.extend([fresh[at : at + SIZE] for at in range(SIZE, len(fresh), SIZE)])
    return fresh[:SIZE]


def new_uuid() -> UUID:
    """As `uuid.uuid4`."""
    return UUID(bytes=next_bytes(), version=4)


_RANDOM_MASK = (1 << 74) - 1
_VERSION_7 = 7 << 76 | 2 << 62


def new_uuid7() -> UUID:
    """One that follows those of earlier milliseconds (version 7 of RFC 9562): the millisecond, then 74 random bits.

    What is inserted under it lies beside what was inserted a moment ago, in every index that has it. Under a random one
    each row reads, changes and logs another page of each, the more the larger the table has grown.
    """
    random = int.from_bytes(next_bytes()) & _RANDOM_MASK
    # The upper 12 bits lie between version and variant.
    spread = random >> 62 << 64 | random & (1 << 62) - 1
    return UUID(int=time.time_ns() // 1_000_000 << 80 | _VERSION_7 | spread)
