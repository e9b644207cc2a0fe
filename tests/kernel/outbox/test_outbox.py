"""Messages are written with the change or not at all, delivered at least once, in order within a key, and never by two
workers at once."""

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox import outbox_metrics, stored_messages
from apps.kernel.outbox.facade import Message
from apps.kernel.outbox.models import OutboxMessage
from tests.support.races import in_another_connection, rival_at, rival_waiting_at, storm, values

pytestmark = pytest.mark.django_db(transaction=True)

Handled = Callable[[Callable[[Message], None] | None], list[Message]]


@pytest.fixture
def handled(monkeypatch: pytest.MonkeyPatch) -> Handled:
    """Return a function that registers a handler for the topic `test`; the handler records each message and calls
    `act`."""
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
    """Make messages that wait for a retry or are claimed due and unclaimed."""
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


def test_publishing_outside_a_transaction_raises() -> None:
    with pytest.raises(transactions.OutsideTransaction):
        outbox.publish("test", "a", {})


def test_deliverers_are_woken_after_the_commit_and_a_failed_wake_up_loses_nothing(handled: Handled) -> None:
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
    def require_no_lock(message: Message) -> None:
        assert not transaction.get_connection().in_atomic_block
        # Another connection can lock the message's row without waiting.
        in_another_connection(lambda: OutboxMessage.objects.filter(pk=message.id).update(last_error=""))

    handled(require_no_lock)
    publish()
    assert outbox.deliver() == 1
    assert OutboxMessage.objects.get().done_at is not None


class Panic(BaseException):
    """Like a panic of a library in Rust: no Exception."""


def panic(message: Message) -> None:
    raise Panic("end byte index 39 is out of bounds")


def test_a_panic_of_a_library_is_a_failed_attempt_and_stops_no_other_message(handled: Handled) -> None:
    seen = handled(lambda message: panic(message) if message.key == "a" else None)
    publish("a")
    publish("b")
    assert outbox.deliver() == 2
    assert {message.key for message in seen} == {"a", "b"}
    row = OutboxMessage.objects.get(key="a")
    assert (row.attempts, row.claimed_until) == (1, None)
    assert row.last_error == "Panic: end byte index 39 is out of bounds"
    assert OutboxMessage.objects.get(key="b").done_at is not None


def test_the_end_of_the_process_is_no_failed_attempt(handled: Handled) -> None:
    """The claim stays, and expires: another worker takes the message."""

    def exit_now(message: Message) -> None:
        raise SystemExit

    handled(exit_now)
    publish()
    [message] = outbox.claim(1)
    with pytest.raises(SystemExit):
        outbox.hand_over(message)
    assert OutboxMessage.objects.get().last_error == ""


def test_a_failing_message_is_retried_with_growing_pauses_and_then_given_up(handled: Handled) -> None:
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


def test_a_topic_sets_the_number_of_attempts_and_the_pauses_between_them(handled: Handled) -> None:
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


def test_pauses_double_from_the_first_to_the_longest() -> None:
    waits = [outbox.exponential_backoff(5, 60)(attempts).total_seconds() for attempts in (1, 2, 3, 4, 5, 1_000)]
    assert waits == [5, 10, 20, 40, 60, 60]


def test_a_handler_that_asks_for_a_later_retry_never_counts_as_failed(handled: Handled) -> None:
    def not_now(message: Message) -> None:
        raise outbox.RetryLater(90, "the provider is paused")

    seen = handled(not_now, attempts_max=2)  # type: ignore[call-arg]
    publish()
    for _ in range(5):
        before = clock.now()
        assert outbox.deliver() == 1
        message = OutboxMessage.objects.get()
        assert before + timedelta(seconds=90) <= message.available_at <= clock.now() + timedelta(seconds=90)
        assert (message.attempts, message.dead_at, message.last_error) == (0, None, "the provider is paused")
        make_due()
    assert [message.attempts for message in seen] == [1] * 5


