"""Line charts by the number of callers, as an SVG for light and dark mode.

Written by hand: two hundred lines are less to maintain than a plotting library.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle

WIDTH, HEIGHT = 1_080, 860
MARGIN_LEFT, MARGIN_TOP, GAP, PANEL_HEIGHT = 62, 78, 72, 320
PLOT_WIDTH, LABEL_WIDTH = 250, 205
LABEL_STEP = 15

# The SVG has its own background, because that of the page is unknown; it only uses the preferred color scheme.
_STYLE = """
svg { font-family: system-ui, sans-serif; font-size: 12px; }
.page { fill: #ffffff; } .ink { fill: #1f2328; } .quiet { fill: #59636e; } .grid { stroke: #d8dee4; }
.line { fill: none; stroke-width: 1.6; } .dot { stroke: none; } .lead { stroke-width: 1; fill: none; opacity: .55; }
.ours { stroke-width: 3.2; } .title { font-size: 17px; font-weight: 600; } .panel { font-weight: 600; font-size: 13px; }
.bold { font-weight: 600; }
.s0 { stroke: #0b57d0; } .f0 { fill: #0b57d0; } .s9 { stroke: #00796b; } .f9 { fill: #00796b; }
.s1 { stroke: #b3261e; } .f1 { fill: #b3261e; } .s2 { stroke: #c25e00; } .f2 { fill: #a85100; }
.s3 { stroke: #8e44ad; } .f3 { fill: #8e44ad; } .s4 { stroke: #6d6a00; } .f4 { fill: #6d6a00; }
.s5 { stroke: #c2185b; } .f5 { fill: #c2185b; } .s6 { stroke: #5d4037; } .f6 { fill: #5d4037; }
.s7 { stroke: #455a64; } .f7 { fill: #455a64; } .s8 { stroke: #8a8f98; } .f8 { fill: #6b7078; }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117; } .ink { fill: #e6edf3; } .quiet { fill: #9ea7b3; } .grid { stroke: #2d333b; }
.s0 { stroke: #6cb0ff; } .f0 { fill: #6cb0ff; } .s9 { stroke: #3fd4b4; } .f9 { fill: #3fd4b4; }
.s1 { stroke: #ff8a80; } .f1 { fill: #ff8a80; } .s2 { stroke: #ffb366; } .f2 { fill: #ffb366; }
.s3 { stroke: #d3a6f0; } .f3 { fill: #d3a6f0; } .s4 { stroke: #d9d56b; } .f4 { fill: #d9d56b; }
.s5 { stroke: #ff8fb8; } .f5 { fill: #ff8fb8; } .s6 { stroke: #d0b3a6; } .f6 { fill: #d0b3a6; }
.s7 { stroke: #a9c0cb; } .f7 { fill: #a9c0cb; } .s8 { stroke: #8a8f98; } .f8 { fill: #b0b5bd; }
}
"""


@dataclass(frozen=True)
class Line:
    title: str
    points: Sequence[tuple[int, float]]
    """Number of callers and value, in order."""
    is_ours: bool


@dataclass(frozen=True)
class Panel:
    title: str
    lines: Sequence[Line]


def draw(panels: Sequence[Panel], title: str) -> str:
    """Return an SVG of up to four panels, two per row. Lines with the same title have the same color in all of them."""
    colors = _colors(panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}"/>',
        f'<text class="ink title" x="{MARGIN_LEFT - 40}" y="32">{escape(title)}</text>',
    ]
    for index, panel in enumerate(panels):
        left = MARGIN_LEFT + (index // 2) * (PLOT_WIDTH + LABEL_WIDTH + GAP)
        top = MARGIN_TOP + (index % 2) * (PANEL_HEIGHT + GAP)
        parts += _panel(panel, left, top, colors)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _colors(panels: Sequence[Panel]) -> dict[str, int]:
    ours, others = cycle((0, 9)), cycle(range(1, 9))
    colors: dict[str, int] = {}
    for panel in panels:
        for line in panel.lines:
            if line.title not in colors:
                colors[line.title] = next(ours) if line.is_ours else next(others)
    return colors


def _panel(panel: Panel, left: float, top: float, colors: dict[str, int]) -> list[str]:
    callers = sorted({count for line in panel.lines for count, _ in line.points})
    values = [value for line in panel.lines for _, value in line.points]
    ticks = _ticks(min(values), max(values))
    low, high = math.log10(ticks[0]), math.log10(ticks[-1])

    def x(count: int) -> float:
        return left + PLOT_WIDTH * callers.index(count) / max(1, len(callers) - 1)

    def y(value: float) -> float:
        return top + PANEL_HEIGHT * (1 - (math.log10(value) - low) / (high - low))

    parts = [f'<text class="ink panel" x="{left - 40}" y="{top - 14}">{escape(panel.title)}</text>']
    for tick in ticks:
        parts.append(f'<line class="grid" x1="{left}" x2="{left + PLOT_WIDTH}" y1="{y(tick):.1f}" y2="{y(tick):.1f}"/>')
        parts.append(f'<text class="quiet" x="{left - 8}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:,g}</text>')
    below = top + PANEL_HEIGHT + 18
    parts += [
        f'<text class="quiet" x="{x(count):.1f}" y="{below}" text-anchor="middle">{count}</text>' for count in callers
    ]
    lines = sorted(panel.lines, key=lambda line: line.is_ours)
    for line in lines:
        color, ours = colors[line.title], " ours" if line.is_ours else ""
        points = " ".join(f"{x(count):.1f},{y(value):.1f}" for count, value in line.points)
        parts.append(f'<polyline class="line s{color}{ours}" points="{points}"/>')
        parts += [
            f'<circle class="dot f{color}" cx="{x(count):.1f}" cy="{y(value):.1f}" r="{4 if ours else 2.6}"/>'
            for count, value in line.points
        ]
    for at, label_at, line in _place_labels([(y(line.points[-1][1]), line) for line in lines]):
        color = colors[line.title]
        edge = left + PLOT_WIDTH
        parts.append(
            f'<path class="lead s{color}" d="M{edge + 5:.1f} {at:.1f} L{edge + 16:.1f} {label_at:.1f}"/>'
            f'<text class="f{color}{" bold" if line.is_ours else ""}" x="{edge + 20}" y="{label_at + 4:.1f}">'
            f"{escape(line.title)}</text>"
        )
    return parts


def _place_labels(ends: Sequence[tuple[float, Line]]) -> list[tuple[float, float, Line]]:
    """Return where each line ends and where its label is: as close as possible without overlaps."""
    ordered = sorted(ends, key=lambda end: end[0])
    positions = [at for at, _ in ordered]
    # Labels that are too close move apart, by equal amounts, until all have room.
    for _ in range(200):
        for index in range(len(positions) - 1):
            missing = LABEL_STEP - (positions[index + 1] - positions[index])
            if missing > 0:
                positions[index] -= missing / 2
                positions[index + 1] += missing / 2
    return [(at, position, line) for (at, line), position in zip(ordered, positions, strict=True)]


def _ticks(low: float, high: float) -> list[float]:
    """Return 1, 2, 5 and their multiples of ten, from below the lowest to above the highest value."""
    steps = [factor * 10.0**exponent for exponent in range(-3, 8) for factor in (1, 2, 5)]
    below = max(step for step in steps if step <= low)
    above = min(step for step in steps if step >= high)
    return [step for step in steps if below <= step <= above]
