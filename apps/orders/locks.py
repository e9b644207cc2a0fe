"""The locks of this app.

An order's row is locked before its reservation's (docs/locking.md, rule 3). The order's payments, refunds, tickets,
provider messages and code uses are written only under the order's lock. In the order of locks, a promo code's row is a
cap row; a retry that changes the code locks only the one that it takes. An invoice counter's row is a transaction's
last lock: after the order's, never together with a reservation's.
"""

import time
from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar
from uuid import UUID

from django.db import connection

from apps.kernel.db import model_rows, sql
from apps.kernel.db.transactions import require_transaction
from apps.orders.errors import OrderNotFound
from apps.orders.models import Order, Payment, PromoCode

LOCKED_PAUSES = (0.01, 0.02, 0.04, 0.08, 0.16)
"""Seconds."""
Item = TypeVar("Item")

_lock_order = sql.load("apps.orders", "lock_order")
_lock_order_of_payment = sql.load("apps.orders", "lock_order_of_payment")
_count_papers = sql.load("apps.orders", "count_papers", prepared=True)
_payments_beside = sql.load("apps.orders", "payments_beside")


class Handled(NamedTuple, Generic[Item]):
    """What one transaction of a list has handled, and what it left because another transaction had locked its order."""

    done: set[Any]
    locked: Collection[Item]


def repeat_locked(items: Collection[Item], handle: Callable[[Collection[Item]], Handled[Item]]) -> set[Any]:
    """Handle these items, and again, after each of LOCKED_PAUSES, those that were locked. Return what was done.

    Most locked orders belong to another list at that moment: the answer to a charge and its webhook arrive at nearly
    the same time. Alone, each would take a transaction. Nothing is locked in a pause.
    """
    done, left = handle(items)
    for pause in LOCKED_PAUSES:
        if not left:
            break
        time.sleep(pause)
        more, left = handle(left)
        done |= more
    return done


class LockedPayment(NamedTuple):
    """A payment and its order, as read under the order's lock."""

    order: Order
    payment: Payment
    payments: list[Payment]
    """All payments of the order, by attempt; `payment` is one of them."""


def lock_order(order_id: UUID) -> Order:
    """Lock the order and return it. Joins the caller's transaction. Raises OrderNotFound."""
    require_transaction()
    with connection.cursor() as cursor:
        found = model_rows.build_instances(Order, _lock_order.rows(cursor, order_id=order_id))
    if not found:
        raise OrderNotFound
    return found[0]


def lock_order_of_reservation(reservation_id: UUID) -> Order | None:
    """Lock the reservation's order and return it, or None. Joins the caller's transaction."""
    require_transaction()
    return Order.objects.select_for_update(no_key=True).filter(reservation_id=reservation_id).first()


def lock_unattached_orders(buyer: str) -> list[Order]:
    """Lock the buyer's orders that have no account and return them, without those in
    `Order.LOST_OWNER`. They are locked in id order, so that concurrent calls cannot deadlock. Joins the caller's
    transaction."""
    require_transaction()
    orders = Order.objects.select_for_update(no_key=True).filter(buyer=buyer, account=None)
    return list(orders.exclude(Order.LOST_OWNER).order_by("pk"))


def lock_payment(payment_id: UUID) -> LockedPayment | None:
    """Lock the payment's order and return both, or None if there is no such payment. Joins the caller's transaction."""
    require_transaction()
    with connection.cursor() as cursor:
        # Two statements in one round trip: the second reads in its own snapshot, taken after the lock was granted,
        # because another transaction may have settled a payment during the wait.
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
    """Lock the code and return it; its uses are counted under this lock. Lock order: after the order, the reservation
    and the address's purchase cap, before any seat. Joins the caller's transaction, which locks no other code."""
    require_transaction()
    return PromoCode.objects.select_for_update(no_key=True).get(pk=code_id)


def draw_invoice_numbers(kind: str, series: str, year: int, count: int) -> tuple[range, datetime]:
    """Return the next `count` numbers of this series and the time, read under the counter's lock. Joins the caller's
    transaction, which takes no further lock and uses every number: the next document of the series waits for its
    commit."""
    require_transaction()
    with connection.cursor() as cursor:
        ((last, now),) = _count_papers.rows(cursor, kind=kind, series=series, year=year, count=count)
    return range(last - count + 1, last + 1), now
