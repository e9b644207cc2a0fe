"""Buckets: how much of its limit each subject has used, one number for each, in bounded memory.

A bucket holds `burst` requests and fills again at `rate` a second. What is kept is the moment at which it will be full
again (the generic cell rate algorithm): one look and one write decide a request.

The memory is two generations of at most `subjects_max` subjects. When the younger is full it becomes the older, and
what was the older is forgotten: whoever asks is carried over into the younger one, so what is forgotten is whoever has
been silent while `subjects_max` others asked. Somebody with that many addresses is not to be limited by address.
"""

import random

SUBJECTS_MAX = 32_768
WAIT_SECONDS_MAX = 20.0
"""Nobody is sent away for longer: until then it may be another's turn at the same address."""
JITTER_SHARE = 0.5
PENDING_MAX = 2_000
SHARED_FROM_SHARE = 1 / 16
SHARED_FROM_REQUESTS = 4


class Buckets:
    """The buckets of one limit. Safe from several threads: at worst one of two requests at once is not counted."""

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
        """Seconds that an empty bucket takes to be full."""
        # A hair above one less than the burst: rounding must not cost anybody the last request.
        self.slack = self.window - self.interval * 0.999
        # One who asks as the contract says is nobody else's business; only heavy use is worth a word to Redis.
        self._share_from_seconds = max(self.window * SHARED_FROM_SHARE, SHARED_FROM_REQUESTS * self.interval)
        self._subjects_max = subjects_max
        self.forget()

    def forget(self) -> None:
        """Every bucket is full."""
        self._recent: dict[str, float] = {}
        self._older: dict[str, float] = {}
        self._queues: dict[str, float] = {}
        self.pending: dict[str, int] = {}

    def take(self, subject: str, now: float) -> bool:
        """Whether there was room for one more request; if so, it is counted."""
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

    def wait_seconds(self, subject: str, now: float) -> float:
        """For one who was refused: when to ask again. Of several at one address each gets a moment of its own, as far
        apart as there is room for them, and some jitter."""
        free_at = self._recent.get(subject, now) - self.slack
        at = min(max(self._queues.get(subject, 0.0), free_at, now) + self.interval, now + WAIT_SECONDS_MAX)
        if len(self._queues) >= self._subjects_max:
            self._queues = {}
        self._queues[subject] = at
        return 1 + (at - now) * (1 + JITTER_SHARE * random.random())  # noqa: S311 - nothing secret hangs on it

    def set_usage(self, subject: str, seconds: float, now: float) -> None:
        """All processes together have used this much of it."""
        full_at = now + min(seconds, self.window)
        if full_at > self._recent.get(subject, 0.0):
            self._carried_over(subject)
            self._recent[subject] = full_at

    def take_pending(self) -> dict[str, int]:
        """What was counted of heavily used buckets since the last time."""
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
