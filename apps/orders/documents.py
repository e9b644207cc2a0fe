"""Tickets as drawings: the QR code as SVG, and all of an order as one PDF, a page each."""

import io
from datetime import datetime
from functools import cache

import segno
from reportlab.lib.colors import HexColor
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont
from reportlab.pdfbase.ttfonts import TTFont
from reportlab.pdfgen.canvas import Canvas

from apps.events import facade as events
from apps.orders.selectors import OrderView, TicketView
from ticketing.kernel.templatetags.fairgate import at_venue, grouped, money

PAGE = (420, 595)  # A5 upright, in points.
MARGIN = 36
_INK, _ACCENT, _MUTED = HexColor("#2b1a17"), HexColor("#b92d19"), HexColor("#6b564e")
_TEXT, _BOLD, _FALLBACK = "Vera", "VeraBd", "STSong-Light"


def qr_svg(code: str) -> str:
    """The code as a QR drawing, black on white with its quiet zone, as wide as it is shown."""
    out = io.BytesIO()
    segno.make_qr(code, error="m").save(out, kind="svg", border=4, light="#fff", omitsize=True, xmldecl=False)
    return out.getvalue().decode()


def tickets_pdf(order: OrderView) -> bytes:
    """The order's valid tickets, a page each: event, date on the venue's clock, place, holder, code."""
    _register_fonts()
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=PAGE, pageCompression=1)
    canvas.setTitle(f"Tickets for {order.event.name}")
    canvas.setAuthor("Fairgate")
    canvas.setSubject(f"Order {order.number}")
    for ticket in order.tickets:
        if ticket.valid:
            _draw_ticket(canvas, order, ticket)
            canvas.showPage()
    canvas.save()
    return out.getvalue()


def _draw_ticket(canvas: Canvas, order: OrderView, ticket: TicketView) -> None:
    width, height = PAGE
    canvas.setFillColor(_ACCENT)
    canvas.rect(0, height - 118, width, 118, stroke=0, fill=1)
    canvas.setFillColor(HexColor("#fff7ec"))
    _write(canvas, MARGIN, height - 40, "FAIRGATE", _BOLD, 11)
    y = height - 66.0
    title_size, lines = _fit(order.event.name, _BOLD, width - 2 * MARGIN)
    for line in lines:
        _write(canvas, MARGIN, y, line, _BOLD, title_size)
        y -= title_size * 1.2
    canvas.setFillColor(_INK)
    y = height - 150
    for label, value in _facts(order.event, order, ticket):
        canvas.setFillColor(_MUTED)
        _write(canvas, MARGIN, y, label, _TEXT, 8)
        canvas.setFillColor(_INK)
        y -= 15
        for line in _wrap(value, _BOLD, 12, width - 2 * MARGIN)[:2]:
            _write(canvas, MARGIN, y, line, _BOLD, 12)
            y -= 15
        y -= 7
    canvas.setDash(3, 3)
    canvas.setStrokeColor(_MUTED)
    canvas.line(MARGIN, 238, width - MARGIN, 238)
    canvas.setDash()
    canvas.setFillColor(_INK)
    _draw_qr(canvas, ticket.code, x=(width - 170) / 2, y=56, size=170)
    canvas.setFillColor(_MUTED)
    _write_centered(canvas, 40, grouped(ticket.code), _TEXT, 9)
    _write_centered(canvas, 24, f"Order {order.number}. Show this code at the door; it opens it once.", _TEXT, 7)


def _facts(event: events.EventView, order: OrderView, ticket: TicketView) -> list[tuple[str, str]]:
    start = at_venue(event.starts_at, event.timezone)
    assert isinstance(start, datetime)
    place = f"{ticket.section}, row {ticket.row}, seat {ticket.number}" if ticket.row else ticket.label
    price = money(ticket.price_minor, ticket.currency) if ticket.price_minor else "Free"
    return [
        ("Date", f"{start:%A} {start.day} {start:%B %Y, %H:%M} ({start:%Z})"),
        ("Venue", f"{event.venue_name}, {event.city}" if event.city else event.venue_name),
        ("Place", place),
        ("Category and price", f"{ticket.category}, {price}"),
        ("Holder", ticket.holder),
    ]


def _draw_qr(canvas: Canvas, code: str, *, x: float, y: float, size: float) -> None:
    matrix = segno.make_qr(code, error="m").matrix
    step = size / len(matrix)
    path = canvas.beginPath()
    for line, modules in enumerate(matrix):
        for column, dark in enumerate(modules):
            if dark:
                path.rect(x + column * step, y + size - (line + 1) * step, step, step)
    canvas.drawPath(path, stroke=0, fill=1)


@cache
def _register_fonts() -> None:
    pdfmetrics.registerFont(TTFont(_TEXT, "Vera.ttf"))
    pdfmetrics.registerFont(TTFont(_BOLD, "VeraBd.ttf"))
    # For names in scripts the first two do not have; every reader brings this one.
    pdfmetrics.registerFont(UnicodeCIDFont(_FALLBACK))


def _runs(text: str, font: str) -> list[tuple[str, str]]:
    """The text in pieces, each with a font that can draw it."""
    known = pdfmetrics.getFont(font).face.charToGlyph
    runs: list[tuple[str, str]] = []
    for character in text:
        wanted = font if ord(character) in known else _FALLBACK
        if runs and runs[-1][1] == wanted:
            runs[-1] = (runs[-1][0] + character, wanted)
        else:
            runs.append((character, wanted))
    return runs


def _width(text: str, font: str, size: float) -> float:
    return sum(pdfmetrics.stringWidth(piece, name, size) for piece, name in _runs(text, font))


def _write(canvas: Canvas, x: float, y: float, text: str, font: str, size: float) -> None:
    for piece, name in _runs(text, font):
        canvas.setFont(name, size)
        canvas.drawString(x, y, piece)
        x += pdfmetrics.stringWidth(piece, name, size)


def _write_centered(canvas: Canvas, y: float, text: str, font: str, size: float) -> None:
    _write(canvas, (PAGE[0] - _width(text, font, size)) / 2, y, text, font, size)


def _fit(text: str, font: str, width: float) -> tuple[float, list[str]]:
    """The largest size at which a title stays within its band, and its lines. Only a title that is too long even at
    the smallest loses its end."""
    for size, lines_max in ((19.0, 2), (15.0, 3), (11.0, 4)):
        lines = _wrap(text, font, size, width)
        if len(lines) <= lines_max:
            break
    return size, lines[:lines_max]


def _wrap(text: str, font: str, size: float, width: float) -> list[str]:
    lines: list[str] = []
    for word in text.split():
        if lines and _width(f"{lines[-1]} {word}", font, size) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines
