"""Curves of a report, as coordinates for SVG on the page and for lines in the PDF."""

from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 640, 260
LEFT, RIGHT, TOP, BOTTOM = 76, 36, 12, 34
"""Labels of times are centered below their points, and larger on small screens."""
_LABELS_MAX = 7
_GRID = 4


@dataclass(frozen=True, slots=True)
class Line:
    name: str
    levels: tuple[int, ...]
    coordinates: tuple[tuple[float, float], ...]
    """From the upper left corner."""

    @property
    def points(self) -> str:
        """The `points` of an SVG polyline."""
        return " ".join(f"{x},{y}" for x, y in self.coordinates)


@dataclass(frozen=True, slots=True)
class Mark:
    """A labeled position on an axis."""

    at: float
    label: str


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    description: str
    """What the curve shows, for readers who do not see it."""
    lines: tuple[Line, ...]
    marks_x: tuple[Mark, ...]
    marks_y: tuple[Mark, ...]
    rows: tuple[tuple[str, tuple[int, ...]], ...]
    """The same figures as a table: the label of each point and the level of each line."""
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    bottom: int = HEIGHT - BOTTOM


def draw_curves(title: str, points: Sequence[int], series: Sequence[tuple[str, Sequence[int]]]) -> Chart | None:
    """Return a chart of these named levels at points in time (seconds since the opening); None without series.

    The points are drawn at equal distances: they lie close together in the first minutes, and far apart later.
    """
    if not series:
        return None
    top = _round_up(max(1, *(level for _, levels in series for level in levels)))
    step = (WIDTH - LEFT - RIGHT) / max(1, len(points) - 1)
    xs = [round(LEFT + index * step, 1) for index in range(len(points))]

    def y_of(level: float) -> float:
        return round(HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * level / top, 1)

    labels = ["opening" if not point else label_of(point) for point in points]
    every = max(1, -(-len(points) // _LABELS_MAX))
    lines = tuple(
        Line(name, tuple(levels), tuple((x, y_of(level)) for x, level in zip(xs, levels, strict=True)))
        for name, levels in series
    )
    described = "; ".join(f"{line.name}: from {line.levels[0]:,} to {line.levels[-1]:,}" for line in lines)
    return Chart(
        title,
        f"{described}. The table below has every point.",
        lines,
        tuple(Mark(x, label) for index, (x, label) in enumerate(zip(xs, labels, strict=True)) if index % every == 0),
        tuple(Mark(y_of(top * part / _GRID), f"{top * part // _GRID:,}") for part in range(_GRID + 1)),
        tuple(zip(labels, zip(*(line.levels for line in lines), strict=True), strict=True)),
    )


def label_of(seconds: int) -> str:
    """Return a point in time after the opening in its largest whole unit: "90 s", "15 min", "3 h", "2 d"."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size or seconds == size:
            return f"{round(seconds / size)} {unit}"
    return f"{seconds} s"


def _round_up(value: int) -> int:
    """Return the next number above that divides the axis evenly: 4, 8, 20, 40, 80, 200, …"""
    size = 4
    while True:
        for factor in (1, 2, 5):
            if size * factor >= value:
                return size * factor
        size *= 10
