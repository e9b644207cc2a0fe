"""Issue, replace and void tickets: one per ticket line of a confirmed order, each with an unguessable code."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

from django.db import connection

from apps.kernel import random_bytes
from apps.kernel.db import model_rows, sql
from apps.kernel.db.transactions import require_transaction
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.models import Order, OrderLine, Ticket, TicketTransfer
from apps.reservations import facade as reservations

_lines = sql.load("apps.orders", "lines_of_orders", prepared=True)
_issue = sql.load("apps.orders", "issue_tickets", prepared=True)

CODE_LENGTH = 28  # 140 random bits; shown as seven groups of four.
_KEPT_FIELDS = (
    "order_id", "order_line_id", "line_id", "place", "seat_id", "label", "section", "row", "number", "category",
    "price_minor", "holder", "transfer_id",
)  # fmt: skip
"""The fields that a ticket with a new code copies from the ticket that it replaces."""


def new_code() -> str:
    return random_bytes.new_code(CODE_LENGTH)


def issue(sales: Sequence[tuple[Order, reservations.ReservationView]], now: datetime) -> None:
    """Issue one ticket for each uncanceled ticket line of these orders. Joins the caller's transaction."""
    require_transaction()
    with connection.cursor() as cursor:
        rows = _lines.rows(cursor, order_ids=[order.pk for order, _ in sales])
    lines_of = defaultdict[UUID, list[OrderLine]](list)
    for line in model_rows.build_instances(OrderLine, rows):
        lines_of[line.order_id].append(line)
    issued: list[Ticket] = []
    for order, reservation in sales:
        issued += _new_tickets(order, reservation, lines_of[order.pk])
    if not issued:
        return
    with connection.cursor() as cursor:
        written = _issue.count(
            cursor,
            issued_at=now,
            codes=[new_code() for _ in issued],
            order_ids=[ticket.order_id for ticket in issued],
            order_line_ids=[ticket.order_line_id for ticket in issued],
            line_ids=[ticket.line_id for ticket in issued],
            place_numbers=[ticket.place for ticket in issued],
            seat_ids=[ticket.seat_id for ticket in issued],
            labels=[ticket.label for ticket in issued],
            sections=[ticket.section for ticket in issued],
            rows=[ticket.row for ticket in issued],
            numbers=[ticket.number for ticket in issued],
            categories=[ticket.category for ticket in issued],
            prices_minor=[ticket.price_minor for ticket in issued],
            holders=[ticket.holder for ticket in issued],
        )
    assert written == len(issued), f"{written} of {len(issued)} tickets of {len(sales)} orders"


def _new_tickets(order: Order, reservation: reservations.ReservationView, lines: Iterable[OrderLine]) -> list[Ticket]:
    """Return the tickets that the order's uncanceled lines require, without their codes."""
    standing = {
        (line.reservation_line_id, line.place or 1): line
        for line in lines
        if line.kind == OrderLine.Kind.PLACE and line.canceled_at is None
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
    for held in reservation.general_admission:
        tickets += [
            Ticket(
                line_id=held.line_id,
                place=place,
                label=line.description,
                section=held.section_name,
                category=held.category,
                price_minor=held.price_minor,
            )
            for (line_id, place), line in standing.items()
            if line_id == held.line_id
        ]
    issued = [ticket for ticket in tickets if (ticket.line_id, ticket.place) in standing]
    for ticket in issued:
        ticket.order_id, ticket.holder = order.pk, order.name
        ticket.order_line_id = standing[ticket.line_id, ticket.place].pk
    return issued


def replace(
    ticket: Ticket,
    who: str,
    now: datetime,
    *,
    transfer: TicketTransfer | None = None,
    holder: str = "",
    network: str = "",
) -> None:
    """Void this ticket and issue one with a new code in its place. Joins the caller's transaction, which has read the
    ticket under the order's lock. `transfer` passes it to that transfer's recipient, named `holder`; without it,
    the ticket keeps its holder. A recipient gets the new code by mail, in the turn of the network that caused this."""
    require_transaction()
    assert ticket.voided_at is None
    assert ticket.checked_in_at is None
    # Void first: a constraint allows one valid ticket per seat.
    ticket.voided_at = now
    ticket.save(update_fields=["voided_at"])
    kept = {field: getattr(ticket, field) for field in _KEPT_FIELDS}
    if transfer is not None:
        kept |= {"transfer_id": transfer.pk, "holder": holder}
    ticket.successor = Ticket.objects.create(**kept, code=new_code(), issued_at=now)
    ticket.replaced_by = who
    ticket.save(update_fields=["successor", "replaced_by"])
    notify_recipients([ticket.successor], "ticket", network)


def void(order: Order, now: datetime) -> None:
    """Void all tickets of the order. Joins the caller's transaction."""
    require_transaction()
    valid = Ticket.objects.filter(order=order, voided_at__isnull=True)
    notify_recipients(valid.exclude(transfer=None).select_related("order"), "ended")
    valid.update(voided_at=now)


def reissue_for_seats(order: Order, reservation: reservations.ReservationView, now: datetime) -> None:
    """Void the order's tickets and issue new ones for the reservation's present seats. A ticket that was transferred
    stays its recipient's, who gets the new code by mail. Joins the caller's transaction."""
    require_transaction()
    valid = Ticket.objects.filter(order=order, voided_at__isnull=True)
    transferred = {ticket.order_line_id: ticket for ticket in valid.exclude(transfer=None)}
    valid.update(voided_at=now)
    issue([(order, reservation)], now)
    for ticket in valid.filter(order_line__in=list(transferred)):
        earlier = transferred[ticket.order_line_id]
        ticket.transfer_id, ticket.holder = earlier.transfer_id, earlier.holder
        ticket.save(update_fields=["transfer", "holder"])
        notify_recipients([ticket], "ticket")


def notify_recipients(tickets: Iterable[Ticket], kind: str, network: str = "") -> None:
    """Mail the recipients of these tickets, of those that were transferred. `kind` is "ticket" for a new code, "ended"
    if the ticket is not valid any more; `network` (`access.network_of`) that of the client that caused it, empty for
    staff: its mails have turns with those of others. Joins the caller's transaction."""
    for ticket in tickets:
        if ticket.transfer_id is not None:
            transfer_id = str(ticket.transfer_id)
            origin = network or topics.origin_of_event(ticket.order.event_id)
            body = {"transfer": transfer_id, "kind": kind, outbox.ORIGIN_FIELD: origin}
            outbox.publish(topics.SEND_TRANSFER, transfer_id, body)
