"""Changes of many seats: each process makes one at a time, because it takes seconds on a busy machine. Organizers take
turns."""

from collections.abc import Iterator
from contextlib import contextmanager

from apps.kernel.http import problems
from apps.kernel.rate_limits.account_turns import AccountTurns

LARGE_SEATS = 2_000
turns = AccountTurns(
    "large-change",
    1,
    problems.Busy,
    if_own="Another large change of your seats is being made. Nothing was changed; try again in a moment.",
    if_others="Another large change of seats is being made. Nothing was changed; try again in a moment.",
)


@contextmanager
def changing_alone(organizer_id: int, seat_count: int) -> Iterator[None]:
    """Change so many seats of the organizer in the block. Raises problems.Busy if they are more than LARGE_SEATS and
    another thread of this process changes as many, or any process as many of this organizer's."""
    if seat_count <= LARGE_SEATS:
        yield
        return
    with turns.take(organizer_id):
        yield
