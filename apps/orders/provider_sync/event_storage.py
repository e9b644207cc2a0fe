"""Stores the messages of payment providers, each once: a list of webhooks in one transaction.

Storing takes no lock of an order: settling is another transaction. A message that another transaction is storing is
waited for, and its transaction waits for no lock of this one.
"""

import json
import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple
from uuid import UUID

from apps.kernel.db import arrays, sql, transactions
from apps.kernel.group_commit.batcher import Batcher, decide_finds_committed
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.models import ProviderMessage
from apps.orders.payments import large_orders
from apps.orders.payments.providers import read_webhook
from apps.orders.payments.providers.protocol import Headers, ProviderEvent

LOCK_WAIT_MS = 2_000
STATEMENT_MS = 5_000
BATCH_MAX = 128

_payments_of_events = sql.load("apps.orders", "payments_of_events", prepared=True)
_store_messages = sql.load("apps.orders", "store_provider_messages", prepared=True)

_CLIENT_SECRET = re.compile(rb'(client_secret(?:"\s*:\s*"|=))[^"&\\]*')
"""As a value in JSON, or as a parameter of a URL in it. With it and the publishable key anyone can read the charge and
confirm it with another card."""


class Delivery(NamedTuple):
    """An authentic event of a provider."""

    provider: str
    event: ProviderEvent

    @property
    def key(self) -> tuple[str, str]:
        return self.provider, self.event.message_id


class PaymentIds(NamedTuple):
    """The payment that an event is about, and its order."""

    payment_id: UUID
    order_id: UUID
    ticket_count: int
    """Of the order."""


class NewRow(NamedTuple):
    """A message that was stored now."""

    id: int
    received_at: datetime


def receive(provider_name: str, raw: bytes, headers: Headers) -> bool:
    """Store the webhook, schedule its processing, and commit. Return whether it was new. Event types that we ignore
    are not stored.

    Raises ProviderNotFound, SignatureInvalid, MalformedBody; nothing is stored then.
    """
    return receive_signed(provider_name, [(raw, headers)])[0]


def receive_signed(provider_name: str, webhooks: Sequence[tuple[bytes, Headers]]) -> list[bool]:
    """Store these webhooks as `receive` does, in one transaction. Return for each whether it was new. If one is
    refused, none is stored."""
    events = [read_webhook(provider_name, raw, headers) for raw, headers in webhooks]
    deliveries = [Delivery(provider_name, event) for event in events if event is not None]
    new = iter(receive_all(deliveries) if deliveries else ())
    return [event is not None and next(new) for event in events]


def receive_all(
    deliveries: Sequence[Delivery], write: transactions.TransactionOpener = transactions.write_on_django
) -> list[bool]:
    """Store these webhooks, schedule their processing, and commit. Return for each whether it was new.

    `write` opens the transaction, by default on this thread's connection; none may be open."""
    with write(lock_ms=LOCK_WAIT_MS, statement_ms=STATEMENT_MS) as cursor:
        payments = find_payments(cursor, deliveries)
        stored = store(cursor, deliveries, payments)
        # A known message needs no second outbox message: the transaction that stored it also wrote to the outbox, or
        # settled it.
        messages = [_processing(row, payment) for row, payment in zip(stored, payments, strict=True) if row is not None]
        if messages:
            sql.execute_batch_and_commit(cursor, [outbox.publish_call(messages)])
    if messages:
        outbox.notify_published(messages)
    return [row is not None for row in stored]


def _processing(row: NewRow, payment: PaymentIds | None) -> outbox.NewMessage:
    if payment is None:
        return outbox.NewMessage(topics.PROVIDER_MESSAGE, str(row.id), {"message": row.id})
    topic = large_orders.topic_for(topics.PROVIDER_MESSAGE, payment.ticket_count)
    return outbox.NewMessage(topic, str(payment.order_id), {"message": row.id})


def find_payments(cursor: sql.Cursor, deliveries: Sequence[Delivery]) -> list[PaymentIds | None]:
    """Return the payment of each event, found by our key or, if the event has none, by the provider's id of the charge:
    manual actions at the provider, such as a refund, do not carry our key. Joins the caller's transaction."""
    found = _payments_of_events.rows(
        cursor,
        numbers=list(range(len(deliveries))),
        providers=[one.provider for one in deliveries],
        payment_ids=[_payment_id(one.event) for one in deliveries],
        # An event with a key that is not ours is about no payment of ours.
        references=["" if one.event.key else one.event.reference for one in deliveries],
    )
    payments = {number: PaymentIds(*rest) for number, *rest in found}
    return [payments.get(number) for number in range(len(deliveries))]


def _payment_id(event: ProviderEvent) -> UUID | None:
    try:
        return UUID(event.key)
    except ValueError:
        return None


def store(
    cursor: sql.Cursor, deliveries: Sequence[Delivery], payments: Sequence[PaymentIds | None]
) -> list[NewRow | None]:
    """Store these messages once. Return the row of each; None for a known one, and for the second of two equal ones.
    Joins the caller's transaction."""
    messages = [
        build_message(one, None if payment is None else payment.payment_id)
        for one, payment in zip(deliveries, payments, strict=True)
    ]
    rows = _store_messages.rows(
        cursor,
        providers=[one.provider for one in messages],
        message_ids=[one.message_id for one in messages],
        kinds=[one.kind for one in messages],
        payment_ids=[one.payment_id for one in messages],
        references=[one.reference for one in messages],
        amounts_minor=[one.amount_minor for one in messages],
        currencies=[one.currency for one in messages],
        times=[one.occurred_at for one in messages],
        refund_keys=[one.refund_key for one in messages],
        refund_references=[one.refund_reference for one in messages],
        failures=[one.failure for one in messages],
        dispute_references=[one.dispute_reference for one in messages],
        next_actions=[None if one.next_action is None else json.dumps(one.next_action) for one in messages],
        raws=arrays.byte_strings([bytes(one.raw) for one in messages]),
    )
    new = {(provider, message_id): NewRow(*rest) for provider, message_id, *rest in rows}
    return [new.pop(one.key, None) for one in deliveries]


def build_message(delivery: Delivery, payment_id: UUID | None) -> ProviderMessage:
    """Return the message about this payment as it is stored, without its times; it is not stored yet."""
    event = delivery.event
    return ProviderMessage(
        provider=delivery.provider,
        message_id=event.message_id,
        kind=str(event.kind),
        payment_id=payment_id,
        reference=event.reference,
        amount_minor=event.amount_minor,
        currency=event.currency,
        occurred_at=event.occurred_at,
        refund_key=event.refund_key,
        refund_reference=event.refund_reference,
        failure=event.failure,
        dispute_reference=event.dispute_reference,
        next_action=None if event.next_action is None else dict(event.next_action),
        raw=_CLIENT_SECRET.sub(rb"\1", event.raw),
    )


webhooks: Batcher[Delivery, bool] = Batcher(
    # A message is stored once, so a retry finds what an earlier attempt committed.
    "webhooks",
    lambda connection, deliveries: receive_all(deliveries, transactions.writes_on(connection)),
    find_committed=decide_finds_committed,
    batch_max=BATCH_MAX,
)
"""Group commit of providers' webhooks: those that arrive together are stored together."""
