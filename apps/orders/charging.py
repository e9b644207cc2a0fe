"""Charging: what the outbox's charge message does. The provider is asked with no transaction and no lock open."""

from uuid import UUID

from django.urls import reverse

from apps.orders import settlement
from apps.orders.inbox import record_answer
from apps.orders.locks import lock_payment
from apps.orders.models import Order, Payment
from apps.orders.providers import get_provider
from apps.orders.providers.protocol import ChargeRequest
from apps.orders.selectors import absolute
from apps.queue import facade as queue
from ticketing.kernel import clock, transactions
from ticketing.kernel.outbox.facade import Message


def charge(message: Message) -> None:
    """The payment is charged once and its order says what came of it, however often this message is delivered.

    A worker may die anywhere here. Before the provider was called: the next delivery calls it. After: the next
    delivery finds `started_at`, asks the provider by our key first, and settles what it answers.
    """
    payment_id = UUID(message.body["payment"])
    started = _start(payment_id)
    if started is None:
        return
    request, reference, provider_name, may_be_known, may_charge = started
    provider = get_provider(provider_name)
    try:
        event = provider.find_charge(request.key, reference) if may_be_known else None
        if event is None and may_charge:
            event = provider.charge(request)
    except Exception:
        # No answer, or none that can be read: the outbox asks again, and the waiting rooms send fewer meanwhile.
        queue.payment_faults.observe(1)
        raise
    if may_be_known or may_charge:
        queue.payment_faults.observe(0)
    if event is None:
        settlement.abandon(payment_id)
    else:
        record_answer(provider.name, event)


def _start(payment_id: UUID) -> tuple[ChargeRequest, str, str, bool, bool] | None:
    """The order is paying and the payment marked as started, committed; the request, its provider's
    reference if known, whose it is, whether the provider
    may know it already, and whether it may still be charged. None when there is nothing left to do."""
    with transactions.write():
        locked = lock_payment(payment_id)
        if locked is None:
            return None
        order, payment = locked
        if payment.status != Payment.Status.PENDING:
            return None
        may_be_known = payment.started_at is not None
        may_charge = order.status in Order.OPEN and settlement.has_time_for_attempt(order)
        if may_charge:
            order.status = Order.Status.PAYING
            order.save(update_fields=["status"])
            if not may_be_known:
                payment.started_at = clock.now()
                payment.save(update_fields=["started_at"])
    request = request_of(order, payment)
    return request, payment.reference, payment.provider, may_be_known, may_charge


def request_of(order: Order, payment: Payment) -> ChargeRequest:
    """What the provider is asked for with this payment: the same each time, because its key is."""
    return ChargeRequest(
        key=payment.pk,
        method=payment.method,
        amount_minor=payment.amount_minor,
        currency=payment.currency,
        description=f"Order {order.number}",
        counts_until=payment.counts_until,
        return_url=absolute(reverse("orders:order", args=[order.pk])),
    )
