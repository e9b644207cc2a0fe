"""Concurrent deliveries: a stuck one delays no other, each key keeps its order, and closing leaves nothing half
done."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import DatabaseError, transaction

from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.delivery import Delivery
from apps.kernel.outbox.facade import Message
from apps.kernel.outbox.models import OutboxMessage

pytestmark = pytest.mark.django_db(transaction=True)
SECONDS_MAX = 20


class Deliveries:
    """A handler that records finished messages and blocks on each message of the key `stuck` until `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.is_stuck = threading.Event()
        self.ended: list[tuple[str, int]] = []
        self._changed = threading.Condition()

    def handle(self, message: Message) -> None:
        if message.key == "stuck":
            self.is_stuck.set()
            assert self.go_on.wait(SECONDS_MAX)
        with self._changed:
            self.ended.append((message.key, message.body["number"]))
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.ended) >= count, SECONDS_MAX), self.ended


@pytest.fixture
def deliveries(monkeypatch: pytest.MonkeyPatch) -> Deliveries:
    monkeypatch.setattr(outbox, "_topics", {})
    monkeypatch.setattr(outbox, "_wake", [])
    handler = Deliveries()
    outbox.register_handler("test", handler.handle)
    return handler


@pytest.fixture
def make_delivery() -> Iterator[Callable[[int], Delivery]]:
    begun: list[Delivery] = []

    def begin(size: int) -> Delivery:
        begun.append(Delivery(size))
        return begun[-1]

    yield begin
    for delivery in begun:
        assert delivery.close(SECONDS_MAX)


def publish(*messages: tuple[str, int]) -> None:
    with transaction.atomic():
        for key, number in messages:
            outbox.publish("test", key, {"number": number})


def left() -> list[str]:
    return sorted(OutboxMessage.objects.filter(done_at__isnull=True).values_list("key", flat=True))


def test_a_stuck_message_delays_no_other(deliveries: Deliveries, make_delivery: Any) -> None:
    """A: its provider does not answer
    B … K: were published after it and are delivered meanwhile
    """
    publish(("stuck", 0), *((f"key-{number}", number) for number in range(10)))
    delivery = make_delivery(2)
    delivery.wake()
    deliveries.wait_for(10)
    assert deliveries.is_stuck.is_set()
    assert ("stuck", 0) not in deliveries.ended
    deliveries.go_on.set()
    assert delivery.wait(SECONDS_MAX)
    assert left() == []


def test_control_with_one_deliverer_all_messages_wait_for_the_stuck_one(
    deliveries: Deliveries, make_delivery: Any
) -> None:
    publish(("stuck", 0), *((f"key-{number}", number) for number in range(10)))
    delivery = make_delivery(1)
    delivery.wake()
    assert deliveries.is_stuck.wait(SECONDS_MAX)
    assert (deliveries.ended, len(left())) == ([], 11)
    deliveries.go_on.set()
    assert delivery.wait(SECONDS_MAX)
    assert len(deliveries.ended) == 11


def test_the_next_message_of_a_stuck_key_waits_for_the_first_and_then_follows(
    deliveries: Deliveries, make_delivery: Any
) -> None:
    publish(("stuck", 1), ("stuck", 2), ("free", 3), ("stuck", 4))
    delivery = make_delivery(4)
    delivery.wake()
    deliveries.wait_for(1)
    assert deliveries.ended == [("free", 3)]
    deliveries.go_on.set()
    deliveries.wait_for(4)
    assert deliveries.ended == [("free", 3), ("stuck", 1), ("stuck", 2), ("stuck", 4)]


def test_a_delivery_with_one_thread_starts_messages_in_the_order_of_publication(
    deliveries: Deliveries, make_delivery: Any
) -> None:
    publish(*((f"key-{number}", number) for number in range(8)))
    delivery = make_delivery(1)
    delivery.wake()
    assert delivery.wait(SECONDS_MAX)
    assert [number for _, number in deliveries.ended] == list(range(8))


def test_two_deliveries_deliver_every_message_once_and_each_key_in_order(
    deliveries: Deliveries, make_delivery: Any
) -> None:
    publish(*((f"key-{number % 7}", number) for number in range(60)))
    both = [make_delivery(4), make_delivery(4)]
    for delivery in both:
        delivery.wake()
    deliveries.wait_for(60)
    for delivery in both:
        assert delivery.wait(SECONDS_MAX)
    assert sorted(number for _, number in deliveries.ended) == list(range(60))
    for key in range(7):
        own = [number for name, number in deliveries.ended if name == f"key-{key}"]
        assert own == sorted(own)
    assert left() == []


def test_after_a_database_error_the_next_wake_up_delivers(
    deliveries: Deliveries, make_delivery: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, failing = outbox.claim, [True]

    def fail_once(*args: Any) -> list[Message]:
        if failing:
            failing.clear()
            raise DatabaseError("the database is away")
        return claim(*args)

    monkeypatch.setattr(outbox, "claim", fail_once)
    publish(("a", 1))
    delivery = make_delivery(2)
    delivery.wake()
    assert delivery.wait(SECONDS_MAX)
    assert left() == ["a"]
    delivery.wake()
    assert delivery.wait(SECONDS_MAX)
    assert left() == []


def test_a_slow_topic_leaves_the_other_deliverers_free(deliveries: Deliveries, make_delivery: Any) -> None:
    """Two of three deliverers would wait on messages of the slow topic; it may use only one."""
    stuck, is_released, held = threading.Semaphore(0), threading.Event(), []

    def hold(message: Message) -> None:
        held.append(message.key)
        stuck.release()
        assert is_released.wait(SECONDS_MAX)

    outbox.register_handler("slow", hold, together_max=1)
    with transaction.atomic():
        for number in range(5):
            outbox.publish("slow", f"slow-{number}", {})
    delivery = make_delivery(3)
    delivery.wake()
    assert stuck.acquire(timeout=SECONDS_MAX)
    publish(*((f"key-{number}", number) for number in range(6)))
    delivery.wake()
    deliveries.wait_for(6)
    assert held == ["slow-0"]
    is_released.set()
    assert delivery.wait(SECONDS_MAX)
    assert held == [f"slow-{number}" for number in range(5)]


def test_a_closed_delivery_claims_nothing_more_and_finishes_messages_in_progress(
    deliveries: Deliveries, make_delivery: Any
) -> None:
    """With one deliverer: a second one might be about to claim when the delivery is closed, and that claim is its
    last."""
    publish(("stuck", 1))
    delivery = make_delivery(1)
    delivery.wake()
    assert deliveries.is_stuck.wait(SECONDS_MAX)
    assert not delivery.close(0)
    publish(("late", 2))
    delivery.wake()
    deliveries.go_on.set()
    assert delivery.close(SECONDS_MAX)
    assert left() == ["late"]
