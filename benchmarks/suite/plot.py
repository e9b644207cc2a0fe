"""A bar chart of all rows on one scale, relative to the acceptable ratios, as an SVG for light and dark mode."""

import math
from collections.abc import Sequence
from html import escape

from benchmarks.suite.results import Ratio, short

WIDTH, BAR, STEP, TOP, LEFT, RIGHT = 1_080, 16, 30, 86, 520, 70
_STYLE = """
svg { font-family: system-ui, sans-serif; font-size: 12px; }
.page { fill: #ffffff; } .ink { fill: #1f2328; } .quiet { fill: #59636e; } .grid { stroke: #d8dee4; }
.title { font-size: 17px; font-weight: 600; } .edge { stroke: #1f2328; stroke-width: 1.4; }
.fine { fill: #0b57d0; } .below { fill: #b3261e; } .spread { stroke: #59636e; stroke-width: 1.6; }
.goal { fill: none; stroke: #00796b; stroke-width: 2.4; }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117; } .ink { fill: #e6edf3; } .quiet { fill: #9ea7b3; } .grid { stroke: #2d333b; }
.edge { stroke: #e6edf3; } .fine { fill: #6cb0ff; } .below { fill: #ff8a80; } .spread { stroke: #9ea7b3; }
.goal { stroke: #3fd4b4; }
}
"""


_LEGEND = "Multiples of the acceptable ratio; green: the goal; thin line: lowest to highest round"


def draw(ratios: Sequence[Ratio], title: str) -> str:
    """Draw each ratio divided by the acceptable one (inverted if lower is better): above 1 is acceptable."""
    shown = [(ratio, _over(ratio, ratio.ratio), ratio.acceptable) for ratio in ratios if ratio.acceptable]
    values = [1.0, *(value for _, value, _ in shown)]
    for ratio, _, _ in shown:
        values += [_over(ratio, edge) for edge in (ratio.low, ratio.high, ratio.goal or ratio.ratio)]
    low, high = math.floor(math.log2(min(values))), math.ceil(math.log2(max(values)))
    low, high = min(low, -1), max(high, 1)
    height = TOP + STEP * len(shown) + 46

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log2(value) - low) / (high - low)

    bottom = TOP + STEP * len(shown)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="page" width="{WIDTH}" height="{height}"/>',
        f'<text class="ink title" x="22" y="32">{escape(title)}</text>',
        f'<text class="quiet" x="22" y="54">{_LEGEND}</text>',
    ]
    for exponent in range(low, high + 1):
        at, kind = x(2.0**exponent), "edge" if exponent == 0 else "grid"
        parts.append(f'<line class="{kind}" x1="{at:.1f}" x2="{at:.1f}" y1="{TOP - 10}" y2="{bottom}"/>')
        parts.append(
            f'<text class="quiet" x="{at:.1f}" y="{bottom + 18}" text-anchor="middle">{2.0**exponent:g}</text>'
        )
    for number, (ratio, value, _) in enumerate(shown):
        top = TOP + STEP * number
        middle = top + BAR / 2
        begin, end = sorted((x(1), x(value)))
        kind = "fine" if ratio.is_acceptable else "below"
        spread = sorted((x(_over(ratio, ratio.low)), x(_over(ratio, ratio.high))))
        parts += [
            f'<text class="ink" x="22" y="{middle + 4}">{escape(ratio.row)}</text>',
            f'<text class="quiet" x="92" y="{middle + 4}">{escape(_brief(ratio.title))}</text>',
            f'<rect class="{kind}" x="{begin:.1f}" y="{top}" width="{max(1.0, end - begin):.1f}" height="{BAR}"/>',
            f'<path class="spread" d="M{spread[0]:.1f} {top + BAR + 4} L{spread[1]:.1f} {top + BAR + 4}"/>',
            f'<text class="ink" x="{WIDTH - RIGHT + 10}" y="{middle + 4}">{short(ratio.ratio)}</text>',
        ]
        if ratio.goal and ratio.goal != ratio.acceptable:
            at = x(_over(ratio, ratio.goal))
            parts.append(f'<line class="goal" x1="{at:.1f}" x2="{at:.1f}" y1="{top - 3}" y2="{top + BAR + 3}"/>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _over(ratio: Ratio, value: float) -> float:
    assert ratio.acceptable
    floor = max(value, 1e-3)
    return floor / ratio.acceptable if ratio.better == "higher" else ratio.acceptable / floor


def _brief(title: str, most: int = 68) -> str:
    return title if len(title) <= most else title[: most - 1].rstrip() + "…"
