"""The inbox: each provider message is applied once, whether it came as a webhook or as a direct response."""

from collections.abc import Sequence
from datetime import datetime

from django.conf import settings
from django.db import connection

from apps.kernel.db import model_rows, sql, transactions
from apps.kernel.outbox import facade as outbox
from apps.orders.locks import LockedPayment, lock_payment
from apps.orders.models import ProviderMessage
from apps.orders.payments import settlement, settlement_lists
from apps.orders.payments.providers import sandbox
from apps.orders.payments.providers.protocol import Kind, ProviderEvent
from apps.orders.provider_sync import disputes, event_storage, refund_messages

_lock_message = sql.load("apps.orders", "lock_provider_message")
_note_outcome = sql.load("apps.orders", "note_outcome")

UNKNOWN_PAYMENT = "not about a payment of ours"


def process(message: outbox.Message) -> None:
    """Outbox handler: apply the stored webhook once."""
    payment_id = ProviderMessage.objects.values_list("payment_id", flat=True).get(pk=message.body["message"])
    with transactions.write():
        locked = None if payment_id is None else lock_payment(payment_id)
        with connection.cursor() as cursor:
            found = _lock_message.rows(cursor, message_id=message.body["message"])
        (stored,) = model_rows.build_instances(ProviderMessage, found)
        _process(locked, stored, is_webhook=True)


def process_list(messages: Sequence[outbox.Message]) -> set[int]:
    """Outbox list handler: apply the plain cases among the stored webhooks once, and return the other messages."""
    stored = {message.body["message"]: message.id for message in messages}
    settled = settlement_lists.settle_plain(stored)
    return {message_id for stored_id, message_id in stored.items() if stored_id not in settled}


def record_provider_answer(provider_name: str, event: ProviderEvent, *, lock_ms: int | None = None) -> None:
    """Store and apply a provider's direct response once, and commit. A webhook with the same message id is then not
    applied again. Waits `lock_ms` at most for a lock."""
    delivery = event_storage.Delivery(provider_name, event)
    with transactions.write_on_django(lock_ms=lock_ms) as cursor:
        (payment,) = event_storage.find_payments(cursor, [delivery])
        locked = None if payment is None else lock_payment(payment.payment_id)
        # Store after locking the order. A webhook that is storing the same message holds no lock that we need, so there
        # is no deadlock; and a transaction that processed the message before us has committed.
        (new,) = event_storage.store(cursor, [delivery], [payment])
        if new is None:
            stored = ProviderMessage.objects.get(provider=provider_name, message_id=event.message_id)
        else:
            stored = event_storage.build_message(delivery, None if payment is None else payment.payment_id)
            stored.pk, stored.received_at = new
        _process(locked, stored)


def _process(locked: LockedPayment | None, message: ProviderMessage, *, is_webhook: bool = False) -> None:
    """Apply the message unless it is processed already. Joins a transaction that holds the order's lock."""
    if message.processed_at is not None:
        return
    if locked is None:
        outcome = UNKNOWN_PAYMENT
    elif is_webhook and settlement.is_too_early(locked.payment, message):
        outcome = settlement.TOO_EARLY
    else:
        outcome = _settle(locked, message)
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
    """Outbox handler: update the charge in the sandbox's books and deliver the signed webhook to our inbox."""
    deliver_sandbox_webhooks([message])


def deliver_sandbox_webhooks(messages: Sequence[outbox.Message]) -> set[int]:
    """Outbox list handler: deliver these webhooks as `deliver_sandbox_webhook` does, all or none; return no message."""
    if settings.PAYMENT_PROVIDER != sandbox.NAME:
        return set()
    bodies = [message.body for message in messages]
    webhooks = sandbox.settle_all(
        [(body["key"], body.get("status", "succeeded"), datetime.fromisoformat(body["occurred_at"])) for body in bodies]
    )
    event_storage.receive_signed(
        sandbox.NAME, [(raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)}) for raw in webhooks]
    )
    return set()
