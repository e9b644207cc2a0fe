"""Render an invoice or credit note as PDF from its stored document: the same bytes each time."""

import io
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from reportlab.pdfgen.canvas import Canvas

from apps.events import facade as events
from apps.kernel.formatting import format_datetime, format_money
from apps.orders.models import Invoice, InvoiceKind
from apps.orders.pdf_layout import ACCENT, BOLD, INK, MUTED, PALE, TEXT, register_fonts, wrap, write, write_right

PAGE = (595, 842)  # A4 upright, in points.
MARGIN = 54
_BAND = 92
_ROW = 34
_FIRST_ROWS, _MORE_ROWS = 10, 17
_TITLES = {InvoiceKind.INVOICE: "Invoice", InvoiceKind.CREDIT_NOTE: "Credit note"}


def render_invoice(invoice: Invoice) -> bytes:
    """Return the PDF, on as many pages as its lines need."""
    register_fonts()
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=PAGE, pageCompression=1, invariant=1)
    canvas.setTitle(f"{_TITLES[InvoiceKind(invoice.kind)]} {invoice.number}")
    canvas.setAuthor(invoice.paper["seller"]["name"])
    canvas.setSubject(f"Order {invoice.paper['order']}")
    pages = list(_pages(invoice.paper["lines"]))
    for at, rows in enumerate(pages):
        _draw_band(canvas, invoice)
        y = PAGE[1] - _BAND - 34.0
        if at == 0:
            y = _draw_head(canvas, invoice, y)
        y = _draw_rows(canvas, invoice, rows, y)
        if at == len(pages) - 1:
            _draw_sums(canvas, invoice, y)
        canvas.setFillColor(MUTED)
        write(canvas, MARGIN, 30, invoice.number, TEXT, 8)
        write_right(canvas, PAGE[0] - MARGIN, 30, f"Page {at + 1} of {len(pages)}", TEXT, 8)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def _pages(rows: Sequence[dict[str, Any]]) -> Iterator[Sequence[dict[str, Any]]]:
    """Split the rows into pages. The first page has fewer, because the addresses are above them."""
    yield rows[:_FIRST_ROWS]
    for start in range(_FIRST_ROWS, len(rows), _MORE_ROWS):
        yield rows[start : start + _MORE_ROWS]


def _draw_band(canvas: Canvas, invoice: Invoice) -> None:
    width, height = PAGE
    canvas.setFillColor(ACCENT)
    canvas.rect(0, height - _BAND, width, _BAND, stroke=0, fill=1)
    canvas.setFillColor(PALE)
    write(canvas, MARGIN, height - 36, "FAIRGATE", BOLD, 11)
    write(canvas, MARGIN, height - 66, _TITLES[InvoiceKind(invoice.kind)], BOLD, 22)
    write_right(canvas, width - MARGIN, height - 66, invoice.number, BOLD, 13)


def _draw_head(canvas: Canvas, invoice: Invoice, y: float) -> float:
    """Draw seller and buyer side by side, then date, order and event. Return the y below."""
    paper, middle = invoice.paper, PAGE[0] / 2
    seller, buyer = paper["seller"], paper["buyer"]
    tax_id = [f"Tax ID {seller['tax_id']}"] if seller["tax_id"] else []
    left = [seller["name"], *seller["address"].split("\n"), *tax_id]
    right = [buyer["name"], buyer["email"]]
    low = min(_draw_block(canvas, MARGIN, y, "From", left), _draw_block(canvas, middle, y, "To", right))
    facts = [("Date", paper["date"]), ("Order", paper["order"]), ("Event", _event(paper["event"]))]
    if paper["refers_to"]:
        facts.insert(1, ("Invoice", paper["refers_to"]))
    y = low - 12
    for label, value in facts:
        canvas.setFillColor(MUTED)
        write(canvas, MARGIN, y, label, TEXT, 9)
        canvas.setFillColor(INK)
        for line in wrap(value, TEXT, 9, PAGE[0] - 2 * MARGIN - 70)[:2]:
            write(canvas, MARGIN + 70, y, line, TEXT, 9)
            y -= 14
    return y - 16


def _draw_block(canvas: Canvas, x: float, y: float, label: str, lines: Sequence[str]) -> float:
    canvas.setFillColor(MUTED)
    write(canvas, x, y, label, TEXT, 8)
    canvas.setFillColor(INK)
    y -= 16
    for at, line in enumerate(part for text in lines if text for part in wrap(text, TEXT, 10, 220)[:2]):
        write(canvas, x, y, line, TEXT if at else BOLD, 10)
        y -= 14
    return y


def _event(event: dict[str, str]) -> str:
    start = format_datetime(datetime.fromisoformat(event["starts_at"]), event["timezone"], with_zone_name=True)
    venue = f"{event['venue']}, {event['city']}" if event["city"] else event["venue"]
    return f"{event['name']}, {start}, {venue}"


def _draw_rows(canvas: Canvas, invoice: Invoice, rows: Sequence[dict[str, Any]], y: float) -> float:
    right = PAGE[0] - MARGIN
    has_tax = bool(invoice.paper["taxes"])
    canvas.setFillColor(MUTED)
    write(canvas, MARGIN, y, "Description", TEXT, 8)
    if has_tax:
        write_right(canvas, right - 110, y, "Tax", TEXT, 8)
    write_right(canvas, right, y, "Amount", TEXT, 8)
    y -= 8
    canvas.setStrokeColor(MUTED)
    canvas.setLineWidth(0.5)
    canvas.line(MARGIN, y, right, y)
    for row in rows:
        canvas.setFillColor(INK)
        write(canvas, MARGIN, y - 15, _clipped(row["description"], BOLD, 10, 300), BOLD, 10)
        write_right(canvas, right, y - 15, format_money(row["total_minor"], invoice.currency), TEXT, 10)
        canvas.setFillColor(MUTED)
        write(canvas, MARGIN, y - 27, _clipped(row["category"], TEXT, 8, 300), TEXT, 8)
        if has_tax:
            write_right(canvas, right - 110, y - 15, events.percent(row["tax_rate"]), TEXT, 10)
        y -= _ROW
    canvas.line(MARGIN, y, right, y)
    return y - 22


def _clipped(text: str, font: str, size: float, width: float) -> str:
    """Return as much of the text as fits on one line."""
    lines = wrap(text, font, size, width)
    return f"{lines[0]} …" if len(lines) > 1 else text


def _draw_sums(canvas: Canvas, invoice: Invoice, y: float) -> None:
    right = PAGE[0] - MARGIN
    rows = []
    for tax in invoice.paper["taxes"]:
        rows.append((f"Net, taxed at {events.percent(tax['rate'])}", tax["net_minor"]))
        rows.append((f"Tax, {events.percent(tax['rate'])}", tax["tax_minor"]))
    canvas.setFillColor(MUTED)
    for label, minor in rows:
        write_right(canvas, right - 110, y, label, TEXT, 9)
        write_right(canvas, right, y, format_money(minor, invoice.currency), TEXT, 9)
        y -= 16
    canvas.setFillColor(INK)
    y -= 8
    label = "Refunded" if invoice.kind == InvoiceKind.CREDIT_NOTE else "Paid"
    write_right(canvas, right - 110, y, label, BOLD, 13)
    write_right(canvas, right, y, format_money(invoice.total_minor, invoice.currency), BOLD, 13)
