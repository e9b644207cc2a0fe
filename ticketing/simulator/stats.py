"""What the crowd saw: how long answers took, what was refused, and what must not have happened."""

import itertools
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
    """What must not happen, and did: how often, by kind, with the first few told in full."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def note(self, kind: str, example: str) -> None:
        self.counts[kind] += 1
        told = self.examples.setdefault(kind, [])
        if len(told) < EXAMPLES_MAX:
            told.append(example)


@dataclass(slots=True)
class Figures:
    """Of one run. Times are the event loop's, in seconds."""

    counts: Counter[str] = field(default_factory=Counter)
    """What became of visitors: joined, admitted, left, bought …"""
    answers: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    """By call and type."""
    retries: Counter[str] = field(default_factory=Counter)
    """Calls made again after no answer came, by what went wrong."""
    took_ms: dict[str, "array[float]"] = field(default_factory=dict)
    """By call."""
    waited: "array[float]" = field(default_factory=lambda: array("d"))
    """Seconds from joining to being let in, of those who had to wait."""
    held_at: float = 0.0
    """When the last hold was answered."""
    accurate_estimates: int = 0
    """How many of those waited as long as the interval said that they were shown at joining."""
    breaches: Breaches = field(default_factory=Breaches)

    def took(self, call: str, milliseconds: float) -> None:
        self.answers += 1
        self.took_ms.setdefault(call, array("d")).append(milliseconds)


def percentiles(values: Sequence[float]) -> list[float]:
    """The 50th, 95th, 99th and the largest; zeros where there is nothing."""
    ordered = sorted(values)
    if not ordered:
        return [0.0] * len(PERCENTILES)
    return [ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)] for percent in PERCENTILES]


def most_within(moments: Sequence[float], seconds: float) -> int:
    """The most of these moments, in rising order, that lie within any so many seconds."""
    most = begin = 0
    for end, moment in enumerate(moments):
        while moment - moments[begin] >= seconds:
            begin += 1
        most = max(most, end - begin + 1)
    return most


def passes_rate(moments: Sequence[float], since: float, rate: float) -> tuple[int, float] | None:
    """The first count and moment at which more had come than this rate allows since then; None: never.

    A room may have saved up half a second's worth before anybody came.
    """
    saved_up = max(1.0, rate / 2)
    for count, moment in enumerate(moments, start=1):
        if count > saved_up + rate * (moment - since) + 1.001:
            return count, moment - since
    return None


class HighestSeen:
    """The highest number known to be let in, as it was known at any moment. Notes come in the order of time."""

    def __init__(self) -> None:
        self._moments: list[float] = []
        self._numbers: list[int] = []

    def note(self, moment: float, number: int) -> None:
        if not self._numbers or number > self._numbers[-1]:
            self._moments.append(moment)
            self._numbers.append(number)

    def before(self, moment: float) -> int:
        """0 before anybody was."""
        index = bisect_left(self._moments, moment)
        return self._numbers[index - 1] if index else 0


def per_second(moments: Sequence[float]) -> float:
    """The average from the first to the last; 0 where there are too few to say."""
    span = moments[-1] - moments[0] if len(moments) > 1 else 0.0
    return (len(moments) - 1) / span if span > 0 else 0.0


def is_rising(values: Sequence[float]) -> bool:
    return all(before <= after for before, after in itertools.pairwise(values))
