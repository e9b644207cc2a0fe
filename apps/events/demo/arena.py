"""An arena of about 15,000 seats in two bowls around a standing floor, the stage at one end.

A row is a rounded rectangle around the floor; the next row is the same shape moved outward. So blocks on the straight
sides are rectangles and blocks in the corners are fans, as in a real bowl.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from apps.events.demo.seats import Json, label, plan, rectangle, row, row_letter, seat, text_area, zone

CATEGORIES = {
    "Lower bowl front": "#d6336c",
    "Lower bowl": "#f08c00",
    "Upper bowl": "#1c7ed6",
    "Upper bowl rear": "#2b9a66",
}
FLOOR = "Floor"

_HALF_WIDTH, _HALF_HEIGHT, _CORNER = 470.0, 580.0, 260.0
_SPACING, _PITCH, _STAIRS = 21.0, 25.0, 40.0
_LOWER_ROWS, _UPPER_ROWS = 18, 30
_UPPER_FIRST = _LOWER_ROWS * _PITCH + 90.0
_REACH = _UPPER_FIRST + _UPPER_ROWS * _PITCH + 70.0
_CENTER_X, _CENTER_Y = _HALF_WIDTH + _REACH, _HALF_HEIGHT + _REACH - 260.0

_Point = tuple[float, float]
_PlacePoint = Callable[[float, float], _Point]  # (distance outward, offset along the block from its middle) -> point


@dataclass(frozen=True, slots=True)
class _Block:
    place: _PlacePoint
    length: Callable[[float], float]  # of the row at this distance outward
    is_facing_side: bool


def arena_plan() -> Json:
    """Return the arena as a pretix seating plan; its floor is an area, to be sold as general admission."""
    # The first and the last block of the lower bowl would be behind the stage.
    beside = list(_blocks(2))[1:-1]
    lower = [_zone(100 + n, block, 0.0, _LOWER_ROWS, "Lower bowl") for n, block in enumerate(beside, 1)]
    upper = [_zone(200 + n, block, _UPPER_FIRST, _UPPER_ROWS, "Upper bowl") for n, block in enumerate(_blocks(5), 1)]
    width, height = 2 * _CENTER_X, _CENTER_Y + _HALF_HEIGHT + _REACH
    return plan("Lakefront Arena", width, height, CATEGORIES, [zone("Floor and stage", [], _floor()), *lower, *upper])


def _blocks(per_corner: int) -> Iterator[_Block]:
    """Yield the blocks clockwise from the right of the stage, without the end behind the stage."""
    side, end = 2 * (_HALF_HEIGHT - _CORNER), 2 * (_HALF_WIDTH - _CORNER)
    yield from _corner(1, -1, -90.0, per_corner)
    yield from _straight((1, 0), (0, 1), side, 3, _HALF_WIDTH, is_facing_side=True)
    yield from _corner(1, 1, 0.0, per_corner)
    yield from _straight((0, 1), (-1, 0), end, 2, _HALF_HEIGHT, is_facing_side=False)
    yield from _corner(-1, 1, 90.0, per_corner)
    yield from _straight((-1, 0), (0, -1), side, 3, _HALF_WIDTH, is_facing_side=True)
    yield from _corner(-1, -1, 180.0, per_corner)


def _straight(
    out: tuple[int, int], along: tuple[int, int], length: float, count: int, inset: float, *, is_facing_side: bool
) -> Iterator[_Block]:
    share = length / count
    for index in range(count):
        middle = (index + 0.5) * share - length / 2

        def place(outward: float, offset: float, middle: float = middle) -> _Point:
            far, beside = inset + outward, middle + offset
            return (
                _CENTER_X + out[0] * far + along[0] * beside,
                _CENTER_Y + out[1] * far + along[1] * beside,
            )

        yield _Block(place, lambda _outward, share=share: share, is_facing_side)  # type: ignore[misc]


def _corner(sign_x: int, sign_y: int, from_degrees: float, count: int) -> Iterator[_Block]:
    share = math.pi / 2 / count
    middle_x = _CENTER_X + sign_x * (_HALF_WIDTH - _CORNER)
    middle_y = _CENTER_Y + sign_y * (_HALF_HEIGHT - _CORNER)
    for index in range(count):
        toward = math.radians(from_degrees) + (index + 0.5) * share

        def place(outward: float, offset: float, toward: float = toward) -> _Point:
            radius = _CORNER + outward
            angle = toward + offset / radius
            return middle_x + radius * math.cos(angle), middle_y + radius * math.sin(angle)

        yield _Block(place, lambda outward: (_CORNER + outward) * share, False)


def _zone(number: int, block: _Block, first: float, rows: int, tier: str) -> Json:
    made = []
    for index in range(rows):
        outward = first + index * _PITCH
        count = int((block.length(outward) - _STAIRS) // _SPACING) + 1
        letter = row_letter(index)
        # The cross-aisle behind the lower bowl is level: wheelchair spaces with companion seats are there.
        level = tier == "Lower bowl" and index == rows - 1 and number % 2 == 0
        category = tier
        if tier == "Lower bowl" and index < 6:
            category = "Lower bowl front"
        elif tier == "Upper bowl" and index >= 14:
            category = "Upper bowl rear"
        seats = []
        for place in range(count):
            x, y = block.place(outward, (place - (count - 1) / 2) * _SPACING)
            is_accessible, is_companion = level and place in (0, 3), level and place in (1, 2)
            guid = f"{number}-{letter}-{place + 1}"
            seats.append(seat(guid, place + 1, x, y, category, accessible=is_accessible, companion=is_companion))
        made.append(row(letter, seats))
    x, y = block.place(first - 36.0, 0.0)
    return zone(f"Block {number}", made, [text_area(str(number), x, y, 24)])


def _floor() -> list[Json]:
    left, top = _CENTER_X - _HALF_WIDTH + 90, _CENTER_Y - 250
    wide, high = 2 * (_HALF_WIDTH - 90), _HALF_HEIGHT + 160
    stage_left, stage_top = _CENTER_X - 340, _CENTER_Y - _HALF_HEIGHT - 60
    return [
        rectangle(stage_left, stage_top, 680, 300, "#231f36", "#6c5ce7", label("STAGE", 340, 150, 64, "#ffffff")),
        rectangle(_CENTER_X - 45, stage_top + 300, 90, 150, "#231f36", "#6c5ce7"),
        rectangle(left, top, wide, high, "#dfe3ee", "#8a8fb5", label(FLOOR, wide / 2, high * 0.38, 60, "#3d4160")),
        rectangle(
            _CENTER_X - 80, top + high - 190, 160, 90, "#8a8fb5", "#6b7094", label("Sound", 80, 45, 26, "#ffffff")
        ),
    ]
