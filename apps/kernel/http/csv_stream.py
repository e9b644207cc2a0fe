"""CSV files for download, streamed row by row, in which no cell is a formula.

Spreadsheets of some locales separate cells by semicolons or tabs. They split `x;=1+1` and start a cell at `=`, also
within quotes, because to them only a row's first quote begins a cell. So the text after such a character is treated
like a cell.
"""

import csv
import re
from collections.abc import Iterable, Iterator, Sequence

from django.http import StreamingHttpResponse

from apps.kernel.form_fields.invisible_characters import first_visible

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
    """Return a download of the rows. The response keeps only one row at a time."""
    response = StreamingHttpResponse(_lines(header, rows), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "private, no-store"
    return response


def _lines(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    writer = csv.writer(_Echo(), quoting=csv.QUOTE_ALL)
    yield _BYTE_ORDER_MARK + writer.writerow(header)
    for row in rows:
        yield writer.writerow([safe_cell(cell) for cell in row])
