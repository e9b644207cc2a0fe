"""Messages: written with the change or not at all, delivered at least once, one key in order, never by two at once."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox import outbox_metrics
from apps.kernel.outbox.facade import Message
from apps.kernel.outbox.models import OutboxMessage
from tests.support.races import in_another_connection, rival_at, rival_waiting_at, storm, values

pytestmark = pytest.mark.django_db(transaction=True)

Handled = Callable[[Callable[[Message], None] | None], list[Message]]


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> Handled:
    """Handles the topic `test` from now on, by noting each message and calling `act`, if one is given, with it."""
    monkeypatch.setattr(outbox, "_topics", {})
    monkeypatch.setattr(outbox, "_wake", [])

    def handle(act: Callable[[Message], None] | None = None, **options: Any) -> list[Message]:
        seen: list[Message] = []

        def handler(message: Message) -> None:
            seen.append(message)
            if act is not None:
                act(message)

        outbox.register_handler("test", handler, **options)
        return seen

    return handle


def publish(key: str = "a", **body: Any) -> None:
    with transaction.atomic():
        outbox.publish("test", key, body)


def make_due() -> None:
    """What waits for its next attempt, or is somebody's, is due and nobody's now."""
    OutboxMessage.objects.update(available_at=clock.now() - timedelta(seconds=1), claimed_until=None)


def fail(message: Message) -> None:
    raise LookupError("the printer is on fire")


def test_a_message_exists_if_and_only_if_its_change_is_committed(handled: Handled) -> None:
    seen = handled(None)
    with transaction.atomic():
        outbox.publish("test", "a", {"change": "undone"})
        transaction.set_rollback(True)
    assert outbox.deliver() == 0
    with transaction.atomic():
        outbox.publish("test", "a", {"change": "kept"})
        assert in_another_connection(outbox.deliver) == 0
    assert outbox.deliver() == 1
    assert [message.body for message in seen] == [{"change": "kept"}]
    assert outbox.deliver() == 0


def test_publishing_outside_a_transaction_is_a_fault_of_the_code() -> None:
    with pytest.raises(transactions.OutsideTransaction):
        outbox.publish("test", "a", {})


def test_whoever_delivers_is_woken_after_the_commit_and_a_wake_up_that_fails_loses_nothing(handled: Handled) -> None:
    handled(None)
    woken: list[bool] = []

    def wake() -> None:
        woken.append(transaction.get_connection().in_atomic_block)
        raise ConnectionError("no broker")

    outbox.register_wake(wake)
    publish()
    assert woken == [False]
    assert outbox.deliver() == 1


def test_a_handler_runs_with_no_transaction_and_no_lock_open(handled: Handled) -> None:
    def look(message: Message) -> None:
        assert not transaction.get_connection().in_atomic_block
        # Another connection can lock the message's row at once.
        in_another_connection(lambda: OutboxMessage.objects.filter(pk=message.id).update(last_error=""))

    handled(look)
    publish()
    assert outbox.deliver() == 1
    assert OutboxMessage.objects.get().done_at is not None


def test_a_message_that_fails_is_tried_again_later_and_later_and_then_put_aside(handled: Handled) -> None:
    seen = handled(fail)
    publish()
    for attempt in range(1, outbox.ATTEMPTS_MAX + 1):
        wait = timedelta(seconds=min(2**attempt, outbox.BACKOFF_SECONDS_MAX))
        before = clock.now()
        assert outbox.deliver() == 1
        assert before + wait <= OutboxMessage.objects.get().available_at <= clock.now() + wait
        assert outbox.deliver() == 0
        make_due()
    assert [message.attempts for message in seen] == list(range(1, outbox.ATTEMPTS_MAX + 1))
    dead = OutboxMessage.objects.get()
    assert dead.dead_at is not None
    assert dead.last_error == "LookupError: the printer is on fire"


def test_a_topic_says_how_often_and_after_what_waits_its_messages_are_tried(handled: Handled) -> None:
    handled(fail, attempts_max=2, backoff=lambda attempts: timedelta(hours=attempts))  # type: ignore[call-arg]
    publish()
    before = clock.now()
    outbox.deliver()
    waiting = OutboxMessage.objects.get()
    assert before + timedelta(hours=1) <= waiting.available_at <= clock.now() + timedelta(hours=1)
    assert waiting.dead_at is None
    make_due()
    outbox.deliver()
    assert OutboxMessage.objects.get().dead_at is not None


def test_a_wait_doubles_from_its_first_seconds_to_its_longest() -> None:
    waits = [outbox.exponential_backoff(5, 60)(attempts).total_seconds() for attempts in (1, 2, 3, 4, 5, 1_000)]
    assert waits == [5, 10, 20, 40, 60, 60]


def test_a_handler_that_says_later_has_not_failed_however_often_it_says_so(handled: Handled) -> None:
    def not_now(message: Message) -> None:
        raise outbox.RetryLater(90, "the provider rests")

    seen = handled(not_now, attempts_max=2)  # type: ignore[call-arg]
    publish()
    for _ in range(5):
        before = clock.now()
        assert outbox.deliver() == 1
        message = OutboxMessage.objects.get()
        assert before + timedelta(seconds=90) <= message.available_at <= clock.now() + timedelta(seconds=90)
        assert (message.attempts, message.dead_at, message.last_error) == (0, None, "the provider rests")
        make_due()
    assert [message.attempts for message in seen] == [1] * 5


def test_a_message_whose_workers_never_come_back_is_put_aside(handled: Handled) -> None:
    """Each attempt's worker is killed with it; the message does not go round for ever."""
    seen = handled(None, attempts_max=2)  # type: ignore[call-arg]
    publish()
    for _ in range(2):
        assert len(outbox.claim(1)) == 1
        make_due()
    assert outbox.deliver() == 1
    dead = OutboxMessage.objects.get()
    assert (dead.dead_at is not None, seen) == (True, [])
    assert dead.last_error.startswith("WorkerLost")


