"""Messages of one topic are claimed from the partitions of their origins in turn."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import transaction

from apps.kernel import clock
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.facade import Message
from apps.kernel.outbox.models import OutboxMessage
from apps.kernel.outbox.partitions import PARTITIONS, partition_of

pytestmark = pytest.mark.django_db(transaction=True)
MANY = 2 * outbox.WINDOW_MAX


@pytest.fixture(autouse=True)
def _no_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "_topics", {})
    monkeypatch.setattr(outbox, "_wake", [])
    outbox.register_handler("test", print)


def publish(origin: str, count: int = 1, *, topic: str = "test", key: Callable[[int], str] = str) -> None:
    """Write messages that became due in the order of these calls."""
    with transaction.atomic():
        outbox.publish_all(
            [outbox.NewMessage(topic, key(number), {outbox.ORIGIN_FIELD: origin}) for number in range(count)]
        )


def origins(messages: list[Message]) -> list[str]:
    return [message.body[outbox.ORIGIN_FIELD] for message in messages]


def test_a_message_waits_for_one_of_another_origin_however_many_are_due() -> None:
    publish("many", MANY)
    publish("one", key=lambda _: "one")
    assert sorted(origins(outbox.claim(2))) == ["many", "one"]
    publish("one", key=lambda _: "two")
    # Drawn by lot: not among so many with a probability of 2 to the power of -60.
    assert "one" in (origins(outbox.claim(1))[0] for _ in range(60))


def test_a_claim_takes_as_many_as_possible_of_all_partitions_and_at_most_what_the_topic_allows() -> None:
    publish("a", 4)
    publish("b", 2, key=lambda number: f"b{number}")
    publish("c", 1, key=lambda number: f"c{number}")
    outbox.register_handler("test", print, together_max=5)
    assert Counter(origins(outbox.claim(16))) == {"a": 2, "b": 2, "c": 1}
    assert origins(outbox.claim(16, {"test": 4})) == ["a"]
    assert outbox.claim(16, {"test": 5}) == []
    outbox.register_handler("test", print)
    assert origins(outbox.claim(16)) == ["a"]


def test_without_a_backlog_messages_of_all_partitions_are_claimed_in_the_order_of_due_times() -> None:
    for number in range(12):
        publish(f"origin {number}", key=lambda _, number=number: str(number))
    assert [outbox.claim(1)[0].key for _ in range(12)] == [str(number) for number in range(12)]


def test_a_topic_of_one_message_at_once_takes_no_origin_twice_while_others_wait_for_long() -> None:
    outbox.register_handler("test", print, together_max=1)
    publish("many", MANY)
    publish("one", key=lambda _: "one")
    assert "one" in (origins(outbox.claim(1))[0] for _ in range(60))


def test_messages_of_one_key_stay_in_order_across_partitions() -> None:
    for origin in ("first", "second", "third"):
        publish(origin)
    for expected in ("first", "second", "third"):
        (message,) = outbox.claim(16)
        assert origins([message]) == [expected]
        assert outbox.claim(16) == []
        outbox.hand_over(message)


def test_messages_without_an_origin_are_claimed_in_the_order_of_their_topics_due_times() -> None:
    for number in range(4):
        with transaction.atomic():
            outbox.publish(f"topic {number % 2}", str(number), {})
    assert [message.key for message in outbox.claim(3)] == ["0", "1", "2"]


def test_the_oldest_due_message_is_found_in_any_partition() -> None:
    publish("new")
    publish("old", key=lambda _: "old")
    OutboxMessage.objects.filter(key="old").update(available_at=clock.now() - timedelta(hours=1))
    assert 3_600 <= (outbox.oldest_due_seconds() or 0) < 4_000


def test_the_parts_of_a_group_share_a_partition() -> None:
    partitions = {partition_of({"origin": f"organizer {number}/event 1"}) for number in range(1_000)}
    assert partitions == set(range(PARTITIONS))
    assert partition_of({"origin": "organizer 1/event 1"}) == partition_of({"origin": "organizer 1/event 2"})
    assert partition_of({}) == partition_of({"origin": ""}) == 0
