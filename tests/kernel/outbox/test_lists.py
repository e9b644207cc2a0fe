"""Lists: the new messages of a topic are handled together, and each that cannot be is handled alone."""

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import chain
from typing import Any

import pytest
from django.db import DatabaseError, InterfaceError, OperationalError, connection, transaction
from django.db.models import F

from apps.kernel.db import roundtrip
from apps.kernel.outbox import delivery as delivery_module
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.delivery import Delivery
from apps.kernel.outbox.facade import Message
from apps.kernel.outbox.models import OutboxMessage
from tests.support.batches import wait_until
from tests.support.databases import lose_the_database
from tests.support.races import in_another_connection, statements

pytestmark = pytest.mark.django_db(transaction=True)
SECONDS_MAX = 20.0


class Handlers:
    """Records the messages of the topic `test` as they were handled: lists of numbers, and single numbers."""

    def __init__(self) -> None:
        self.lists: list[list[int]] = []
        self.alone: list[int] = []
        self.left: set[int] = set()
        """Numbers that the list handler leaves."""
        self.refused: set[int] = set()
        """Numbers at which the list handler fails."""
        self.failing: set[int] = set()
        """Numbers at which the handler of single messages fails."""

    def handle_list(self, messages: Sequence[Message]) -> set[int]:
        numbers = [message.body["number"] for message in messages]
        if self.refused & set(numbers):
            raise LookupError("the list is on fire")
        self.lists.append(numbers)
        return {message.id for message in messages if message.body["number"] in self.left}

    def handle(self, message: Message) -> None:
        number = message.body["number"]
        self.alone.append(number)
        if number in self.failing:
            raise LookupError("the printer is on fire")


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> Handlers:
    monkeypatch.setattr(outbox, "_topics", {})
    monkeypatch.setattr(outbox, "_wake", [])
    handlers = Handlers()
    outbox.register_handler("test", handlers.handle, list_handler=handlers.handle_list)
    return handlers


def publish(*numbers: int, topic: str = "test", key: str = "") -> None:
    with transaction.atomic():
        for number in numbers:
            outbox.publish(topic, key or f"key-{number}", {"number": number})


def claim_list() -> list[Message]:
    messages = outbox.claim(0, busy_lists=())
    assert all(outbox.is_listed(message) for message in messages)
    return messages


def unsettled() -> list[int]:
    return [row.body["number"] for row in OutboxMessage.objects.filter(done_at=None).order_by("pk")]


def deliver_all() -> None:
    delivery = Delivery(2)
    try:
        delivery.wake()
        assert delivery.wait(SECONDS_MAX)
    finally:
        assert delivery.close(SECONDS_MAX)


def deliver_until_settled() -> None:
    delivery = Delivery(2)
    try:
        delivery.wake()
        wait_until(lambda: unsettled() == [], "all messages are settled")
    finally:
        assert delivery.close(SECONDS_MAX)


def test_new_messages_are_handled_together_and_settled_in_one_transaction(handlers: Handlers) -> None:
    publish(*range(20))
    messages = claim_list()
    with statements() as sent:
        outbox.hand_over_list(messages)
    assert handlers.lists == [list(range(20))]
    assert (handlers.alone, unsettled()) == ([], [])
    assert sent.count("settle_messages") == 1


def test_two_messages_of_a_key_are_in_two_lists_in_their_order(handlers: Handlers) -> None:
    publish(1, 2, key="a")
    publish(3)
    deliver_all()
    assert [sorted(one) for one in handlers.lists] == [[1, 3], [2]]
    assert (handlers.alone, unsettled()) == ([], [])


def test_a_message_that_the_list_leaves_is_handled_alone(handlers: Handlers) -> None:
    handlers.left = {2}
    publish(1, 2, 3)
    outbox.hand_over_list(claim_list())
    assert unsettled() == [2]
    assert claim_list() == [], "it has been in a list once"
    deliver_all()
    assert (handlers.lists, handlers.alone, unsettled()) == ([[1, 2, 3]], [2], [])


