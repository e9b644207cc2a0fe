"""Changes of many seats: each process makes one at a time, because it takes seconds on a busy machine."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from apps.kernel.http import problems

LARGE_SEATS = 2_000
_changing = threading.Lock()


@contextmanager
def changing_alone(seat_count: int) -> Iterator[None]:
    """Change so many seats in the block. Raises problems.Busy if they are more than LARGE_SEATS and another thread of
    this process changes as many."""
    if seat_count <= LARGE_SEATS:
        yield
        return
    if not _changing.acquire(blocking=False):
        raise problems.Busy("Another large change of seats is being made. Nothing was changed; try again in a moment.")
    try:
        yield
    finally:
        _changing.release()