def test_a_message_whose_workers_are_lost_is_given_up(handled: Handled) -> None:
    """Each attempt kills its worker; the message is not retried forever."""
    seen = handled(None, attempts_max=2)  # type: ignore[call-arg]
    publish()
    for _ in range(2):
        assert len(outbox.claim(1)) == 1
        make_due()
    assert outbox.deliver() == 1
    dead = OutboxMessage.objects.get()
    assert (dead.dead_at is not None, seen) == (True, [])
    assert dead.last_error.startswith("WorkerLost")


def test_a_claim_can_be_extended_by_its_holder_only(handled: Handled) -> None:
    handled(None, visibility=timedelta(minutes=1))  # type: ignore[call-arg]
    publish()
    (first,) = outbox.claim(1)
    OutboxMessage.objects.update(claimed_until=clock.now() + timedelta(seconds=5))
    assert outbox.prolong(first)
    assert OutboxMessage.objects.get().claimed_until > clock.now() + timedelta(seconds=40)  # type: ignore[operator]
    OutboxMessage.objects.update(claimed_until=clock.now())
    assert not outbox.prolong(first), "it has expired"
    (second,) = outbox.claim(1)
    assert not outbox.prolong(first), "another worker has claimed it"
    assert outbox.prolong(second)


def test_a_given_up_message_can_be_retried_with_all_its_attempts(handled: Handled) -> None:
    handled(fail)
    publish()
    OutboxMessage.objects.update(attempts=outbox.ATTEMPTS_MAX - 1)
    outbox.deliver()
    (dead,) = OutboxMessage.objects.filter(dead_at__isnull=False)
    seen = handled(None)
    assert stored_messages.retry_given_up([dead.pk], clock.now()) == 1
    assert stored_messages.retry_given_up([dead.pk], clock.now()) == 0
    assert outbox.deliver() == 1
    assert [message.attempts for message in seen] == [1]


def test_a_failing_message_does_not_stop_the_others(handled: Handled) -> None:
    handled(lambda message: fail(message) if message.key == "b" else None)
    for key in "abc":
        publish(key)
    assert outbox.deliver() == 3
    assert sorted(OutboxMessage.objects.filter(done_at__isnull=False).values_list("key", flat=True)) == ["a", "c"]


def test_a_message_without_a_handler_stays_and_records_why(handled: Handled) -> None:
    with transaction.atomic():
        outbox.publish("unhandled", "a", {})
    assert outbox.deliver() == 1
    message = OutboxMessage.objects.get()
    assert message.done_at is None
    assert message.last_error == "NoHandler: unhandled"


def test_messages_of_one_key_are_delivered_in_order_even_if_the_first_fails(handled: Handled) -> None:
    failing = [True]
    seen = handled(lambda message: fail(message) if failing[0] else None)
    publish("a", number=1)
    publish("a", number=2)
    assert outbox.deliver() == 1
    failing[0] = False
    make_due()
    assert outbox.deliver() == 2
    assert [message.body["number"] for message in seen] == [1, 1, 2]


def test_two_workers_never_hold_the_same_message_or_key_at_once(handled: Handled) -> None:
    """A: claims the first message of the key and is handling it
    B: the second message of that key is not due before the first is settled; a message of another key is
    """
    for key, number in (("a", 1), ("a", 2), ("b", 3)):
        publish(key, number=number)
    (first,) = outbox.claim(1)
    rest = in_another_connection(lambda: outbox.claim(10))
    assert (first.body, [message.body for message in rest]) == ({"number": 1}, [{"number": 3}])
    assert in_another_connection(lambda: outbox.claim(10)) == []


def test_two_concurrent_claims_share_the_messages_without_waiting(handled: Handled) -> None:
    """A: holds the row lock of its claim, not yet committed
    B: skips that row and claims the other; COMMIT
    """
    publish("a")
    publish("b")
    with transaction.atomic():
        OutboxMessage.objects.select_for_update(no_key=True).get(key="a")
        claimed_by_other = in_another_connection(lambda: outbox.claim(10))
    assert [message.key for message in claimed_by_other] == ["b"]
    assert [message.key for message in outbox.claim(10)] == ["a"]


