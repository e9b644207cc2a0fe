"""Money back: asked for in the transaction that decides it, sent by the outbox, once."""

from uuid import UUID

from apps.orders import topics
from apps.orders.locks import lock_order
from apps.orders.models import Payment, Refund
from apps.orders.providers import get_provider
from apps.orders.providers.protocol import RefundRequest
from ticketing.kernel import clock, transactions
from ticketing.kernel.outbox import facade as outbox


def request(payment: Payment, reason: str, requested_by: str) -> None:
    """All that this payment still holds is on its way back once the caller commits. Joins the caller's transaction,
    which holds the order's lock. Nothing left: nothing happens."""
    transactions.require()
    left_minor = payment.captured_minor - payment.refunded_minor
    if left_minor == 0:
        return
    payment.refunded_minor += left_minor
    payment.save(update_fields=["refunded_minor"])
    refund = Refund.objects.create(
        order_id=payment.order_id,
        payment=payment,
        amount_minor=left_minor,
        currency=payment.currency,
        reason=reason,
        requested_by=requested_by,
        requested_at=clock.now(),
    )
    outbox.publish(topics.REFUND, str(payment.order_id), {"refund": str(refund.pk)})


def send(message: outbox.Message) -> None:
    """The provider has given the money back, once per refund: its id is the provider's idempotency key, so a second
    delivery of this message asks for the same refund, not for another."""
    refund = Refund.objects.select_related("payment").get(pk=UUID(message.body["refund"]))
    if refund.status != Refund.Status.REQUESTED:
        return
    reference = get_provider(refund.payment.provider).refund(
        RefundRequest(key=refund.pk, charge_reference=refund.payment.reference, amount_minor=refund.amount_minor)
    )
    with transactions.write():
        lock_order(refund.order_id)
        Refund.objects.filter(pk=refund.pk, status=Refund.Status.REQUESTED).update(
            status=Refund.Status.SUCCEEDED, reference=reference, settled_at=clock.now()
        )
