"""Webhooks that arrive together are stored in one transaction, each once."""

import asyncio
import random
import threading
from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import psycopg
import pytest

from apps.kernel import clock
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import topics
from apps.orders.models import Order, ProviderMessage, Ticket
from apps.orders.payments.providers import read_webhook, sandbox
from apps.orders.provider_sync.event_storage import Delivery, receive_all, webhooks
from tests.support.batches import connect
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import buy, deliver_outbox, late_webhook
from tests.support.races import statements, storm, values

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _audit() -> Iterator[None]:
    yield
    assert_audit_clean()


def delivery(raw: bytes) -> Delivery:
    event = read_webhook(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})
    assert event is not None
    return Delivery(sandbox.NAME, event)


def late_deliveries(count: int) -> tuple[list[Order], list[Delivery]]:
    event = make_event()
    orders = [buy(hold(event, seats=[f"hall-A-{number + 1}"]), sandbox.LATE) for number in range(count)]
    return orders, [delivery(late_webhook(order, clock.now())) for order in orders]


def test_a_list_is_stored_with_two_statements_and_settled() -> None:
    orders, given = late_deliveries(4)
    with statements() as sent:
        assert receive_all(given) == [True] * 4
    assert sent == ["payments_of_events", "store_provider_messages", "publish_messages"]
    pending = OutboxMessage.objects.filter(topic=topics.PROVIDER_MESSAGE, done_at=None)
    assert sorted(pending.values_list("key", flat=True)) == sorted(str(order.pk) for order in orders)
    deliver_outbox()
    assert set(Order.objects.values_list("status", flat=True)) == {"confirmed"}
    assert Ticket.objects.count() == 4


def test_equal_and_known_messages_of_a_list_are_stored_once() -> None:
    _, given = late_deliveries(3)
    assert receive_all(given[:1]) == [True]
    assert receive_all([given[1], given[0], given[1], given[2]]) == [True, False, False, True]
    assert ProviderMessage.objects.filter(kind="payment.succeeded").count() == 3
    assert OutboxMessage.objects.filter(topic=topics.PROVIDER_MESSAGE).count() == 3
    deliver_outbox()
    assert Ticket.objects.count() == 3


def test_messages_about_no_payment_and_with_the_providers_id_only_are_stored_with_their_payment_or_without() -> None:
    orders, given = late_deliveries(1)
    deliver_outbox()
    manual = replace(given[0].event, message_id="evt_manual", key="")
    foreign = replace(given[0].event, message_id="evt_foreign", key="another shop's")
    unknown = replace(given[0].event, message_id="evt_unknown", key=str(uuid4()))
    events = (manual, foreign, unknown)
    assert receive_all([Delivery(sandbox.NAME, event) for event in events]) == [True] * 3
    stored = dict(ProviderMessage.objects.values_list("message_id", "payment__order_id"))
    assert [stored[event.message_id] for event in events] == [orders[0].pk, None, None]
    deliver_outbox()


def test_lists_of_the_same_messages_in_any_order_store_each_once() -> None:
    _, given = late_deliveries(8)
    stored = values(storm(6, lambda number: receive_all(random.Random(number).sample(given, len(given)))))
    assert sum(map(sum, stored)) == ProviderMessage.objects.filter(kind="payment.succeeded").count() == 8
    deliver_outbox()
    assert Ticket.objects.count() == 8


def test_control_messages_inserted_unsorted_deadlock() -> None:
    """Two transactions that insert two messages in opposite order wait for each other."""
    inserted = threading.Barrier(2)
    copied = [
        field.column for field in ProviderMessage._meta.concrete_fields if field.column not in ("id", "message_id")
    ]
    columns = ", ".join(copied)
    _, given = late_deliveries(1)
    receive_all(given)
    deliver_outbox()

    def naive(number: int) -> None:
        with connect() as own, own.transaction():
            for step, name in enumerate(("a", "b") if number == 0 else ("b", "a")):
                own.execute(
                    f"INSERT INTO orders_providermessage (message_id, {columns}) SELECT %s, {columns}"
                    " FROM orders_providermessage WHERE message_id = %s ON CONFLICT DO NOTHING",
                    (name, given[0].event.message_id),
                )
                if step == 0:
                    inserted.wait(timeout=10)
            raise psycopg.Rollback

    errors = [outcome.error for outcome in storm(2, naive)]
    assert any(isinstance(error, psycopg.errors.DeadlockDetected) for error in errors), errors


def test_one_event_that_cannot_be_stored_does_not_stop_the_others_of_its_batch() -> None:
    """A reference with a NUL byte cannot be stored; no reader lets it pass."""
    _, given = late_deliveries(2)
    broken = Delivery(sandbox.NAME, replace(given[0].event, message_id="evt_broken", reference="\x00", key=""))

    async def submit() -> list[bool | BaseException]:
        return await asyncio.gather(*map(webhooks.submit, [given[0], broken, given[1]]), return_exceptions=True)

    first, error, second = asyncio.run(submit())
    assert (first, second) == (True, True)
    assert isinstance(error, BaseException)
    deliver_outbox()
    assert Ticket.objects.count() == 2
