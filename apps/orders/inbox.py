"""The inbox: whatever a provider says is stored once and changes state once, whichever way it reaches us."""

from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from django.conf import settings

from apps.orders import disputes, given_back, settlement, topics
from apps.orders.locks import lock_payment
from apps.orders.models import Order, Payment, ProviderMessage
from apps.orders.providers import get_provider, sandbox
from apps.orders.providers.protocol import Kind, ProviderEvent
from ticketing.kernel import clock, transactions
from ticketing.kernel.outbox import facade as outbox

NOT_OURS = "speaks of no payment of ours"


def receive(provider_name: str, raw: bytes, headers: Mapping[str, str]) -> bool:
    """The delivery is stored and will be processed, committed; whether it was news. What its provider says of no
    interest to us is not stored.

    Raises ProviderNotFound, SignatureInvalid, MalformedBody: then nothing was stored.
    """
    event = get_provider(provider_name).read_webhook(raw, headers)
    if event is None:
        return False
    with transactions.write():
        message, is_new = _store(provider_name, event)
        # What is known but not processed is on its way already: whoever stored it wrote to the outbox with it, or
        # settles it in the transaction that stored it.
        if is_new:
            key = message.pk if message.payment is None else message.payment.order_id
            outbox.publish(topics.PROVIDER_MESSAGE, str(key), {"message": message.pk})
    return is_new


def process(message: outbox.Message) -> None:
    """The stored message has had its effect, once. The outbox's handler for what webhooks brought."""
    payment_id = ProviderMessage.objects.values_list("payment_id", flat=True).get(pk=message.body["message"])
    with transactions.write():
        locked = None if payment_id is None else lock_payment(payment_id)
        _process(locked, ProviderMessage.objects.select_for_update(no_key=True).get(pk=message.body["message"]))


def record_answer(provider_name: str, event: ProviderEvent) -> None:
    """The provider's direct answer has had its effect, once; a webhook with the same message id finds it done."""
    with transactions.write():
        payment_id = _payment_id(provider_name, event)
        locked = None if payment_id is None else lock_payment(payment_id)
        # After the order's lock: a webhook that is storing the same message holds no lock that we could wait for in a
        # circle, and whoever processed it before us has committed.
        stored, _ = _store(provider_name, event)
        _process(locked, stored)


def _store(provider_name: str, event: ProviderEvent) -> tuple[ProviderMessage, bool]:
    return ProviderMessage.objects.get_or_create(
        provider=provider_name,
        message_id=event.message_id,
        defaults={
            "kind": event.kind,
            "payment_id": _payment_id(provider_name, event),
            "reference": event.reference,
            "amount_minor": event.amount_minor,
            "currency": event.currency,
            "occurred_at": event.occurred_at,
            "refund_key": event.refund_key,
            "refund_reference": event.refund_reference,
            "failure": event.failure,
            "dispute_reference": event.dispute_reference,
            "next_action": None if event.next_action is None else dict(event.next_action),
            "raw": event.raw,
            "received_at": clock.now(),
        },
    )


def _payment_id(provider_name: str, event: ProviderEvent) -> UUID | None:
    """By our key, or where that is not said by the provider's own id of the charge: what somebody does by hand at the
    provider, a refund say, carries no key of ours."""
    ours = Payment.objects.filter(provider=provider_name)
    try:
        payments = ours.filter(pk=UUID(event.key))
    except ValueError:
        if event.key or not event.reference:
            return None
        payments = ours.filter(reference=event.reference)
    return payments.values_list("pk", flat=True).first()


def _process(locked: tuple[Order, Payment] | None, message: ProviderMessage) -> None:
    """Joins the caller's transaction, which holds the order's lock."""
    if message.processed_at is not None:
        return
    message.outcome = NOT_OURS if locked is None else _settle(*locked, message)
    message.processed_at = clock.now()
    message.save(update_fields=["outcome", "processed_at"])


def _settle(order: Order, payment: Payment, message: ProviderMessage) -> str:
    kind = Kind(message.kind)
    if kind.is_of_refund:
        return given_back.settle(order, payment, message)
    if kind.is_of_dispute:
        return disputes.settle(payment, message)
    return settlement.settle(order, payment, message)


def deliver_sandbox_webhook(message: outbox.Message) -> None:
    """What the sandbox says of a charge is so in its books, and its signed word has come in as a delivery would."""
    if settings.PAYMENT_PROVIDER != sandbox.NAME:
        return
    occurred_at = datetime.fromisoformat(message.body["occurred_at"])
    raw = sandbox.settle(message.body["key"], message.body.get("status", "succeeded"), occurred_at)
    receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})
