"""A plot of counts in equal periods, as positions for an SVG that includes/bar_plot.html draws."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

HEIGHT = 200
"""Of the bars, in pixels; positions from left to right are percentages, so that text keeps its size on every screen."""
BINS_MAX = 120
_TICKS = 4
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_BINS_SECONDS = (_MINUTE, 5 * _MINUTE, 15 * _MINUTE, _HOUR, 6 * _HOUR, _DAY, 7 * _DAY, 30 * _DAY, 365 * _DAY)
_BIN_WORDS = {
    _MINUTE: "minute", 5 * _MINUTE: "5 minutes", 15 * _MINUTE: "15 minutes", _HOUR: "hour", 6 * _HOUR: "6 hours",
    _DAY: "day", 7 * _DAY: "week", 30 * _DAY: "30 days", 365 * _DAY: "year",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Period:
    """What a plot covers: `count` bins of `bin_seconds` from `since`."""

    since: datetime
    bin_seconds: int
    count: int

    @property
    def bin_words(self) -> str:
        return _BIN_WORDS[self.bin_seconds]


@dataclass(frozen=True, slots=True)
class Bar:
    x: str
    width: str
    y: float
    height: float
    label: str
    count: int


@dataclass(frozen=True, slots=True)
class Mark:
    """A line of the scale, or a time below the bars."""

    at: str
    label: str
    anchor: str = ""


@dataclass(frozen=True, slots=True)
class Plot:
    period: Period
    bars: tuple[Bar, ...]
    scale: tuple[Mark, ...]
    times: tuple[Mark, ...]
    total: int
    peak: int
    height: int = HEIGHT


def last_period(now: datetime, bin_seconds: int, count: int) -> Period:
    """Return the last `count` periods, up to and with the current one."""
    end = _floor(now, bin_seconds) + timedelta(seconds=bin_seconds)
    return Period(end - timedelta(seconds=bin_seconds) * count, bin_seconds, count)


def whole_period(first: datetime, now: datetime, zone: tzinfo) -> Period:
    """Return the periods from `first` until now, of the shortest length that gives at most BINS_MAX. Days begin at
    midnight of the venue."""
    for seconds in _BINS_SECONDS:
        local = first.astimezone(zone)
        since = local.replace(hour=0, minute=0, second=0, microsecond=0) if seconds >= _DAY else _floor(first, seconds)
        count = (now - since) // timedelta(seconds=seconds) + 1
        if count <= BINS_MAX:
            break
    return Period(since.astimezone(UTC), seconds, count)


def draw(bins: Sequence[tuple[datetime, int]], period: Period, zone: tzinfo) -> Plot:
    """Return the plot of these counts, each with a moment in its bin."""
    length = timedelta(seconds=period.bin_seconds)
    peak = max((count for _, count in bins), default=0)
    top = _nice_top(peak)
    width = 100 / period.count
    pattern = "%d %b %Y" if period.bin_seconds >= _DAY else "%d %b %H:%M"
    bars = []
    for at, count in bins:
        position = (at - period.since) // length
        if not 0 <= position < period.count:
            continue
        height = max(2.0, round(HEIGHT * count / top, 1))
        label = at.astimezone(zone).strftime(pattern)
        bars.append(
            Bar(
                f"{position * width + width * 0.08:.3f}%", f"{width * 0.84:.3f}%", round(HEIGHT - height, 1), height,
                label, count,
            )
        )  # fmt: skip
    is_within_day = period.bin_seconds * period.count <= _DAY
    tick_pattern = "%H:%M" if is_within_day else "%d %b"
    times = []
    for index in range(_TICKS + 1):
        moment = period.since + length * period.count * index / _TICKS
        anchor = "start" if index == 0 else "end" if index == _TICKS else "middle"
        times.append(Mark(f"{100 * index / _TICKS:g}%", moment.astimezone(zone).strftime(tick_pattern), anchor))
    scale = [Mark(f"{HEIGHT - HEIGHT * part / 2:g}", f"{top * part // 2:,}") for part in (1, 2) if top * part % 2 == 0]
    total = sum(count for _, count in bins)
    return Plot(period, tuple(bars), tuple(scale), tuple(times), total, peak)


def _floor(moment: datetime, seconds: int) -> datetime:
    return datetime.fromtimestamp(int(moment.timestamp()) // seconds * seconds, UTC)


def _nice_top(peak: int) -> int:
    """Return the smallest of 2, 4, 10, 20, 40, 100, … that is at least the peak: its half is a whole number."""
    unit = 1
    while True:
        for step in (2, 4, 10):
            if peak <= unit * step:
                return unit * step
        unit *= 10
