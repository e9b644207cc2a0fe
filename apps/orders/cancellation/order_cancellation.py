"""Order cancellation: by the buyer before payment, by staff at any time, or by timeout."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import connection

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.http import idempotency, problems
from apps.kernel.http.idempotency import Answer
from apps.orders import lines, organizer_mails, return_quotes, topics
from apps.orders.errors import OrderNotCancelable
from apps.orders.locks import lock_order
from apps.orders.models import Order, Payment
from apps.orders.payments import refunds, settlement
from apps.orders.returns import returns
from apps.orders.selectors import OrderView, order_view
from apps.orders.tickets import ticket_issuance
from apps.reservations import facade as reservations

EXPIRED_ORDERS_MAX = 100
_lapsed_orders = sql.load("apps.orders", "lapsed_orders")


def cancel_order(order_id: UUID) -> OrderView:
    """Cancel the buyer's unpaid order and release its seats. Idempotent.

    If a charge at the provider still succeeds, the money is refunded: I8 does not revive an order that its buyer
    canceled. Raises OrderNotFound, and OrderNotCancelable for a paid order: returns of paid tickets follow the
    organizer's policy.
    """
    with transactions.write():
        return _cancel(lock_order(order_id))


def cancel_order_idempotently(order_id: UUID, payload: Mapping[str, Any], idempotency_key: str) -> Answer:
    """Cancel the order as `cancel_order` does. Return the response, which is stored under the buyer's key. Also raises
    Invalid, IdempotencyMismatch and IdempotencyInProgress."""
    if payload:
        raise problems.Invalid({str(field)[:80]: "unknown field" for field in payload})
    fingerprint = idempotency.fingerprint({"order": str(order_id)})
    with transactions.write():
        order = lock_order(order_id)
        return idempotency.run_once(
            f"cancel:{order.buyer}",
            idempotency_key,
            fingerprint,
            lambda: Answer(200, json.dumps(_cancel(order).contract())),
        )


def _cancel(order: Order) -> OrderView:
    if order.status in (*Order.STANDING, Order.Status.REFUNDED):
        raise OrderNotCancelable(order_status=order.status)
    if order.status in Order.OPEN:
        reservations.cancel(order.reservation_id, who=order.buyer, why=f"order {order.number} canceled")
        settlement.end_order(order, Order.Status.CANCELED, Order.Reason.CANCELED_BY_BUYER)
    return order_view(order)


def refund_order(order_id: UUID, who: str) -> bool:
    """Refund the whole order: void its tickets, release its seats, request the refunds. For staff. An unpaid order is
    canceled, an ended one stays as it is. Return whether anything changed. Raises OrderNotFound."""
    with transactions.write():
        order = lock_order(order_id)
        if order.status not in (*Order.OPEN, *Order.STANDING):
            return False
        reservations.cancel(order.reservation_id, who=who, why=f"order {order.number} refunded")
        cancel_or_refund(order, who)
        return True


def cancel_or_refund(order: Order, who: str, reason: Order.Reason = Order.Reason.CANCELED_BY_STAFF) -> None:
    """End the locked order: cancel an unpaid one; void a paid one's tickets and request its refunds. An ended order
    stays as it is. Joins the caller's transaction, which cancels the reservation."""
    transactions.require_transaction()
    if order.status in Order.OPEN:
        settlement.end_order(order, Order.Status.CANCELED, reason)
    elif order.status in Order.STANDING:
        now = clock.now()
        ticket_issuance.void(order, now)
        lines.cancel_all(order, now)
        returns.settle_adjustments(order, who, reason.label)
        for payment in Payment.objects.filter(order=order, status=Payment.Status.SUCCEEDED):
            refunds.request(payment, reason.label, who)
        settlement.end_order(order, Order.Status.REFUNDED, reason)
        if reason != Order.Reason.EVENT_CANCELED:  # A canceled event has a mail of its own.
            organizer_mails.publish(topics.SEND_REFUND_NOTICE, str(order.pk), {"order": str(order.pk)}, order)


def refund_kept_fees(order: Order, who: str, reason: Order.Reason) -> int:
    """Refund the fees that the locked, fully refunded order still keeps, and set the order's reason to `reason`. Return
    the amount; if it is 0, nothing changes. Joins the caller's transaction."""
    transactions.require_transaction()
    assert order.status == Order.Status.REFUNDED
    kept_minor = return_quotes.owed_minor(order)
    if kept_minor:
        lines.cancel_all(order, clock.now())
        returns.settle_adjustments(order, who, reason.label)
        refunds.request_of_order(order, kept_minor, reason.label, who)
        order.reason = reason
        order.save(update_fields=["reason"])
    return kept_minor


def fail_expired_orders(limit: int = EXPIRED_ORDERS_MAX) -> int:
    """Fail up to `limit` open orders that are past their payment deadline, so that none stays open forever. Return how
    many failed.

    The sweep ends their reservations as expired. Canceling them here would be final, but a payment that occurred in
    time may still revive an expired reservation (I8).
    """
    with connection.cursor() as cursor:
        rows = _lapsed_orders.rows(cursor, limit=limit)
    failed = 0
    for (order_id,) in rows:
        with transactions.write():
            order = lock_order(order_id)
            if order.status not in Order.OPEN or order.pay_deadline > clock.now():
                continue
            settlement.end_order(order, Order.Status.FAILED, Order.Reason.OUT_OF_TIME)
            failed += 1
    return failed
