"""The inbox: whatever a provider says is stored once and changes state once, whichever way it reaches us."""

import json
from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import connection

from apps.kernel.db import model_rows, sql, transactions
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.locks import LockedPayment, lock_payment
from apps.orders.models import Payment, ProviderMessage
from apps.orders.payments import settlement
from apps.orders.payments.providers import get_provider, sandbox
from apps.orders.payments.providers.protocol import Kind, ProviderEvent
from apps.orders.provider_sync import disputes, refund_messages

_payment_by_key = sql.load("apps.orders", "payment_by_key")
_store_message = sql.load("apps.orders", "store_provider_message")
_lock_message = sql.load("apps.orders", "lock_provider_message")
_note_outcome = sql.load("apps.orders", "note_outcome")

UNKNOWN_PAYMENT = "speaks of no payment of ours"


def receive(provider_name: str, raw: bytes, headers: Mapping[str, str]) -> bool:
    """The delivery is stored and will be processed, committed; whether it was news. What its provider says of no
    interest to us is not stored.

    Raises ProviderNotFound, SignatureInvalid, MalformedBody: then nothing was stored.
    """
    event = get_provider(provider_name).read_webhook(raw, headers)
    if event is None:
        return False
    with transactions.write():
        payment_id, order_id = _find_payment(provider_name, event)
        message, is_new = _store(provider_name, event, payment_id)
        # What is known but not processed is on its way already: whoever stored it wrote to the outbox with it, or
        # settles it in the transaction that stored it.
        if is_new:
            key = message.pk if payment_id is None else order_id
            outbox.publish(topics.PROVIDER_MESSAGE, str(key), {"message": message.pk})
    return is_new


def process(message: outbox.Message) -> None:
    """The stored message has had its effect, once. The outbox's handler for what webhooks brought."""
    payment_id = ProviderMessage.objects.values_list("payment_id", flat=True).get(pk=message.body["message"])
    with transactions.write():
        locked = None if payment_id is None else lock_payment(payment_id)
        with connection.cursor() as cursor:
            found = _lock_message.rows(cursor, message_id=message.body["message"])
        (stored,) = model_rows.build_instances(ProviderMessage, found)
        _process(locked, stored)


def record_provider_answer(provider_name: str, event: ProviderEvent) -> None:
    """The provider's direct answer has had its effect, once; a webhook with the same message id finds it done."""
    with transactions.write():
        payment_id, _ = _find_payment(provider_name, event)
        locked = None if payment_id is None else lock_payment(payment_id)
        # After the order's lock: a webhook that is storing the same message holds no lock that we could wait for in a
        # circle, and whoever processed it before us has committed.
        stored, _ = _store(provider_name, event, payment_id)
        _process(locked, stored)


def _store(provider_name: str, event: ProviderEvent, payment_id: UUID | None) -> tuple[ProviderMessage, bool]:
    next_action = None if event.next_action is None else dict(event.next_action)
    said = {
        "provider": provider_name,
        "message_id": event.message_id,
        "kind": str(event.kind),
        "payment_id": payment_id,
        "reference": event.reference,
        "amount_minor": event.amount_minor,
        "currency": event.currency,
        "occurred_at": event.occurred_at,
        "refund_key": event.refund_key,
        "refund_reference": event.refund_reference,
        "failure": event.failure,
        "dispute_reference": event.dispute_reference,
        "raw": event.raw,
    }
    with connection.cursor() as cursor:
        stored = _store_message.rows(
            cursor, **said, next_action=None if next_action is None else json.dumps(next_action)
        )
    if not stored:
        return ProviderMessage.objects.get(provider=provider_name, message_id=event.message_id), False
    ((pk, received_at),) = stored
    return ProviderMessage(pk=pk, received_at=received_at, next_action=next_action, **said), True


def _find_payment(provider_name: str, event: ProviderEvent) -> tuple[UUID, UUID] | tuple[None, None]:
    """The payment that is spoken of, and its order: by our key, or where that is not said by the provider's own id of
    the charge. What somebody does by hand at the provider, a refund say, carries no key of ours."""
    try:
        payment_id = UUID(event.key)
    except ValueError:
        if event.key or not event.reference:
            return None, None
        payments = Payment.objects.filter(provider=provider_name, reference=event.reference)
        return payments.values_list("pk", "order_id").first() or (None, None)
    with connection.cursor() as cursor:
        found = _payment_by_key.rows(cursor, payment_id=payment_id, provider=provider_name)
    return (found[0][0], found[0][1]) if found else (None, None)


def _process(locked: LockedPayment | None, message: ProviderMessage) -> None:
    """Joins the caller's transaction, which holds the order's lock."""
    if message.processed_at is not None:
        return
    outcome = UNKNOWN_PAYMENT if locked is None else _settle(locked, message)
    with connection.cursor() as cursor:
        noted = _note_outcome.count(cursor, message_id=message.pk, outcome=outcome)
    assert noted == 1, f"{noted} messages are {message.pk}"


def _settle(locked: LockedPayment, message: ProviderMessage) -> str:
    kind = Kind(message.kind)
    if kind.is_refund:
        return refund_messages.settle(locked.order, locked.payment, message)
    if kind.is_dispute:
        return disputes.settle(locked.payment, message)
    return settlement.settle(locked, message)


def deliver_sandbox_webhook(message: outbox.Message) -> None:
    """What the sandbox says of a charge is so in its books, and its signed word has come in as a delivery would."""
    if settings.PAYMENT_PROVIDER != sandbox.NAME:
        return
    occurred_at = datetime.fromisoformat(message.body["occurred_at"])
    raw = sandbox.settle(message.body["key"], message.body.get("status", "succeeded"), occurred_at)
    receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})
