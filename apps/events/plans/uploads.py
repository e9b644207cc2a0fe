"""Plans that staff send or that are stored: each process reads and stores one large plan at a time, because it takes
seconds of processor time."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar

from apps.events.plans.parse import parse_plan
from apps.events.plans.plan import Limits, Plan, PlanError
from apps.kernel.http import problems

LARGE_SEATS = 20_000
LARGE_BYTES = 32_768
"""The size of a file that may list 3,500 seats, with the shortest lines. To read and store it takes 0.2 s; a file of
24,000 seats, 1.3 s."""
_reading = threading.Lock()
_kept: ContextVar[ExitStack | None] = ContextVar("kept_plan_turn", default=None)
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


@contextmanager
def keeping_turn() -> Iterator[None]:
    """Let a large plan that `parse_alone` returns in the block keep its turn until the end of the block, in which it is
    stored."""
    with ExitStack() as kept:
        token = _kept.set(kept)
        try:
            yield
        finally:
            _kept.reset(token)


def parse_alone(data: bytes, limits: Limits) -> Plan:
    """Return the plan of these bytes. Raises PlanError, also if they are more than LARGE_BYTES while another thread of
    this process has the turn for a large plan: the process's other threads answer other requests meanwhile."""
    if len(data) <= LARGE_BYTES:
        return parse_plan(data, limits)
    if not _reading.acquire(blocking=False):
        raise PlanError("", "another large seating plan is being read at the moment; send the form again")
    with ExitStack() as turn:
        turn.callback(_reading.release)
        plan = parse_plan(data, limits)
        if (kept := _kept.get()) is not None:
            kept.push(turn.pop_all())
        return plan
