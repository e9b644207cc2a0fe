"""Render tickets: a QR code as SVG, and an order's tickets as one PDF with a page each."""

import io
import re
from collections.abc import Sequence
from typing import Any

import segno

from apps.events import facade as events
from apps.kernel.formatting import TIME, WEEKDAY_DATE_TIME, format_datetime, format_money
from apps.kernel.templatetags.fairgate import grouped
from apps.orders.pdf import renderer
from apps.orders.pdf.text_fit import fit, fit_title
from apps.orders.selectors import OrderView, TicketView

QR_MASK = 3
_DARK_RUN = re.compile(rb"\x01+")
_WIDTH, _SIZES = 348, (12.0, 10.0, 8.0, 6.0)
"""In points, as in `tickets.typ`: the width between the margins; the sizes of a field."""
_HINT = "Show this code at the door. It is valid for one entry."


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
    return _render(order.event, order.valid_tickets, f"Tickets for {order.event.name}", order.number)


def ticket_pdf(event: events.EventView, ticket: TicketView) -> bytes:
    """Return a PDF of one ticket for the person who has it: without its order and its price."""
    return _render(event, [ticket], f"Ticket for {event.name}", "")


def tickets_file_name(order: OrderView) -> str:
    """Return the name of the file with the order's tickets, in ASCII."""
    return f"tickets-{order.event.slug}-{order.number}.pdf"


def ticket_file_name(event: events.EventView) -> str:
    """Return the name of the file with one ticket, in ASCII. It has neither the order's number nor the code."""
    return f"ticket-{event.slug}.pdf"


def _render(event: events.EventView, tickets: Sequence[TicketView], title: str, order_number: str) -> bytes:
    """Render the tickets; without an order's number, also without their prices."""
    start = format_datetime(event.starts_at, event.timezone, WEEKDAY_DATE_TIME, with_zone_name=True)
    doors = "" if event.doors_at is None else f". Doors {format_datetime(event.doors_at, event.timezone, TIME)}"
    return renderer.render(
        "tickets",
        {
            "title": title,
            "author": "Fairgate",
            "subject": f"Order {order_number}" if order_number else "",
            "event": fit_title(event.name, _WIDTH, 54, (40, 33, 27, 22, 17, 13, 9)),
            "date": fit(f"{start}{doors}", _WIDTH, 12, _SIZES),
            "venue": fit(event.address_line, _WIDTH, 26, _SIZES),
            "hint": f"Order {order_number}. {_HINT}" if order_number else _HINT,
            "tickets": [
                {
                    "note": f"Ticket {at} of {len(tickets)}" if len(tickets) > 1 else "Ticket",
                    **_describe_ticket(ticket, with_price=bool(order_number)),
                }
                for at, ticket in enumerate(tickets, 1)
            ],
        },
        images=[_draw_qr(ticket.code) for ticket in tickets],
    )


def _describe_ticket(ticket: TicketView, *, with_price: bool) -> dict[str, Any]:
    price = format_money(ticket.price_minor, ticket.currency) if ticket.price_minor else "Free"
    seat = [("Section", ticket.section, 160), ("Row", ticket.row, 80), ("Seat", ticket.number, 80)]
    place = seat if ticket.row else [("Section", ticket.label, _WIDTH)]
    category = [("Category", fit(ticket.category, 167, 22, _SIZES)), ("Price", fit(price, 167, 22, _SIZES))]
    return {
        "place": [(label, fit_title(value, width, 24, (24, 18, 12, 8))) for label, value, width in place],
        "fields": category if with_price else category[:1],
        "holder": fit(ticket.holder, _WIDTH, 22, _SIZES),
        "code": grouped(ticket.code),
    }


def _draw_qr(code: str) -> str:
    """Return the QR code as one SVG path with a stroke for each run of dark modules, without a quiet zone: the page
    around it is white."""
    matrix = _qr(code).matrix
    drawn = [
        f"M{run.start()} {line}.5h{len(run[0])}"
        for line, modules in enumerate(matrix)
        for run in _DARK_RUN.finditer(modules)
    ]
    size = len(matrix)
    path = "".join(drawn)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size} {size}"><path stroke="#000" d="{path}"/></svg>'
