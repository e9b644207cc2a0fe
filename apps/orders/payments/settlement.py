"""The only place where money changes an order. All functions join a transaction that holds the order's lock.

A provider's messages may arrive twice, late, or out of order. Decisions depend on the order as read under the lock and
on when the payment occurred, never on when the message arrived (I7, I8).
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from django.db import transaction

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.orders import lines, topics
from apps.orders.invoices import invoices
from apps.orders.locks import LockedPayment
from apps.orders.models import ATTEMPTS_MAX, Order, Payment, ProviderMessage
from apps.orders.payments import circuit_breaker, large_orders, refunds
from apps.orders.payments.providers.protocol import Kind
from apps.orders.promo_codes import promo_codes
from apps.orders.tickets import ticket_issuance
from apps.orders.webhooks import messages
from apps.reservations import facade as reservations

CONFIRMED = "confirmed"
WAITS_FOR_BUYER = "waits for the buyer"
WAITS_FOR_PROVIDER = "waits for the provider"
MAY_TRY_AGAIN = "declined; the buyer may try again"
KNOWN = "known already"
TOO_LATE = "no longer matters"
OTHER_CHARGE = "refused: about another charge than the payment's"
TOO_EARLY = "refused: older than its payment"
WITHOUT_EFFECT = (KNOWN, TOO_LATE, OTHER_CHARGE, TOO_EARLY)
"""Outcomes of messages that changed nothing: another message was first, or the message cannot be true. The audit counts
only the others."""
CLOCK_DIFFERENCE_MAX = timedelta(minutes=5)
"""Of the provider's clock and the database's. The signature of a webhook may be as old."""


def settle(locked: LockedPayment, message: ProviderMessage) -> str:
    """Apply the message to the payment and its order. Return a description of what it changed."""
    transactions.require_transaction()
    order, payment, _ = locked
    if not is_about(payment, message):
        return OTHER_CHARGE
    if not payment.reference:
        payment.reference = message.reference
        payment.save(update_fields=["reference"])
    match message.kind:
        case Kind.SUCCEEDED:
            return _succeeded(locked, message)
        case Kind.DECLINED:
            return _declined(order, payment, message)
        case Kind.CANCELED:
            return _canceled(order, payment)
        case Kind.PENDING:
            return _pending(payment, message)
    raise AssertionError(f"{message.kind} is not about a charge")


def is_about(payment: Payment, message: ProviderMessage) -> bool:
    """Return whether the message can be about the payment's own charge. Another charge may have the payment's key, if
    the provider's account is not used by this system alone: it decides nothing here, and the daily comparison lists
    it. A refusal has no reference if the provider has created no charge."""
    return not payment.reference or not message.reference or payment.reference == message.reference


def is_too_early(payment: Payment, message: ProviderMessage) -> bool:
    """Return whether the message, a webhook, is older than its payment, so that it cannot be true: it would otherwise
    turn a late payment into one in time. What the provider answers to a call is not judged by this, so that a charge is
    settled by an inquiry if the clocks differ by more than expected."""
    return message.occurred_at < payment.created_at - CLOCK_DIFFERENCE_MAX


def _pending(payment: Payment, message: ProviderMessage) -> str:
    if payment.status != Payment.Status.PENDING:
        return TOO_LATE
    if message.next_action is not None:
        payment.next_action = message.next_action
        payment.save(update_fields=["next_action"])
        return WAITS_FOR_BUYER
    return WAITS_FOR_PROVIDER


def _succeeded(locked: LockedPayment, message: ProviderMessage) -> str:
    order, payment, payments = locked
    if payment.status == Payment.Status.SUCCEEDED:
        return KNOWN
    payment.status, payment.settled_at, payment.next_action = Payment.Status.SUCCEEDED, clock.now(), None
    payment.captured_minor, payment.currency = message.amount_minor, message.currency
    payment.occurred_at = message.occurred_at
    payment.save(update_fields=["status", "settled_at", "next_action", "captured_minor", "currency", "occurred_at"])
    if order.status in (*Order.STANDING, Order.Status.REFUNDED):
        refunds.request(payment, "this order had been settled by another payment", f"provider:{payment.provider}")
        return "refunded: the order had been settled already"
    if is_superseded(payment, order):
        # Its money decides nothing about the order, whose current attempt goes on.
        refunds.request(payment, "a later attempt replaced this price", f"provider:{payment.provider}")
        return "refunded: a later attempt has another price"
    if (message.amount_minor, message.currency) != (order.total_minor, order.currency):
        return _refund_order(order, payment, Order.Reason.WRONG_AMOUNT)
    event = events.get_event_by_id(order.event_id)
    if event.status == "canceled":
        return _refund_order(order, payment, Order.Reason.EVENT_CANCELED)
    if order.status == Order.Status.CANCELED:
        return _refund_order(order, payment, Order.Reason(order.reason))
    try:
        # A savepoint: if the confirmation is refused, its changes are rolled back and the refund still commits.
        with transaction.atomic():
            view = reservations.confirm(
                order.reservation_id,
                occurred_at=message.occurred_at,
                who=f"provider:{payment.provider}",
                why=f"payment of order {order.number}",
                event=event,
            )
    except reservations.ReservationExpired:
        return _refund_order(order, payment, Order.Reason.LATE)
    except reservations.PurchaseCapReached:
        return _refund_order(order, payment, Order.Reason.OVER_LIMIT)
    _confirm_order(order, view, payments)
    return CONFIRMED


def is_superseded(payment: Payment, order: Order) -> bool:
    """Return whether a later attempt began at another price, with another promo code: then only that price counts."""
    return payment.amount_minor != order.total_minor


def _declined(order: Order, payment: Payment, message: ProviderMessage) -> str:
    if payment.status != Payment.Status.PENDING:
        return TOO_LATE
    payment.status, payment.settled_at, payment.next_action = Payment.Status.DECLINED, clock.now(), None
    payment.occurred_at = message.occurred_at
    payment.save(update_fields=["status", "settled_at", "next_action", "occurred_at"])
    if order.status not in Order.OPEN:
        return "declined; the order had ended"
    if not allows_another_attempt(order, payment, clock.now()):
        fail_order(order, Order.Reason.DECLINED)
        return "declined; the order failed"
    order.status = Order.Status.PLACED
    order.save(update_fields=["status"])
    return MAY_TRY_AGAIN


def allows_another_attempt(order: Order, payment: Payment, now: datetime) -> bool:
    """Return whether the buyer may try again after this payment, the order's latest, was declined."""
    return payment.tries < ATTEMPTS_MAX and order.has_time_for_attempt(now)


