"""Decides when a webhook endpoint may be called, so that slow endpoints of one organizer do not occupy the delivery
threads of a process."""

import random
import threading
import time
from collections import defaultdict

PAUSE_SECONDS = 10.0
"""After a failed connection an endpoint is not called for this long, so that it does not block delivery threads."""
SLOW_SECONDS = 2.0
SLOW_PAUSE_FACTOR = 2
"""After a delivery that took SLOW_SECONDS the endpoint, and the organizer's other slow endpoints, are not called for
this many times as long. So the slow endpoints of one organizer together occupy one thread for a third of the time."""
SLOW_FOR_SECONDS = 600.0
"""How long an endpoint and its organizer count as slow after a slow delivery. Meanwhile the organizer has one delivery
at a time; those to its other endpoints wait for the end of the one under way, but not for the pause."""

THREADS = 2
USED_SECONDS_MAX = 4.0
"""An organizer may use THREADS of a process's threads for as long as it likes, and this many seconds of thread time
beyond them: so many deliveries that are just not slow leave threads to other organizers too."""
WAIT_SECONDS_MAX = 60.0


class EndpointPauses:
    """The deliveries under way in one process and the pauses of endpoints and organizers, for all its threads.

    An endpoint of the whole site belongs to no organizer (`organizer_id` None) and is paused alone. Times are on the
    process's monotonic clock.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._endpoint_paused_until: dict[int, float] = {}
        self._endpoint_slow_until: dict[int, float] = {}
        self._organizer_paused_until: dict[int, float] = {}
        self._organizer_slow_until: dict[int, float] = {}
        self._begun_at: defaultdict[int, list[float]] = defaultdict(list)
        """The beginnings of the deliveries under way, by organizer."""
        self._used: dict[int, tuple[float, float]] = {}
        """By organizer: the seconds of thread time used beyond THREADS, and when they were counted."""
        self._usual_seconds: dict[int, float] = {}
        """How long deliveries of an organizer take."""
        self._next_turn: dict[int, float] = {}
        """When the next delivery that waits for thread time of its organizer may ask again."""

    def clear(self) -> None:
        """End all pauses. Deliveries under way stay known."""
        with self._lock:
            for ends in (
                self._endpoint_paused_until,
                self._endpoint_slow_until,
                self._organizer_paused_until,
                self._organizer_slow_until,
                self._used,
                self._next_turn,
            ):
                ends.clear()

    def begin(self, endpoint_id: int, organizer_id: int | None) -> tuple[float, float]:
        """Return when the delivery began and 0, or the current time and the seconds after which to ask again. If it has
        begun, the caller calls `end`."""
        with self._lock:
            now = time.monotonic()
            wait_seconds = self._wait_seconds(endpoint_id, organizer_id, now)
            if wait_seconds <= 0 and organizer_id is not None:
                self._begun_at[organizer_id].append(now)
            return now, max(0.0, wait_seconds)

    def _wait_seconds(self, endpoint_id: int, organizer_id: int | None, now: float) -> float:
        paused_seconds = self._endpoint_paused_until.get(endpoint_id, 0.0) - now
        if organizer_id is None or paused_seconds > 0:
            return paused_seconds
        if self._endpoint_slow_until.get(endpoint_id, 0.0) > now:
            paused_seconds = self._organizer_paused_until.get(organizer_id, 0.0) - now
            if paused_seconds > 0:
                return paused_seconds
        begun_at = self._begun_at.get(organizer_id)
        if begun_at:
            under_way_seconds = now - min(begun_at)
            if under_way_seconds >= SLOW_SECONDS or self._organizer_slow_until.get(organizer_id, 0.0) > now:
                return max(SLOW_SECONDS, under_way_seconds)
        return self._turn_seconds(organizer_id, now)

    def _turn_seconds(self, organizer_id: int, now: float) -> float:
        """Return 0 if the organizer has thread time left. Otherwise return the wait for a turn: each call gets a turn
        of its own, so that not all waiting deliveries ask again together."""
        usual_seconds = self._usual_seconds.get(organizer_id, 0.0)
        under_way = [max(now - begun_at, usual_seconds) for begun_at in self._begun_at.get(organizer_id, ())]
        used_seconds = self._used_seconds(organizer_id, now) + sum(under_way)
        if used_seconds < USED_SECONDS_MAX:
            return 0.0
        turn = max(self._next_turn.get(organizer_id, 0.0), now + (used_seconds - USED_SECONDS_MAX) / THREADS)
        if turn - now > WAIT_SECONDS_MAX:
            return random.uniform(0.5, 1) * WAIT_SECONDS_MAX  # noqa: S311 - nothing secret
        self._next_turn[organizer_id] = turn + usual_seconds / THREADS
        return max(turn - now, 0.1)

    def _used_seconds(self, organizer_id: int, now: float) -> float:
        used_seconds, counted_at = self._used.get(organizer_id, (0.0, now))
        return max(0.0, used_seconds - THREADS * (now - counted_at))

    def end(self, endpoint_id: int, organizer_id: int | None, begun_at: float, *, is_answered: bool) -> None:
        """Record the end of a delivery that `begin` has begun, and pause the endpoint and its organizer if it was slow,
        or the endpoint if it did not answer."""
        with self._lock:
            now = time.monotonic()
            took_seconds = now - begun_at
            is_slow = took_seconds >= SLOW_SECONDS
            pause_seconds = SLOW_PAUSE_FACTOR * took_seconds if is_slow else 0.0
            if not is_answered:
                self._endpoint_paused_until[endpoint_id] = now + max(PAUSE_SECONDS, pause_seconds)
            elif is_slow:
                self._endpoint_paused_until[endpoint_id] = now + pause_seconds
            if is_slow:
                self._endpoint_slow_until[endpoint_id] = now + SLOW_FOR_SECONDS
            if organizer_id is None:
                return
            self._begun_at[organizer_id].remove(begun_at)
            if is_slow:
                paused_until = self._organizer_paused_until.get(organizer_id, 0.0)
                self._organizer_paused_until[organizer_id] = max(paused_until, now + pause_seconds)
                self._organizer_slow_until[organizer_id] = now + SLOW_FOR_SECONDS
            else:
                self._used[organizer_id] = self._used_seconds(organizer_id, now) + took_seconds, now
                usual_seconds = self._usual_seconds.get(organizer_id, took_seconds)
                self._usual_seconds[organizer_id] = usual_seconds + (took_seconds - usual_seconds) / 8
