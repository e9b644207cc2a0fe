"""The drawing of an event's plan: sizes, areas, outlines and seats, whatever the prices are."""

from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

import msgspec
from django.utils.text import slugify

from apps.events import event_views
from apps.events.models import Category, Event
from apps.events.plans.geometry import area_outline, rows_outline
from apps.events.plans.layout import areas_of
from apps.events.plans.plan import Area

COLUMNS = (
    "guid", "section", "row", "number", "x", "y", "category", "accessible", "companion", "row_index",
)  # fmt: skip
"""Of the rows that `encode_drawing` expects, in the order of the plan."""


class Drawing(msgspec.Struct):
    """What the plan of an event shows whatever the prices are. To make it takes most of the time of a large plan, so it
    is kept in Redis."""

    latest_link: int | None
    """The newest link between a section and a category. Moving seats to other categories makes new ones."""
    section_ids: list[int]
    category_ids: list[int]
    """Sections and categories in the order of the plan, to which `seats` refers."""
    size: msgspec.Raw
    seat_radius: msgspec.Raw
    areas: msgspec.Raw
    outlines: list[msgspec.Raw]
    """One for each section."""
    seats: msgspec.Raw
    """The columns of the seats, in the order of their ids."""


def encode_drawing(
    event: Event,
    sections: Sequence[event_views.SectionView],
    categories: Sequence[Category],
    rows: Sequence[tuple[Any, ...]],
    latest_link: int | None,
) -> bytes:
    """Return the drawing of these seats as JSON."""
    layout = event.plan.layout if event.plan is not None else None
    areas = areas_of(layout) if layout is not None else ()
    category_at = {category.pk: index for index, category in enumerate(categories)}
    section_at = {section.id: index for index, section in enumerate(sections)}
    radius = _seat_radius(rows)
    spots: dict[int, list[list[tuple[float, float]]]] = {}
    for (section_id, _), members in groupby(rows, key=lambda row: (row[1], row[9])):
        spots.setdefault(section_id, []).append([(row[4], row[5]) for row in members])
    return msgspec.json.encode(
        {
            "latest_link": latest_link,
            "section_ids": list(section_at),
            "category_ids": list(category_at),
            "size": [_round_coordinate(value) for value in (layout["size"] if layout is not None else (0, 0))],
            "seat_radius": radius,
            "areas": [_area(area) for area in areas],
            "outlines": [_outline(section, spots.get(section.id, []), areas, radius) for section in sections],
            "seats": {
                "id": [row[0] for row in rows],
                "section": [section_at[row[1]] for row in rows],
                "row": [row[2] for row in rows],
                "number": [row[3] for row in rows],
                "x": [_round_coordinate(row[4]) for row in rows],
                "y": [_round_coordinate(row[5]) for row in rows],
                "category": [category_at[row[6]] for row in rows],
                "flags": [(1 if row[7] else 0) | (2 if row[8] else 0) for row in rows],
            },
        }
    )


def _round_coordinate(value: float) -> float | int:
    """Round to one decimal, a tenth of a pixel; whole numbers become integers."""
    rounded = round(value, 1)
    return int(rounded) if rounded == int(rounded) else rounded


def _seat_radius(rows: Sequence[tuple[Any, ...]]) -> float | int:
    """Return a radius at which drawn neighbors do not touch."""
    gaps = sorted(
        ((after[4] - before[4]) ** 2 + (after[5] - before[5]) ** 2) ** 0.5
        for before, after in pairwise(rows[:5_000])
        if before[1] == after[1] and before[2] == after[2]
    )
    real = [gap for gap in gaps if gap > 0]
    return _round_coordinate(real[len(real) // 4] * 0.42) if real else 10


def _outline(
    section: event_views.SectionView, rows: list[list[tuple[float, float]]], areas: tuple[Area, ...], radius: float
) -> list[list[float]]:
    """Return the outline of the section's seats; for general admission, of the plan's area that has its name."""
    if rows:
        line = rows_outline(rows, margin=radius * 1.7)
    else:
        named = (area for area in areas if area.text is not None and slugify(area.text.text) == section.slug)
        line = next((corners for area in named if (corners := area_outline(area))), [])
    return [[_round_coordinate(x), _round_coordinate(y)] for x, y in line]


_SIZES: dict[str, tuple[str, ...]] = {
    "rectangle": ("width", "height"), "circle": ("radius",), "ellipse": ("rx", "ry"), "polygon": (), "text": (),
}  # fmt: skip


def _area(area: Area) -> dict[str, Any]:
    drawn: dict[str, Any] = {
        "shape": area.shape,
        "x": _round_coordinate(area.x),
        "y": _round_coordinate(area.y),
        **{name: _round_coordinate(getattr(area, name)) for name in _SIZES[area.shape]},
        "rotation": _round_coordinate(area.rotation),
        "color": area.color,
        "border_color": area.border_color,
    }
    if area.shape == "polygon":
        drawn["points"] = [[_round_coordinate(x), _round_coordinate(y)] for x, y in area.points]
    if area.text is not None:
        text = area.text
        drawn["text"] = {
            "x": _round_coordinate(text.x),
            "y": _round_coordinate(text.y),
            "text": text.text,
            "color": text.color,
            "size": _round_coordinate(text.size),
        }
    return drawn
