"""The locks of this app: an order's row, taken before its reservation's (rule 3), under which alone payments, refunds,
tickets, provider messages and code uses of an order are written; a promo code's, which is a cap row; and the row that
counts invoices, the very last that a transaction takes: after its order's, and with no reservation's beside it."""

from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from django.db import connection

from apps.kernel.db import model_rows, sql
from apps.kernel.db.transactions import require_transaction
from apps.orders.errors import OrderNotFound
from apps.orders.models import Order, Payment, PromoCode

_lock_order = sql.load("apps.orders", "lock_order")
_lock_order_of_payment = sql.load("apps.orders", "lock_order_of_payment")
_count_paper = sql.load("apps.orders", "count_paper")
_payments_beside = sql.load("apps.orders", "payments_beside")


class LockedPayment(NamedTuple):
    """A payment and its order, as they are under the order's lock."""

    order: Order
    payment: Payment
    payments: list[Payment]
    """All of the order, in their order; `payment` is one of them."""


def lock_order(order_id: UUID) -> Order:
    """The order, as it is under its lock. Joins the caller's transaction. Raises OrderNotFound."""
    require_transaction()
    with connection.cursor() as cursor:
        found = model_rows.build_instances(Order, _lock_order.rows(cursor, order_id=order_id))
    if not found:
        raise OrderNotFound
    return found[0]


def lock_order_of_reservation(reservation_id: UUID) -> Order | None:
    """The reservation's order, as it is under its lock, or None. Joins the caller's transaction."""
    require_transaction()
    return Order.objects.select_for_update(no_key=True).filter(reservation_id=reservation_id).first()


def lock_unattached_orders(buyer: str) -> list[Order]:
    """The buyer's orders that no account has, locked in id order so that two who lock them never wait in a circle.
    Joins the caller's transaction."""
    require_transaction()
    return list(Order.objects.select_for_update(no_key=True).filter(buyer=buyer, account=None).order_by("pk"))


def lock_payment(payment_id: UUID) -> LockedPayment | None:
    """The payment and its order, locked through the order. None when there is no such payment. Joins the caller's
    transaction."""
    require_transaction()
    with connection.cursor() as cursor:
        # Two statements, though in one journey: the second has a snapshot of its own, taken after the lock came. A
        # rival may have settled a payment while we waited.
        locked, beside = sql.execute_batch(
            cursor,
            [_lock_order_of_payment.call(payment_id=payment_id), _payments_beside.call(payment_id=payment_id)],
        )
    if not locked.rows:
        return None
    (order,) = model_rows.build_instances(Order, locked.rows)
    payments = model_rows.build_instances(Payment, beside.rows)
    for payment in payments:
        payment.order = order
    return LockedPayment(order, next(payment for payment in payments if payment.pk == payment_id), payments)


def lock_code(code_id: int) -> PromoCode:
    """The code, as it is under the lock that its uses are counted under. A cap row: after order, reservation and the
    purchase cap of an address, before seats. Joins the caller's transaction, and locks no other code in it."""
    require_transaction()
    return PromoCode.objects.select_for_update(no_key=True).get(pk=code_id)


def next_invoice_number(kind: str, series: str, year: int) -> tuple[int, datetime]:
    """The next number of these papers, and a moment, under the lock of their counter. Joins the caller's transaction,
    which has every other lock that it needs: whoever writes the next paper waits for its commit."""
    require_transaction()
    with connection.cursor() as cursor:
        ((number, now),) = _count_paper.rows(cursor, kind=kind, series=series, year=year)
    return number, now