def test_a_claim_can_be_prolonged_by_its_holder_and_by_nobody_else(handled: Handled) -> None:
    handled(None, visibility=timedelta(minutes=1))  # type: ignore[call-arg]
    publish()
    (first,) = outbox.claim(1)
    OutboxMessage.objects.update(claimed_until=clock.now() + timedelta(seconds=5))
    assert outbox.prolong(first)
    assert OutboxMessage.objects.get().claimed_until > clock.now() + timedelta(seconds=40)  # type: ignore[operator]
    OutboxMessage.objects.update(claimed_until=clock.now())
    assert not outbox.prolong(first), "it has run out"
    (second,) = outbox.claim(1)
    assert not outbox.prolong(first), "it is another's"
    assert outbox.prolong(second)


def test_a_message_put_aside_can_be_revived_with_all_its_attempts(handled: Handled) -> None:
    handled(fail)
    publish()
    OutboxMessage.objects.update(attempts=outbox.ATTEMPTS_MAX - 1)
    outbox.deliver()
    (dead,) = OutboxMessage.objects.filter(dead_at__isnull=False)
    seen = handled(None)
    assert outbox.retry_given_up([dead.pk], clock.now()) == 1
    assert outbox.retry_given_up([dead.pk], clock.now()) == 0
    assert outbox.deliver() == 1
    assert [message.attempts for message in seen] == [1]


def test_one_message_s_failure_does_not_stop_its_neighbours(handled: Handled) -> None:
    handled(lambda message: fail(message) if message.key == "b" else None)
    for key in "abc":
        publish(key)
    assert outbox.deliver() == 3
    assert sorted(OutboxMessage.objects.filter(done_at__isnull=False).values_list("key", flat=True)) == ["a", "c"]


def test_a_topic_nobody_handles_stays_and_says_so(handled: Handled) -> None:
    with transaction.atomic():
        outbox.publish("nobody", "a", {})
    assert outbox.deliver() == 1
    message = OutboxMessage.objects.get()
    assert message.done_at is None
    assert message.last_error == "NoHandler: nobody"


