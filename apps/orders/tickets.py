"""Tickets: one for each place of a confirmed order, with a code nobody can guess."""

import secrets
from datetime import datetime

from apps.orders.models import Order, OrderLine, Ticket
from apps.reservations import facade as reservations
from ticketing.kernel.transactions import require

CODE_LENGTH = 28  # 140 random bits, seven groups of four to read out.
_CODE_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


def new_code() -> str:
    return "".join(secrets.choice(_CODE_ALPHABET) for _ in range(CODE_LENGTH))


def issue(order: Order, reservation: reservations.ReservationView, now: datetime) -> None:
    """The order has one ticket for each place that stands of what it is made of. Joins the caller's transaction."""
    require()
    standing = {
        (line.reservation_line_id, line.place or 1): line
        for line in OrderLine.objects.filter(order=order, kind=OrderLine.Kind.PLACE, canceled_at=None).order_by("id")
    }
    tickets = [
        Ticket(
            line_id=seat.line_id,
            seat_id=seat.seat_pk,
            label=seat.label,
            section=seat.section_name,
            row=seat.row,
            number=seat.number,
            category=seat.category_name,
            price_minor=seat.price_minor,
        )
        for seat in reservation.seats
    ]
    for places in reservation.general_admission:
        tickets += [
            Ticket(
                line_id=places.line_id,
                place=place,
                label=line.description,
                section=places.section_name,
                category=places.category,
                price_minor=places.price_minor,
            )
            for (line_id, place), line in standing.items()
            if line_id == places.line_id
        ]
    issued = [ticket for ticket in tickets if (ticket.line_id, ticket.place) in standing]
    for ticket in issued:
        ticket.order, ticket.code, ticket.holder, ticket.issued_at = order, new_code(), order.name, now
        ticket.order_line = standing[ticket.line_id, ticket.place]
    Ticket.objects.bulk_create(issued)


def replace(ticket: Ticket, who: str, now: datetime) -> Ticket:
    """The same place has a new ticket with a new code, and this one's code opens no door. Joins the caller's
    transaction, which holds the order's lock and has read the ticket under it."""
    require()
    assert ticket.voided_at is None
    assert ticket.checked_in_at is None
    # Void first: a place never has two tickets that open a door.
    ticket.voided_at = now
    ticket.save(update_fields=["voided_at"])
    successor = Ticket.objects.create(
        code=new_code(),
        order_id=ticket.order_id,
        order_line_id=ticket.order_line_id,
        line_id=ticket.line_id,
        place=ticket.place,
        seat_id=ticket.seat_id,
        label=ticket.label,
        section=ticket.section,
        row=ticket.row,
        number=ticket.number,
        category=ticket.category,
        price_minor=ticket.price_minor,
        holder=ticket.holder,
        issued_at=now,
    )
    ticket.successor, ticket.replaced_by = successor, who
    ticket.save(update_fields=["successor", "replaced_by"])
    return successor


def void(order: Order, now: datetime) -> None:
    """None of the order's tickets opens a door any more. Joins the caller's transaction."""
    require()
    Ticket.objects.filter(order=order, voided_at__isnull=True).update(voided_at=now)
