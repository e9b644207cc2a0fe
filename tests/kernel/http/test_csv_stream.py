"""Cells of CSV downloads: no spreadsheet takes one for a formula."""

import csv
import time
from io import StringIO

import pytest

from apps.kernel.http import csv_stream, problems
from apps.kernel.http.csv_stream import safe_cell, stream_csv

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
    safe = str(safe_cell(f"{before}{start}1+1"))
    assert safe.startswith("'")
    assert safe.replace("'", "") == f"{before}{start}1+1"


@pytest.mark.parametrize("cell", ["Ann = Lee", "\u200fآن", "می\u200cنا", "", "\u200b", 7, None, "a-b", "a; b", "a, -b"])
def test_other_cells_stay_as_they_are(cell: str | int | None) -> None:
    assert safe_cell(cell) == cell


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_no_part_of_a_cell_is_a_formula_whichever_delimiter_a_spreadsheet_expects(delimiter: str) -> None:
    row = ["x;=cmd|'/C calc'!A0;y", "x\t=1+1", "x|=1+1", 'a";=1+1;"', "x\n=1+1", 'x;"=1+1"', 7]
    response = stream_csv("orders.csv", ["n;=1"], [row])
    text = b"".join(response).decode("utf-8-sig")  # type: ignore[arg-type]
    for cells in csv.reader(StringIO(text, newline=""), delimiter=delimiter):
        assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))] == []


def test_a_process_sends_one_file_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    first = csv_stream._Download(iter(["a"]))
    with pytest.raises(problems.Busy):
        stream_csv("orders.csv", ["n"], [[1]])
    first.close()  # Without having been read, as for HEAD.
    assert b"".join(stream_csv("orders.csv", ["n"], [[1]])).endswith(b'"1"\r\n')  # type: ignore[arg-type]
    late = csv_stream._Download(iter(["a", "b"]))
    assert next(late) == "a"
    now = time.monotonic() + csv_stream.DOWNLOAD_SECONDS_MAX + 1
    monkeypatch.setattr(csv_stream.time, "monotonic", lambda: now)
    csv_stream._Download(iter(["c"])).close()
    with pytest.raises(csv_stream.DownloadTooSlow):
        next(late)
