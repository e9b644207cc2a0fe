"""Limits how many requests of one kind and event a process handles at once. The others wait in the event's queue.

A queued request has only been parsed: its token is not yet verified and nothing has been sent to Redis or PostgreSQL.
So however many requests one event has, only a few of them can be ahead of another event's requests in the loop, in
Redis and in PostgreSQL. While no other event is active, an event may have more requests under way, since larger batches
are cheaper.

While more requests wait than may run together, and the oldest has waited for `late_seconds`, it and new ones are
refused: under overload every client soon has an answer, and the requests that are handled are young. A refusal on
arrival is the cheapest, and leaves the processors to the others. While another event is active they may wait
`BESIDE_PATIENCE` times as long: a client that waits costs nothing, and one that is refused may ask again at once.

A low limit alone does not help while requests never stop: a process that receives more than it can handle keeps every
processor busy. So while another event is active, a busy event's requests are handled in groups. The requests of a group
run together, which is cheapest. After each group the event pauses, in every process, so it uses a fifth of the time at
most. The pauses cost it little, since processes that pause in turn contend less.
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
"""A request that has waited longer is refused: its client may have given up."""

CHECK_SECONDS = 0.25
"""The interval at which a queue is checked. A check refuses requests that have waited too long. If the current group
has taken longer than this, the next one starts, so that a slow request occupies only its own slot."""
PAUSE_FACTOR = 4.0
"""The length of an event's pause, as a multiple of the duration of its last group."""
BESIDE_PATIENCE = 10.0
PAUSE_SECONDS_MAX = 0.25
"""No pause is longer."""

_waiting = Gauge("fairgate_turnstile_waiting_count", "Requests that wait for a slot.",
                 ["turnstile"], registry=None)  # fmt: skip
METRICS = (_waiting,)
"""Metrics of this process; the composition root registers them where it serves metrics."""


class _EventQueue:
    """The requests of one event."""

    __slots__ = ("at", "begun", "is_check_scheduled", "is_paused", "left_over", "place", "under_way", "waiting")

    def __init__(self, place: int) -> None:
        self.place = place
        """The event's slot in `ActiveEvents`."""
        self.under_way = 0
        self.at = 0.0
        """When the last request arrived."""
        self.begun = 0.0
        """When the first request of the current group started."""
        self.left_over = 0
        """The greatest number of requests under way that may belong to earlier groups."""
        self.is_paused = False
        self.is_check_scheduled = False
        self.waiting: deque[tuple[float, asyncio.Future[None]]] = deque()


