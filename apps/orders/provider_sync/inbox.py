"""The inbox: each provider message is stored and applied once, whether it is a webhook or a direct response."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import connection

from apps.kernel.db import model_rows, sql, transactions
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.locks import LockedPayment, lock_payment
from apps.orders.models import Payment, ProviderMessage
from apps.orders.payments import settlement, settlement_lists
from apps.orders.payments.providers import get_provider, sandbox
from apps.orders.payments.providers.protocol import Kind, ProviderEvent
from apps.orders.provider_sync import disputes, refund_messages

_payment_by_key = sql.load("apps.orders", "payment_by_key")
_store_message = sql.load("apps.orders", "store_provider_message")
_lock_message = sql.load("apps.orders", "lock_provider_message")
_note_outcome = sql.load("apps.orders", "note_outcome")

UNKNOWN_PAYMENT = "not about a payment of ours"
_STORED_FIELDS = (
    "message_id", "reference", "amount_minor", "currency", "occurred_at", "refund_key", "refund_reference", "failure",
    "dispute_reference",
)  # fmt: skip
"""The fields of an event that are stored unchanged."""
_CLIENT_SECRET = re.compile(rb'(client_secret(?:"\s*:\s*"|=))[^"&\\]*')
"""As a value in JSON, or as a parameter of a URL in it. With it and the publishable key anyone can read the charge and
confirm it with another card."""


def receive(provider_name: str, raw: bytes, headers: Mapping[str, str]) -> bool:
    """Store the delivery, schedule its processing, and commit. Return whether it was new. Event types that we ignore
    are not stored.

    Raises ProviderNotFound, SignatureInvalid, MalformedBody; nothing is stored then.
    """
    event = get_provider(provider_name).read_webhook(raw, headers)
    if event is None:
        return False
    with transactions.write():
        payment_id, order_id = _find_payment(provider_name, event)
        message, is_new = _store(provider_name, event, payment_id)
        # A known message needs no second outbox message: the transaction that stored it also wrote to the outbox, or
        # settled it.
        if is_new:
            key = message.pk if payment_id is None else order_id
            outbox.publish(topics.PROVIDER_MESSAGE, str(key), {"message": message.pk})
    return is_new


def process(message: outbox.Message) -> None:
    """Outbox handler: apply the stored webhook once."""
    payment_id = ProviderMessage.objects.values_list("payment_id", flat=True).get(pk=message.body["message"])
    with transactions.write():
        locked = None if payment_id is None else lock_payment(payment_id)
        with connection.cursor() as cursor:
            found = _lock_message.rows(cursor, message_id=message.body["message"])
        (stored,) = model_rows.build_instances(ProviderMessage, found)
        _process(locked, stored)


def process_list(messages: Sequence[outbox.Message]) -> set[int]:
    """Outbox list handler: apply the plain cases among the stored webhooks once, and return the other messages."""
    stored = {message.body["message"]: message.id for message in messages}
    settled = settlement_lists.settle_plain(stored)
    return {message_id for stored_id, message_id in stored.items() if stored_id not in settled}


def record_provider_answer(provider_name: str, event: ProviderEvent, *, lock_ms: int | None = None) -> None:
    """Store and apply a provider's direct response once, and commit. A webhook with the same message id is then not
    applied again. Waits `lock_ms` at most for a lock."""
    with transactions.write(lock_ms=lock_ms):
        payment_id, _ = _find_payment(provider_name, event)
        locked = None if payment_id is None else lock_payment(payment_id)
        # Store after locking the order. A webhook that is storing the same message holds no lock that we need, so there
        # is no deadlock; and a transaction that processed the message before us has committed.
        stored, _ = _store(provider_name, event, payment_id)
        _process(locked, stored)


def _store(provider_name: str, event: ProviderEvent, payment_id: UUID | None) -> tuple[ProviderMessage, bool]:
    columns = _columns(provider_name, event, payment_id)
    next_action = columns.pop("next_action")
    with connection.cursor() as cursor:
        stored = _store_message.rows(
            cursor, **columns, next_action=None if next_action is None else json.dumps(next_action)
        )
    if not stored:
        return ProviderMessage.objects.get(provider=provider_name, message_id=event.message_id), False
    ((pk, received_at),) = stored
    return ProviderMessage(pk=pk, received_at=received_at, next_action=next_action, **columns), True


def build_answer(provider_name: str, event: ProviderEvent, payment_id: UUID) -> ProviderMessage:
    """Return a provider's direct answer about this payment as it is stored; it is not stored yet."""
    return ProviderMessage(**_columns(provider_name, event, payment_id))


def _columns(provider_name: str, event: ProviderEvent, payment_id: UUID | None) -> dict[str, Any]:
    columns = {field: getattr(event, field) for field in _STORED_FIELDS}
    columns |= {"provider": provider_name, "kind": str(event.kind), "payment_id": payment_id}
    columns["raw"] = _CLIENT_SECRET.sub(rb"\1", event.raw)
    columns["next_action"] = None if event.next_action is None else dict(event.next_action)
    return columns


def _find_payment(provider_name: str, event: ProviderEvent) -> tuple[UUID, UUID] | tuple[None, None]:
    """Return the ids of the event's payment and its order, found by our key or, if the event has none, by the
    provider's id of the charge. Manual actions at the provider, such as a refund, do not carry our key."""
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
    """Apply the message unless it is processed already. Joins a transaction that holds the order's lock."""
    if message.processed_at is not None:
        return
    outcome = UNKNOWN_PAYMENT if locked is None else _settle(locked, message)
    with connection.cursor() as cursor:
        updated = _note_outcome.count(cursor, message_id=message.pk, outcome=outcome)
    assert updated == 1, f"{updated} messages have the id {message.pk}"


def _settle(locked: LockedPayment, message: ProviderMessage) -> str:
    kind = Kind(message.kind)
    if kind.is_refund:
        return refund_messages.settle(locked.order, locked.payment, message)
    if kind.is_dispute:
        return disputes.settle(locked.payment, message)
    return settlement.settle(locked, message)


def deliver_sandbox_webhook(message: outbox.Message) -> None:
    """Update the charge in the sandbox's books and deliver the signed webhook to our inbox."""
    if settings.PAYMENT_PROVIDER != sandbox.NAME:
        return
    occurred_at = datetime.fromisoformat(message.body["occurred_at"])
    raw = sandbox.settle(message.body["key"], message.body.get("status", "succeeded"), occurred_at)
    receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})
