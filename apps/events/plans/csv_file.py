"""Plans as CSV: one line per seat; the first line names the columns, in any order."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field

from apps.events.plans.arrangement import RawRow, RawSeat
from apps.events.plans.colors import category_color
from apps.events.plans.draft import Draft, DraftSection, SlugMaker
from apps.events.plans.plan import (
    CATEGORY_CHARACTERS_MAX,
    GUID_CHARACTERS_MAX,
    LABEL_CHARACTERS_MAX,
    NAME_CHARACTERS_MAX,
    Limits,
    PlanCategory,
    PlanError,
    coordinate,
    label,
    spot,
)
from apps.events.plans.straight_rows import place_seats

COLUMNS = ("section", "row", "seat", "category")
COORDINATES = ("x", "y")
_ALL_COLUMNS = ",".join((*COLUMNS, *COORDINATES, "accessible"))
_READ = frozenset((*COLUMNS, *COORDINATES, "accessible", "companion"))
_YES = frozenset({"1", "yes", "y", "true", "t", "x"})
_NO = frozenset({"", "0", "no", "n", "false", "f"})


@dataclass(slots=True)
class _ParseState:
    """The rows read so far."""

    slugs: SlugMaker = field(default_factory=SlugMaker)
    slug_of: dict[str, str] = field(default_factory=dict)  # section name to its id
    rows: dict[str, dict[str, list[RawSeat]]] = field(default_factory=dict)  # by section name, then row
    categories: dict[str, int] = field(default_factory=dict)
    line_of: dict[str, int] = field(default_factory=dict)  # seat id to its line
    line_at: dict[tuple[float, float], int] = field(default_factory=dict)  # spot to the line of its seat


def read_csv(text: str, limits: Limits) -> Draft:
    """Parse the text into a plan that is not yet arranged. Without the columns `x` and `y`, its seats are placed in
    straight rows. The columns `accessible` and `companion` are optional; others are ignored. Semicolons may replace
    commas. Raises PlanError with the line."""
    first = text.partition("\n")[0]
    delimiter = ";" if ";" in first and "," not in first else ","
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    state = _ParseState()
    columns: dict[str, int] = {}
    line = 0
    try:
        for cells in reader:
            # A quoted cell may span lines; errors give the record's first line.
            begin, line = line + 1, reader.line_num
            if not any(cell.strip() for cell in cells):
                continue
            if not columns:
                columns = _header(cells, begin, limits)
            elif len(state.line_of) >= limits.seats_max:
                raise PlanError(f"line {begin}", f"more than {limits.seats_max:,} seats")
            else:
                _add_seat(state, _record(cells, columns, begin), begin, limits)
    except csv.Error as error:
        raise PlanError(f"line {max(reader.line_num, 1)}", f"not valid CSV: {error}") from error
    if not columns:
        raise PlanError("line 1", f"the header is missing: {_ALL_COLUMNS}")
    if not state.line_of:
        raise PlanError(f"line {line}", "there are no seats after the header")
    draft = Draft(
        name="",
        size=None,
        categories=[PlanCategory(name, category_color(None, index)) for name, index in state.categories.items()],
        sections=[
            DraftSection(slug, name, [RawRow(row, seats) for row, seats in state.rows[name].items()])
            for name, slug in state.slug_of.items()
        ],
        areas=[],
        notes=[],
    )
    return draft if "x" in columns else place_seats(draft)


def _header(cells: Sequence[str], line: int, limits: Limits) -> dict[str, int]:
    """Return the index of each column that is read."""
    if len(cells) > limits.columns_max:
        raise PlanError(f"line {line}", f"more than {limits.columns_max} columns")
    names = [cell.strip().casefold() for cell in cells]
    coordinates = COORDINATES if not set(COORDINATES).isdisjoint(names) else ()
    missing = [name for name in (*COLUMNS, *coordinates) if name not in names]
    if missing:
        raise PlanError(f"line {line}", f"the header lacks {', '.join(missing)} (expected {_ALL_COLUMNS})")
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        raise PlanError(f"line {line}", f"the header names {twice} twice")
    return {name: index for index, name in enumerate(names) if name in _READ}


def _record(cells: Sequence[str], columns: dict[str, int], line: int) -> dict[str, str]:
    if len(cells) <= max(columns[name] for name in (*COLUMNS, *COORDINATES) if name in columns):
        raise PlanError(f"line {line}", f"has {len(cells)} cells, fewer than the header")
    return {name: cells[index].strip() for name, index in columns.items() if index < len(cells)}


def _add_seat(state: _ParseState, record: dict[str, str], line: int, limits: Limits) -> None:
    place = f"line {line}"
    section = label(record["section"], f"{place}, section", NAME_CHARACTERS_MAX)
    row = label(record["row"], f"{place}, row", LABEL_CHARACTERS_MAX, empty=True)
    number = label(record["seat"], f"{place}, seat", LABEL_CHARACTERS_MAX)
    category = label(record["category"], f"{place}, category", CATEGORY_CHARACTERS_MAX)
    if section not in state.slug_of:
        if len(state.slug_of) >= limits.sections_max:
            raise PlanError(place, f"more than {limits.sections_max:,} sections")
        state.slug_of[section] = state.slugs.slug(section)
    if category not in state.categories and len(state.categories) >= limits.categories_max:
        raise PlanError(place, f"more than {limits.categories_max} categories")
    parts = (state.slug_of[section], row, number)
    guid = label("-".join("-".join(part.split()) for part in parts if part), place, GUID_CHARACTERS_MAX)
    if guid in state.line_of:
        raise PlanError(place, f"the seat {guid} is already in line {state.line_of[guid]}")
    state.line_of[guid] = line
    x = y = 0.0
    if "x" in record:
        x, y = _number(record["x"], f"{place}, x"), _number(record["y"], f"{place}, y")
        other = state.line_at.setdefault(spot(x, y), line)
        if other != line:
            raise PlanError(f"{place}, x and y", f"the seat in line {other} is already there")
    state.rows.setdefault(section, {}).setdefault(row, []).append(
        RawSeat(
            guid=guid,
            number=number,
            x=x,
            y=y,
            category=state.categories.setdefault(category, len(state.categories)),
            accessible=_flag(record.get("accessible", ""), f"{place}, accessible"),
            companion=_flag(record.get("companion", ""), f"{place}, companion"),
        )
    )


def _number(cell: str, place: str) -> float:
    try:
        value = float(cell)
    except ValueError as error:
        raise PlanError(place, f"“{cell[:40]}” is not a number") from error
    return coordinate(value, place)


def _flag(cell: str, place: str) -> bool:
    word = cell.casefold()
    if word not in _YES and word not in _NO:
        raise PlanError(place, f"“{cell[:40]}” is neither yes nor no")
    return word in _YES
