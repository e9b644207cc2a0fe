"""A parsed seating plan as frozen values, independent of files and tables."""

import re
from dataclasses import dataclass

LABEL_CHARACTERS_MAX = 40
NAME_CHARACTERS_MAX = 120
CATEGORY_CHARACTERS_MAX = 80
GUID_CHARACTERS_MAX = 120
PLAN_NAME_CHARACTERS_MAX = 200
TEXT_CHARACTERS_MAX = 500
COORDINATE_MAX = 1_000_000.0

_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class PlanError(ValueError):
    """A file is not a usable seating plan. `place` is the position in the file, `what` is the error."""

    def __init__(self, place: str, what: str) -> None:
        super().__init__(f"{place}: {what}" if place else what)
        self.place = place
        self.what = what


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper limits. A file above one of them is refused before it takes much time or memory."""

    file_bytes_max: int = 64 * 1024 * 1024
    seats_max: int = 200_000
    sections_max: int = 2_000
    categories_max: int = 500
    prices_max: int = 10_000
    """Pairs of a section and a category of its seats. Every list of the event's sections has all of them."""
    areas_max: int = 10_000
    polygon_points_max: int = 2_000
    objects_max: int = 1_000_000
    """Objects and lists of a JSON file. A seat has two objects."""
    values_max: int = 4_000_000
    """Members and items of a JSON file. A seat has six."""
    columns_max: int = 100
    """Columns of a CSV file, those that are ignored included."""


@dataclass(frozen=True, slots=True)
class PlanCategory:
    name: str
    color: str


@dataclass(frozen=True, slots=True)
class PlanSeat:
    """A seat with its arrangement. Coordinates are absolute; `category` is an index into the plan's categories.

    `row_index` counts the section's rows from the front, `place_index` counts along the row and skips one at an aisle,
    and `rank` is 1 for the section's best seat.
    """

    guid: str
    row: str
    number: str
    x: float
    y: float
    category: int
    row_index: int
    place_index: int
    rank: int
    accessible: bool
    companion: bool


@dataclass(frozen=True, slots=True)
class PlanSection:
    slug: str
    name: str
    seats: tuple[PlanSeat, ...]  # row by row, front first


@dataclass(frozen=True, slots=True)
class AreaText:
    x: float
    y: float
    text: str
    color: str
    size: float


@dataclass(frozen=True, slots=True)
class Area:
    """A drawn shape or text: stage, bar, standing floor. Absolute coordinates; `rotation` in degrees around (x, y).

    (x, y) is the corner of a rectangle, the center of a circle or ellipse, the origin of a polygon or text. Sizes that
    a shape does not have are 0.
    """

    shape: str  # rectangle | circle | ellipse | polygon | text
    x: float
    y: float
    width: float = 0.0
    height: float = 0.0
    radius: float = 0.0
    rx: float = 0.0
    ry: float = 0.0
    points: tuple[tuple[float, float], ...] = ()
    rotation: float = 0.0
    color: str = ""
    border_color: str = ""
    text: AreaText | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    name: str
    width: float
    height: float
    categories: tuple[PlanCategory, ...]
    sections: tuple[PlanSection, ...]
    areas: tuple[Area, ...]
    notes: tuple[str, ...] = ()  # parts of the file that were left out, in words

    @property
    def seat_count(self) -> int:
        return sum(len(section.seats) for section in self.sections)


def label(value: str | int, place: str, characters_max: int, *, empty: bool = False) -> str:
    """Return the label as printed on tickets: trimmed, printable, within the limit. Raises PlanError with the place."""
    text = str(value).strip()
    if _UNPRINTABLE.search(text):
        raise PlanError(place, "contains a character that cannot be printed")
    if not text and not empty:
        raise PlanError(place, "is empty")
    if len(text) > characters_max:
        raise PlanError(place, f"is longer than {characters_max} characters")
    return text


def printable(text: str) -> str:
    """Return the beginning of a text from a file, with unprintable characters replaced, for a message."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text[:80])


def spot(x: float, y: float) -> tuple[float, float]:
    """Return the coordinates rounded, so that two seats on one spot are equal despite rounding errors."""
    return round(x, 3), round(y, 3)


def coordinate(value: float, place: str) -> float:
    """Return the coordinate if it is within the drawing range. Raises PlanError with the place."""
    if not -COORDINATE_MAX <= value <= COORDINATE_MAX:  # NaN compares false, so it is refused too
        raise PlanError(place, f"must be a number between -{COORDINATE_MAX:.0f} and {COORDINATE_MAX:.0f}")
    return float(value)
