"""Many deliveries at once: one that is stuck delays nobody, one key keeps its order, and an end leaves nothing half."""

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
    """A handler that notes what has ended, and stays with each message of the key `stuck` until it is let go."""

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
def crews() -> Iterator[Callable[[int], Delivery]]:
    begun: list[Delivery] = []

    def begin(size: int) -> Delivery:
        begun.append(Delivery(size))
        return begun[-1]

    yield begin
    for crew in begun:
        assert crew.close(SECONDS_MAX)


def publish(*messages: tuple[str, int]) -> None:
    with transaction.atomic():
        for key, number in messages:
            outbox.publish("test", key, {"number": number})


def left() -> list[str]:
    return sorted(OutboxMessage.objects.filter(done_at__isnull=True).values_list("key", flat=True))


def test_one_that_is_stuck_delays_nobody(deliveries: Deliveries, crews: Any) -> None:
    """A: its provider does not answer
    B … K: came after it, and are delivered meanwhile
    """
    publish(("stuck", 0), *((f"key-{number}", number) for number in range(10)))
    crew = crews(2)
    crew.wake()
    deliveries.wait_for(10)
    assert deliveries.is_stuck.is_set()
    assert ("stuck", 0) not in deliveries.ended
    deliveries.go_on.set()
    assert crew.wait(SECONDS_MAX)
    assert left() == []


def test_control_with_one_deliverer_everybody_waits_for_the_stuck_one(deliveries: Deliveries, crews: Any) -> None:
    publish(("stuck", 0), *((f"key-{number}", number) for number in range(10)))
    crew = crews(1)
    crew.wake()
    assert deliveries.is_stuck.wait(SECONDS_MAX)
    assert (deliveries.ended, len(left())) == ([], 11)
    deliveries.go_on.set()
    assert crew.wait(SECONDS_MAX)
    assert len(deliveries.ended) == 11


def test_the_next_of_a_stuck_one_s_key_waits_for_it_and_then_comes_by_itself(
    deliveries: Deliveries, crews: Any
) -> None:
    publish(("stuck", 1), ("stuck", 2), ("free", 3), ("stuck", 4))
    crew = crews(4)
    crew.wake()
    deliveries.wait_for(1)
    assert deliveries.ended == [("free", 3)]
    deliveries.go_on.set()
    deliveries.wait_for(4)
    assert deliveries.ended == [("free", 3), ("stuck", 1), ("stuck", 2), ("stuck", 4)]


def test_a_crew_of_one_starts_messages_in_the_order_they_came(deliveries: Deliveries, crews: Any) -> None:
    publish(*((f"key-{number}", number) for number in range(8)))
    crew = crews(1)
    crew.wake()
    assert crew.wait(SECONDS_MAX)
    assert [number for _, number in deliveries.ended] == list(range(8))


def test_two_crews_deliver_every_message_once_and_each_key_in_order(deliveries: Deliveries, crews: Any) -> None:
    publish(*((f"key-{number % 7}", number) for number in range(60)))
    both = [crews(4), crews(4)]
    for crew in both:
        crew.wake()
    deliveries.wait_for(60)
    for crew in both:
        assert crew.wait(SECONDS_MAX)
    assert sorted(number for _, number in deliveries.ended) == list(range(60))
    for key in range(7):
        own = [number for name, number in deliveries.ended if name == f"key-{key}"]
        assert own == sorted(own)
    assert left() == []


def test_a_ledger_that_fails_once_ends_nothing_and_the_next_wake_up_delivers(
    deliveries: Deliveries, crews: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, failing = outbox.claim, [True]

    def fail_once(*asked: Any) -> list[Message]:
        if failing:
            failing.clear()
            raise DatabaseError("the ledger is away")
        return claim(*asked)

    monkeypatch.setattr(outbox, "claim", fail_once)
    publish(("a", 1))
    crew = crews(2)
    crew.wake()
    assert crew.wait(SECONDS_MAX)
    assert left() == ["a"]
    crew.wake()
    assert crew.wait(SECONDS_MAX)
    assert left() == []


def test_a_topic_that_may_be_slow_leaves_the_other_deliverers_to_the_rest(deliveries: Deliveries, crews: Any) -> None:
    """Two of three deliverers would wait for the slow topic's messages; it may have one."""
    stuck, is_let_go, held = threading.Semaphore(0), threading.Event(), []

    def hold(message: Message) -> None:
        held.append(message.key)
        stuck.release()
        assert is_let_go.wait(SECONDS_MAX)

    outbox.register_handler("slow", hold, together_max=1)
    with transaction.atomic():
        for number in range(5):
            outbox.publish("slow", f"slow-{number}", {})
    crew = crews(3)
    crew.wake()
    assert stuck.acquire(timeout=SECONDS_MAX)
    publish(*((f"key-{number}", number) for number in range(6)))
    crew.wake()
    deliveries.wait_for(6)
    assert held == ["slow-0"]
    is_let_go.set()
    assert crew.wait(SECONDS_MAX)
    assert held == [f"slow-{number}" for number in range(5)]


def test_who_ends_claims_nothing_more_and_lets_what_is_under_way_end(deliveries: Deliveries, crews: Any) -> None:
    """One deliverer: another might be on its way to a claim when it is told to end, and that claim is its last."""
    publish(("stuck", 1))
    crew = crews(1)
    crew.wake()
    assert deliveries.is_stuck.wait(SECONDS_MAX)
    assert not crew.close(0)
    publish(("late", 2))
    crew.wake()
    deliveries.go_on.set()
    assert crew.close(SECONDS_MAX)
    assert left() == ["late"]
