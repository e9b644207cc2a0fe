"""Plans that staff send or that are stored: each process reads and stores one large plan at a time, because it takes
seconds of processor time. Accounts take turns."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import NamedTuple

from apps.events.plans.parse import parse_plan
from apps.events.plans.plan import Limits, Plan, PlanError
from apps.kernel.http import problems
from apps.kernel.rate_limits.account_turns import AccountTurns

LARGE_SEATS = 20_000
LARGE_BYTES = 32_768
"""The size of a file that may list 3,500 seats, with the shortest lines. To read and store it takes 0.2 s; a file of
24,000 seats, 1.3 s."""
turns = AccountTurns(
    "large-plan",
    1,
    problems.Busy,
    if_own="Another large seating plan of yours is being read at the moment. Try again in a moment.",
    if_others="Another large seating plan is being read at the moment. Try again in a moment.",
)


class _Sender(NamedTuple):
    account_id: int
    kept: ExitStack


_sender: ContextVar[_Sender | None] = ContextVar("sender_of_plan", default=None)


@contextmanager
def reading_alone(account_id: int, seat_count: int) -> Iterator[None]:
    """Read a stored plan of so many seats in the block, for this account. Raises problems.Busy if it has more than
    LARGE_SEATS and another thread of this process reads such a plan, or one that was sent, or any process one of this
    account."""
    if seat_count <= LARGE_SEATS:
        yield
        return
    with turns.take(account_id):
        yield


@contextmanager
def keeping_turn(account_id: int) -> Iterator[None]:
    """Read the plans that this account sends: a large one that `parse_alone` returns in the block keeps its turn until
    the end of the block, in which it is stored."""
    with ExitStack() as kept:
        token = _sender.set(_Sender(account_id, kept))
        try:
            yield
        finally:
            _sender.reset(token)


def parse_alone(data: bytes, limits: Limits) -> Plan:
    """Return the plan of these bytes. Raises PlanError, also if they are more than LARGE_BYTES while another thread of
    this process has the turn for a large plan, or any process for one of the account: the process's other threads
    answer other requests meanwhile."""
    if len(data) <= LARGE_BYTES:
        return parse_plan(data, limits)
    sender = _sender.get()
    with ExitStack() as turn:
        try:
            turn.enter_context(turns.take(0 if sender is None else sender.account_id))
        except problems.Busy as busy:
            refusal = "another large seating plan is being read at the moment; send the form again"
            raise PlanError("", refusal) from busy
        plan = parse_plan(data, limits)
        if sender is not None:
            sender.kept.push(turn.pop_all())
        return plan
