"""The reconciler: query the provider about charges and refunds whose result never arrived.

A webhook may be lost or refused as too old, or a process may crash between the provider's response and our commit; the
provider still knows the result. The search for due rows uses only PostgreSQL and writes an outbox message for each. The
message's handler queries the provider outside any transaction, without holding a lock, and is postponed while the
provider is paused. If several queries run at once, or a webhook arrives meanwhile, the payment is still settled once,
because one function settles payments, under their order's lock.
"""

from datetime import datetime
from uuid import UUID

from django.db import connection
from django.db.models import Model

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.models import Order, Payment, Refund
from apps.orders.payments import circuit_breaker, refunds
from apps.orders.payments.providers import get_provider
from apps.orders.payments.providers.protocol import ProviderEvent
from apps.orders.provider_sync import charges, discrepancies, inbox

PAYMENT_SECONDS = 30
"""From this age on, the reconciler inquires about a charge; until then the charge's own outbox messages do."""
REFUND_SECONDS = 120
BATCH_MAX = 100
_unsettled_payments = sql.load("apps.orders", "unsettled_payments")
_unsettled_refunds = sql.load("apps.orders", "unsettled_refunds")


def schedule_inquiries(limit: int = BATCH_MAX) -> int:
    """Schedule inquiries about up to `limit` unsettled payments and as many refunds. Return how many inquiries.
    Concurrent calls in several processes schedule each inquiry once."""
    discrepancies.record_failed_refunds()
    scheduled = 0
    for statement, seconds, model, topic, name in (
        (_unsettled_payments, PAYMENT_SECONDS, Payment, topics.RECONCILE_PAYMENT, "payment"),
        (_unsettled_refunds, REFUND_SECONDS, Refund, topics.RECONCILE_REFUND, "refund"),
    ):
        with connection.cursor() as cursor:
            rows = statement.rows(cursor, limit=limit, seconds=seconds)
        scheduled += sum(_claim(model, pk, asked_at, topic, name) for pk, asked_at in rows)
    return scheduled


def _claim(model: type[Model], pk: UUID, asked_at: datetime | None, topic: str, name: str) -> int:
    # Claim one row per transaction: we may wait briefly for a settlement that holds this row's lock, but that
    # settlement never waits for us, because we hold no other row.
    with transactions.write():
        claimed: int = model._default_manager.filter(pk=pk, asked_at=asked_at).update(asked_at=clock.now())
        if claimed:
            outbox.publish(topic, f"reconcile:{pk}", {name: str(pk)})
    return claimed


def handle_payment(message: outbox.Message) -> None:
    with circuit_breaker.postpone_if_unavailable():
        reconcile_payment(UUID(message.body["payment"]))


def handle_refund(message: outbox.Message) -> None:
    with circuit_breaker.postpone_if_unavailable():
        reconcile_refund(UUID(message.body["refund"]))


def reconcile_payment(payment_id: UUID) -> bool:
    """Settle the payment from its current state at the provider. Return whether it is decided now. A payment that can
    no longer count is canceled at the provider, so that it cannot succeed later. Raises ProviderFault,
    ProviderUnavailable."""
    payment = Payment.objects.select_related("order").get(pk=payment_id)
    if payment.status != Payment.Status.PENDING:
        return True
    event = _query_provider(payment, payment.order, clock.now())
    if event is None:
        return False
    inbox.record_provider_answer(payment.provider, event)
    return not Payment.objects.filter(pk=payment_id, status=Payment.Status.PENDING).exists()


def _query_provider(payment: Payment, order: Order, now: datetime) -> ProviderEvent | None:
    provider, request = get_provider(payment.provider), charges.charge_request(order, payment)
    may_still_count = order.status in Order.OPEN or order.reason == Order.Reason.OUT_OF_TIME
    with circuit_breaker.guard_call(provider.name):
        if may_still_count and now <= payment.counts_until:
            return provider.find_charge(request.key, payment.reference)
        return provider.cancel(request, payment.reference)


def recheck_payment(payment_id: UUID) -> None:
    """Query the provider about the payment, whatever its status, and apply the response. Raises ProviderFault,
    ProviderUnavailable."""
    payment = Payment.objects.get(pk=payment_id)
    with circuit_breaker.guard_call(payment.provider):
        event = get_provider(payment.provider).find_charge(payment.pk, payment.reference)
    if event is not None:
        inbox.record_provider_answer(payment.provider, event)


def reconcile_refund(refund_id: UUID) -> bool:
    """Update the refund from the provider's current state, and request it again if the provider does not know it.
    Return whether it is decided now. Raises ProviderFault, ProviderUnavailable."""
    refund = Refund.objects.select_related("payment").get(pk=refund_id)
    if refund.status not in Refund.OPEN:
        return True
    provider = get_provider(refund.payment.provider)
    with circuit_breaker.guard_call(provider.name):
        answer = provider.find_refund(refund.pk, refund.payment.reference)
        if answer is None:
            # This request has the same key as that of `refunds.send`, so the money is refunded once.
            answer = provider.refund(refunds.provider_request(refund))
    refunds.record_refund_answer(refund.pk, refund.order_id, answer)
    return not Refund.objects.filter(pk=refund_id, status__in=Refund.OPEN).exists()
