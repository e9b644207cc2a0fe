"""The pretix seating-plan JSON format. Unknown keys are ignored, so plans with an editor's extensions can be
imported."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec

from apps.events.plans.arrangement import RawRow, RawSeat
from apps.events.plans.colors import category_color, normal_color
from apps.events.plans.draft import Draft, DraftSection, SlugMaker
from apps.events.plans.plan import (
    CATEGORY_CHARACTERS_MAX,
    GUID_CHARACTERS_MAX,
    LABEL_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
    PLAN_NAME_CHARACTERS_MAX,
    TEXT_CHARACTERS_MAX,
    Area,
    AreaText,
    Limits,
    PlanCategory,
    PlanError,
    coordinate,
    label,
    printable,
    spot,
)

# The format does not mark these seats, so plans name them in the category. Some files add a key to the seat.
_COMPANION = re.compile(r"companion|carer|attendant|begleit|accompagn", re.IGNORECASE)
_ACCESSIBLE = re.compile(r"wheelchair|accessib|rollstuhl|barrierefrei|\bpmr\b", re.IGNORECASE)
_SHAPES = ("rectangle", "circle", "ellipse", "polygon", "text")


_Size = Annotated[float, msgspec.Meta(ge=0)]


class _Position(msgspec.Struct, gc=False):
    x: float
    y: float


_ORIGIN = _Position(0.0, 0.0)


class _Seat(msgspec.Struct):
    seat_guid: str | int
    seat_number: str | int
    position: _Position
    category: str
    accessible: bool | None = None
    wheelchair: bool | None = None
    companion: bool | None = None


class _Row(msgspec.Struct):
    row_number: str | int
    seats: list[_Seat]
    position: _Position | None = None


class _Dimensions(msgspec.Struct):
    width: _Size
    height: _Size


class _Circle(msgspec.Struct):
    radius: _Size


class _Radii(msgspec.Struct):
    x: _Size
    y: _Size


class _Ellipse(msgspec.Struct):
    radius: _Radii


class _Polygon(msgspec.Struct):
    points: list[_Position]


class _Text(msgspec.Struct):
    text: str | int | float | None = None
    position: _Position | None = None
    color: str | None = None
    size: _Size | None = None


class _Area(msgspec.Struct):
    position: _Position
    shape: str | None = None
    rotation: float | None = None
    color: str | None = None
    border_color: str | None = None
    width: _Size | None = None  # first version of the format: every area is a rectangle
    height: _Size | None = None
    rectangle: _Dimensions | None = None
    circle: _Circle | None = None
    ellipse: _Ellipse | None = None
    polygon: _Polygon | None = None
    text: _Text | str | None = None


class _Zone(msgspec.Struct):
    position: _Position
    rows: list[_Row]
    name: str | None = None
    zone_id: str | int | None = None
    areas: list[_Area] | None = None


class _Category(msgspec.Struct):
    name: str
    color: str | None = None


class _File(msgspec.Struct):
    name: str
    categories: list[_Category]
    zones: list[_Zone]
    size: _Dimensions | None = None


_decoder = msgspec.json.Decoder(_File)


@dataclass(slots=True)
class _Taken:
    """The place in the file at which each seat id, each number of a row and each spot was first seen."""

    guids: dict[str, str] = field(default_factory=dict)
    numbers: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    spots: dict[tuple[float, float], str] = field(default_factory=dict)


def read_json(data: bytes, limits: Limits) -> Draft:
    """Parse the bytes (UTF-8 JSON without byte order mark) into a plan that is not yet arranged.

    Raises PlanError with the place: a path such as `zones[2].rows[0].seats[14].category`, or a line and column if the
    text is not valid JSON.
    """
    # Counting braces takes milliseconds. Decoding millions of tiny objects would take hundreds of megabytes before the
    # limits below apply.
    # Counted before the file is read, since each becomes a Python object for a moment, also in keys that are ignored.
    if data.count(b"{") + data.count(b"[") > limits.objects_max:
        raise PlanError("", f"more than {limits.objects_max:,} objects and lists in the file")
    if data.count(b",") > limits.values_max:
        raise PlanError("", f"more than {limits.values_max:,} values in the file")
    file = _decode(data)
    _refuse_repeated_keys(data)
    notes: list[str] = []
    categories, index_of = _categories(file.categories, limits)
    if len(file.zones) > limits.sections_max:
        raise PlanError("zones", f"more than {limits.sections_max:,} zones")
    marks = [(bool(_ACCESSIBLE.search(c.name)), bool(_COMPANION.search(c.name))) for c in categories]
    taken = _Taken()
    sections: list[DraftSection] = []
    areas: list[Area] = []
    slugs = SlugMaker()
    for z, zone in enumerate(file.zones):
        place = f"zones[{z}]"
        rows = []
        for r, row in enumerate(zone.rows):
            row_place = f"{place}.rows[{r}]"
            if len(taken.guids) + len(row.seats) > limits.seats_max:
                raise PlanError(row_place, f"more than {limits.seats_max:,} seats")
            rows.append(_row(row, zone.position, row_place, z, index_of, marks, taken))
        areas += _areas(zone.areas or (), zone.position, place, limits.areas_max - len(areas), limits, notes)
        if any(row.seats for row in rows):
            name = label(zone.name or "", f"{place}.name", NAME_CHARACTERS_MAX, empty=True) or f"Section {z + 1}"
            fallback = label(zone.zone_id or "", f"{place}.zone_id", NAME_CHARACTERS_MAX, empty=True)
            sections.append(DraftSection(slugs.slug(name, fallback=fallback), name, rows))
    size = None
    if file.size is not None:
        size = (coordinate(file.size.width, "size.width"), coordinate(file.size.height, "size.height"))
    return Draft(
        name=label(file.name, "name", PLAN_NAME_CHARACTERS_MAX, empty=True),
        size=size,
        categories=categories,
        sections=sections,
        areas=areas,
        notes=notes,
    )


def _decode(data: bytes) -> _File:
    try:
        return _decoder.decode(data)
    except RecursionError as error:
        raise PlanError("", "the file is nested too deeply to be a seating plan") from error
    except UnicodeDecodeError as error:
        raise PlanError("", f"the text is not UTF-8: {error.reason}") from error
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at ")
        place = path.strip("`").removeprefix("$").removeprefix(".")
        what = what.replace("Expected `float` >= 0.0", "must not be negative")
        what = what.replace("`", "'").replace("Object missing required field", "misses the field")
        raise PlanError(place or "top of the file", what[:1].lower() + what[1:]) from error
    except msgspec.DecodeError as error:
        found = re.search(r"\(byte (\d+)\)", str(error))
        at = int(found[1]) if found else len(data)
        line = data.count(b"\n", 0, at) + 1
        column = at - data.rfind(b"\n", 0, at)
        what = re.sub(r"\s*\(byte \d+\)", "", str(error)).removeprefix("JSON is malformed: ")
        truncated = "truncated" in what
        raise PlanError(
            f"line {line}, column {column}",
            f"not valid JSON: {'the file ends in the middle' if truncated else what}",
        ) from error


class _RepeatedKey(Exception):
    """An object of the file has one key twice."""


def _refuse_repeated_keys(data: bytes) -> None:
    """Raise PlanError if an object has one key twice: JSON readers disagree about which value counts."""

    def check(members: list[tuple[str, Any]]) -> None:
        if len(dict(members)) != len(members):
            raise _RepeatedKey

    try:
        try:
            # The hook returns None for every object, so that a large file needs little memory; the path is found only
            # on a refusal. Integers stay text: only keys matter here, and an ignored number may be too long to convert.
            json.loads(data.decode(), object_pairs_hook=check, parse_int=str)
        except _RepeatedKey:
            # Here each object becomes a tuple of its members; no other JSON value becomes a tuple.
            whole = json.loads(data.decode(), object_pairs_hook=tuple, parse_int=str)
            place, key = next(_repeated_keys(whole, ""))
            raise PlanError(place or "top of the file", f"the key “{printable(key)}” is given twice") from None
    except PlanError:
        raise  # It is a ValueError.
    except RecursionError as error:
        raise PlanError("", "the file is nested too deeply to be a seating plan") from error
    except ValueError as error:
        raise PlanError("", f"not valid JSON in UTF-8: {error}") from error


def _repeated_keys(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the path of each object that has a key twice, and that key."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _repeated_keys(item, f"{path}[{index}]")
    elif isinstance(value, tuple):
        seen: set[str] = set()
        for key, _ in value:
            if key in seen:
                yield path, key
            seen.add(key)
        for key, member in value:
            name = printable(key)
            yield from _repeated_keys(member, f"{path}.{name}" if path else name)


def _categories(found: Sequence[_Category], limits: Limits) -> tuple[list[PlanCategory], dict[str, int]]:
    if len(found) > limits.categories_max:
        raise PlanError("categories", f"more than {limits.categories_max} categories")
    categories: list[PlanCategory] = []
    index_of: dict[str, int] = {}
    for index, category in enumerate(found):
        place = f"categories[{index}].name"
        name = label(category.name, place, CATEGORY_CHARACTERS_MAX)
        if name in index_of:
            raise PlanError(place, f"“{name}” is already the name of categories[{index_of[name]}]")
        index_of[name] = index
        categories.append(PlanCategory(name=name, color=category_color(category.color, index)))
    return categories, index_of


def _row(
    row: _Row,
    zone_at: _Position,
    place: str,
    zone_index: int,
    index_of: dict[str, int],
    marks: Sequence[tuple[bool, bool]],
    taken: _Taken,
) -> RawRow:
    row_at = row.position or _ORIGIN
    label_of_row = label(row.row_number, f"{place}.row_number", LABEL_CHARACTERS_MAX, empty=True)
    # Rows without a label are different rows, so their numbers may repeat.
    numbers = taken.numbers.setdefault((zone_index, label_of_row or place), {})
    seats = []
    for s, seat in enumerate(row.seats):
        at = f"{place}.seats[{s}]"
        guid = label(seat.seat_guid, f"{at}.seat_guid", GUID_CHARACTERS_MAX)
        other = taken.guids.setdefault(guid, at)
        if other is not at:
            raise PlanError(f"{at}.seat_guid", f"“{guid}” is already the id of {other}")
        number = label(seat.seat_number, f"{at}.seat_number", LABEL_CHARACTERS_MAX, empty=True)
        other = numbers.setdefault(number, at) if number else at
        if other is not at:
            raise PlanError(f"{at}.seat_number", f"“{number}” is already the number of {other}, in the same row")
        x = coordinate(zone_at.x + row_at.x + seat.position.x, f"{at}.position.x")
        y = coordinate(zone_at.y + row_at.y + seat.position.y, f"{at}.position.y")
        other = taken.spots.setdefault(spot(x, y), at)
        if other is not at:
            raise PlanError(f"{at}.position", f"this is where {other} is already")
        index = index_of.get(seat.category.strip())
        if index is None:
            raise PlanError(f"{at}.category", f"“{seat.category[:80]}” is not one of the plan's categories")
        accessible, companion = marks[index]
        companion = companion or bool(seat.companion)
        accessible = bool(seat.accessible or seat.wheelchair) or (accessible and not companion)
        seats.append(
            RawSeat(
                guid=guid,
                number=number,
                x=x,
                y=y,
                category=index,
                accessible=accessible,
                companion=companion,
            )
        )
    return RawRow(label_of_row, seats)


def _areas(
    found: Sequence[_Area], zone_at: _Position, place: str, room: int, limits: Limits, notes: list[str]
) -> list[Area]:
    if len(found) > room:
        raise PlanError(f"{place}.areas", f"more than {limits.areas_max:,} areas in the plan")
    areas = []
    for index, area in enumerate(found):
        at = f"{place}.areas[{index}]"
        drawn = _area(area, zone_at, at, limits)
        if drawn is None:
            notes.append(f"{at}: the shape “{(area.shape or '')[:40]}” is not drawn")
        else:
            areas.append(drawn)
    return areas


def _area(area: _Area, zone_at: _Position, at: str, limits: Limits) -> Area | None:
    """Return the area in absolute coordinates, or None for a shape that cannot be drawn. An unknown shape with the
    geometry of a known one (editors add their own) is drawn as that one."""
    x = coordinate(zone_at.x + area.position.x, f"{at}.position.x")
    y = coordinate(zone_at.y + area.position.y, f"{at}.position.y")
    sizes: dict[str, Any] = {}
    shape = area.shape or "rectangle"
    if shape not in _SHAPES:
        shape = next((known for known in _SHAPES[:4] if getattr(area, known) is not None), "")
    match shape:
        case "rectangle":
            if area.rectangle is not None:
                wide, high = area.rectangle.width, area.rectangle.height
            elif area.width is not None and area.height is not None:
                wide, high = area.width, area.height
            else:
                raise PlanError(at, "is a rectangle without a width and a height")
            sizes = {"width": coordinate(wide, f"{at}.width"), "height": coordinate(high, f"{at}.height")}
        case "circle":
            if area.circle is None:
                raise PlanError(at, "is a circle without a radius")
            sizes = {"radius": coordinate(area.circle.radius, f"{at}.circle.radius")}
        case "ellipse":
            if area.ellipse is None:
                raise PlanError(at, "is an ellipse without radii")
            radius = area.ellipse.radius
            sizes = {
                "rx": coordinate(radius.x, f"{at}.ellipse.radius.x"),
                "ry": coordinate(radius.y, f"{at}.ellipse.radius.y"),
            }
        case "polygon":
            points = area.polygon.points if area.polygon else []
            if len(points) < 2 or len(points) > limits.polygon_points_max:
                raise PlanError(f"{at}.polygon.points", f"needs 2 to {limits.polygon_points_max:,} points")
            sizes = {
                "points": tuple(
                    (
                        coordinate(x + point.x, f"{at}.polygon.points[{n}].x"),
                        coordinate(y + point.y, f"{at}.polygon.points[{n}].y"),
                    )
                    for n, point in enumerate(points)
                )
            }
        case "text":
            pass
        case _:
            return None
    return Area(
        shape=shape,
        x=x,
        y=y,
        rotation=coordinate(area.rotation or 0.0, f"{at}.rotation") % 360,
        color=normal_color(area.color),
        border_color=normal_color(area.border_color),
        text=_text(area.text, shape, x, y, sizes, at),
        **sizes,
    )


def _text(found: _Text | str | None, shape: str, x: float, y: float, sizes: dict[str, Any], at: str) -> AreaText | None:
    if found is None:
        return None
    given = _Text(text=found) if isinstance(found, str) else found
    # The seating map draws a text as one line.
    written = " ".join(str("" if given.text is None else given.text).split())
    words = label(written, f"{at}.text.text", TEXT_CHARACTERS_MAX, empty=True)
    if not words:
        return None
    if given.position is not None:
        x, y = x + given.position.x, y + given.position.y
    elif shape == "rectangle":
        x, y = x + sizes["width"] / 2, y + sizes["height"] / 2
    size = given.size or 16.0
    return AreaText(
        x=coordinate(x, f"{at}.text.position.x"),
        y=coordinate(y, f"{at}.text.position.y"),
        text=words,
        color=normal_color(given.color),
        size=min(max(coordinate(size, f"{at}.text.size"), 1.0), 2_000.0),
    )