def test_when_a_list_fails_each_message_is_handled_alone_and_the_culprit_retried(handlers: Handlers) -> None:
    handlers.refused = handlers.failing = {2}
    publish(1, 2, 3)
    deliver_all()
    assert sorted(handlers.alone) == [1, 2, 3]
    assert (handlers.lists, unsettled()) == ([], [2])
    row = OutboxMessage.objects.get(done_at=None)
    assert (row.attempts, row.claimed_until) == (2, None)
    assert "the printer is on fire" in row.last_error


def test_messages_whose_worker_was_killed_are_handled_alone(handlers: Handlers) -> None:
    """The worker claimed a list and ended. One of its messages may be the cause."""
    publish(1, 2)
    assert len(claim_list()) == 2
    OutboxMessage.objects.update(claimed_until=F("claimed_at"))
    deliver_all()
    assert (handlers.lists, sorted(handlers.alone), unsettled()) == ([], [1, 2], [])


@pytest.mark.parametrize("is_old", [False, True])
def test_messages_of_a_list_that_lost_the_database_are_handled_together_again(handlers: Handlers, is_old: bool) -> None:
    """Otherwise all messages of all lists are handled alone after a restart of PostgreSQL, and wait for each other. Old
    messages are: one of them may be what ends the sessions."""
    lost = iter([True])

    def handle_list(messages: Sequence[Message]) -> set[int]:
        if next(lost, False):
            lose_the_database()
        return handlers.handle_list(messages)

    outbox.register_handler("test", handlers.handle, list_handler=handle_list)
    publish(1, 2, 3)
    if is_old:
        OutboxMessage.objects.update(created_at=F("created_at") - outbox.GIVE_BACK_AGE_MAX)
    deliver_until_settled()
    assert (handlers.lists, sorted(handlers.alone)) == (([], [1, 2, 3]) if is_old else ([[1, 2, 3]], []))


