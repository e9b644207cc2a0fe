"""How often the intervals of estimates contained the true wait, and how wide they were."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median

from apps.queue.calibration.runs import Estimate

STAGES = ((60, "first minute"), (180, "until 3 minutes"), (600, "until 10 minutes"), (float("inf"), "later"))
SHORT_SECONDS = 60
"""A wait whose upper end is at most this is shown as "less than a minute", whatever its interval."""


@dataclass(frozen=True, slots=True)
class StageReport:
    """The estimates that were made at one stage of a sale."""

    name: str
    count: int
    right_share: float
    widest: float
    """The largest upper end as a multiple of the lower one, of intervals that are shown."""
    median_error: float
    """The median of the true wait as a multiple of the likely one."""


def report_of(estimates: Iterable[Estimate]) -> list[StageReport]:
    """Return one report for each stage, and last one for all after the first minute."""
    found = list(estimates)
    reports, begin = [], 0.0
    for until, name in (*STAGES, (float("inf"), "after the first minute")):
        begin = STAGES[0][0] if name == "after the first minute" else begin
        chosen = [one for one in found if begin <= one.open_seconds < until]
        if chosen:
            reports.append(_report(name, chosen))
        begin = until
    return reports


def _report(name: str, chosen: list[Estimate]) -> StageReport:
    shown = [one for one in chosen if one.high > SHORT_SECONDS]
    return StageReport(
        name,
        len(chosen),
        sum(_is_shown_right(one) for one in chosen) / len(chosen),
        max((one.high / max(1, one.low) for one in shown), default=1.0),
        median(one.actual / max(1.0, one.likely) for one in chosen),
    )


def _is_shown_right(one: Estimate) -> bool:
    return one.actual <= SHORT_SECONDS if one.high <= SHORT_SECONDS else one.is_right
