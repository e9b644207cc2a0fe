"""Measurements of a run: response times, refusals, outcomes and breaches."""

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

EXAMPLES_MAX = 5
PERCENTILES = (50, 95, 99, 100)


@dataclass(slots=True)
class Breaches:
    """Forbidden behavior that was observed: counts by kind, with the first few examples."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def note(self, kind: str, example: str) -> None:
        self.counts[kind] += 1
        examples = self.examples.setdefault(kind, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(example)


@dataclass(slots=True)
class Figures:
    """Figures of one run. Times are from the event loop, in seconds."""

    counts: Counter[str] = field(default_factory=Counter)
    """Outcomes and events of visitors: joined, admitted, left …"""
    responses: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    """Refused requests, by call and problem type."""
    retries: Counter[str] = field(default_factory=Counter)
    """Retries after a lost response, by error."""
    took_ms: dict[str, "array[float]"] = field(default_factory=dict)
    """Response times, by call."""
    waited: "array[float]" = field(default_factory=lambda: array("d"))
    """Seconds from join to admission, of visitors who had to wait."""
    held_at: float = 0.0
    """When the response to the last hold arrived."""
    accurate_estimates: int = 0
    """Visitors in `waited` whose wait was within the estimate in the response to their join."""
    breaches: Breaches = field(default_factory=Breaches)

    def took(self, call: str, milliseconds: float) -> None:
        self.responses += 1
        self.took_ms.setdefault(call, array("d")).append(milliseconds)


def percentiles(values: Sequence[float]) -> list[float]:
    """Return the 50th, 95th and 99th percentile and the maximum; zeros for no values."""
    ordered = sorted(values)
    if not ordered:
        return [0.0] * len(PERCENTILES)
    return [ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] for percent in PERCENTILES]


def most_within(moments: Sequence[float], seconds: float) -> int:
    """Return the largest number of moments, given in rising order, within any interval of this length."""
    most = begin = 0
    for end, moment in enumerate(moments):
        while moment - moments[begin] >= seconds:
            begin += 1
        most = max(most, end - begin + 1)
    return most


def passes_rate(moments: Sequence[float], since: float, rate: float) -> tuple[int, float] | None:
    """Return the first count of moments that exceeds the rate, with the seconds since `since`; None without one.

    The waiting room may have saved up the admissions of half a second before the first visitor came.
    """
    saved_up = max(1.0, rate / 2)
    for count, moment in enumerate(moments, start=1):
        if count > saved_up + rate * (moment - since) + 1.001:
            return count, moment - since
    return None


class HighestSeen:
    """The highest admitted number as it was known at any moment. Notes must be in order of time."""

    def __init__(self) -> None:
        self._moments: list[float] = []
        self._numbers: list[int] = []

    def note(self, moment: float, number: int) -> None:
        if not self._numbers or number > self._numbers[-1]:
            self._moments.append(moment)
            self._numbers.append(number)

    def before(self, moment: float) -> int:
        """Return the highest number noted before the moment; 0 without one."""
        index = bisect_left(self._moments, moment)
        return self._numbers[index - 1] if index else 0


def per_second(moments: Sequence[float]) -> float:
    """Return the average rate from the first to the last moment; 0 for fewer than two."""
    span = moments[-1] - moments[0] if len(moments) > 1 else 0.0
    return (len(moments) - 1) / span if span > 0 else 0.0
