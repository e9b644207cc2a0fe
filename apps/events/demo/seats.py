"""Elements of a pretix seating plan, from which the demo's plans are built."""

from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]
ROW_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"  # without I and O, which read as digits


def row_letter(index: int) -> str:
    """Return A, B, …, Z, AA, AB, … without I and O."""
    first, second = divmod(index, len(ROW_LETTERS))
    return (ROW_LETTERS[first - 1] if first else "") + ROW_LETTERS[second]


def position(x: float, y: float) -> Json:
    return {"x": round(x, 1), "y": round(y, 1)}


def seat(guid: str, number: int, x: float, y: float, category: str, **extra: bool) -> Json:
    return {
        "seat_guid": guid,
        "seat_number": str(number),
        "position": position(x, y),
        "category": category,
        **{name: True for name, is_so in extra.items() if is_so},
    }


def row(label: str, seats: Sequence[Json]) -> Json:
    return {"row_number": label, "row_number_position": "both", "position": position(0, 0), "seats": list(seats)}


def zone(name: str, rows: Sequence[Json], areas: Sequence[Json] = ()) -> Json:
    return {"name": name, "position": position(0, 0), "rows": list(rows), "areas": list(areas)}


def text_area(text: str, x: float, y: float, size: float, color: str = "#8a8f9c") -> Json:
    written = label(text, 0, 0, size, color)
    return {"shape": "text", "position": position(x, y), "rotation": 0, "text": written}


def rectangle(
    x: float, y: float, width: float, height: float, color: str, border: str, label: Json | None = None
) -> Json:
    return _shape("rectangle", x, y, {"width": round(width, 1), "height": round(height, 1)}, color, border, label)


def polygon(points: Sequence[tuple[float, float]], color: str, border: str, label: Json) -> Json:
    """Return the polygon; its label's position is relative to the first point."""
    x, y = points[0]
    outline = {"points": [position(px - x, py - y) for px, py in points]}
    return _shape("polygon", x, y, outline, color, border, label)


def _shape(kind: str, x: float, y: float, outline: Json, color: str, border: str, label: Json | None) -> Json:
    shape = {"shape": kind, "position": position(x, y), kind: outline, "rotation": 0}
    return {**shape, "color": color, "border_color": border, **({} if label is None else {"text": label})}


def label(text: str, x: float, y: float, size: float, color: str) -> Json:
    return {"position": position(x, y), "text": text, "size": size, "color": color}


def plan(name: str, width: float, height: float, categories: dict[str, str], zones: Sequence[Json]) -> Json:
    return {
        "name": name,
        "size": {"width": round(width), "height": round(height)},
        "categories": [{"name": category, "color": color} for category, color in categories.items()],
        "zones": list(zones),
    }
