"""Random bytes from the operating system, fetched in batches.

Each system call also releases the interpreter lock, which another thread may then take: without batches, the event loop
would wait for the lock twice per join.
"""

import base64
import os
import time
from collections import deque
from functools import cache
from uuid import UUID

SIZE = 16
_FETCHED = 256

# `pop` is atomic, so no two threads receive the same bytes.
_chunks: deque[bytes] = deque()
# A forked child would return the same bytes as its parent.
os.register_at_fork(after_in_child=_chunks.clear)


def next_bytes() -> bytes:
    """Return sixteen random bytes."""
    try:
        return _chunks.pop()
    except IndexError:
        fresh = os.urandom(SIZE * _FETCHED)
    _chunks.extend([fresh[at : at + SIZE] for at in range(SIZE, len(fresh), SIZE)])
    return fresh[:SIZE]


def new_uuid() -> UUID:
    """Return a random UUID, like `uuid.uuid4`."""
    return UUID(bytes=next_bytes(), version=4)


_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


def new_code(length: int, alphabet: str = _BASE32) -> str:
    """Return a random text of these 32 characters, five random bits each."""
    chunks = b"".join([next_bytes() for _ in range(-(-length * 5 // (8 * SIZE)))])
    return base64.b32encode(chunks)[:length].decode().translate(_from_base32(alphabet))


@cache
def _from_base32(alphabet: str) -> dict[int, int]:
    """Return the table that translates base 32 into this alphabet."""
    assert len(set(alphabet)) == 32
    return str.maketrans(_BASE32, alphabet)


_RANDOM_MASK = (1 << 74) - 1
_VERSION_7 = 7 << 76 | 2 << 62


def new_uuid7() -> UUID:
    """Return a UUID that sorts by creation time (version 7 of RFC 9562): the millisecond, then 74 random bits.

    Rows inserted one after the other then lie next to each other in every index on the id. With random ids each row
    reads, changes and logs a different page of each index, which costs more the larger the table is.
    """
    random = int.from_bytes(next_bytes()) & _RANDOM_MASK
    # The upper 12 bits lie between version and variant.
    spread = random >> 62 << 64 | random & (1 << 62) - 1
    return UUID(int=time.time_ns() // 1_000_000 << 80 | _VERSION_7 | spread)
