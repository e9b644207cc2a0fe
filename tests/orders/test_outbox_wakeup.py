"""How outbox messages reach a worker: by a wake-up, by a repeated one, or without a broker by the maintenance loop."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.conf import settings
from django.db import transaction
from kombu import Connection

from apps.kernel import clock, maintenance
from apps.kernel.db import transactions
from apps.kernel.outbox import delivery
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from apps.kernel.outbox.tasks import deliver
from apps.kernel.outbox.topic_groups import TopicGroup
from apps.kernel.scheduler import tasks as scheduler_tasks
from apps.orders import topics
from apps.orders.models import Order
from tests.support.batches import wait_until
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.charge_lists import HeldCalls
from tests.support.orders.sale import place_order
from ticketing import outbox_handlers

pytestmark = pytest.mark.django_db(transaction=True)
QUEUE = "celery:celery"


@pytest.fixture(autouse=True)
def _rested_broker() -> Iterator[None]:
    outbox_handlers._broker["rests_until"] = 0.0
    yield
    outbox_handlers._broker["rests_until"] = 0.0


@pytest.fixture
def no_broker(monkeypatch) -> list[str]:
    """Configure an unreachable broker; return a list of the connection attempts."""
    tried: list[str] = []

    def connect() -> Connection:
        tried.append("connect")
        return outbox_handlers.app.connection_for_write("redis://127.0.0.1:1/0", transport_options={"max_retries": 0})

    monkeypatch.setattr(outbox_handlers, "_broker_connection", connect)
    return tried


def aged(seconds: float) -> None:
    OutboxMessage.objects.update(available_at=clock.now() - timedelta(seconds=seconds))


def wait_for_delivery_here() -> None:
    assert delivery.get_delivery().wait(20)


def test_a_commit_wakes_a_worker_and_a_rollback_does_not(redis_client) -> None:
    with transactions.write():
        outbox.publish("orders.charge", "key", {"payment": "none"})
        transaction.set_rollback(True)
    assert redis_client.llen(QUEUE) == 0
    place_order(hold(make_event(), seats=["hall-A-1"]))
    # Group commit answers first, and then notifies.
    wait_until(lambda: redis_client.llen(QUEUE) == 1, "a worker is notified")


def test_the_wake_up_has_no_payload_and_its_task_delivers_due_messages() -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    deliver.apply()
    wait_for_delivery_here()
    order.refresh_from_db()
    assert order.status == Order.Status.CONFIRMED
    assert_audit_clean()


def test_a_process_of_a_worker_delivers_what_it_writes_unless_its_threads_are_occupied(monkeypatch) -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    others_woken: list[str] = []
    monkeypatch.setattr(outbox_handlers, "wake_worker", lambda: others_woken.append("once") or True)
    here = delivery.get_delivery()
    monkeypatch.setattr(here, "_alone_count", settings.OUTBOX_DELIVERERS)
    assert outbox_handlers.wake_this_worker()
    assert others_woken == ["once"]
    monkeypatch.setattr(here, "_alone_count", 0)
    assert outbox_handlers.wake_this_worker()
    wait_for_delivery_here()
    assert others_woken == ["once"]
    order.refresh_from_db()
    assert order.status == Order.Status.CONFIRMED


def test_without_a_broker_the_sale_continues_and_the_broker_is_not_called_for_a_while(no_broker, caplog) -> None:
    event = make_event()
    for seat in ("hall-A-1", "hall-A-2", "hall-A-3"):
        place_order(hold(event, seats=[seat]))
    assert no_broker == ["connect"]
    assert caplog.text.count("the broker is unavailable") == 1
    aged(outbox_handlers.WAKE_AGAIN_AFTER_SECONDS)
    outbox_handlers.deliver_waiting()
    wait_for_delivery_here()
    assert {order.status for order in Order.objects.all()} == {Order.Status.CONFIRMED}
    assert_audit_clean()


def test_a_message_to_executors_of_scheduled_tasks_names_no_run_and_expires(redis_client) -> None:
    assert outbox_handlers.wake_executors(2)
    messages = [json.loads(message)["headers"] for message in redis_client.lrange("celery:scheduler", 0, -1)]
    assert [message["argsrepr"] for message in messages] == ["()", "()"]
    for message in messages:
        left = datetime.fromisoformat(message["expires"]) - datetime.now(UTC)
        assert left <= timedelta(seconds=scheduler_tasks.EXPIRES_SECONDS)
    assert scheduler_tasks.execute.apply().get() == 0


def test_without_a_broker_no_executor_is_woken(no_broker) -> None:
    assert not outbox_handlers.wake_executors(2)
    assert no_broker == ["connect"]


def test_a_message_that_waited_briefly_gets_another_wake_up(redis_client) -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    redis_client.delete(QUEUE)
    outbox_handlers.deliver_waiting()
    assert redis_client.llen(QUEUE) == 0
    aged(outbox_handlers.WAKE_AGAIN_AFTER_SECONDS + 0.5)
    outbox_handlers.deliver_waiting()
    wait_for_delivery_here()
    assert redis_client.llen(QUEUE) == 1
    order.refresh_from_db()
    assert order.status == Order.Status.PLACED


def test_a_message_that_workers_ignore_is_delivered_by_the_maintenance_loop(redis_client) -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    aged(outbox_handlers.DELIVER_HERE_AFTER_SECONDS)
    outbox_handlers.deliver_waiting()
    wait_for_delivery_here()
    order.refresh_from_db()
    assert order.status == Order.Status.CONFIRMED


def test_a_killed_workers_message_is_delivered_by_the_maintenance_loop(redis_client) -> None:
    """A worker claims the charge and is killed; the broker loses every wake-up; the claim expires."""
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    assert len(outbox.claim(1)) == 1
    redis_client.flushall()
    aged(60)
    outbox_handlers.deliver_waiting()
    wait_for_delivery_here()
    order.refresh_from_db()
    assert order.status == Order.Status.PLACED, "the worker may still be alive"
    OutboxMessage.objects.update(
        claimed_until=clock.now() - timedelta(seconds=outbox_handlers.DELIVER_HERE_AFTER_SECONDS)
    )
    outbox_handlers.deliver_waiting()
    wait_for_delivery_here()
    order.refresh_from_db()
    assert order.status == Order.Status.CONFIRMED
    assert_audit_clean()


def test_in_the_maintenance_loop_one_stuck_charge_delays_no_other(no_broker, monkeypatch) -> None:
    """The provider does not respond for A; B and C come later and get their tickets while A still waits."""
    event = make_event()
    first, *others = (place_order(hold(event, seats=[f"hall-A-{seat}"])) for seat in (1, 2, 3))
    calls = HeldCalls(monkeypatch, first)
    aged(outbox_handlers.DELIVER_HERE_AFTER_SECONDS)
    outbox_handlers.deliver_waiting()
    of_others = Order.objects.filter(pk__in=[order.pk for order in others])
    wait_until(
        lambda: {order.status for order in of_others.all()} == {Order.Status.CONFIRMED}, "the others are confirmed"
    )
    first.refresh_from_db()
    assert first.status == Order.Status.PAYING
    calls.answer(first)
    wait_for_delivery_here()
    assert {order.status for order in Order.objects.all()} == {Order.Status.CONFIRMED}
    assert_audit_clean()


def test_the_maintenance_loop_runs_the_jobs_of_a_sale() -> None:
    assert {"deliver outbox", "fail lapsed orders"} <= set(maintenance.jobs())


def test_every_topic_of_a_sale_has_a_handler() -> None:
    named = {value for name, value in vars(topics).items() if name.isupper() and isinstance(value, str)}
    assert all(map(outbox.has_handler, named))


def test_mails_of_all_apps_have_a_lane_of_their_own() -> None:
    assert {outbox._topics[topic].group for topic in outbox._topics if ".send_" in topic} == {TopicGroup.MAIL}
    of_sale = (topics.CHARGE, topics.ASK, topics.REFUND, topics.PROVIDER_MESSAGE, topics.INVOICE)
    assert {outbox._topics[topic].group for topic in of_sale} == {TopicGroup.SALES}
