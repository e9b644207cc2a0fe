"""Ratios: medians, spreads, verdicts, the result file and the table."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.suite.errors import SuiteFailed

Better = Literal["higher", "lower"]
ROUNDS_MIN = 5


@dataclass(frozen=True)
class Ratio:
    """The ratio of two measurements that alternated in one run."""

    row: str
    title: str
    ratio: float
    low: float
    high: float
    """The lowest and the highest of the rounds."""
    acceptable: float | None
    """None: reported without a verdict."""
    goal: float | None
    better: Better
    ours: str
    """The median of each side with its unit."""
    theirs: str

    @property
    def is_acceptable(self) -> bool:
        if self.acceptable is None:
            return True
        return self.ratio >= self.acceptable if self.better == "higher" else self.ratio <= self.acceptable

    @property
    def reaches_goal(self) -> bool:
        if self.goal is None:
            return False
        return self.ratio >= self.goal if self.better == "higher" else self.ratio <= self.goal

    def entry(self) -> dict[str, Any]:
        """Return the entry of the result file."""
        return {
            "row": self.row,
            "ratio": round(self.ratio, 3),
            "acceptable": self.acceptable,
            "goal": self.goal,
            "better": self.better,
            "spread": [round(self.low, 3), round(self.high, 3)],
        }


@dataclass(frozen=True)
class Fact:
    """A figure that is reported without a verdict."""

    title: str
    value: str


@dataclass
class Findings:
    """The results of one row."""

    ratios: list[Ratio] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)


def compare(
    row: str,
    title: str,
    ours: Sequence[float],
    theirs: Sequence[float],
    *,
    acceptable: float | None,
    goal: float | None,
    better: Better = "higher",
    unit: str = "/s",
) -> Ratio:
    """Return the median ratio of the rounds, with the lowest and the highest."""
    if not all(value > 0 for value in (*ours, *theirs)):
        raise SuiteFailed(f"row {row}: a round had no results")
    of_rounds = [one / other for one, other in zip(ours, theirs, strict=True)]
    if not of_rounds:
        raise ValueError(f"row {row} has no round")
    return Ratio(
        row=row,
        title=title,
        ratio=statistics.median(of_rounds),
        low=min(of_rounds),
        high=max(of_rounds),
        acceptable=acceptable,
        goal=goal,
        better=better,
        ours=with_unit(statistics.median(ours), unit),
        theirs=with_unit(statistics.median(theirs), unit),
    )


def with_unit(value: float, unit: str) -> str:
    number = f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
    return f"{number}{unit if unit.startswith('/') else ' ' + unit}".strip()


def in_turn(
    rounds: int, acts: Mapping[str, Callable[[], float]], say: Callable[[str], None] = lambda _: None
) -> dict[str, list[float]]:
    """Run every act once per round, in order (A B A B …), and return the results of each. Before the first round, each
    runs once to warm up, without being counted even if it fails."""
    found: dict[str, list[float]] = {name: [] for name in acts}
    for name, act in acts.items():
        try:
            act()
        except SuiteFailed as error:
            say(f"  {name}, not counted: {error}")
    for _ in range(rounds):
        for name, act in acts.items():
            found[name].append(act())
        say("  " + "  ".join(f"{name} {of_rounds[-1]:,.1f}" for name, of_rounds in found.items()))
    return found


def table(ratios: Sequence[Ratio]) -> list[str]:
    """Return the lines of the Markdown table."""
    lines = [
        "| row | | ratio | spread | acceptable | goal | ours | compared with |",
        "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for one in ratios:
        sign = "≥" if one.better == "higher" else "≤"
        limits = [f"{sign} {limit:g}" if limit is not None else "–" for limit in (one.acceptable, one.goal)]
        mark = "**" if one.is_acceptable else ""
        verdict = "" if one.is_acceptable else " below"
        lines.append(
            f"| {one.row} | {one.title} | {mark}{short(one.ratio)}{mark}{verdict} | {short(one.low)} to "
            f"{short(one.high)} | {limits[0]} | {limits[1]} | {one.ours} | {one.theirs} |"
        )
    return lines


def short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
