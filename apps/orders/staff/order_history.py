"""The whole history of one order for staff, merged from the tables that have parts of it."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar
from uuid import UUID

from django.db.models import Model, QuerySet
from django.db.models.functions import Coalesce

from apps.kernel.formatting import format_money
from apps.orders.models import (
    Invoice,
    Order,
    OrderAdjustment,
    OrderHistoryEntry,
    Payment,
    ProviderMessage,
    Refund,
    Ticket,
    TicketScan,
    TicketTransfer,
)
from apps.reservations import facade as reservations

ENTRIES_MAX = 500
Row = TypeVar("Row", bound=Model)


@dataclass(frozen=True, slots=True)
class HistoryLine:
    at: datetime
    kind: str
    """reservation, order, payment, provider, refund, email, ticket, check-in, staff or invoice."""
    text: str
    who: str = ""


def read_history(order_id: UUID) -> list[HistoryLine]:
    """Return what happened to the order and its reservation, oldest first, at most ENTRIES_MAX lines from the end."""
    order = Order.objects.get(pk=order_id)
    sources = (_reservation, _order, _payments, _provider, _refunds, _adjustments, _tickets, _transfers, _scans, _rest)
    lines = [line for source in sources for line in source(order)]
    # Stable: of one transaction's lines, which may have one time, the reservation's come first.
    return sorted(lines, key=lambda line: line.at)[-ENTRIES_MAX:]


def _latest(rows: QuerySet[Row], time: str) -> QuerySet[Row]:
    """Return the rows of the last lines: staff can cause any number of scans, codes and messages."""
    return rows.order_by(f"-{time}", "-pk")[:ENTRIES_MAX]


def _reservation(order: Order) -> Iterator[HistoryLine]:
    for step in reservations.list_transitions(order.reservation_id):
        text = "tickets reserved"
        if step.from_status:
            states = f"{step.from_status} → {step.to_status}".replace("_", " ")
            text = f"{states}: {step.why}" if step.why else states
        yield HistoryLine(step.at, "reservation", text, step.who)


def _order(order: Order) -> Iterator[HistoryLine]:
    yield HistoryLine(order.placed_at, "order", "placed", order.buyer)
    if order.confirmed_at is not None:
        yield HistoryLine(order.confirmed_at, "order", "confirmed")
    if order.ended_at is not None:
        yield HistoryLine(order.ended_at, "order", f"{order.get_status_display()}: {order.get_reason_display()}")


def _payments(order: Order) -> Iterator[HistoryLine]:
    for payment in Payment.objects.filter(order=order):
        amount = format_money(payment.amount_minor, payment.currency)
        # The names of a provider's methods may begin with its own.
        method = payment.method.removeprefix(payment.provider).strip("_").replace("_", " ")
        which = f"attempt {payment.attempt}, {amount}, {payment.provider}{method and f' {method}'}"
        yield HistoryLine(payment.created_at, "payment", f"{which}: created")
        if payment.started_at is not None:
            yield HistoryLine(payment.started_at, "payment", f"{which}: sent to the provider")
        if payment.settled_at is not None:
            yield HistoryLine(payment.settled_at, "payment", f"{which}: {payment.get_status_display()}")


def _provider(order: Order) -> Iterator[HistoryLine]:
    for message in _latest(ProviderMessage.objects.filter(payment__order=order).defer("raw"), "received_at"):
        text = f"{message.kind}: {message.outcome or 'not processed yet'}"
        yield HistoryLine(message.received_at, "provider", text, message.provider)


def _refunds(order: Order) -> Iterator[HistoryLine]:
    for refund in _latest(Refund.objects.filter(order=order), "requested_at"):
        amount = format_money(refund.amount_minor, refund.currency)
        yield HistoryLine(refund.requested_at, "refund", f"{amount}: {refund.reason}", refund.requested_by)
        if refund.settled_at is not None:
            detail = refund.failure or refund.paid_out_note
            text = f"{amount}: {refund.get_status_display()}{f', {detail}' if detail else ''}"
            yield HistoryLine(refund.settled_at, "refund", text, refund.paid_out_by)


def _adjustments(order: Order) -> Iterator[HistoryLine]:
    for row in _latest(OrderAdjustment.objects.filter(order=order), "at"):
        amount = format_money(row.amount_minor, order.currency)
        yield HistoryLine(row.at, "refund", f"{row.get_kind_display()} {amount}: {row.why}", row.who)


def _tickets(order: Order) -> Iterator[HistoryLine]:
    tickets = Ticket.objects.filter(order=order).annotate(last_at=Coalesce("voided_at", "issued_at"))
    for ticket in _latest(tickets, "last_at"):
        yield HistoryLine(ticket.issued_at, "ticket", f"{ticket.label}: issued")
        if ticket.voided_at is not None:
            text = "replaced by a new code" if ticket.successor_id is not None else "no longer valid"
            yield HistoryLine(ticket.voided_at, "ticket", f"{ticket.label}: {text}", ticket.replaced_by)


def _transfers(order: Order) -> Iterator[HistoryLine]:
    transfers = TicketTransfer.objects.filter(ticket__order=order).select_related("ticket")
    for transfer in _latest(transfers, "offered_at"):
        which = f"{transfer.ticket.label} to {transfer.email}"
        yield HistoryLine(transfer.offered_at, "ticket", f"{which}: offered")
        if transfer.accepted_at is not None:
            yield HistoryLine(transfer.accepted_at, "ticket", f"{which}: accepted")
        elif transfer.ended_at is not None:
            yield HistoryLine(transfer.ended_at, "ticket", f"{which}: withdrawn or expired")


def _scans(order: Order) -> Iterator[HistoryLine]:
    for scan in _latest(TicketScan.objects.filter(ticket__order=order).select_related("ticket"), "at"):
        despite = ", let in despite a warning" if scan.anyway and scan.outcome == TicketScan.Outcome.WELCOME else ""
        yield HistoryLine(scan.at, "check-in", f"{_label(scan)}: {scan.get_outcome_display()}{despite}", scan.who)


def _label(scan: TicketScan) -> str:
    return "" if scan.ticket is None else scan.ticket.label


def _rest(order: Order) -> Iterator[HistoryLine]:
    for paper in _latest(Invoice.objects.filter(order=order), "issued_at"):
        amount = format_money(paper.total_minor, paper.currency)
        yield HistoryLine(paper.issued_at, "invoice", f"{paper.get_kind_display()} {paper.number}, {amount}")
    yield from _entries(_latest(OrderHistoryEntry.objects.filter(order=order), "at"))


def _entries(entries: Iterable[OrderHistoryEntry]) -> Iterator[HistoryLine]:
    for entry in entries:
        match entry.kind:
            case OrderHistoryEntry.Kind.MAIL:
                yield HistoryLine(entry.at, "email", f"“{entry.text}” to {entry.address}")
            case OrderHistoryEntry.Kind.RESENT:
                yield HistoryLine(entry.at, "staff", f"tickets sent again to {entry.address}", entry.who)
            case _:
                yield HistoryLine(entry.at, "staff", f"corrected {entry.text} (was {entry.address})", entry.who)
