"""The rows of an event's exports: orders, tickets and attendees. Ids are read first, then the rows in short reads, so
that no read lasts as long as the download. Ticket codes admit their bearer and are in no export."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from types import MappingProxyType
from typing import TypeVar
from zoneinfo import ZoneInfo

from django.db.models import Count, Sum

from apps.events import facade as events
from apps.kernel.formatting import minor_digits
from apps.kernel.http.csv_download import Cell
from apps.orders.models import Order, OrderLine, Refund, Ticket

ROWS_READ_MAX = 1_000

Rows = Iterator[Sequence[Cell]]
Key = TypeVar("Key")


@dataclass(frozen=True, slots=True)
class Export:
    """A download. Its rows are those of one event."""

    label: str
    permission: str
    header: tuple[str, ...]
    rows: Callable[[events.StaffEvent], Rows]


def _time(moment: datetime | None, zone: ZoneInfo) -> str:
    return "" if moment is None else moment.astimezone(zone).isoformat(sep=" ", timespec="seconds")


def decimal_amount(minor: int, currency: str) -> str:
    """Return the amount in the currency's unit, as in `12.50`."""
    return str(Decimal(minor).scaleb(-minor_digits(currency)))


def _chunks(keys: list[Key]) -> Iterator[list[Key]]:
    return (keys[start : start + ROWS_READ_MAX] for start in range(0, len(keys), ROWS_READ_MAX))


def _order_rows(event: events.StaffEvent) -> Rows:
    zone = ZoneInfo(event.timezone)
    ids = Order.objects.filter(event_id=event.id).order_by("placed_at", "pk").values_list("pk", flat=True)
    for some in _chunks(list(ids)):
        found = Order.objects.in_bulk(some)
        lines = OrderLine.objects.filter(order_id__in=some, kind=OrderLine.Kind.PLACE)
        tickets = dict(lines.values_list("order_id").annotate(Count("pk")).order_by())
        refunds = Refund.objects.filter(order_id__in=some).exclude(status=Refund.Status.FAILED)
        refunded = dict(refunds.values_list("order_id").annotate(Sum("amount_minor")).order_by())
        for key in some:
            if (order := found.get(key)) is None:
                continue
            yield (
                order.number, order.get_status_display(), order.get_reason_display() if order.reason else "",
                _time(order.placed_at, zone), _time(order.confirmed_at, zone), _time(order.ended_at, zone),
                order.name, order.email, tickets.get(key, 0), decimal_amount(order.total_minor, order.currency),
                decimal_amount(refunded.get(key, 0), order.currency), order.currency,
            )  # fmt: skip


def _read_tickets(event: events.StaffEvent, *, is_valid: bool) -> Iterable[Ticket]:
    rows = Ticket.objects.filter(order__event_id=event.id)
    if is_valid:
        rows = rows.filter(voided_at=None, order__status__in=Order.STANDING)
    for some in _chunks(list(rows.order_by("pk").values_list("pk", flat=True))):
        yield from Ticket.objects.filter(pk__in=some).select_related("order", "transfer").order_by("pk")


def _ticket_rows(event: events.StaffEvent) -> Rows:
    zone = ZoneInfo(event.timezone)
    for ticket in _read_tickets(event, is_valid=False):
        state = "void" if ticket.voided_at else "checked in" if ticket.checked_in_at else "valid"
        yield (
            ticket.pk, ticket.order.number, ticket.section, ticket.row, ticket.number, ticket.category,
            decimal_amount(ticket.price_minor, ticket.order.currency), ticket.order.currency, state, ticket.holder,
            _time(ticket.issued_at, zone), _time(ticket.checked_in_at, zone), _time(ticket.voided_at, zone),
        )  # fmt: skip


def _attendee_rows(event: events.StaffEvent) -> Rows:
    zone = ZoneInfo(event.timezone)
    for ticket in _read_tickets(event, is_valid=True):
        email = ticket.order.email if ticket.transfer is None else ticket.transfer.email
        yield (
            ticket.holder, email, ticket.section, ticket.row, ticket.number, ticket.category, ticket.order.number,
            _time(ticket.checked_in_at, zone),
        )  # fmt: skip


EXPORTS: Mapping[str, Export] = MappingProxyType(
    {
        "orders": Export(
            "Orders", "orders.view_order",
            ("Order", "Status", "Reason", "Placed", "Confirmed", "Ended", "Name", "Email", "Tickets", "Total",
             "Refunded", "Currency"),
            _order_rows,
        ),
        "tickets": Export(
            "Tickets", "orders.view_ticket",
            ("Ticket", "Order", "Section", "Row", "Seat", "Category", "Price", "Currency", "State", "Holder", "Issued",
             "Checked in", "Void since"),
            _ticket_rows,
        ),
        "attendees": Export(
            "Attendees", "orders.view_ticket",
            ("Name", "Email", "Section", "Row", "Seat", "Category", "Order", "Checked in"),
            _attendee_rows,
        ),
    }
)  # fmt: skip
