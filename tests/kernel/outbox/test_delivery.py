"""Concurrent deliveries: a stuck one delays no other, each key keeps its order, and closing leaves nothing half
done."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import DatabaseError, OperationalError, close_old_connections, transaction

from apps.kernel import clock
from apps.kernel.outbox import delivery as delivery_module
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox import tasks
from apps.kernel.outbox.delivery import Delivery
from apps.kernel.outbox.facade import Message
from apps.kernel.outbox.models import OutboxMessage
from tests.support.batches import wait_until
from tests.support.databases import lose_the_database

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


def test_a_process_that_waits_for_a_stuck_message_delivers_new_ones_without_a_wake_up(
    deliveries: Deliveries, make_delivery: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wake-up of the new one waits for a process of the worker."""
    delivery = make_delivery(2)
    monkeypatch.setattr(delivery_module, "get_delivery", lambda: delivery)
    monkeypatch.setattr(tasks, "PATIENCE_SECONDS", float(SECONDS_MAX))
    monkeypatch.setattr(tasks, "AGAIN_SECONDS", 0.05)
    publish(("stuck", 1))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(tasks.deliver)
        assert deliveries.is_stuck.wait(SECONDS_MAX)
        publish(("later", 2))
        deliveries.wait_for(1)
        deliveries.go_on.set()
        assert waiting.result(SECONDS_MAX)
    assert deliveries.ended == [("later", 2), ("stuck", 1)]


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


@pytest.fixture
def _own_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_topics", {})
    monkeypatch.setattr(outbox, "_wake", [])


def next_attempt_in(key: str) -> float:
    """Return the seconds until the message may be claimed again; below zero: it may be claimed now."""
    message = OutboxMessage.objects.get(key=key)
    return (max(message.available_at, message.claimed_until or message.available_at) - clock.now()).total_seconds()


@pytest.mark.usefixtures("_own_topics")
def test_a_handler_that_loses_the_database_is_tried_again_after_its_backoff(make_delivery: Any) -> None:
    """Neither the handler's work nor its failure can be written. Once the database is back, the claim ends: the message
    waits for its backoff of two seconds and not for the claim's ten minutes."""
    handled: list[int] = []

    def handle(message: Message) -> None:
        handled.append(message.attempts)
        if message.attempts == 1:
            lose_the_database()

    outbox.register_handler("test", handle)
    publish(("a", 1))
    delivery = make_delivery(1)
    delivery.wake()
    wait_until(lambda: OutboxMessage.objects.filter(claimed_until=None, attempts=1).exists(), "the claim has ended")
    assert 0 < next_attempt_in("a") <= 2
    OutboxMessage.objects.update(available_at=clock.now())
    delivery.wake()
    wait_until(lambda: left() == [], "the message is delivered")
    assert handled == [1, 2]


@pytest.mark.usefixtures("_own_topics")
def test_control_a_claim_that_is_not_ended_hides_its_message_until_it_expires() -> None:
    outbox.register_handler("test", lambda message: lose_the_database())
    publish(("a", 1))
    (message,) = outbox.claim(1)
    with pytest.raises(outbox.ClaimNotEnded) as claim:
        outbox.hand_over(message)
    close_old_connections()
    assert next_attempt_in("a") > outbox.VISIBILITY.total_seconds() - SECONDS_MAX
    assert outbox.claim(1) == []
    claim.value.end()
    assert next_attempt_in("a") <= 2


@pytest.mark.usefixtures("_own_topics")
def test_a_handler_that_is_done_when_the_database_is_lost_does_not_run_again(
    make_delivery: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its claim cannot be settled three times in a row; then it is settled."""
    monkeypatch.setattr(delivery_module, "END_AGAIN_SECONDS", 0.01)
    handled: list[str] = []
    outbox.register_handler("test", lambda message: handled.append(message.key))
    failures = iter(range(3))
    settle = outbox._end_claim

    def fails_thrice(*args: Any, **params: Any) -> Any:
        if next(failures, None) is not None:
            raise OperationalError("the database is away")
        return settle(*args, **params)

    monkeypatch.setattr(outbox, "_end_claim", fails_thrice)
    publish(("a", 1))
    make_delivery(1).wake()
    wait_until(lambda: left() == [], "the message is settled")
    assert handled == ["a"]


@pytest.mark.usefixtures("_own_topics")
def test_a_kept_claim_that_another_worker_has_taken_since_is_left_to_it() -> None:
    outbox.register_handler("test", lambda message: lose_the_database())
    publish(("a", 1))
    (message,) = outbox.claim(1)
    with pytest.raises(outbox.ClaimNotEnded) as claim:
        outbox.hand_over(message)
    close_old_connections()
    OutboxMessage.objects.update(claimed_until=clock.now())
    (taken,) = outbox.claim(1)
    claim.value.end()
    assert OutboxMessage.objects.get().receipt == taken.receipt


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

    def fail_once(*args: Any, **options: Any) -> list[Message]:
        if failing:
            failing.clear()
            raise DatabaseError("the database is away")
        return claim(*args, **options)

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
