"""Plans that staff send or that are stored: each process reads one large plan at a time, because it takes seconds of
processor time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from apps.events.plans.parse import parse_plan
from apps.events.plans.plan import Limits, Plan, PlanError
from apps.kernel.http import problems

LARGE_SEATS = 20_000
LARGE_BYTES = 300_000
"""The size of a file that may list more seats than LARGE_SEATS, with the shortest lines."""
_reading = threading.Lock()
_ANOTHER = "Another large seating plan is being read at the moment. Try again in a moment."


@contextmanager
def reading_alone(seat_count: int) -> Iterator[None]:
    """Read a stored plan of so many seats in the block. Raises problems.Busy if it has more than LARGE_SEATS and
    another thread of this process reads such a plan, or one that was sent."""
    if seat_count <= LARGE_SEATS:
        yield
        return
    if not _reading.acquire(blocking=False):
        raise problems.Busy(_ANOTHER)
    try:
        yield
    finally:
        _reading.release()


def parse_alone(data: bytes, limits: Limits) -> Plan:
    """Return the plan of these bytes. Raises PlanError, also if they are more than LARGE_BYTES while another thread of
    this process reads a large plan: the process's other threads answer other requests meanwhile."""
    if len(data) <= LARGE_BYTES:
        return parse_plan(data, limits)
    if not _reading.acquire(blocking=False):
        raise PlanError("", "another large seating plan is being read at the moment; send the form again")
    try:
        return parse_plan(data, limits)
    finally:
        _reading.release()
