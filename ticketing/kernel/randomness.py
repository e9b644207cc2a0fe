"""Random bytes of the system's, fetched many at a time: each journey to the kernel also hands the interpreter to
whichever thread commits meanwhile, and the loop would wait for it to come back, twice for each who joins."""

import os
from collections import deque
from uuid import UUID

SIZE = 16
_FETCHED = 256

# Each is given out once: taking one off is a single step, whatever threads do.
_pieces: deque[bytes] = deque()
# A child of this process would give out the same ones.
os.register_at_fork(after_in_child=_pieces.clear)


def piece() -> bytes:
    """Sixteen random bytes that nobody else has."""
    try:
        return _pieces.pop()
    except IndexError:
        fresh = os.urandom(SIZE * _FETCHED)
    _pieces.extend([fresh[at : at + SIZE] for at in range(SIZE, len(fresh), SIZE)])
    return fresh[:SIZE]


def new_uuid() -> UUID:
    """As `uuid.uuid4`."""
    return UUID(bytes=piece(), version=4)
