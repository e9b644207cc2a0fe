"""Simulated sales: a line, a room with a rate and slots, and visitors who stay away, leave, look around or buy.

They vary in what an organizer sets (rate, slots, a change of the slots during the sale), in what visitors do, and in
faults that lower the rate for a while.
"""

import heapq
import math
import random

from apps.queue.calibration.runs import Batch, Run, Wait

TICK_SECONDS = 0.5
SECONDS_MAX = 5_400
ADMISSION_SECONDS = 300
CLAIM_SECONDS = 120
BUYING_SECONDS_MAX = 900


class _Visitors:
    """What visitors of one sale do."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw
        self._typical_seconds, self._spread = draw.uniform(25, 160), draw.uniform(0.4, 0.9)
        self._show_share, self._look_share = draw.uniform(0.75, 1), draw.uniform(0, 0.4)
        self._leave_per_second = draw.choice([0, 0, 0.0002, 0.001])

    def leaves_after(self) -> float:
        return self._draw.expovariate(self._leave_per_second) if self._leave_per_second else math.inf

    def slot_seconds(self) -> float:
        """For how long an admitted visitor occupies a slot."""
        draw = self._draw
        if draw.random() > self._show_share:
            return CLAIM_SECONDS
        arrival = draw.uniform(0, 5)
        if draw.random() >= self._look_share:
            return arrival + min(BUYING_SECONDS_MAX, draw.lognormvariate(math.log(self._typical_seconds), self._spread))
        if draw.random() < 0.5:
            return arrival + ADMISSION_SECONDS  # Closes the page without releasing the slot.
        return arrival + min(ADMISSION_SECONDS, draw.lognormvariate(math.log(0.6 * self._typical_seconds), 1.0))


def simulate_run(seed: int) -> Run:
    """Return one simulated sale; the same seed gives the same sale."""
    draw = random.Random(seed)  # noqa: S311 - a simulation.
    full_rate = draw.choice([1, 2, 5, 10, 20, 50])
    active_max = min(1_000, max(10, full_rate * draw.choice([5, 10, 20, 40, 80])))
    visitors = _Visitors(draw)
    count, rush_seconds = draw.randint(3 * active_max, 3 * active_max + 4_000), draw.uniform(10, 120)
    joins = sorted(
        draw.uniform(0, rush_seconds) if draw.random() < 0.8 else rush_seconds + draw.uniform(0, 1_200)
        for _ in range(count)
    )
    leaves = [joined_at + visitors.leaves_after() for joined_at in joins]
    changes_at = draw.uniform(120, 900) if draw.random() < 0.25 else math.inf
    fault_from = draw.uniform(60, 800) if draw.random() < 0.3 else math.inf
    fault_until, fault_share = fault_from + draw.uniform(30, 300), draw.uniform(0.3, 0.8)
    batches: list[Batch] = []
    freed_at: list[float] = []
    rates: list[tuple[float, float]] = []
    waits: list[Wait] = []
    slots: list[float] = []
    at, budget, head, joined = 0.0, 1.0, 0, 0
    while head < count and at < SECONDS_MAX:
        while slots and slots[0] <= at:
            freed_at.append(heapq.heappop(slots))
        if at >= changes_at:
            active_max, changes_at = max(5, int(active_max * draw.choice([0.5, 1.5, 2]))), math.inf
        rate = full_rate * (fault_share if fault_from <= at < fault_until else 1)
        if not rates or rates[-1][1] != rate:
            rates.append((at, rate))
        budget = min(max(1.0, rate / 2), budget + TICK_SECONDS * rate)
        while joined < count and joins[joined] <= at:
            joined += 1
        allowed = admitted = min(int(budget), active_max - len(slots))
        while allowed > 0 and head < joined:
            head += 1
            if leaves[head - 1] <= at:
                continue
            allowed -= 1
            heapq.heappush(slots, at + visitors.slot_seconds())
            waits.append(Wait(head, joins[head - 1], at))
        if admitted > allowed:
            budget -= admitted - allowed
            batches.append(Batch(at, admitted - allowed, head, len(slots), active_max))
        at += TICK_SECONDS
    return Run(batches, freed_at, rates, waits, ADMISSION_SECONDS)
