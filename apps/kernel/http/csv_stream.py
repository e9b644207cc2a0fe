"""CSV files for download, streamed row by row, in which no cell is a formula."""

import csv
from collections.abc import Iterable, Iterator, Sequence

from django.http import StreamingHttpResponse

from apps.kernel.form_fields.invisible_characters import first_visible

Cell = str | int | None
_FORMULA_STARTS = "=+-@＝＋－＠"
_BYTE_ORDER_MARK = "\ufeff"
"""Without it, Excel does not read UTF-8."""


class _Echo:
    """A file whose write returns what was written."""

    def write(self, text: str) -> str:
        return text


def safe_cell(cell: Cell) -> Cell:
    """Return the cell so that no spreadsheet runs it as a formula: text that begins like one gets an apostrophe,
    also after invisible characters."""
    if not isinstance(cell, str):
        return cell
    text = cell.replace("\x00", "")
    start = first_visible(text)
    return f"'{text}" if (start and start in _FORMULA_STARTS) or text[:1] in ("\t", "\r", "\n") else text


def stream_csv(name: str, header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> StreamingHttpResponse:
    """Return a download of the rows. The response keeps only one row at a time."""
    response = StreamingHttpResponse(_lines(header, rows), content_type="text/csv; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    response["Cache-Control"] = "private, no-store"
    return response


def _lines(header: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Iterator[str]:
    writer = csv.writer(_Echo())
    yield _BYTE_ORDER_MARK + writer.writerow(header)
    for row in rows:
        yield writer.writerow([safe_cell(cell) for cell in row])
