"""The demo's three posters, generated as SVG."""

import math
import random
from collections.abc import Iterator

from apps.events.posters.artwork import HEIGHT, WIDTH, poster


def orchard_poster() -> str:
    """A tree of glass: branches that split until they end in panes, before a moon."""
    dice = random.Random(7)  # noqa: S311 - the same tree every time, no secret
    branches: list[str] = []
    panes: list[str] = []

    def grow(x: float, y: float, angle: float, length: float, width: float, left: int) -> None:
        end_x, end_y = x + math.cos(angle) * length, y + math.sin(angle) * length
        branches.append(
            f'<path d="M{x:.1f} {y:.1f}L{end_x:.1f} {end_y:.1f}" stroke-width="{width:.1f}"/>',
        )
        if left <= 1:
            panes.append(_pane(end_x, end_y, dice))
        if left == 0:
            return
        for turn in (-0.36, 0.33) if left % 3 else (-0.44, 0.03, 0.41):
            grow(end_x, end_y, angle + turn + dice.uniform(-0.12, 0.12), length * 0.77, width * 0.68, left - 1)

    grow(200, 430, -math.pi / 2, 84, 13, 6)
    stars = "".join(
        f'<circle cx="{dice.uniform(0, WIDTH):.0f}" cy="{dice.uniform(0, 330):.0f}" r="{dice.uniform(0.5, 1.5):.1f}"/>'
        for _ in range(70)
    )
    return poster(
        "The Glass Orchard",
        '<defs><linearGradient id="sky" x1="0" y1="0" x2="0" y2="1"><stop offset="0" stop-color="#14102e"/>'
        '<stop offset="0.55" stop-color="#3b1f52"/><stop offset="1" stop-color="#7c2f4e"/></linearGradient>'
        '<radialGradient id="moon"><stop offset="0.6" stop-color="#fdf1cf"/><stop offset="1" stop-color="#f3d58c"/>'
        '</radialGradient></defs><rect width="400" height="560" fill="url(#sky)"/>'
        f'<g fill="#fff" opacity="0.75">{stars}</g>'
        '<circle cx="200" cy="196" r="150" fill="#f3d58c" opacity="0.12"/>'
        '<circle cx="200" cy="196" r="118" fill="url(#moon)"/>'
        '<path d="M0 432Q110 404 200 426T400 418V560H0Z" fill="#170c22"/>'
        f'<g stroke="#170c22" stroke-linecap="round">{"".join(branches)}</g><g>{"".join(panes)}</g>'
        '<g fill="#fdf1cf"><text x="200" y="488" font-size="57" text-anchor="middle" letter-spacing="1">'
        'The Glass Orchard</text><text x="200" y="522" font-size="19" text-anchor="middle" letter-spacing="5"'
        ' fill="#e9a98f">A play for one winter night</text></g>',
    )


def _pane(x: float, y: float, dice: random.Random) -> str:
    size, turn = dice.uniform(5, 11), dice.uniform(0, 90)
    color = dice.choice(("#7ee8fa", "#ff9e9e", "#ffd86b", "#b693ff", "#7ef0b4", "#ffffff"))
    corners = ((0, -size), (size * 0.62, 0), (0, size), (-size * 0.62, 0))
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return (
        f'<g transform="rotate({turn:.0f} {x:.1f} {y:.1f})"><polygon points="{points}" fill="{color}" opacity="0.72"/>'
        f'<path d="M{x:.1f} {y - size:.1f}L{x - size * 0.62:.1f} {y:.1f}" stroke="#fff" stroke-width="0.9"'
        ' opacity="0.8"/></g>'
    )


def afterglow_poster() -> str:
    """A striped sun, crossed by lines that each carry one sound wave."""
    waves = "".join(_wave(index) for index in range(34))
    bars = "".join(f'<rect x="0" y="{y:.1f}" width="400" height="{high:.1f}" fill="#0d0620"/>' for y, high in _slits())
    return poster(
        "Voltaic, Afterglow Tour",
        '<defs><linearGradient id="sun" x1="0" y1="0" x2="0" y2="1"><stop offset="0" stop-color="#ffe45c"/>'
        '<stop offset="0.5" stop-color="#ff5f8f"/><stop offset="1" stop-color="#8b2cff"/></linearGradient>'
        '<linearGradient id="night" x1="0" y1="0" x2="0" y2="1"><stop offset="0" stop-color="#0d0620"/>'
        '<stop offset="1" stop-color="#250a52"/></linearGradient><clipPath id="disc">'
        '<circle cx="200" cy="226" r="142"/></clipPath></defs><rect width="400" height="560" fill="url(#night)"/>'
        '<circle cx="200" cy="226" r="196" fill="#ff5f8f" opacity="0.07"/>'
        '<circle cx="200" cy="226" r="168" fill="#ff5f8f" opacity="0.09"/>'
        f'<circle cx="200" cy="226" r="142" fill="url(#sun)"/><g clip-path="url(#disc)">{bars}</g>'
        f'<g fill="#0d0620" stroke-width="1.5" stroke-linejoin="round">{waves}</g>'
        '<text x="200" y="84" font-size="23" text-anchor="middle" letter-spacing="13" fill="#ffe45c">'
        "Afterglow Tour</text>"
        '<text x="200" y="540" font-size="122" text-anchor="middle" letter-spacing="3" fill="#fff">Voltaic</text>',
    )


