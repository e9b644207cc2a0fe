"""Only so many requests of one event are under way in this process at once; the others wait before the door.

Whoever waits here has cost nothing but its own reading: no token is verified, nothing is asked, no batch knows of it.
So the crowd of one event, however large, is never in front of another event's buyers by more than a few requests in the
loop, in Redis and in PostgreSQL. While nobody else has anything to do an event may have more under way, since larger
batches are cheaper.

Few are not enough where they never stop: whoever is asked for more than it can do keeps every processor busy with them.
So beside another event a crowd comes in groups, all of one together, which is cheapest, and after each it rests in all
processes: it has a fifth of the time at most. That costs it little, since processes that rest in turn are in one
another's way less often.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from time import monotonic

from django.core.exceptions import ImproperlyConfigured
from prometheus_client import Gauge

from apps.kernel.fastpath.active_events import ACTIVE_SECONDS, ActiveEvents, slot_of
from apps.kernel.http import problems

WAIT_SECONDS_MAX = 5.0
"""Who has waited for longer is refused: its client may have given up."""

CHECK_SECONDS = 0.25
"""So often those who wait are looked after: who has waited too long is told, and a group that goes on for longer than
this is not waited for, so that one who is slow has no place but its own."""
PAUSE_FACTOR = 4.0
"""A crowd rests for so many times as long as its last group took."""
PAUSE_SECONDS_MAX = 0.25
"""No rest is longer."""

_waiting = Gauge("fairgate_turnstile_waiting_count", "Requests before the door, beyond what may be under way.",
                 ["turnstile"], registry=None)  # fmt: skip
METRICS = (_waiting,)
"""Of this process; the composition root registers them where it serves figures."""


class _EventQueue:
    """Of one event."""

    __slots__ = ("at", "begun", "is_check_scheduled", "is_resting", "left_over", "place", "under_way", "waiting")

    def __init__(self, place: int) -> None:
        self.place = place
        """Of `ActiveEvents`."""
        self.under_way = 0
        self.at = 0.0
        """The last time that somebody asked for it."""
        self.begun = 0.0
        """When the group under way, or its first, was let in."""
        self.left_over = 0
        """Those under way, at most, that are of earlier groups."""
        self.is_resting = False
        self.is_check_scheduled = False
        self.waiting: deque[tuple[float, Callable[[problems.Problem | None], None]]] = deque()


class ConcurrencyLimit:
    """`alone_max`: how many an event may have under way while no other is active; `beside_max`: while one is.
    `waiting_max`: how many of one event may wait; one more is refused. `knows`: whether there is such an event, as far
    as is known at sight. `activity`: which events are active, on all of the machine. Used on one loop's thread. Raises
    ImproperlyConfigured where nobody could ever pass."""

    def __init__(
        self,
        name: str,
        *,
        alone_max: int,
        beside_max: int,
        waiting_max: int,
        knows: Callable[[str], bool],
        activity: ActiveEvents,
    ) -> None:
        if alone_max < 1 or beside_max < 1 or waiting_max < 0:
            of = f"LANE_{name.upper()}"
            raise ImproperlyConfigured(f"{of}_MAX and {of}_BESIDE_MAX are at least 1, {of}_WAITING_MAX at least 0")
        self._knows = knows
        self._activity = activity
        self._alone_max = alone_max
        self._beside_max = beside_max
        self._waiting_max = waiting_max
        self._queues: dict[str, _EventQueue] = {}
        self._tidied_at = 0.0
        self._waiting = _waiting.labels(name)
        self._waiting.set(0)

    def applies_to(self, event: str) -> bool:
        """Whether its requests pass here: nobody's crowd is held up by events that clients make up."""
        return event in self._queues or self._knows(event)

    def try_acquire(self, event: str) -> bool:
        """Whether the request may go on at once. If so, `leave` follows."""
        line = self._queues.get(event)
        if line is None:
            line = self._queues[event] = _EventQueue(slot_of(event))
        now = line.at = monotonic()
        self._activity.note(line.place, now)
        if now - self._tidied_at > ACTIVE_SECONDS:
            self._tidy(now)
        if line.waiting or line.under_way >= self._current_limit(line, now):
            return False
        if line.under_way <= line.left_over:
            line.begun = now
        line.under_way += 1
        return True

    def wait(self, event: str, go_on: Callable[[problems.Problem | None], None]) -> None:
        """`go_on` will be called at the request's turn, with None, and `leave` follows; or with why it is refused.
        Raises problems.Busy where too many wait. After `try_acquire` has said no."""
        line = self._queues[event]
        if len(line.waiting) >= self._waiting_max:
            raise problems.Busy
        line.waiting.append((line.at, go_on))
        self._waiting.inc()
        self._schedule_check(line)

    async def acquire(self, event: str) -> None:
        """The request may go on, and `leave` follows. Raises problems.Busy."""
        if self.try_acquire(event):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def go_on(refusal: problems.Problem | None) -> None:
            if turn.done():
                if refusal is None:
                    self.leave(event)  # It has gone meanwhile.
            elif refusal is None:
                turn.set_result(None)
            else:
                turn.set_exception(refusal)

        self.wait(event, go_on)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave(event)  # Its turn came in the very step in which it went.
            raise

    def leave(self, event: str) -> None:
        """A request of this event is not under way any more; the next one that waits is, or will be."""
        line = self._queues[event]
        line.under_way -= 1
        line.left_over = min(line.left_over, line.under_way)
        if not line.waiting or line.is_resting:
            return
        now = monotonic()
        if not self._admits_in_groups(line, now):
            self._admit_waiting(line)
        elif line.under_way <= line.left_over:
            line.is_resting = True
            rest = min(PAUSE_FACTOR * (now - line.begun), PAUSE_SECONDS_MAX)
            asyncio.get_running_loop().call_later(rest, self._end_pause, line)

    def _admits_in_groups(self, line: _EventQueue, now: float) -> bool:
        """Whether it comes in groups: beside another event, and there is a whole one to come."""
        return len(line.waiting) >= self._beside_max and self._activity.is_any_other_active(line.place, now)

    def _schedule_check(self, line: _EventQueue) -> None:
        """Somebody looks at this line in a moment, and for as long as anybody waits."""
        if not line.is_check_scheduled:
            line.is_check_scheduled = True
            asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check_queue, line)

    def _check_queue(self, line: _EventQueue) -> None:
        line.is_check_scheduled = False
        now = monotonic()
        self._refuse_late(line, now)
        if line.waiting:
            self._schedule_check(line)
            if self._admits_in_groups(line, now) and not line.is_resting and now - line.begun >= CHECK_SECONDS:
                line.left_over = line.under_way
                self._admit_waiting(line)

    def _refuse_late(self, line: _EventQueue, now: float) -> None:
        """Whoever has waited too long hears so."""
        while line.waiting and now - line.waiting[0][0] > WAIT_SECONDS_MAX:
            _, go_on = line.waiting.popleft()
            self._waiting.dec()
            go_on(problems.Busy())

    def _end_pause(self, line: _EventQueue) -> None:
        line.is_resting = False
        self._admit_waiting(line)

    def _admit_waiting(self, line: _EventQueue) -> None:
        now = monotonic()
        self._refuse_late(line, now)
        most = self._current_limit(line, now)
        while line.waiting and line.under_way < most:
            _, go_on = line.waiting.popleft()
            self._waiting.dec()
            if line.under_way <= line.left_over:
                line.begun = now
            line.under_way += 1
            # In the loop's next step, so that a row of them that are refused at once does not go ever deeper.
            asyncio.get_running_loop().call_soon(go_on, None)

    def _current_limit(self, line: _EventQueue, now: float) -> int:
        return self._beside_max if self._activity.is_any_other_active(line.place, now) else self._alone_max

    def _tidy(self, now: float) -> None:
        self._tidied_at = now
        for event, line in list(self._queues.items()):
            if not line.under_way and not line.waiting and now - line.at > ACTIVE_SECONDS:
                del self._queues[event]