def test_in_a_storm_of_workers_every_message_is_handled_once(handled: Handled) -> None:
    seen = handled(None)
    for number in range(40):
        publish(f"key-{number % 8}", number=number)
    delivered = values(storm(6, lambda _: outbox.deliver(limit=100)))
    delivered.append(outbox.deliver(limit=100))  # A worker that found nothing due stopped; the rest is due now.
    assert sum(delivered) == 40
    assert sorted(message.body["number"] for message in seen) == list(range(40))
    for key in range(8):
        own = [message.body["number"] for message in seen if message.key == f"key-{key}"]
        assert own == sorted(own)


def test_after_a_claim_expires_and_is_taken_over_its_first_holder_settles_nothing(handled: Handled) -> None:
    """A: claims the message, and is killed or so slow that its claim expires
    B: claims it again
    A: returns and reports it done: its receipt is not the latest, so nothing changes
    B: still settles the message
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


def test_a_failure_after_the_claim_expired_changes_nothing(handled: Handled) -> None:
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


def test_a_claim_lasts_as_long_as_its_topic_sets(handled: Handled) -> None:
    handled(None, visibility=timedelta(seconds=45))  # type: ignore[call-arg]
    publish()
    outbox.claim(1)
    left = OutboxMessage.objects.get().claimed_until - clock.now()  # type: ignore[operator]
    assert timedelta(seconds=30) < left <= timedelta(seconds=45)


def test_a_message_settled_just_before_a_claim_is_not_claimed(handled: Handled) -> None:
    """B: claims and settles the message just before A's claim runs
    A: nothing is due
    """
    handled(None)
    publish()
    with rival_at("claim_messages", "before", outbox.deliver) as rival:
        assert outbox.claim(1) == []
    assert rival.result == 1


def test_a_delayed_message_is_not_due_early(handled: Handled) -> None:
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
    """Claim the key's first message, and return it."""
    (message,) = outbox.claim(1)
    assert message.key == key
    return message


def behind() -> list[int]:
    return list(OutboxMessage.objects.filter(is_behind=True).order_by("id").values_list("body__number", flat=True))


def test_a_message_behind_another_of_its_key_is_set_aside_once(handled: Handled) -> None:
    """The first message of a key is in progress and four wait behind it; a claim finds another key's message past
    them."""
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