def _slits() -> Iterator[tuple[float, float]]:
    for index in range(7):
        yield 226 + index * 20.0, 2.2 + index * 1.5


def _wave(index: int) -> str:
    y = 262 + index * 5.2
    points = []
    for step in range(0, 401, 5):
        middle = math.exp(-(((step - 200) / 105) ** 2))
        shake = math.sin(step * 0.085 + index * 0.9) * math.cos(step * 0.031 - index * 1.7)
        high = abs(shake) * (16 + 34 * math.sin(math.pi * index / 33)) * middle
        points.append(f"{step} {y - high:.1f}")
    hue = 48 - index * 4
    return f'<path d="M{"L".join(points)}" stroke="hsl({hue % 360} 100% {70 - index * 0.5:.0f}%)"/>'


def solstice_poster() -> str:
    """Hills like cut paper, a low sun with rays, and kites."""
    hills = "".join(
        f'<path d="{_hill(index)}" fill="{color}"/>'
        for index, color in enumerate(("#f79d65", "#e76f51", "#b5456b", "#7a3b7c", "#453a72", "#22305c"))
    )
    rays = "".join(
        f'<path d="M200 250L{200 + 620 * math.cos(a):.0f} {250 + 620 * math.sin(a):.0f}'
        f'L{200 + 620 * math.cos(a + 0.11):.0f} {250 + 620 * math.sin(a + 0.11):.0f}Z"/>'
        for a in (index * math.pi / 14 for index in range(28))
    )
    kites = "".join(
        _kite(*kite)
        for kite in (
            (86, 176, 26, "#2a9d8f"),
            (312, 132, 32, "#e63946"),
            (352, 214, 15, "#fff7e0"),
            (140, 108, 19, "#264653"),
        )
    )
    return poster(
        "Solstice Fields",
        '<rect width="400" height="560" fill="#ffd27d"/>'
        f'<g fill="#ffe3a3">{rays}</g><circle cx="200" cy="250" r="84" fill="#fff3c9"/>'
        f'<circle cx="200" cy="250" r="66" fill="#ff8c42"/>{hills}{kites}'
        '<g fill="#fff7e0" text-anchor="middle"><text x="200" y="452" font-size="98" letter-spacing="2">Solstice</text>'
        '<text x="200" y="520" font-size="76" letter-spacing="18" dx="9">Fields</text>'
        '<text x="200" y="546" font-size="17" letter-spacing="5" fill="#ffd27d">First release: ten thousand'
        " passes</text></g>"
        '<text x="200" y="58" font-size="20" text-anchor="middle" letter-spacing="6" fill="#7a3b7c">'
        "Three days, one short night</text>",
    )


def _hill(index: int) -> str:
    base = 286 + index * 32
    points = [
        f"{x} {base + 22 * math.sin(x / (70 + index * 9) + index * 2.1) - 12 * math.sin(x / 31 + index):.1f}"
        for x in range(0, WIDTH + 1, 8)
    ]
    return f"M0 {HEIGHT}L{'L'.join(points)}L{WIDTH} {HEIGHT}Z"


def _kite(x: float, y: float, size: float, color: str) -> str:
    corners = f"{x},{y - size} {x + size * 0.7:.1f},{y} {x},{y + size * 1.3:.1f} {x - size * 0.7:.1f},{y}"
    tail = f"M{x} {y + size * 1.3:.1f}q{size * 0.6:.1f} {size * 0.7:.1f} 0 {size * 1.4:.1f}t0 {size * 1.4:.1f}"
    return (
        f'<g transform="rotate(24 {x} {y})"><path d="{tail}" fill="none" stroke="#453a72" stroke-width="1.4"/>'
        f'<polygon points="{corners}" fill="{color}"/><path d="M{x} {y - size}V{y + size * 1.3:.1f}'
        f'M{x - size * 0.7:.1f} {y}H{x + size * 0.7:.1f}" stroke="#453a72" stroke-width="1.2" opacity="0.6"/></g>'
    )
