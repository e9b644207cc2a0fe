"""The wait for a position, as a likely time and an interval, from the recent use of a room's slots.

A room admits at its rate while slots are free. Once all are occupied, it admits as slots are freed: at the number of
slots times the observed chance per second that a slot is freed. Numbers pass faster than admissions if entries leave
the line, and slower if entries return.

The interval contains the true wait about 8 times of 10. Its width was chosen by `manage.py measure_wait_estimates`,
which compares the estimates of recorded and simulated sales with what happened; tests/queue/status keeps the result.
"""

import math
from dataclasses import dataclass
from typing import Self

from apps.queue.snapshot.room_snapshot import RoomSnapshot

PRIOR_SLOTS = 5
"""Before slots are freed, the estimate assumes that many freed slots..."""
PRIOR_SHARE = 0.3
"""... each of which was occupied for this share of the time that an admission lasts."""
EARLY_SECONDS = 240
EARLY_SHARE = 0.2
"""Right after the opening no slot is old yet, so that few are freed. For each slot this share of a freed one is added,
falling to none EARLY_SECONDS after the opening."""
PASSED_PRIOR = 5
PASSED_SHARE_MIN, PASSED_SHARE_MAX = 0.3, 10.0
RATE_MIN = 1e-6
RATIO_MAX = 3.0
"""From a minute after the opening on, the upper end of an interval is at most this many times the lower one."""
FIRST_RATIO_MAX = 4.0
FIRST_SECONDS = 60
_SPREADS = ((FIRST_SECONDS, 0.25, 0.7), (180, 0.5, 0.45), (600, 0.3, 0.22), (math.inf, 0.19, 0.19))
"""Until so many seconds after the opening: the logarithm of the likely wait over the interval's lower end, and of the
upper end over the likely wait, for a large count. In the first minute most waits are longer than the likely one."""
_NOISE = 1.0
"""Of one freed slot; that of many falls with the root of their count."""
_ROUNDING = 0.95
"""Leaves room for rounding the ends to whole seconds."""
_COUNT_BITS_MAX = 40


@dataclass(frozen=True, slots=True)
class WaitModel:
    """The estimate for one snapshot: computed once, then applied to any number of positions."""

    fast_count: float
    """The positions that free slots will admit, at the room's rate."""
    fast_seconds: float
    """Seconds for each of these positions."""
    slow_offset: float
    slow_seconds: float
    """The wait of a later position is `slow_offset + slow_seconds` for each."""
    noise_count: int
    """The number of freed slots behind the estimate."""
    factors: tuple[tuple[float, float], ...]
    """Lower and upper end of the interval relative to the likely wait, by the number of bits of the smaller of
    position and `noise_count`."""

    @classmethod
    def of(cls, snapshot: RoomSnapshot) -> Self:
        prior_seconds = PRIOR_SHARE * snapshot.admission_seconds
        early = EARLY_SHARE * snapshot.active * max(0.0, 1 - snapshot.open_seconds / EARLY_SECONDS)
        freed = max(0, snapshot.freed_count)
        slot_seconds = (snapshot.active_before + snapshot.active) / 2 * snapshot.observed_seconds
        freed_per_slot = (freed + early + PRIOR_SLOTS) / (slot_seconds + PRIOR_SLOTS * prior_seconds)
        full_rate = max(RATE_MIN, min(snapshot.rate, max(1, snapshot.active_max) * freed_per_slot))
        # While the free slots are filled at the room's rate, others are freed.
        free = max(0, snapshot.active_max - snapshot.active)
        fast = free / (1 - min(0.95, full_rate / snapshot.rate))
        passed = (snapshot.passed_count + PASSED_PRIOR) / (snapshot.admitted_count + PASSED_PRIOR)
        passed = min(PASSED_SHARE_MAX, max(PASSED_SHARE_MIN, passed))
        fast_count, fast_seconds = fast * passed, 1 / (snapshot.rate * passed)
        slow_seconds = 1 / (full_rate * passed)
        return cls(
            fast_count=fast_count,
            fast_seconds=fast_seconds,
            slow_offset=fast_count * (fast_seconds - slow_seconds),
            slow_seconds=slow_seconds,
            noise_count=int(freed + early) + 1,
            factors=_interval_factors(snapshot.open_seconds),
        )

    @property
    def numbers_per_second(self) -> float:
        """How many numbers the line passes per second once all slots are occupied."""
        return 1 / self.slow_seconds

    def likely_seconds(self, ahead: int) -> float:
        """Return the likely wait of this position."""
        if ahead <= self.fast_count:
            return ahead * self.fast_seconds
        return self.slow_offset + ahead * self.slow_seconds

    def interval(self, ahead: int, likely_seconds: float) -> tuple[int, int]:
        """Return the interval of this position's wait, in whole seconds."""
        count = ahead if ahead < self.noise_count else self.noise_count
        low, high = self.factors[count.bit_length()]
        return int(likely_seconds * low), math.ceil(likely_seconds * high)


def _interval_factors(open_seconds: float) -> tuple[tuple[float, float], ...]:
    stage = next(stage for stage, (until, *_) in enumerate(_SPREADS) if open_seconds < until)
    return _FACTORS[stage]


def _factors(down: float, up: float, ratio_max: float) -> tuple[tuple[float, float], ...]:
    found = []
    for bits in range(_COUNT_BITS_MAX):
        count = 0.75 * 2**bits  # The middle of the counts with so many bits.
        low, high = math.hypot(down, _NOISE / math.sqrt(count)), math.hypot(up, _NOISE / math.sqrt(count))
        shrink = min(1.0, math.log(ratio_max * _ROUNDING) / (low + high))
        found.append((math.exp(-low * shrink), math.exp(high * shrink)))
    return tuple(found)


_FACTORS = tuple(
    _factors(down, up, FIRST_RATIO_MAX if until <= FIRST_SECONDS else RATIO_MAX) for until, down, up in _SPREADS
)