@pytest.mark.parametrize("fault", [OperationalError("too many clients"), InterfaceError("closed")])
def test_messages_of_a_thread_that_cannot_connect_are_given_back(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    """They were claimed before the database failed. Otherwise they are hidden for their visibility timeout."""
    renew = delivery_module.pools.renew_django_connections
    faults = iter([fault])

    def renew_or_fail(**options: Any) -> None:
        if threading.current_thread().name == "outbox-delivers" and (fault := next(faults, None)):
            raise fault
        renew(**options)

    monkeypatch.setattr(delivery_module.pools, "renew_django_connections", renew_or_fail)
    publish(1, 2, 3)
    deliver_until_settled()
    assert (handlers.lists, handlers.alone) == ([[1, 2, 3]], [])


def test_a_list_settles_no_message_whose_claim_another_worker_has_taken(handlers: Handlers) -> None:
    """A: is slow with its list of 1 and 2, and the claim of 2 expires
    B: claims 2
    A: settles 1, and neither settles nor gives back 2
    """
    publish(1, 2)
    messages = claim_list()
    OutboxMessage.objects.filter(key="key-2").update(claimed_until=F("claimed_at"))
    (taken,) = in_another_connection(lambda: outbox.claim(1, busy_lists=()))
    handlers.left = {2}
    outbox.hand_over_list(messages)
    assert unsettled() == [2]
    row = OutboxMessage.objects.get(key="key-2")
    assert row.receipt == taken.receipt
    assert row.claimed_until is not None


def test_while_a_list_is_in_progress_the_topics_new_messages_wait_and_others_do_not(handlers: Handlers) -> None:
    outbox.register_handler("other", handlers.handle)
    publish(1)
    publish(2, topic="other")
    assert [message.body["number"] for message in outbox.claim(5, busy_lists={"test"})] == [2]
    assert [message.body["number"] for message in outbox.claim(5, busy_lists=())] == [1]


def test_lists_do_not_count_for_the_limit_of_a_claim(handlers: Handlers) -> None:
    outbox.register_handler("other", handlers.handle)
    publish(*range(10))
    publish(*range(10, 14), topic="other")
    claimed = outbox.claim(3, busy_lists=())
    assert len([message for message in claimed if message.topic == "test"]) == 10
    assert len([message for message in claimed if message.topic == "other"]) == 3


def test_a_list_has_a_bounded_size(handlers: Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "LIST_MAX", 4)
    publish(*range(10))
    deliver_all()
    assert [len(one) for one in handlers.lists] == [4, 4, 2]
    assert sorted(chain(*handlers.lists)) == list(range(10))


def test_one_claim_finds_a_list_and_one_follows_its_end(handlers: Handlers, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = []
    claim = outbox.claim
    monkeypatch.setattr(outbox, "claim", lambda *args, **how: claims.append(claim(*args, **how)) or claims[-1])
    publish(*range(5))
    deliver_all()
    assert [len(found) for found in claims] == [5, 0]


def test_claims_and_lists_use_prepared_statements_and_do_without_if_these_are_gone(
    handlers: Handlers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler in transaction mode, to which DATABASE_DIRECT_URL leads by mistake."""
    monkeypatch.setattr(roundtrip._Pooled, "seen", False)
    seen: list[bool] = []

    def look(messages: Sequence[Message]) -> set[int]:
        seen.append(roundtrip.is_prepared_on(connection.connection))
        return handlers.handle_list(messages)

    outbox.register_handler("test", handlers.handle, list_handler=look)
    publish(1)
    deliver_all()
    assert seen == [True]

    prepare_all = roundtrip.prepare_all

    def prepare_elsewhere(on: Any) -> None:
        prepare_all(on)
        on.execute("DEALLOCATE ALL")

    monkeypatch.setattr(roundtrip, "prepare_all", prepare_elsewhere)
    publish(2)
    delivery = Delivery(2)
    try:
        delivery.wake()
        assert delivery.wait(SECONDS_MAX)
        assert isinstance(delivery.failure, DatabaseError)
        delivery.wake()
        assert delivery.wait(SECONDS_MAX)
    finally:
        assert delivery.close(SECONDS_MAX)
    assert seen == [True, False]
    assert (handlers.lists, unsettled()) == ([[1], [2]], [])


def test_without_lists_a_message_is_first_given_to_the_list_handler_alone(handlers: Handlers) -> None:
    handlers.left = {2}
    publish(1, 2)
    assert outbox.deliver() == 2
    assert (handlers.lists, handlers.alone, unsettled()) == ([[1], [2]], [2], [])


def test_two_deliveries_handle_every_message_once_and_each_key_in_order(handlers: Handlers) -> None:
    with transaction.atomic():
        for number in range(80):
            outbox.publish("test", f"key-{number % 9}", {"number": number})
    both = [Delivery(3), Delivery(3)]
    try:
        for delivery in both:
            delivery.wake()
        while unsettled():
            for delivery in both:
                delivery.wake()
                assert delivery.wait(SECONDS_MAX)
    finally:
        for delivery in both:
            assert delivery.close(SECONDS_MAX)
    seen = [*chain(*handlers.lists), *handlers.alone]
    assert sorted(seen) == list(range(80))


def test_a_list_settled_beside_a_message_put_aside_frees_it(handlers: Handlers) -> None:
    """1 is claimed; 2 of the same key is put aside; settling the list with 1 makes 2 claimable."""
    publish(1, 2, key="a")
    publish(3)
    messages = claim_list()
    assert claim_list() == []
    assert OutboxMessage.objects.filter(is_behind=True).count() == 1
    outbox.hand_over_list(messages)
    assert [message.body["number"] for message in claim_list()] == [2]


def test_a_claim_that_finds_nothing_puts_messages_aside_only_if_some_are_due(handlers: Handlers) -> None:
    publish(1)
    publish(2, 3, key="a")
    with statements() as sent:
        assert len(claim_list()) == 2
        assert claim_list() == []
        assert claim_list() == [], "3 was put aside"
    assert sent == ["claim_messages", *["claim_messages", "set_behind", "claim_messages"], "claim_messages"]


def test_messages_due_later_are_in_no_list(handlers: Handlers) -> None:
    with transaction.atomic():
        outbox.publish("test", "later", {"number": 1}, delay=timedelta(hours=1))
    assert claim_list() == []


def test_a_topic_has_either_a_list_handler_or_a_limit_of_messages_at_once() -> None:
    act: Callable[..., Any] = lambda *_: ()  # noqa: E731
    with pytest.raises(AssertionError):
        outbox.register_handler("both", act, together_max=2, list_handler=act)
