"""A theatre of about 1,200 seats: stalls, boxes along both walls, circle and balcony, curved around the stage."""

import math
from collections.abc import Callable, Sequence

from apps.events.demo.seats import Json, label, plan, polygon, rectangle, row, row_letter, seat, text_area, zone

CATEGORIES = {"Premium": "#c2255c", "Prime": "#e8890c", "Standard": "#2f7dd1", "Value": "#3c9a5f"}

_SPACING, _PITCH, _AISLE = 26.0, 33.0, 46.0
_WIDTH, _HEIGHT = 1460.0, 1460.0
_CENTER_X, _CENTER_Y = 730.0, -300.0  # center of all rows' arcs, far behind the stage
_STALLS, _CIRCLE, _BALCONY = 640.0, 1240.0, 1555.0  # radius of the first row of each tier

_SeatPosition = tuple[int, int, int]  # row from the front, block from the left, seat within the block


def theatre_plan() -> Json:
    """Return the theatre as a pretix seating plan."""
    stalls = _tier("Stalls", _STALLS, [(7 + r // 4, 15 + r // 2, 7 + r // 4) for r in range(16)], _stalls_category)
    circle = _tier("Circle", _CIRCLE, [(11, 12 + r // 3, 12 + r // 3, 11) for r in range(7)], _circle_category)
    balcony = _tier("Balcony", _BALCONY, [(12, 13, 13, 12) for _ in range(5)], _balcony_category)
    return plan(
        "Meridian Theatre",
        _WIDTH,
        _HEIGHT,
        CATEGORIES,
        [
            zone("Stage", [], _stage()),
            zone("Stalls", stalls),
            _boxes("Boxes left", 118.0, first=1),
            _boxes("Boxes right", _WIDTH - 118.0, first=2),
            zone("Circle", circle, [text_area("Circle", _CENTER_X, _CENTER_Y + _CIRCLE - 38, 22)]),
            zone("Balcony", balcony, [text_area("Balcony", _CENTER_X, _CENTER_Y + _BALCONY - 38, 22)]),
        ],
    )


def _on_arc(radius: float, angle: float) -> tuple[float, float]:
    return _CENTER_X + radius * math.sin(angle), _CENTER_Y + radius * math.cos(angle)


def _tier(
    name: str, radius: float, blocks: Sequence[tuple[int, ...]], category: Callable[[_SeatPosition], str]
) -> list[Json]:
    """Return rows with the given seats per block, aisles between blocks, and seat numbers from the left."""
    rows = []
    for index, sizes in enumerate(blocks):
        at = radius + index * _PITCH
        length = (sum(sizes) - len(sizes)) * _SPACING + (len(sizes) - 1) * _AISLE
        along, number, seats = -length / 2, 0, []
        is_last = index == len(blocks) - 1
        for block, size in enumerate(sizes):
            for place in range(size):
                number += 1
                x, y = _on_arc(at, along / at)
                # Wheelchair spaces are where the floor is level: behind stalls and circle, by the outer aisles.
                by_aisle = size - 1 - place if block == 0 else place
                level = name != "Balcony" and is_last and block in (0, len(sizes) - 1)
                seats.append(
                    seat(
                        f"{name}-{row_letter(index)}-{number}",
                        number,
                        x,
                        y,
                        category((index, block, place)),
                        accessible=level and by_aisle in (0, 3),
                        companion=level and by_aisle in (1, 2),
                    )
                )
                along += _SPACING
            along += _AISLE - _SPACING
        rows.append(row(row_letter(index), seats))
    return rows


def _stalls_category(at: _SeatPosition) -> str:
    index, block, _ = at
    if block == 1:
        return "Prime" if index < 2 or index > 11 else "Premium"
    return "Prime" if 1 < index < 9 else "Standard"


def _circle_category(at: _SeatPosition) -> str:
    index, block, _ = at
    return "Prime" if index < 3 and block in (1, 2) else "Standard"


def _balcony_category(at: _SeatPosition) -> str:
    index, block, _ = at
    return "Standard" if index == 0 and block in (1, 2) else "Value"


def _boxes(name: str, x: float, first: int) -> Json:
    """Return four boxes of four seats along a wall, at right angles to all other rows; odd numbers left, even right."""
    rows, areas = [], []
    inward = 1.0 if x < _CENTER_X else -1.0
    for box in range(4):
        number = first + 2 * box
        top, left = 300.0 + box * 128.0, x - inward * box * 9.0
        seats = [
            seat(f"Box-{number}-{place + 1}", place + 1, left + inward * place * 3.0, top + place * _SPACING, "Premium")
            for place in range(4)
        ]
        rows.append(row(f"Box {number}", seats))
        areas.append(rectangle(left + inward * 4.5 - 24, top - 22, 48, 3 * _SPACING + 44, "", "#b08d57"))
    return zone(name, rows, areas)


def _stage() -> list[Json]:
    apron = [_on_arc(_STALLS - 74, angle / 20 * 0.52) for angle in range(20, -21, -1)]
    back = [(_CENTER_X - 250.0, 70.0), (_CENTER_X + 250.0, 70.0)]
    first_x, first_y = back[0]
    middle = label("STAGE", _CENTER_X - first_x, 178.0 - first_y, 34, "#f5efe6")
    return [polygon([*back, *apron], "#3b2a33", "#b08d57", middle)]
