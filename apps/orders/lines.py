"""The lines of an order: written when it is placed, later only canceled, or replaced before it is paid."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from uuid import UUID

from django.db import connection

from apps.events import facade as events
from apps.kernel.db import sql
from apps.kernel.db.transactions import require_transaction
from apps.orders.models import Order, OrderLine

_freeze_lines = sql.load("apps.orders", "freeze_lines", prepared=True)


def create_order_lines(order: Order, bill: events.Bill) -> None:
    """Write the bill's lines as the lines of the new order. Joins the caller's transaction."""
    require_transaction()
    with connection.cursor() as cursor:
        (written,) = sql.execute_batch(cursor, [create_lines_call([(order.pk, bill)])])
    assert written.touched == len(bill.lines), f"{written.touched} of {len(bill.lines)} lines of order {order.number}"


def create_lines_call(bills: Sequence[tuple[UUID, events.Bill]]) -> sql.Call:
    """Return the statement that writes the lines of these bills as the lines of their new orders, given by id."""
    lines = [(order_id, line) for order_id, bill in bills for line in bill.lines]
    return _freeze_lines.call(
        order_ids=[order_id for order_id, _ in lines],
        kinds=[str(line.kind) for _, line in lines],
        reservation_line_ids=[line.reservation_line_id for _, line in lines],
        place_numbers=[line.place for _, line in lines],
        descriptions=[line.description for _, line in lines],
        categories=[line.category for _, line in lines],
        prices_minor=[line.price_minor for _, line in lines],
        discounts_minor=[line.discount_minor for _, line in lines],
        fees_minor=[line.fee_minor for _, line in lines],
        tax_rates=[line.tax_rate for _, line in lines],
        taxes_included=[line.tax_included for _, line in lines],
        taxes_minor=[line.tax_minor for _, line in lines],
        totals_minor=[line.total_minor for _, line in lines],
    )


def replace_order_lines(order: Order, bill: events.Bill) -> None:
    """Replace the lines of the unpaid order by those of this bill. Joins the caller's transaction, which holds the
    order's lock. Nothing refers to the lines of an unpaid order: tickets, invoices and adjustments follow a payment."""
    require_transaction()
    assert order.status == Order.Status.PLACED
    OrderLine.objects.filter(order=order).delete()
    create_order_lines(order, bill)


def bill_from_lines(lines: Iterable[OrderLine]) -> events.Bill:
    """Return the original bill of the order with these lines; lines that were canceled since are marked."""
    return events.Bill(
        tuple(
            events.BillLine(
                kind=line.kind,
                description=line.description,
                category=line.category,
                reservation_line_id=line.reservation_line_id,
                place=line.place,
                price_minor=line.price_minor,
                discount_minor=line.discount_minor,
                fee_minor=line.fee_minor,
                tax_included=line.tax_included,
                tax_rate=line.tax_rate,
                tax_minor=line.tax_minor,
                total_minor=line.total_minor,
                is_canceled=line.canceled_at is not None,
            )
            for line in lines
        )
    )


def cancel_all(order: Order, now: datetime) -> None:
    """Cancel all lines of the order. Joins the caller's transaction, which holds the order's lock."""
    require_transaction()
    OrderLine.objects.filter(order=order, canceled_at=None).update(canceled_at=now)


def cancel_some(order: Order, line_ids: Collection[int], now: datetime) -> None:
    """Cancel these lines of the order, none of which is canceled yet. Joins the caller's transaction, which holds the
    order's lock."""
    require_transaction()
    canceled = OrderLine.objects.filter(order=order, pk__in=line_ids, canceled_at=None).update(canceled_at=now)
    assert canceled == len(line_ids), f"{canceled} of {len(line_ids)} lines of order {order.number} were uncanceled"