def test_messages_of_one_key_are_delivered_in_order_whatever_becomes_of_the_first(handled: Handled) -> None:
    failing = [True]
    seen = handled(lambda message: fail(message) if failing[0] else None)
    publish("a", number=1)
    publish("a", number=2)
    assert outbox.deliver() == 1
    failing[0] = False
    make_due()
    assert outbox.deliver() == 2
    assert [message.body["number"] for message in seen] == [1, 1, 2]


def test_two_workers_never_have_one_message_nor_one_key_at_once(handled: Handled) -> None:
    """A: claims the first message of the key, and is at work
    B: the second of the same key is not due before the first is settled; another key's is
    """
    for key, number in (("a", 1), ("a", 2), ("b", 3)):
        publish(key, number=number)
    (first,) = outbox.claim(1)
    rest = in_another_connection(lambda: outbox.claim(10))
    assert (first.body, [message.body for message in rest]) == ({"number": 1}, [{"number": 3}])
    assert in_another_connection(lambda: outbox.claim(10)) == []


def test_two_claims_at_the_same_moment_share_the_work_and_wait_for_nobody(handled: Handled) -> None:
    """A: has its claim's row locked, not yet committed
    B: passes it over, and claims the other; COMMIT
    """
    publish("a")
    publish("b")
    with transaction.atomic():
        OutboxMessage.objects.select_for_update(no_key=True).get(key="a")
        theirs = in_another_connection(lambda: outbox.claim(10))
    assert [message.key for message in theirs] == ["b"]
    assert [message.key for message in outbox.claim(10)] == ["a"]


def test_a_storm_of_workers_hands_out_every_message_once(handled: Handled) -> None:
    seen = handled(None)
    for number in range(40):
        publish(f"key-{number % 8}", number=number)
    delivered = values(storm(6, lambda _: outbox.deliver(limit=100)))
    delivered.append(outbox.deliver(limit=100))  # Whoever found nothing due stopped; the rest is due now.
    assert sum(delivered) == 40
    assert sorted(message.body["number"] for message in seen) == list(range(40))
    for key in range(8):
        own = [message.body["number"] for message in seen if message.key == f"key-{key}"]
        assert own == sorted(own)


def test_a_claim_that_ran_out_is_another_s_and_its_first_holder_settles_nothing(handled: Handled) -> None:
    """A: claims the message, and is killed, or so slow that its time is over
    B: claims it again
    A: comes back and says done: its receipt is not the latest, nothing changes
    B: is still the one who settles
    """

    def be_overtaken(message: Message) -> None:
        OutboxMessage.objects.update(claimed_until=clock.now())
        (again,) = in_another_connection(lambda: outbox.claim(1))
        assert (again.id, again.attempts) == (message.id, 2)
        assert again.receipt != message.receipt

    handled(be_overtaken)
    publish()
    assert outbox.deliver(limit=1) == 1
    message = OutboxMessage.objects.get()
    assert message.done_at is None
    assert message.claimed_until is not None


def test_the_failure_of_a_claim_that_ran_out_puts_nothing_back(handled: Handled) -> None:
    def be_overtaken_and_fail(message: Message) -> None:
        OutboxMessage.objects.update(claimed_until=clock.now())
        in_another_connection(lambda: outbox.claim(1))
        fail(message)

    handled(be_overtaken_and_fail)
    publish()
    outbox.deliver(limit=1)
    message = OutboxMessage.objects.get()
    assert (message.last_error, message.attempts) == ("", 2)
    assert message.claimed_until is not None


def test_a_claim_lasts_as_long_as_its_topic_says(handled: Handled) -> None:
    handled(None, visibility=timedelta(seconds=45))  # type: ignore[call-arg]
    publish()
    outbox.claim(1)
    left = OutboxMessage.objects.get().claimed_until - clock.now()  # type: ignore[operator]
    assert timedelta(seconds=30) < left <= timedelta(seconds=45)


