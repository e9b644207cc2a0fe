"""The default poster of an event, generated from its name: deterministic and self-contained."""

import colorsys
import hashlib
from xml.sax.saxutils import escape

from apps.events.posters.font import poster_face

WIDTH, HEIGHT = 400, 560
_LINE_CHARACTERS_MAX = 16
_LINES_MAX = 5


def poster(title: str, drawing: str) -> str:
    """Return the drawing as a self-contained SVG of 400 by 560."""
    label = escape(title, {'"': "&quot;"})
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
        f' role="img" aria-label="{label}">{poster_face()}{drawing}</svg>'
    )


def plain_poster(slug: str, name: str) -> str:
    """Return a poster with the name over rings; their colors and position are derived from the slug."""
    dice = hashlib.sha256(slug.encode()).digest()
    hue = dice[0] / 255
    dark, middle, light = _color(hue, 0.16, 0.55), _color(hue + 0.06, 0.42, 0.6), _color(hue + 0.5, 0.62, 0.75)
    center_x, center_y = 80 + dice[1] % 240, 120 + dice[2] % 160
    rings = "".join(
        f'<circle cx="{center_x}" cy="{center_y}" r="{radius}" fill="none" stroke="{light if index % 3 else middle}"'
        f' stroke-width="{3 + (dice[3 + index] % 7)}" opacity="{0.9 - index * 0.06:.2f}"/>'
        for index, radius in enumerate(range(26, 360, 28))
    )
    lines = _lines(name)
    size = 74 if max(map(len, lines)) <= 10 else 54
    top = HEIGHT - 40 - (len(lines) - 1) * size * 0.92
    words = "".join(
        f'<text x="30" y="{top + index * size * 0.92:.0f}">{escape(line)}</text>' for index, line in enumerate(lines)
    )
    return poster(
        name,
        '<defs><linearGradient id="shade" x1="0" y1="0" x2="0" y2="1">'
        f'<stop offset="0.3" stop-color="{dark}" stop-opacity="0"/><stop offset="0.8" stop-color="{dark}"/>'
        f'</linearGradient></defs><rect width="100%" height="100%" fill="{dark}"/>{rings}'
        f'<rect width="100%" height="100%" fill="url(#shade)"/><g fill="#fff" font-size="{size}">{words}</g>',
    )


def _color(hue: float, lightness: float, saturation: float) -> str:
    parts = colorsys.hls_to_rgb(hue % 1, lightness, saturation)
    return "#" + "".join(f"{round(part * 255):02x}" for part in parts)


def _lines(name: str) -> list[str]:
    lines: list[str] = [""]
    for word in name.upper().split():
        longer = f"{lines[-1]} {word}".strip()
        if len(longer) <= _LINE_CHARACTERS_MAX or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    short = [line if len(line) <= 18 else line[:17] + "…" for line in lines]
    return short if len(short) <= _LINES_MAX else [*short[: _LINES_MAX - 1], "…"]