def _canceled(order: Order, payment: Payment) -> str:
    if payment.status != Payment.Status.PENDING:
        return TOO_LATE
    had_ended = order.status not in Order.OPEN
    abandon_uncharged(order, payment)
    return f"never charged; the order {'had ended' if had_ended else 'failed'}"


def confirm_free_order(order: Order) -> None:
    """Confirm an order whose total is 0."""
    transactions.require_transaction()
    assert order.total_minor == 0
    view = reservations.confirm(
        order.reservation_id, occurred_at=clock.now(), who=order.buyer, why=f"free order {order.number}"
    )
    _confirm_order(order, view, [])


def abandon_uncharged(order: Order, payment: Payment) -> None:
    """Abandon a payment that was never charged, and fail its order if the order is open. Joins the caller's
    transaction, which holds the order's lock."""
    transactions.require_transaction()
    _abandon(payment)
    if order.status in Order.OPEN:
        is_away = payment.faults_count > 0 or circuit_breaker.is_unavailable(payment.provider)
        fail_order(order, Order.Reason.PROVIDER_AWAY if is_away else Order.Reason.OUT_OF_TIME)


def schedule_inquiry(payment_id: UUID, delay: timedelta) -> None:
    """Schedule an inquiry about the payment. The inquiry also cancels the charge at the provider if the order no longer
    needs it. Joins the caller's transaction."""
    outbox.publish_all([inquiry(payment_id, delay)])


def inquiry(payment_id: UUID, delay: timedelta) -> outbox.NewMessage:
    """Return the message of an inquiry: see `schedule_inquiry`."""
    return outbox.NewMessage(topics.ASK, str(payment_id), {"payment": str(payment_id)}, delay)


def fail_order(order: Order, reason: Order.Reason) -> None:
    """Fail the order and release its seats. Past the payment deadline the sweep of reservations releases them."""
    transactions.require_transaction()
    if order.pay_deadline > clock.now():
        reservations.cancel(order.reservation_id, who="system", why=f"order {order.number} failed: {reason.label}")
    # Past the deadline the reservation must end as expired, not as canceled, as in
    # `order_cancellation.fail_expired_orders`. Then a payment that succeeded in time can still confirm the order, even
    # if its message arrives after the decline's (I8).
    end_order(order, Order.Status.FAILED, reason)


