"""Cells of CSV downloads: no spreadsheet takes one for a formula."""

import csv
import gzip
from collections.abc import Iterable, Iterator, Sequence
from io import StringIO

import pytest
from django.conf import settings
from django.http.response import HttpResponseBase
from django.test import RequestFactory

from apps.kernel import redis
from apps.kernel.http import csv_download, problems
from apps.kernel.http.csv_download import Cell, respond_with_csv, safe_cell
from apps.kernel.rate_limits import account_turns

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


@pytest.mark.parametrize("cell", ["|calc", "\u22121+1", "\ufe621"])
def test_other_beginnings_that_a_spreadsheet_may_run_get_an_apostrophe(cell: str) -> None:
    assert safe_cell(cell) == f"'{cell}"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_no_part_of_a_cell_is_a_formula_whichever_delimiter_a_spreadsheet_expects(delimiter: str) -> None:
    row = ["x;=cmd|'/C calc'!A0;y", "x\t=1+1", "x|=1+1", 'a";=1+1;"', "x\n=1+1", 'x;"=1+1"', 7]
    text = download("ann", [row], header=["n;=1"]).content.decode("utf-8-sig")  # type: ignore[attr-defined]
    for cells in csv.reader(StringIO(text, newline=""), delimiter=delimiter):
        assert [cell for cell in cells if cell.startswith(("=", "+", "-", "@"))] == []


def download(
    account: str, rows: Iterable[Sequence[Cell]], *, header: Sequence[str] = ("n",), method: str = "GET", **headers: str
) -> HttpResponseBase:
    request = RequestFactory().generic(method, "/", headers=headers)
    return respond_with_csv(request, account, "orders.csv", header, rows)


@pytest.fixture(autouse=True)
def no_turns() -> Iterator[None]:
    csv_download.turns.forget()
    yield
    csv_download.turns.forget()


@pytest.mark.parametrize(("threads", "expected"), [(1, 1), (2, 1), (4, 3)])
def test_files_leave_a_thread_of_the_process_to_pages(threads: int, expected: int) -> None:
    assert csv_download.writing_max(threads) == expected
    assert csv_download.writing_max(settings.SITE_THREADS) == csv_download.turns.at_once_max


def test_each_account_has_one_file_at_a_time_and_all_together_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ann's file is being written while the others ask."""
    monkeypatch.setattr(csv_download.turns, "at_once_max", 2)

    def rows() -> Iterator[Sequence[Cell]]:
        with pytest.raises(problems.Busy):
            download("ann", [])
        assert download("ben", [[1]]).content.endswith(b'"1"\r\n')  # type: ignore[attr-defined]
        with csv_download.turns.take("ben"), pytest.raises(problems.Busy):
            download("cleo", [])
        yield [2]

    assert b'"2"' in download("ann", rows()).content  # type: ignore[attr-defined]
    assert b'"3"' in download("cleo", [[3]]).content, "a place is free once the file is written"  # type: ignore[attr-defined]


def test_an_account_has_one_file_at_a_time_in_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_another_process() -> None:
        monkeypatch.setattr(csv_download.turns, "_accounts", set())

    def rows() -> Iterator[Sequence[Cell]]:
        accounts = csv_download.turns._accounts
        in_another_process()
        with pytest.raises(problems.Busy):
            download("ann", [])
        assert download("ben", [[1]])
        with monkeypatch.context() as without_redis:
            without_redis.setattr(redis, "attempt", lambda act: None)
            assert download("ann", [[1]])
        monkeypatch.setattr(csv_download.turns, "_accounts", accounts)
        yield [2]

    assert download("ann", rows())
    in_another_process()
    assert download("ann", [[3]])


def test_a_file_whose_mark_has_expired_leaves_that_of_the_next_one() -> None:
    key = "file:ann"

    def rows() -> Iterator[Sequence[Cell]]:
        redis.client().set(key, b"of another process")
        yield [1]

    assert download("ann", rows())
    assert redis.client().get(key) == b"of another process"
    with pytest.raises(problems.Busy):
        download("ann", [])
    redis.client().delete(key)
    assert download("ann", [])


def test_an_account_that_was_refused_comes_before_those_that_asked_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ann and her colleague Cleo ask for files all the time."""
    monkeypatch.setattr(csv_download.turns, "at_once_max", 1)
    with csv_download.turns.take("ann"):
        for account in ("ben", "cleo"):
            with pytest.raises(problems.Busy):
                download(account, [])
    for account in ("ann", "cleo"):
        with pytest.raises(problems.Busy):
            download(account, [])
    assert download("ben", [])
    assert download("cleo", [])
    assert download("ann", [])


def test_an_account_that_does_not_ask_again_loses_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_download.turns, "at_once_max", 1)
    with csv_download.turns.take("ann"), pytest.raises(problems.Busy):
        download("ben", [])
    monkeypatch.setattr(account_turns, "TURN_SECONDS", -1.0)
    assert download("ann", [])


def test_a_file_that_fails_leaves_its_place() -> None:
    with pytest.raises(ZeroDivisionError):
        download("ann", ([1 // 0] for _ in "a"))
    assert download("ann", [[1]])


def test_head_reads_no_row_and_needs_no_place() -> None:
    rows = iter([[1]])
    with csv_download.turns.take("ann"):
        response = download("ann", rows, method="HEAD")
    assert next(rows) == [1]
    assert response["Content-Disposition"] == 'attachment; filename="orders.csv"'
    assert "Content-Length" not in response


def test_a_file_is_compressed_and_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [["abc"]] * 2_000
    compressed = download("ann", rows, accept_encoding="gzip")
    assert compressed["Content-Encoding"] == "gzip"
    plain = download("ann", rows).content  # type: ignore[attr-defined]
    assert gzip.decompress(compressed.content) == plain  # type: ignore[attr-defined]
    monkeypatch.setattr(csv_download, "FILE_BYTES_MAX", len(plain) - 1)
    assert download("ann", rows, accept_encoding="gzip")
    with pytest.raises(csv_download.FileTooLarge):
        download("ann", rows)
    monkeypatch.setattr(csv_download, "WRITE_SECONDS_MAX", -1.0)
    with pytest.raises(problems.Busy):
        download("ann", rows)
