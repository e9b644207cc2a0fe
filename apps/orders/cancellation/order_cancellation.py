"""Giving an order up: by its buyer while it is unpaid, by staff at any time, and by the clock."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db import connection

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.http import idempotency, problems
from apps.kernel.http.idempotency import Answer
from apps.kernel.outbox import facade as outbox
from apps.orders import lines, return_quotes, topics
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
    """The buyer's unpaid order is canceled and what it held is free; asked again, it is so already.

    A charge that is with the provider is not stopped: if it succeeds after all, the money goes back (I8 does not
    revive what its buyer gave up). Raises OrderNotFound, and OrderNotCancelable once it is paid: whether a buyer may
    return tickets is the organizer's policy, and the organizer's doing.
    """
    with transactions.write():
        return _cancel(lock_order(order_id))


def cancel_order_idempotently(order_id: UUID, payload: Mapping[str, Any], idempotency_key: str) -> Answer:
    """The same, and the answer as it will be repeated for this key of the order's buyer. Raises Invalid,
    IdempotencyMismatch and IdempotencyInProgress too."""
    if payload:
        raise problems.Invalid({str(field)[:80]: "unknown field" for field in payload})
    asked = idempotency.fingerprint({"order": str(order_id)})
    with transactions.write():
        order = lock_order(order_id)
        return idempotency.run_once(
            f"cancel:{order.buyer}", idempotency_key, asked, lambda: Answer(200, json.dumps(_cancel(order).contract()))
        )


def _cancel(order: Order) -> OrderView:
    if order.status in (*Order.STANDING, Order.Status.REFUNDED):
        raise OrderNotCancelable(order_status=order.status)
    if order.status in Order.OPEN:
        reservations.cancel(order.reservation_id, who=order.buyer, why=f"order {order.number} canceled")
        settlement.end_order(order, Order.Status.CANCELED, Order.Reason.CANCELED_BY_BUYER)
    return order_view(order)


def refund_order(order_id: UUID, who: str) -> bool:
    """The whole order is given back: tickets void, places free, money on its way. Staff's verb; unpaid orders are
    canceled, ended ones stay as they are. Returns whether that changed anything. Raises OrderNotFound."""
    with transactions.write():
        order = lock_order(order_id)
        if order.status not in (*Order.OPEN, *Order.STANDING):
            return False
        reservations.cancel(order.reservation_id, who=who, why=f"order {order.number} given back")
        cancel_or_refund(order, who)
        return True


def cancel_or_refund(order: Order, who: str, reason: Order.Reason = Order.Reason.CANCELED_BY_STAFF) -> None:
    """The locked order is over, if it was not: an unpaid one is canceled, a paid one's tickets are void and its money
    is on its way back. Joins the caller's transaction, which cancels the reservation."""
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
        if reason != Order.Reason.EVENT_CANCELED:  # Of that its buyer hears by a mail of its own.
            outbox.publish(topics.SEND_REFUND_NOTICE, str(order.pk), {"order": str(order.pk)})


def refund_kept_fees(order: Order, who: str, reason: Order.Reason) -> int:
    """What the locked order, given back whole before, still keeps is on its way back too, and its reason to have ended
    is this one; how much that was, 0 where it keeps nothing. Joins the caller's transaction."""
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
    """Up to `limit` open orders whose reservation has run out have failed; how many. Nothing stays "paying" for ever.

    The reservation itself is left to its sweep, so that it reads expired and not canceled: a payment that occurred in
    time may still revive it (I8).
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
