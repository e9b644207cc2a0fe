"""Plans of straight rows: the coordinates of seats that were listed without any, and such lists from a few numbers."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace

from apps.events.plans.arrangement import RawRow
from apps.events.plans.draft import Draft
from apps.events.plans.plan import COORDINATE_MAX, Area, AreaText, PlanError

ROWS_MAX = 100
SEATS_PER_ROW_MAX = 200
_SEAT_WIDTH, _ROW_DEPTH, _SECTION_GAP = 30.0, 34.0, 60.0
_STAGE_DEPTH, _STAGE_WIDTH_MIN = 60.0, 240.0
_STAGE_COLOR, _STAGE_TEXT_COLOR = "#3b2a33", "#f5efe6"


@dataclass(frozen=True, slots=True)
class SeatRows:
    """A section of rows A, B, …, each with the seats 1 to `seats_per_row`."""

    name: str
    row_count: int
    seats_per_row: int


def write_csv(sections: Sequence[SeatRows]) -> bytes:
    """Return the sections as a plan file, front section first, each with a price category of its name."""
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(("section", "row", "seat", "category"))
    for section in sections:
        for row in range(section.row_count):
            for seat in range(1, section.seats_per_row + 1):
                writer.writerow((section.name, row_label(row), seat, section.name))
    return text.getvalue().encode()


def row_label(index: int) -> str:
    """Return the label of a section's row: A to Z, then AA, AB, …"""
    first, second = divmod(index, 26)
    letter = chr(ord("A") + second)
    return letter if first == 0 else row_label(first - 1) + letter


def place_seats(draft: Draft) -> Draft:
    """Return the draft with its seats in straight rows in front of a stage: sections one behind the other, rows and
    seats in the order of the file. Raises PlanError if they do not fit into the drawing range."""
    y = _STAGE_DEPTH + 2 * _ROW_DEPTH
    widest = max(len(row.seats) for section in draft.sections for row in section.rows)
    middle = max(widest * _SEAT_WIDTH, _STAGE_WIDTH_MIN) / 2
    sections = []
    for section in draft.sections:
        rows = []
        for row in section.rows:
            rows.append(_place_row(row, middle, y))
            y += _ROW_DEPTH
        sections.append(replace(section, rows=rows))
        y += _SECTION_GAP
    if max(y, 2 * middle) > COORDINATE_MAX:
        raise PlanError("", "too many rows, or seats in one row, to be placed without x and y")
    return replace(draft, sections=sections, areas=[*draft.areas, _stage(middle, widest * _SEAT_WIDTH * 0.6)])


def _place_row(row: RawRow, middle: float, y: float) -> RawRow:
    left = middle - (len(row.seats) - 1) / 2 * _SEAT_WIDTH
    seats = [replace(seat, x=left + index * _SEAT_WIDTH, y=y) for index, seat in enumerate(row.seats)]
    return replace(row, seats=seats)


def _stage(middle: float, width: float) -> Area:
    width = max(width, _STAGE_WIDTH_MIN)
    text = AreaText(middle, _STAGE_DEPTH / 2, "STAGE", _STAGE_TEXT_COLOR, 24.0)
    left = middle - width / 2
    return Area("rectangle", left, 0.0, width=width, height=_STAGE_DEPTH, color=_STAGE_COLOR, text=text)
