"""Cells of CSV downloads: no spreadsheet takes one for a formula."""

import pytest

from apps.kernel.http.csv_stream import safe_cell

BEFORE = [
    "",
    " ",
    "\t",
    "\u00a0",
    "\u200b",
    "\u202e",
    "\u200f",
    "\u200d",
    "\ufeff",
    "\u2066\u200b ",
    "\u3164",
    "\u034f",
]


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\uff1d"])
@pytest.mark.parametrize("before", BEFORE)
def test_a_formula_gets_an_apostrophe_also_after_invisible_characters(before: str, start: str) -> None:
    assert safe_cell(f"{before}{start}1+1") == f"'{before}{start}1+1"


@pytest.mark.parametrize("cell", ["Ann = Lee", "\u200fآن", "می\u200cنا", "", "\u200b", 7, None, "a-b"])
def test_other_cells_stay_as_they_are(cell: str | int | None) -> None:
    assert safe_cell(cell) == cell