def test_a_settled_message_is_not_claimed_by_who_saw_it_due_before(handled: Handled) -> None:
    """B: claims and settles the message right before A's claim runs
    A: nothing is due
    """
    handled(None)
    publish()
    with rival_at("claim_messages", "before", outbox.deliver) as rival:
        assert outbox.claim(1) == []
    assert rival.result == 1


def test_a_delayed_message_is_not_due_before_its_time(handled: Handled) -> None:
    seen = handled(None)
    with transaction.atomic():
        outbox.publish("test", "a", {}, delay=timedelta(hours=1))
    assert outbox.deliver() == 0
    assert outbox.oldest_due_seconds() is None
    make_due()
    assert (outbox.oldest_due_seconds() or 0) >= 1
    assert outbox.deliver() == 1
    assert len(seen) == 1


def begin(key: str = "a") -> Message:
    """The key's first message is under way."""
    (message,) = outbox.claim(1)
    assert message.key == key
    return message


def behind() -> list[int]:
    return list(OutboxMessage.objects.filter(is_behind=True).order_by("id").values_list("body__number", flat=True))


def test_what_stands_behind_another_of_its_key_is_put_out_of_the_claims_way_once(handled: Handled) -> None:
    """A key's first message is under way, four wait behind it; another key's is found past them."""
    seen = handled(None)
    for number in range(5):
        publish("a", number=number)
    first = begin()
    publish("b", number=9)
    assert [message.key for message in outbox.claim(5)] == ["b"]
    assert outbox.claim(5) == []
    assert behind() == [1, 2, 3, 4]
    outbox.hand_over(first)
    assert behind() == [2, 3, 4]
    assert outbox.deliver() == 4
    assert [message.body["number"] for message in seen] == [0, 1, 2, 3, 4]
    assert behind() == []


def test_a_backlog_longer_than_a_claim_looks_hides_nothing_that_is_due(
    handled: Handled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "WINDOW_MAX", 3)
    seen = handled(None)
    for number in range(10):
        publish("a", number=number)
    first = begin()
    publish("b", number=10)
    with transaction.atomic():
        outbox.publish("other", "c", {})
    assert [message.key for message in outbox.claim(9)] == ["c"]
    assert [message.key for message in outbox.claim(9)] == ["b"]
    outbox.hand_over(first)
    assert outbox.deliver() == 9
    assert [message.body["number"] for message in seen] == list(range(10))


def test_what_was_put_aside_comes_when_the_one_before_it_is_given_up(handled: Handled) -> None:
    seen = handled(lambda message: fail(message) if message.body["number"] == 1 else None, attempts_max=1)  # type: ignore[call-arg]
    publish("a", number=1)
    publish("a", number=2)
    first = begin()
    assert (outbox.claim(5), behind()) == ([], [2])
    outbox.hand_over(first)
    assert outbox.deliver() == 1
    assert [message.body["number"] for message in seen] == [1, 2]


def test_what_was_put_aside_waits_on_while_the_one_before_it_is_to_be_tried_again(handled: Handled) -> None:
    handled(fail)
    publish("a", number=1)
    publish("a", number=2)
    outbox.hand_over(begin())
    assert (outbox.claim(5), behind()) == ([], [2])


def test_who_settles_while_the_next_is_put_aside_waits_and_lets_it_go(handled: Handled) -> None:
    """A: has put 2 aside behind 1, not committed: it holds 1's row
    B: settles 1: waits for that row
    A: COMMIT
    B: 1 is done; looks for the next only now, sees it aside and lets it go; COMMIT
    """
    seen = handled(None)
    publish("a", number=1)
    publish("a", number=2)
    first = begin()
    with rival_waiting_at("set_behind", "after", lambda: outbox.hand_over(first)) as rival:
        assert outbox._put_aside() == 1
    rival.result()
    assert behind() == []
    assert outbox.deliver() == 1
    assert [message.body["number"] for message in seen] == [1, 2]