def end_order(order: Order, status: Order.Status, reason: Order.Reason) -> None:
    """End the order with this status and reason; the buyer of a failed order is notified, by a mail whose origin is the
    network that checked out. A pending payment that was not sent to the provider is abandoned. For one that was sent,
    inquiries settle the charge if it has succeeded, and cancel it once it no longer counts."""
    transactions.require_transaction()
    order.status, order.reason, order.ended_at = status, reason, clock.now()
    origin, order.origin = order.origin, ""
    order.save(update_fields=["status", "reason", "ended_at", "origin"])
    promo_codes.release(order, order.ended_at)
    _drop_pending_payments(Payment.objects.filter(order=order, status=Payment.Status.PENDING))
    if status == Order.Status.FAILED:
        body = {"order": str(order.pk), outbox.ORIGIN_FIELD: origin or topics.origin_of_event(order.event_id)}
        outbox.publish(topics.SEND_FAILURE_NOTICE, str(order.pk), body)
    messages.publish_end(order)


def _drop_pending_payments(payments: Iterable[Payment]) -> None:
    """Abandon the pending payments that were never sent, and schedule inquiries about the other pending ones. The order
    has just ended or been confirmed."""
    for payment in payments:
        if payment.status != Payment.Status.PENDING:
            continue
        if payment.started_at is None:
            _abandon(payment)
        else:
            schedule_inquiry(payment.pk, timedelta())


def _abandon(payment: Payment) -> None:
    payment.status, payment.settled_at, payment.next_action = Payment.Status.ABANDONED, clock.now(), None
    payment.save(update_fields=["status", "settled_at", "next_action"])


def _confirm_order(order: Order, view: reservations.ReservationView, payments: Iterable[Payment]) -> None:
    """Confirm the order: issue its tickets and publish messages. `payments` are all of the order's payments."""
    now = clock.now()
    if order.ended_at is not None:
        promo_codes.restore_use(order, now)
    order.status, order.reason, order.confirmed_at, order.ended_at = Order.Status.CONFIRMED, "", now, None
    origin, order.origin = order.origin, ""
    order.save(update_fields=["status", "reason", "confirmed_at", "ended_at", "origin"])
    _drop_pending_payments(payments)
    issue_tickets([(order, view)], now, "" if order.total_minor else origin)


def issue_tickets(
    sales: Sequence[tuple[Order, reservations.ReservationView]], now: datetime, network: str = ""
) -> None:
    """Issue the tickets of these orders, which were just confirmed, and publish the messages about them: invoice, mail
    with the tickets, and what organizers subscribed to. Joins the caller's transaction, which has locked the orders.

    Mails with tickets are sent for their origins in turn: organizers, or for free orders the networks that placed them.
    `network`: its digest, of free orders."""
    transactions.require_transaction()
    ticket_issuance.issue(sales, now)
    outgoing = []
    for order, view in sales:
        if order.total_minor:
            invoice_topic = large_orders.topic_for(topics.INVOICE, view.seat_count)
            outgoing.append(invoices.invoice_message(order, invoice_topic))
        topic = topics.SEND_TICKETS if order.total_minor else topics.SEND_FREE_TICKETS
        origin = network or topics.origin_of(view.event)
        body = {"order": str(order.pk), outbox.ORIGIN_FIELD: origin}
        outgoing.append(outbox.NewMessage(large_orders.topic_for(topic, view.seat_count), str(order.pk), body))
    outbox.publish_all(outgoing)
    messages.publish_messages([order for order, _ in sales], messages.Kind.ORDER_CONFIRMED)


def _refund_order(order: Order, payment: Payment, reason: Order.Reason) -> str:
    reservations.cancel(order.reservation_id, who="system", why=f"order {order.number} refunded: {reason.label}")
    refunds.request(payment, reason.label, f"provider:{payment.provider}")
    lines.cancel_all(order, clock.now())
    end_order(order, Order.Status.REFUNDED, reason)
    outbox.publish(topics.SEND_REFUND_NOTICE, str(order.pk), {"order": str(order.pk)})
    return f"refunded: {reason.label}"
