"""Counts that grow over the seconds, as an SVG for light and dark mode."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, PANEL_HEIGHT, LEFT, RIGHT, TOP, GAP = 1_080, 300, 70, 110, 70, 80
POINTS_MAX = 400
_STYLE = """
svg { font-family: system-ui, sans-serif; font-size: 12px; }
.page { fill: #ffffff; } .ink { fill: #1f2328; } .quiet { fill: #59636e; } .grid { stroke: #d8dee4; }
.line { fill: none; stroke-width: 2.2; } .title { font-size: 17px; font-weight: 600; }
.panel { font-weight: 600; font-size: 13px; }
.s0 { stroke: #0b57d0; } .f0 { fill: #0b57d0; } .s1 { stroke: #a85100; } .f1 { fill: #a85100; }
.s2 { stroke: #00796b; } .f2 { fill: #00796b; } .s3 { stroke: #8e44ad; } .f3 { fill: #8e44ad; }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117; } .ink { fill: #e6edf3; } .quiet { fill: #9ea7b3; } .grid { stroke: #2d333b; }
.s0 { stroke: #6cb0ff; } .f0 { fill: #6cb0ff; } .s1 { stroke: #ffb366; } .f1 { fill: #ffb366; }
.s2 { stroke: #3fd4b4; } .f2 { fill: #3fd4b4; } .s3 { stroke: #d3a6f0; } .f3 { fill: #d3a6f0; }
}
"""


@dataclass(frozen=True)
class Line:
    title: str
    moments: Sequence[float]
    """When each of them happened, in seconds, sorted."""


@dataclass(frozen=True)
class Panel:
    title: str
    lines: Sequence[Line]
    """At most four."""


def draw(panels: Sequence[Panel], title: str) -> str:
    """Return an SVG with one panel below the other: how many of each line had happened by each second."""
    height = TOP + len(panels) * (PANEL_HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        f'<text class="ink title" x="22" y="32">{escape(title)}</text>',
    ]
    for number, panel in enumerate(panels):
        parts += _draw_panel(panel, TOP + number * (PANEL_HEIGHT + GAP))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _draw_panel(panel: Panel, top: float) -> list[str]:
    seconds = _rounded(max((line.moments[-1] for line in panel.lines if line.moments), default=1.0))
    most = _rounded(max((len(line.moments) for line in panel.lines), default=1))
    bottom = top + PANEL_HEIGHT

    def x(moment: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * moment / seconds

    def y(count: float) -> float:
        return bottom - PANEL_HEIGHT * count / most

    parts = [f'<text class="ink panel" x="{LEFT}" y="{top - 12}">{escape(panel.title)}</text>']
    for part in range(6):
        count, moment = most * part / 5, seconds * part / 5
        parts += [
            f'<path class="grid" d="M{LEFT} {y(count):.1f} H{WIDTH - RIGHT}"/>',
            f'<text class="quiet" x="{LEFT - 8}" y="{y(count) + 4:.1f}" text-anchor="end">{count:,.0f}</text>',
            f'<text class="quiet" x="{x(moment):.1f}" y="{bottom + 20}" text-anchor="middle">{moment:,.0f} s</text>',
        ]
    for number, line in enumerate(panel.lines):
        if not line.moments:
            continue
        step = math.ceil(len(line.moments) / POINTS_MAX)
        counts = [*range(1, len(line.moments), step), len(line.moments)]
        points = " L".join(f"{x(line.moments[count - 1]):.1f} {y(count):.1f}" for count in counts)
        legend = top + 14 + 18 * number
        parts += [
            f'<path class="line s{number}" d="M{x(line.moments[0]):.1f} {y(0):.1f} L{points}"/>',
            f'<rect class="f{number}" x="{WIDTH - RIGHT + 16}" y="{legend - 9}" width="12" height="10"/>',
            f'<text class="ink" x="{WIDTH - RIGHT + 34}" y="{legend}">{escape(line.title)}</text>',
        ]
    return parts


def _rounded(value: float) -> float:
    """Return the next of 1, 2, 2.5, 5 and 10 times a power of ten."""
    unit = 10.0 ** math.floor(math.log10(max(value, 1e-9)))
    return next(factor * unit for factor in (1, 2, 2.5, 5, 10) if factor * unit >= value)