def test_a_backlog_longer_than_the_window_of_a_claim_hides_no_due_message(
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


def test_a_message_set_aside_follows_when_the_one_before_it_is_given_up(handled: Handled) -> None:
    seen = handled(lambda message: fail(message) if message.body["number"] == 1 else None, attempts_max=1)  # type: ignore[call-arg]
    publish("a", number=1)
    publish("a", number=2)
    first = begin()
    assert (outbox.claim(5), behind()) == ([], [2])
    outbox.hand_over(first)
    assert outbox.deliver() == 1
    assert [message.body["number"] for message in seen] == [1, 2]


def test_a_message_stays_set_aside_while_the_one_before_it_waits_for_a_retry(handled: Handled) -> None:
    handled(fail)
    publish("a", number=1)
    publish("a", number=2)
    outbox.hand_over(begin())
    assert (outbox.claim(5), behind()) == ([], [2])


def test_settling_a_message_while_the_next_is_being_set_aside_waits_and_releases_it(handled: Handled) -> None:
    """A: has set 2 aside behind 1, not committed: it holds the lock of 1's row
    B: settles 1: waits for that row
    A: COMMIT
    B: 1 is done; only now it looks for the next message, finds 2 set aside and releases it; COMMIT
    """
    seen = handled(None)
    publish("a", number=1)
    publish("a", number=2)
    first = begin()
    with rival_waiting_at("set_behind", "after", lambda: outbox.hand_over(first)) as rival:
        assert outbox._put_aside([]) == 1
    rival.result()
    assert behind() == []
    assert outbox.deliver() == 1
    assert [message.body["number"] for message in seen] == [1, 2]


def test_no_message_is_set_aside_behind_one_that_is_being_settled(handled: Handled) -> None:
    """B: settles 1 and has already looked for the next message, not committed
    A: still sees 1 in progress but cannot lock its row: 2 is not set aside
    B: COMMIT; the next claim finds 2
    """
    handled(None)
    publish("a", number=1)
    publish("a", number=2)
    with rival_at("unblock_next_messages", "after", lambda: outbox.claim(5)) as rival:
        outbox.hand_over(begin())
    assert (rival.result, behind()) == ([], [])
    assert outbox.deliver() == 1


def test_control_if_settling_did_not_release_the_next_message_no_claim_would_find_it(
    handled: Handled, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled(None)
    publish("a", number=1)
    publish("a", number=2)
    first = begin()
    outbox._put_aside([])
    harmless = outbox_metrics._oldest_due.call(others=[])
    monkeypatch.setattr(outbox, "_unblock_next_messages", SimpleNamespace(call=lambda **_: harmless))
    outbox.hand_over(first)
    assert outbox.deliver() == 0
    assert behind() == [2]


def test_in_a_storm_on_few_keys_no_message_stays_set_aside(handled: Handled) -> None:
    seen = handled(None)
    for number in range(60):
        publish(f"key-{number % 3}", number=number)

    def work(_: int) -> int:
        count = 0
        for _ in range(40):
            count += outbox.deliver(limit=3)
            outbox._put_aside([])
        return count

    delivered = values(storm(6, work))
    delivered.append(outbox.deliver(limit=100))
    assert (sum(delivered), behind()) == (60, [])
    for key in range(3):
        own = [message.body["number"] for message in seen if message.key == f"key-{key}"]
        assert own == list(range(key, 60, 3))


def test_a_retried_message_is_found_and_the_one_behind_it_waits(handled: Handled) -> None:
    seen = handled(fail, attempts_max=1)  # type: ignore[call-arg]
    publish("a", number=1)
    assert outbox.deliver() == 1
    handled(seen.append)
    publish("a", number=2)
    stored_messages.retry_given_up([seen[0].id], clock.now())
    assert outbox.deliver() == 2
    assert [message.body["number"] for message in seen] == [1, 1, 2]


def test_a_topic_at_its_concurrency_limit_is_skipped(handled: Handled) -> None:
    handled(None, together_max=2)  # type: ignore[call-arg]
    for key in "abcd":
        publish(key)
    assert [message.key for message in outbox.claim(9, {"test": 1})] == ["a"]
    assert outbox.claim(9, {"test": 2}) == []
    assert [message.key for message in outbox.claim(9)] == ["b", "c"]


def test_old_settled_messages_are_deleted_and_the_others_stay(handled: Handled) -> None:
    for key in "abc":
        publish(key)
    old = clock.now() - timedelta(days=stored_messages.KEPT_DAYS, seconds=1)
    OutboxMessage.objects.filter(key="a").update(done_at=old)
    OutboxMessage.objects.filter(key="b").update(dead_at=old)
    assert outbox.collect_garbage() == 1
    assert sorted(OutboxMessage.objects.values_list("key", flat=True)) == ["b", "c"]


def test_the_outbox_reports_its_status(handled: Handled) -> None:
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
    status = outbox.get_status()
    assert (status.published_per_minute, status.pending, status.stuck, status.given_up) == (4, 2, 1, 1)
    assert status.mean_seconds_to_deletion == pytest.approx(4)
    assert 60 <= status.lag_seconds < 120


def test_a_message_is_never_both_done_and_given_up() -> None:
    publish()
    with pytest.raises(IntegrityError) as refused:
        OutboxMessage.objects.update(done_at=clock.now(), dead_at=clock.now())
    assert transactions.violated_constraint(refused.value) == "outbox_message_settled_once"


def test_the_lag_of_sales_is_that_of_topics_with_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """A webhook's endpoint that is down, or the refunds of a canceled event, lower no room's rate of admission."""
    monkeypatch.setattr(outbox, "_topics", {})
    outbox.register_handler("webhook", lambda message: None, together_max=4)
    outbox.register_handler("charge", lambda message: None, list_handler=lambda messages: [])
    with transaction.atomic():
        outbox.publish("webhook", "a", {})
    make_due()
    assert (outbox.oldest_due_seconds() or 0) >= 1
    assert outbox.oldest_due_seconds(only_lists=True) is None
    with transaction.atomic():
        outbox.publish("charge", "a", {})
    make_due()
    assert (outbox.oldest_due_seconds(only_lists=True) or 0) >= 1
