"""Decides when a webhook endpoint may be called, so that slow endpoints of one organizer do not occupy the delivery
threads of a process."""

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

    def clear(self) -> None:
        """End all pauses. Deliveries under way stay known."""
        with self._lock:
            for ends in (
                self._endpoint_paused_until,
                self._endpoint_slow_until,
                self._organizer_paused_until,
                self._organizer_slow_until,
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
        if not begun_at:
            return 0.0
        under_way_seconds = now - min(begun_at)
        if under_way_seconds < SLOW_SECONDS and self._organizer_slow_until.get(organizer_id, 0.0) <= now:
            return 0.0
        return max(SLOW_SECONDS, under_way_seconds)

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
