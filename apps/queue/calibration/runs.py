"""A sale as far as its estimates depend on it, recorded or simulated, and its estimates at any moment.

Times are seconds from any fixed moment.
"""

from bisect import bisect_right
from dataclasses import dataclass, field
from datetime import UTC, datetime

from apps.queue.snapshot.room_snapshot import OBSERVED_SECONDS, RoomSnapshot
from apps.queue.status.wait_model import WaitModel

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Batch:
    """An admission of one or more entries in their turn."""

    at: float
    count: int
    to_number: int
    active: int
    """Occupied slots, including these."""
    active_max: int


@dataclass(frozen=True, slots=True)
class Wait:
    """The wait of one entry, from its join to its admission."""

    number: int
    joined_at: float
    admitted_at: float


@dataclass(frozen=True, slots=True)
class Run:
    """One sale. Lists are in order of time, waits in order of numbers."""

    batches: list[Batch]
    freed_at: list[float]
    """When slots were freed."""
    rates: list[tuple[float, float]]
    """Admissions per second from each time on."""
    waits: list[Wait]
    admission_seconds: int
    _batch_times: list[float] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_batch_times", [batch.at for batch in self.batches])

    def _latest(self, at: float) -> int:
        """Return the index of the latest batch at this time; -1 before the first."""
        return bisect_right(self._batch_times, at) - 1

    def _active(self, at: float) -> int:
        index = self._latest(at)
        if index < 0:
            return 0
        freed = bisect_right(self.freed_at, at) - bisect_right(self.freed_at, self.batches[index].at)
        return max(0, self.batches[index].active - freed)

    def snapshot_at(self, at: float) -> RoomSnapshot:
        """Return the public state of the room at this time, as `room_snapshots.sql` reads it."""
        latest, active = self._latest(at), self._active(at)
        before = self._latest(at - OBSERVED_SECONDS)
        is_full = before >= 0 and self.batches[before].active >= self.batches[before].active_max
        start = before if is_full else before + 1
        since = self.batches[start] if start <= latest else None
        admitted = sum(batch.count for batch in self.batches[start + 1 : latest + 1])
        head = self.batches[latest].to_number if latest >= 0 else 0
        active_before = active if since is None else since.active
        return RoomSnapshot(
            event_id=0,
            at=EPOCH,
            state="open",
            head=head,
            next_number=head + 1,
            rate=self.rates[max(0, bisect_right(self.rates, (at, float("inf"))) - 1)][1],
            rate_ceiling=1,
            active=active,
            freed_count=active_before + admitted - active,
            observed_seconds=0.0 if since is None else at - since.at,
            active_before=active_before,
            admitted_count=admitted,
            passed_count=0 if since is None else head - since.to_number,
            open_seconds=max(0.0, at - self.batches[0].at) if latest >= 0 else 0.0,
            active_max=self.batches[max(0, latest)].active_max,
            claim_seconds=1,
            admission_seconds=self.admission_seconds,
            supply_available=None,
            supply_held=None,
            message="",
            message_at=None,
            lobby_count=0,
            is_frozen=False,
            is_drawn=False,
            chain_head="",
            epoch=0,
        )


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate for one entry at one moment, and how long it then waited."""

    open_seconds: float
    low: int
    high: int
    likely: float
    actual: float

    @property
    def is_right(self) -> bool:
        return self.low <= self.actual <= self.high


def estimates_of(run: Run, every_seconds: float = 15.0, entries_each: int = 5) -> list[Estimate]:
    """Return the estimates for entries spread evenly over the line, at regular moments of the sale."""
    if not run.batches:
        return []
    found = []
    at, end = run.batches[0].at, run.batches[-1].at
    while at < end:
        snapshot = run.snapshot_at(at)
        model = WaitModel.of(snapshot)
        waiting = [
            wait for wait in run.waits if wait.number > snapshot.head and wait.joined_at <= at < wait.admitted_at
        ]
        for wait in waiting[:: max(1, len(waiting) // entries_each)]:
            ahead = wait.number - snapshot.head
            likely = model.likely_seconds(ahead)
            low, high = model.interval(ahead, likely)
            found.append(Estimate(snapshot.open_seconds, low, high, likely, wait.admitted_at - at))
        at += every_seconds
    return found