def test_nobody_is_put_aside_behind_one_that_is_being_settled(handled: Handled) -> None:
    """B: settles 1, and has looked for the next already, not committed
    A: sees 1 under way still, but cannot have its row: 2 stays where it is
    B: COMMIT; 2 is found by the next claim
    """
    handled(None)
    publish("a", number=1)
    publish("a", number=2)
    with rival_at("let_next_go", "after", lambda: outbox.claim(5)) as rival:
        outbox.hand_over(begin())
    assert (rival.result, behind()) == ([], [])
    assert outbox.deliver() == 1


def test_control_settled_without_letting_the_next_go_nobody_would_ever_find_it(
    handled: Handled, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled(None)
    publish("a", number=1)
    publish("a", number=2)
    first = begin()
    outbox._put_aside()
    monkeypatch.setattr(outbox, "_let_next_go", outbox_metrics._oldest_due)
    outbox.hand_over(first)
    assert outbox.deliver() == 0
    assert behind() == [2]


def test_a_storm_on_few_keys_strands_nothing_behind_another(handled: Handled) -> None:
    seen = handled(None)
    for number in range(60):
        publish(f"key-{number % 3}", number=number)

    def work(_: int) -> int:
        count = 0
        for _ in range(40):
            count += outbox.deliver(limit=3)
            outbox._put_aside()
        return count

    delivered = values(storm(6, work))
    delivered.append(outbox.deliver(limit=100))
    assert (sum(delivered), behind()) == (60, [])
    for key in range(3):
        own = [message.body["number"] for message in seen if message.key == f"key-{key}"]
        assert own == list(range(key, 60, 3))


def test_a_revived_message_is_found_and_who_stands_behind_it_waits(handled: Handled) -> None:
    seen = handled(fail, attempts_max=1)  # type: ignore[call-arg]
    publish("a", number=1)
    assert outbox.deliver() == 1
    handled(seen.append)
    publish("a", number=2)
    outbox.retry_given_up([seen[0].id], clock.now())
    assert outbox.deliver() == 2
    assert [message.body["number"] for message in seen] == [1, 1, 2]


def test_a_topic_at_its_most_is_passed_over(handled: Handled) -> None:
    handled(None, together_max=2)  # type: ignore[call-arg]
    for key in "abcd":
        publish(key)
    assert [message.key for message in outbox.claim(9, {"test": 1})] == ["a"]
    assert outbox.claim(9, {"test": 2}) == []
    assert [message.key for message in outbox.claim(9)] == ["b", "c"]


def test_old_settled_messages_go_and_the_others_stay(handled: Handled) -> None:
    for key in "abc":
        publish(key)
    old = clock.now() - timedelta(days=outbox.KEPT_DAYS, seconds=1)
    OutboxMessage.objects.filter(key="a").update(done_at=old)
    OutboxMessage.objects.filter(key="b").update(dead_at=old)
    assert outbox.collect_garbage() == 1
    assert sorted(OutboxMessage.objects.values_list("key", flat=True)) == ["b", "c"]


def test_the_outbox_tells_how_it_stands(handled: Handled) -> None:
    handled(lambda message: fail(message) if message.key == "dead" else None, attempts_max=1)  # type: ignore[call-arg]
    publish("done")
    publish("dead")
    outbox.deliver()
    publish("stuck")
    outbox.claim(1)
    publish("due")
    now = clock.now()
    OutboxMessage.objects.filter(key="stuck").update(claimed_at=now - timedelta(minutes=6))
    OutboxMessage.objects.filter(key="due").update(available_at=now - timedelta(minutes=1))
    OutboxMessage.objects.filter(key="done").update(claimed_at=F("done_at") - timedelta(seconds=4))
    standing = outbox_metrics.get_status()
    assert (standing.published_per_minute, standing.pending, standing.stuck, standing.given_up) == (4, 2, 1, 1)
    assert standing.mean_seconds_to_deletion == pytest.approx(4)
    assert 60 <= standing.lag_seconds < 120


def test_a_message_is_never_both_done_and_given_up() -> None:
    publish()
    with pytest.raises(IntegrityError) as refused:
        OutboxMessage.objects.update(done_at=clock.now(), dead_at=clock.now())
    assert transactions.violated_constraint(refused.value) == "outbox_message_settled_once"
