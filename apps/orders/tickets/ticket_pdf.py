"""Render tickets: a QR code as SVG, and an order's tickets as one PDF with a page each."""

import io
from itertools import groupby

import segno
from reportlab.pdfgen.canvas import Canvas

from apps.events import facade as events
from apps.kernel.formatting import WEEKDAY_DATE_TIME, format_datetime, format_money
from apps.kernel.templatetags.fairgate import grouped
from apps.orders.pdf_layout import (
    ACCENT,
    BOLD,
    INK,
    MUTED,
    PALE,
    TEXT,
    fit,
    register_fonts,
    wrap,
    write,
    write_centered,
)
from apps.orders.selectors import OrderView, TicketView

PAGE = (420, 595)  # A5 upright, in points.
MARGIN = 36
QR_MASK = 3


def qr_svg(code: str) -> str:
    """Return the code as a QR code in SVG, black on white with its quiet zone, without a fixed size."""
    out = io.BytesIO()
    _qr(code).save(out, kind="svg", border=4, light="#fff", omitsize=True, xmldecl=False)
    return out.getvalue().decode()


def _qr(code: str) -> segno.QRCode:
    """Return the QR code, always with the same mask. A mask breaks up patterns, but random bits have none, and trying
    all eight masks takes four fifths of the time. Readers find the mask's number in the QR code."""
    return segno.make_qr(code, error="m", mask=QR_MASK)


def tickets_pdf(order: OrderView) -> bytes:
    """Return a PDF of the order's valid tickets. Each has a page with its event, date in the venue's time zone, seat,
    holder and code."""
    register_fonts()
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=PAGE, pageCompression=1)
    canvas.setTitle(f"Tickets for {order.event.name}")
    canvas.setAuthor("Fairgate")
    canvas.setSubject(f"Order {order.number}")
    for ticket in order.valid_tickets:
        _draw_ticket(canvas, order.event, ticket, order.number)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def ticket_pdf(event: events.EventView, ticket: TicketView) -> bytes:
    """Return a PDF of one ticket for the person who has it: without its order and its price."""
    register_fonts()
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=PAGE, pageCompression=1)
    canvas.setTitle(f"Ticket for {event.name}")
    canvas.setAuthor("Fairgate")
    _draw_ticket(canvas, event, ticket, "")
    canvas.showPage()
    canvas.save()
    return out.getvalue()


def _draw_ticket(canvas: Canvas, event: events.EventView, ticket: TicketView, order_number: str) -> None:
    """Draw the ticket; without an order's number, also without the price."""
    width, height = PAGE
    canvas.setFillColor(ACCENT)
    canvas.rect(0, height - 118, width, 118, stroke=0, fill=1)
    canvas.setFillColor(PALE)
    write(canvas, MARGIN, height - 40, "FAIRGATE", BOLD, 11)
    y = height - 66.0
    title_size, lines = fit(event.name, BOLD, width - 2 * MARGIN)
    for line in lines:
        write(canvas, MARGIN, y, line, BOLD, title_size)
        y -= title_size * 1.2
    canvas.setFillColor(INK)
    y = height - 150
    for label, value in _ticket_fields(event, ticket, with_price=bool(order_number)):
        canvas.setFillColor(MUTED)
        write(canvas, MARGIN, y, label, TEXT, 8)
        canvas.setFillColor(INK)
        y -= 15
        for line in wrap(value, BOLD, 12, width - 2 * MARGIN)[:2]:
            write(canvas, MARGIN, y, line, BOLD, 12)
            y -= 15
        y -= 7
    canvas.setDash(3, 3)
    canvas.setStrokeColor(MUTED)
    canvas.line(MARGIN, 238, width - MARGIN, 238)
    canvas.setDash()
    canvas.setFillColor(INK)
    _draw_qr(canvas, ticket.code, x=(width - 170) / 2, y=56, size=170)
    canvas.setFillColor(MUTED)
    write_centered(canvas, width / 2, 40, grouped(ticket.code), TEXT, 9)
    note = "Show this code at the door. It is valid for one entry."
    write_centered(canvas, width / 2, 24, f"Order {order_number}. {note}" if order_number else note, TEXT, 7)


def _ticket_fields(event: events.EventView, ticket: TicketView, *, with_price: bool) -> list[tuple[str, str]]:
    start = format_datetime(event.starts_at, event.timezone, WEEKDAY_DATE_TIME, with_zone_name=True)
    seat = f"{ticket.section}, row {ticket.row}, seat {ticket.number}" if ticket.row else ticket.label
    price = format_money(ticket.price_minor, ticket.currency) if ticket.price_minor else "Free"
    return [
        ("Date", start),
        ("Venue", f"{event.venue_name}, {event.city}" if event.city else event.venue_name),
        ("Seat" if ticket.row else "Section", seat),
        ("Category and price", f"{ticket.category}, {price}") if with_price else ("Category", ticket.category),
        ("Holder", ticket.holder),
    ]


def _draw_qr(canvas: Canvas, code: str, *, x: float, y: float, size: float) -> None:
    # Write one rectangle per run of dark modules, in whole module units, directly into the page. That takes a tenth of
    # the time of a path of single modules, and an on-sale renders tens of thousands of tickets.
    matrix = _qr(code).matrix
    lines = []
    for line, modules in enumerate(matrix):
        column = 0
        for dark, run in groupby(modules):
            length = sum(1 for _ in run)
            if dark:
                lines.append(f"{column} {len(matrix) - 1 - line} {length} 1 re")
            column += length
    canvas.saveState()
    canvas.translate(x, y)
    canvas.scale(size / len(matrix), size / len(matrix))
    canvas.addLiteral(" ".join([*lines, "f"]))
    canvas.restoreState()