class ConcurrencyLimit:
    """Limits the concurrent requests of each event, on the thread of one event loop. `alone_max` and `beside_max`: how
    many an event may have under way while no other event is active, and while one is. `waiting_max`: how many of one
    event may wait; further ones are refused. `late_seconds`: how long one may wait while more than `alone_max` wait.
    `find_key`: returns the key of the queue for a route's argument, usually the event, or None if the request is not
    limited. `activity`: the events active on this machine; None: they make no difference. Raises ImproperlyConfigured
    for limits that admit no request."""

    def __init__(
        self,
        name: str,
        *,
        alone_max: int,
        beside_max: int | None = None,
        waiting_max: int,
        late_seconds: float,
        find_key: Callable[[str], str | None],
        activity: ActiveEvents | None = None,
    ) -> None:
        beside_max = alone_max if beside_max is None else beside_max
        if alone_max < 1 or beside_max < 1 or waiting_max < 0:
            of = f"LANE_{name.upper()}"
            raise ImproperlyConfigured(f"{of}_MAX and {of}_BESIDE_MAX are at least 1, {of}_WAITING_MAX at least 0")
        self._find_key = find_key
        self._activity = activity
        self._alone_max = alone_max
        self._beside_max = beside_max
        self._waiting_max = waiting_max
        self._late_seconds = late_seconds
        self._queues: dict[str, _EventQueue] = {}
        self._tidied_at = 0.0
        self._waiting = _waiting.labels(name)
        self._waiting.set(0)

    def key_of(self, argument: str) -> str | None:
        """Return the key under which the request takes a slot; None: it is not limited. Slugs that clients invent get
        no queue."""
        return argument if argument in self._queues else self._find_key(argument)

    def note_activity(self, argument: str) -> None:
        """Count a request for the event of this argument that has succeeded. Refused and repeated requests, which cost
        a client nothing, make no event active."""
        key = self.key_of(argument)
        if self._activity is not None and key is not None and key in self._queues:
            self._activity.note(self._queues[key].place, monotonic())

    async def acquire(self, key: str) -> None:
        """Take a slot, waiting for it if necessary. `leave` must follow. Raises problems.Busy if too many requests wait
        or this one has waited too long."""
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = _EventQueue(slot_of(key))
        now = queue.at = monotonic()
        if now - self._tidied_at > ACTIVE_SECONDS:
            self._tidy(now)
        if not queue.waiting and queue.under_way < self._current_limit(queue, now):
            self._take_slot(queue, now)
            return
        if len(queue.waiting) >= self._waiting_max or (
            self._is_overload(queue) and now - queue.waiting[0][0] > self._patience(queue, now)
        ):
            raise problems.Busy
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.waiting.append((now, turn))
        self._waiting.inc()
        self._schedule_check(queue)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave(key)  # Its turn came in the step in which it was canceled.
            raise

    def _take_slot(self, queue: _EventQueue, now: float) -> None:
        if queue.under_way <= queue.left_over:
            queue.begun = now
        queue.under_way += 1

    def leave(self, key: str) -> None:
        """Release a slot. The next queued request takes it now or after the pause."""
        queue = self._queues[key]
        queue.under_way -= 1
        queue.left_over = min(queue.left_over, queue.under_way)
        if not queue.waiting or queue.is_paused:
            return
        now = monotonic()
        if not self._admits_in_groups(queue, now):
            self._admit_waiting(queue)
        elif queue.under_way <= queue.left_over:
            queue.is_paused = True
            pause = min(PAUSE_FACTOR * (now - queue.begun), PAUSE_SECONDS_MAX)
            asyncio.get_running_loop().call_later(pause, self._end_pause, queue)

    def _admits_in_groups(self, queue: _EventQueue, now: float) -> bool:
        """Return whether requests start in groups: another event is active and a whole group is waiting."""
        return len(queue.waiting) >= self._beside_max and self._is_any_other_active(queue, now)

    def _is_any_other_active(self, queue: _EventQueue, now: float) -> bool:
        return self._activity is not None and self._activity.is_any_other_active(queue.place, now)

    def _is_overload(self, queue: _EventQueue) -> bool:
        return len(queue.waiting) > self._alone_max

    def _patience(self, queue: _EventQueue, now: float) -> float:
        """Return how long a request may wait under overload, in seconds."""
        return self._late_seconds * (BESIDE_PATIENCE if self._is_any_other_active(queue, now) else 1)

    def _schedule_check(self, queue: _EventQueue) -> None:
        """Check this queue regularly for as long as requests wait in it."""
        if not queue.is_check_scheduled:
            queue.is_check_scheduled = True
            asyncio.get_running_loop().call_later(CHECK_SECONDS, self._check_queue, queue)

    def _check_queue(self, queue: _EventQueue) -> None:
        queue.is_check_scheduled = False
        now = monotonic()
        self._refuse_late(queue, now)
        if queue.waiting:
            self._schedule_check(queue)
            if self._admits_in_groups(queue, now) and not queue.is_paused and now - queue.begun >= CHECK_SECONDS:
                queue.left_over = queue.under_way
                self._admit_waiting(queue)

    def _refuse_late(self, queue: _EventQueue, now: float) -> None:
        """Refuse requests that have waited too long."""
        while queue.waiting:
            most = self._patience(queue, now) if self._is_overload(queue) else WAIT_SECONDS_MAX
            if now - queue.waiting[0][0] <= most:
                return
            _, turn = queue.waiting.popleft()
            self._waiting.dec()
            if not turn.done():
                turn.set_exception(problems.Busy())

    def _end_pause(self, queue: _EventQueue) -> None:
        queue.is_paused = False
        self._admit_waiting(queue)

    def _admit_waiting(self, queue: _EventQueue) -> None:
        now = monotonic()
        self._refuse_late(queue, now)
        most = self._current_limit(queue, now)
        while queue.waiting and queue.under_way < most:
            _, turn = queue.waiting.popleft()
            self._waiting.dec()
            if not turn.done():
                self._take_slot(queue, now)
                turn.set_result(None)

    def _current_limit(self, queue: _EventQueue, now: float) -> int:
        return self._beside_max if self._is_any_other_active(queue, now) else self._alone_max

    def _tidy(self, now: float) -> None:
        self._tidied_at = now
        for event, queue in list(self._queues.items()):
            if not queue.under_way and not queue.waiting and now - queue.at > ACTIVE_SECONDS:
                del self._queues[event]
