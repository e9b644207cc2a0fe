"""CSV files for download, in which no cell is a formula.

Spreadsheets of some locales separate cells by semicolons or tabs. They split `x;=1+1` and start a cell at `=`, also
within quotes, because to them only a row's first quote begins a cell. So the text after such a character is treated
like a cell.

A file is written in memory before it is sent, so that a client that reads slowly occupies no thread of the site. The
files that a process writes leave one of its threads to pages; accounts get their files in turns, one at a time in all
processes.
"""

import csv
import re
import time
import zlib
from collections.abc import Hashable, Iterable, Iterator, Sequence

from django.conf import settings
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.utils.cache import patch_vary_headers

from apps.kernel.form_fields.invisible_characters import first_visible
from apps.kernel.http import problems
from apps.kernel.http.compression import request_takes_gzip
from apps.kernel.rate_limits.account_turns import AccountTurns


def writing_max(threads: int) -> int:
    """Return how many files a process with so many threads writes at once, each for another account: at least one."""
    return max(1, threads - 1)


turns = AccountTurns(
    "file",
    writing_max(settings.SITE_THREADS),
    problems.Busy,
    if_own="Another file is being prepared for you. Try again in a moment.",
    if_others="Other files are being prepared. Try again in a moment.",
)
WRITE_SECONDS_MAX = 45.0
"""Less than the silence after which `web` gives a request up (SILENCE_SECONDS_MAX)."""
FILE_BYTES_MAX = 32 * 1024 * 1024
"""The largest response; compressed, that is more than a million rows."""
_COMPRESSION_LEVEL = 4
_GZIP_WINDOW_BITS = 31
Cell = str | int | None
_FORMULA_STARTS = "=+-@＝＋－＠\N{MINUS SIGN}\N{SMALL PLUS SIGN}\N{SMALL HYPHEN-MINUS}"
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
    is_unsafe = _is_formula(first) or (not first and bool(rest) and rest[0] in "\t\r\n|")
    return "".join([f"'{first}" if is_unsafe else first, *(f"'{one}" if _is_formula(one) else one for one in rest)])


def _is_formula(text: str) -> bool:
    start = first_visible(text.replace('"', ""))
    return bool(start) and start in _FORMULA_STARTS


class FileTooLarge(problems.StaffProblem):
    """The file has more than FILE_BYTES_MAX. Nothing was sent."""

    type, status, title = "file-too-large", 413, "The file would be too large."


def respond_with_csv(
    request: HttpRequest, account: Hashable, name: str, header: Sequence[str], rows: Iterable[Sequence[Cell]]
) -> HttpResponseBase:
    """Return a download of the rows, compressed if the client accepts that; for HEAD, its headers only, without reading
    a row. Raises problems.Busy while another file of this account is written (by this process, if Redis is away), or
    this process writes as many files as it may, and if the rows take longer than WRITE_SECONDS_MAX; FileTooLarge."""
    is_compressed = request_takes_gzip(request)
    response: HttpResponseBase
    if request.method == "HEAD":
        response = StreamingHttpResponse(())  # Its length is unknown.
    else:
        with turns.take(account):
            response = HttpResponse(_write(_lines(header, rows), is_compressed=is_compressed))
        if is_compressed:
            response["Content-Encoding"] = "gzip"
    response["Content-Type"] = "text/csv; charset=utf-8"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "private, no-store"
    patch_vary_headers(response, ("Accept-Encoding",))
    return response


def csv_file(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> bytes:
    """Return a small file with these rows."""
    return "".join(_lines(header, rows)).encode()


def _write(lines: Iterator[str], *, is_compressed: bool) -> bytes:
    compressor = zlib.compressobj(_COMPRESSION_LEVEL, wbits=_GZIP_WINDOW_BITS)
    until = time.monotonic() + WRITE_SECONDS_MAX
    written = bytearray()
    for line in lines:
        data = line.encode()
        written += compressor.compress(data) if is_compressed else data
        if len(written) > FILE_BYTES_MAX:
            raise FileTooLarge("" if is_compressed else "Ask for a compressed one: Accept-Encoding: gzip.")
        if time.monotonic() > until:
            raise problems.Busy("This file takes too long at the moment. Try again later.")
    if is_compressed:
        written += compressor.flush()
    return bytes(written)


def _lines(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    writer = csv.writer(_Echo(), quoting=csv.QUOTE_ALL)
    yield _BYTE_ORDER_MARK + writer.writerow(header)
    for row in rows:
        yield writer.writerow([safe_cell(cell) for cell in row])
