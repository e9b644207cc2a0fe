"""Buckets: how much of its limit each subject has used, one number per subject, in bounded memory.

A bucket holds `burst` requests and refills at `rate` a second. The stored number is the time at which it will be full
again (the generic cell rate algorithm), so one read and one write decide a request.

Subjects are kept in two generations of at most `subjects_max`. When the younger is full it becomes the older one, and
the previous older one is dropped. A request moves its subject into the younger generation, so only subjects without a
request during `subjects_max` others are dropped. A client with that many addresses cannot be limited by address.
"""

import random

SUBJECTS_MAX = 32_768
WAIT_SECONDS_MAX = 20.0
"""The longest wait before jitter. Clients of one address that would have to wait longer all get this time."""
JITTER_SHARE = 0.5
PENDING_MAX = 2_000
SHARED_FROM_SHARE = 1 / 16
SHARED_FROM_REQUESTS = 4


class Buckets:
    """The buckets of one limit, for any thread: at worst, one of two simultaneous requests is not counted."""

    __slots__ = (
        "_older",
        "_queues",
        "_recent",
        "_share_from_seconds",
        "_subjects_max",
        "interval",
        "pending",
        "slack",
        "window",
    )

    def __init__(self, rate: float, burst: int, *, subjects_max: int = SUBJECTS_MAX) -> None:
        assert rate > 0
        assert burst > 0
        self.interval = 1 / rate
        self.window = burst * self.interval
        """Seconds in which an empty bucket refills."""
        # Slightly above burst - 1 intervals, so that rounding never refuses the last request of a burst.
        self.slack = self.window - self.interval * 0.999
        # Normal use is not shared; only heavy use is worth a message to Redis.
        self._share_from_seconds = max(self.window * SHARED_FROM_SHARE, SHARED_FROM_REQUESTS * self.interval)
        self._subjects_max = subjects_max
        self.forget()

    def forget(self) -> None:
        """Refill all buckets."""
        self._recent: dict[str, float] = {}
        self._older: dict[str, float] = {}
        self._queues: dict[str, float] = {}
        self.pending: dict[str, int] = {}

    def take(self, subject: str, now: float) -> bool:
        """Count one request if the bucket has room for it; return whether it had."""
        full_at = self._recent.get(subject)
        if full_at is None:
            full_at = self._carried_over(subject)
        if full_at <= now:
            self._recent[subject] = now + self.interval
            return True
        owed = full_at - now
        if owed > self.slack:
            return False
        self._recent[subject] = full_at + self.interval
        if owed > self._share_from_seconds:
            pending = self.pending
            if subject in pending:
                pending[subject] += 1
            elif len(pending) < PENDING_MAX:
                pending[subject] = 1
        return True

    def take_many(self, subject: str, now: float, count: int) -> float | None:
        """Count a request as `count` ones, or half a burst at most, if the bucket has room for all; return None then,
        else the seconds until it has."""
        count = min(count, max(1, round(self.window / self.interval) // 2))
        full_at = max(now, self._recent.get(subject) or self._carried_over(subject))
        missing = full_at + (count - 1) * self.interval - self.slack - now
        if missing > 0:
            return missing
        self._recent[subject] = full_at + count * self.interval
        if full_at - now > self._share_from_seconds and (subject in self.pending or len(self.pending) < PENDING_MAX):
            self.pending[subject] = self.pending.get(subject, 0) + count
        return None

    def has_room(self, subject: str, now: float) -> bool:
        """Return whether the bucket has room for a request, without counting one."""
        full_at = self._recent.get(subject) or self._older.get(subject, 0.0)
        return full_at - now <= self.slack

    def wait_seconds(self, subject: str, now: float) -> float:
        """Return the seconds after which a refused request should be retried.

        Several refused clients of one address get different times, one interval apart, with jitter.
        """
        free_at = self._recent.get(subject, now) - self.slack
        at = min(max(self._queues.get(subject, 0.0), free_at, now) + self.interval, now + WAIT_SECONDS_MAX)
        if len(self._queues) >= self._subjects_max:
            self._queues = {}
        self._queues[subject] = at
        return 1 + (at - now) * (1 + JITTER_SHARE * random.random())  # noqa: S311 - Not a secret.

    def owed_seconds(self, subject: str, now: float) -> float:
        """Return the seconds after which the bucket is full again: 0 if it is unused, at most `window`. Counts
        nothing."""
        return max(0.0, (self._recent.get(subject) or self._older.get(subject, 0.0)) - now)

    def set_usage(self, subject: str, seconds: float, now: float) -> None:
        """Raise the bucket's use to that of all processes, given as the seconds after which it is full again."""
        full_at = now + min(seconds, self.window)
        if full_at > self._recent.get(subject, 0.0):
            self._carried_over(subject)
            self._recent[subject] = full_at

    def take_pending(self) -> dict[str, int]:
        """Return and reset the counts of heavily used buckets."""
        pending, self.pending = self.pending, {}
        return pending

    def __len__(self) -> int:
        return len(self._recent) + len(self._older)

    def _carried_over(self, subject: str) -> float:
        if len(self._recent) >= self._subjects_max:
            self._older, self._recent = self._recent, {}
        full_at = self._older.get(subject, 0.0)
        if full_at:
            self._recent[subject] = full_at
        return full_at


class SharedBuckets(Buckets):
    """Buckets of which every request is shared, for limits that must not grow with the number of processes."""

    __slots__ = ()

    def take(self, subject: str, now: float) -> bool:
        counted = self.pending.get(subject, 0)
        taken = super().take(subject, now)
        if taken and (counted or len(self.pending) < PENDING_MAX):
            self.pending[subject] = counted + 1
        return taken
