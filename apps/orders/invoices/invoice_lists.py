"""Writes the invoices of a list of new sales in one transaction.

Only plain cases are written here: a confirmed order without any document, return or adjustment. The others are left to
`invoices.issue`.
"""

from collections.abc import Collection, Sequence
from uuid import UUID

from django.conf import settings
from django.db import connection
from django.utils import timezone

from apps.events import facade as events
from apps.kernel.db import model_rows, sql, transactions
from apps.kernel.outbox import facade as outbox
from apps.orders import locks
from apps.orders.invoices import invoices
from apps.orders.models import Invoice, InvoiceKind, Order, OrderLine

_lock_orders = sql.load("apps.orders", "lock_orders_skipping", prepared=True)


def handle_invoice_messages(messages: Sequence[outbox.Message]) -> set[int]:
    """Outbox list handler: write the invoices of new sales, and return the other messages."""
    order_of = {message.id: UUID(message.body["order"]) for message in messages}
    written = issue_plain(set(order_of.values()))
    return {message_id for message_id, order_id in order_of.items() if order_id not in written}


def issue_plain(order_ids: Collection[UUID]) -> set[UUID]:
    """Write the invoices of the plain cases among these orders, and commit. Return the orders that have their invoice
    now. Orders that another transaction keeps locked are left out.

    Every document is decided before the numbers are drawn, exactly as many as are written, so that the counter is
    locked briefly and no number is lost.
    """
    return locks.repeat_locked(order_ids, _issue_plain)


def _issue_plain(order_ids: Collection[UUID]) -> locks.Handled[UUID]:
    with transactions.write():
        with connection.cursor() as cursor:
            locked = _lock_orders.rows(cursor, order_ids=sorted(order_ids))
        found = model_rows.build_instances(Order, locked)
        left = set(order_ids) - {order.pk for order in found}
        orders = [order for order in found if order.status == Order.Status.CONFIRMED and order.total_minor]
        papers, lines, adjusted, now = invoices.read_billing(orders)
        rows_of: dict[UUID, list[OrderLine]] = {order.pk: [] for order in orders}
        for line in lines:
            rows_of[line.order_id].append(line)
        unusual = {paper.order_id for paper in papers} | adjusted.keys()
        unusual |= {line.order_id for line in lines if line.canceled_at is not None}
        plain = [order for order in orders if order.pk not in unusual]
        if not plain:
            return locks.Handled(set(), left)
        year = timezone.localtime(now).year
        events_by_id = events.get_events_by_id(order.event_id for order in plain)
        numbers, now = locks.draw_invoice_numbers(InvoiceKind.INVOICE, settings.INVOICE_SERIES, year, len(plain))
        Invoice.objects.bulk_create(
            invoices.build_invoice(
                order,
                events_by_id[order.event_id],
                year,
                InvoiceKind.INVOICE,
                invoices.rows_of(rows_of[order.pk]),
                None,
                number=number,
                now=now,
            )
            for order, number in zip(plain, numbers, strict=True)
        )
    return locks.Handled({order.pk for order in plain}, left)
