"""CSV files for download, streamed row by row, in which no cell is a formula.

Spreadsheets of some locales separate cells by semicolons or tabs. They split `x;=1+1` and start a cell at `=`, also
within quotes, because to them only a row's first quote begins a cell. So the text after such a character is treated
like a cell.
"""

import csv
import re
import threading
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence

from django.http import StreamingHttpResponse

from apps.kernel.form_fields.invisible_characters import first_visible
from apps.kernel.http import problems

DOWNLOAD_SECONDS_MAX = 300.0
Cell = str | int | None
_FORMULA_STARTS = "=+-@＝＋－＠"
_SEPARATOR = re.compile(r"([;\t|\r\n])")
"""What another locale or setting may take for the end of a cell or row. A comma ends none: every cell is quoted."""
_BYTE_ORDER_MARK = "\ufeff"
"""Without it, Excel does not read UTF-8."""


class _Echo:
    """A file whose write returns what was written."""

    def write(self, text: str) -> str:
        return text


def safe_cell(cell: Cell) -> Cell:
    """Return the cell so that no spreadsheet runs it as a formula: text that begins like one gets an apostrophe,
    also after invisible characters and after a separator."""
    if not isinstance(cell, str):
        return cell
    first, *rest = _SEPARATOR.split(cell.replace("\x00", ""))
    is_unsafe = _is_formula(first) or (not first and bool(rest) and rest[0] in "\t\r\n")
    return "".join([f"'{first}" if is_unsafe else first, *(f"'{one}" if _is_formula(one) else one for one in rest)])


def _is_formula(text: str) -> bool:
    start = first_visible(text.replace('"', ""))
    return bool(start) and start in _FORMULA_STARTS


def stream_csv(name: str, header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> StreamingHttpResponse:
    """Return a download of the rows. The response keeps only one row at a time, and a thread of the server for as long
    as the client reads: so each process sends one at a time, for DOWNLOAD_SECONDS_MAX at most. Raises problems.Busy
    while another one is sent."""
    response = StreamingHttpResponse(_Download(_lines(header, rows)), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "private, no-store"
    return response


class DownloadTooSlow(Exception):
    """The client reads too slowly. The connection is cut, so that the file is not taken for complete."""


class _Download:
    """The lines of the only download of this process, until the server calls `close` or its time is over."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines = lines
        self._until = time.monotonic() + DOWNLOAD_SECONDS_MAX
        with _beginning:
            if any(time.monotonic() <= other._until for other in _open):
                raise problems.Busy("Another file is being downloaded. Try again in a moment.")
            _open.add(self)

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if time.monotonic() > self._until:
            self.close()
            raise DownloadTooSlow
        try:
            return next(self._lines)
        except BaseException:  # Also at the end of the lines.
            self.close()
            raise

    def close(self) -> None:
        _open.discard(self)


_beginning = threading.Lock()
_open: "weakref.WeakSet[_Download]" = weakref.WeakSet()
"""Weak, so that a download ends with its response, whether it was closed or not."""


def _lines(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    writer = csv.writer(_Echo(), quoting=csv.QUOTE_ALL)
    yield _BYTE_ORDER_MARK + writer.writerow(header)
    for row in rows:
        yield writer.writerow([safe_cell(cell) for cell in row])
