"""Messages of feeds: sent once, received by one receiver at a time, in the order of their keys."""

import itertools
from datetime import timedelta

import pytest
from django.db import connection

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.feeds import facade as feeds
from apps.kernel.feeds.models import Feed, Message
from apps.kernel.http import problems
from tests.support.kernel.feeds import (
    NAME,
    OWNER,
    assert_counts_are_exact,
    ids,
    make_feed,
    new,
    receive,
    send,
    time_out,
)
from tests.support.races import ConcurrentCall, rival_at, storm, values

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_message_is_received_hidden_and_deleted() -> None:
    make_feed()
    assert [(one.sequence, one.is_new) for one in send(new("a", body={"n": 1}), new("b"))] == [(1, True), (2, True)]
    first, second = receive()
    assert (first.id, first.body, first.receives, second.id) == ("a", '{"n": 1}', 1, "b")
    assert receive() == []
    feeds.delete(OWNER, NAME, first.receipt_handle)
    feeds.delete(OWNER, NAME, first.receipt_handle)  # A repetition.
    time_out()
    (again,) = receive()
    assert (again.id, again.receives) == ("b", 2)
    assert again.receipt_handle != second.receipt_handle
    assert_counts_are_exact()


def test_messages_of_a_key_are_received_one_after_the_other() -> None:
    make_feed()
    send(new("a1", "a"), new("b1", "b"), new("a2", "a"), new("free"))
    send(new("a3", "a"))
    first, b1, free = receive()
    assert (first.id, b1.id, free.id) == ("a1", "b1", "free")
    assert receive() == []
    feeds.delete(OWNER, NAME, first.receipt_handle)
    (second,) = receive()
    assert second.id == "a2"
    time_out()  # It has the turn again, and the other messages of its key still wait.
    assert "a3" not in ids(receive())
    assert_counts_are_exact()


def test_an_outdated_handle_deletes_and_extends_nothing() -> None:
    make_feed()
    send(new("a"))
    (old,) = receive(seconds=0)
    (latest,) = receive()
    for act in (lambda: feeds.delete(OWNER, NAME, old.receipt_handle), lambda: _extend(old, 60)):
        with pytest.raises(feeds.ReceiptOutdated):
            act()
    time_out()
    feeds.delete(OWNER, NAME, latest.receipt_handle)  # Valid after the time-out, until another receive.
    with pytest.raises(feeds.ReceiptOutdated):
        _extend(latest, 60)
    for unknown in ("", "x", "1-", f"99-{'0' * 32}", f"1-{'G' * 32}", "9" * 400, f"{10**18}-{'0' * 32}"):
        with pytest.raises(feeds.MessageGone):
            feeds.delete(OWNER, NAME, unknown)
    assert_counts_are_exact()


def _extend(message: feeds.ReceivedMessage, seconds: int) -> None:
    feeds.extend(OWNER, NAME, message.receipt_handle, seconds)


def test_a_receiver_extends_and_gives_back_a_message() -> None:
    make_feed()
    send(new("a", "k"), new("b", "k"))
    (first,) = receive(seconds=0)
    _extend(first, 60)
    assert receive() == []
    _extend(first, 0)
    assert ids(receive()) == ["a"]


def test_a_repetition_sends_nothing_and_another_message_with_its_id_is_refused() -> None:
    make_feed()
    send(new("a", "k", 1))
    (received,) = receive()
    feeds.delete(OWNER, NAME, received.receipt_handle)
    assert [(one.sequence, one.is_new) for one in send(new("b"), new("a", "k", 1))] == [(2, True), (1, False)]
    for other in (new("a", "k", 2), new("a", None, 1)):
        with pytest.raises(problems.IdempotencyMismatch):
            send(new("c"), other)
    assert sorted(Message.objects.values_list("message_id", flat=True)) == ["a", "b"]
    assert_counts_are_exact()


@pytest.mark.parametrize(("limit", "most"), [("FEED_MESSAGES_MAX", 3), ("FEED_BYTES_MAX", 3 * len("null"))])
def test_a_full_feed_refuses_the_whole_list(settings: object, limit: str, most: int) -> None:
    make_feed()
    setattr(settings, limit, most)
    send(new("a"), new("b"))
    with pytest.raises(feeds.FeedFull):
        send(new("c"), new("d"))
    send(new("c"))
    feeds.delete(OWNER, NAME, receive()[0].receipt_handle)
    send(new("d"))
    assert_counts_are_exact()


def test_a_message_that_is_never_deleted_becomes_a_dead_letter_and_unblocks_its_key() -> None:
    make_feed(receives_max=2)
    send(new("bad", "k"), new("next", "k"))
    for _ in range(2):
        assert ids(receive()) == ["bad"]
        time_out()
    assert ids(receive()) == ["next"]
    (dead,) = feeds.list_dead_letters(OWNER, NAME)
    assert (dead.id, dead.receives) == ("bad", 2)
    assert_counts_are_exact()
    # Its turn is over, so it goes to the end of its key.
    assert feeds.redrive(OWNER, NAME) == 1
    assert feeds.redrive(OWNER, NAME) == 0
    assert receive() == []
    time_out()
    (following,) = receive()
    feeds.delete(OWNER, NAME, following.receipt_handle)
    (again,) = receive()
    assert (again.id, again.receives, again.sequence) == ("bad", 1, 3)
    assert_counts_are_exact()


def test_a_dead_letter_is_deleted_by_its_last_handle() -> None:
    make_feed(receives_max=1)
    send(new("a"))
    (only,) = receive(seconds=0)
    assert receive() == []
    feeds.delete(OWNER, NAME, only.receipt_handle)
    assert feeds.list_dead_letters(OWNER, NAME) == []
    assert_counts_are_exact()


def test_a_deleted_feed_frees_its_name() -> None:
    make_feed()
    send(new("a"))
    feeds.delete_feed(OWNER, NAME)
    for act in (receive, lambda: send(new("b")), lambda: feeds.delete_feed(OWNER, NAME)):
        with pytest.raises(feeds.FeedNotFound):
            act()
    make_feed()
    assert receive() == []


# --- races ---------------------------------------------------------------------------------------------------------


def test_receivers_at_the_same_moment_get_different_messages() -> None:
    make_feed()
    for start in range(0, 40, 10):
        send(*(new(f"m{number}") for number in range(start, start + 10)))
    got = [one.id for part in values(storm(4, lambda _: receive(10))) for one in part]
    assert len(got) == len(set(got))
    rest = ids(itertools.chain.from_iterable(iter(receive, [])))
    assert sorted(got + rest) == sorted(f"m{number}" for number in range(40))


def test_control_without_locks_two_receivers_get_one_message() -> None:
    """A reads the due message. B reads it as well, before A has marked it: both have it."""
    make_feed()
    send(new("a"))

    def read() -> list[str]:
        due = Message.objects.filter(state="ready", visible_at__lte=clock.now())
        return list(due.values_list("message_id", flat=True))

    mine = read()
    theirs = values(storm(1, lambda _: read()))[0]
    Message.objects.update(visible_at=clock.now() + timedelta(minutes=10))
    assert mine == theirs == ["a"]


def test_a_key_has_one_message_in_flight_with_many_receivers() -> None:
    """Three receivers delete what they receive, until all is gone. Each key's messages come in order."""
    make_feed()
    for start in range(0, 30, 10):
        send(*(new(f"{number:02}", key=f"k{number % 3}") for number in range(start, start + 10)))
    handled: list[tuple[str | None, int]] = []  # Appended to by several threads, between receive and delete.

    def work(_: int) -> None:
        while Message.objects.exclude(state="deleted").exists():
            for one in receive(2):
                handled.append((one.key, one.sequence))
                feeds.delete(OWNER, NAME, one.receipt_handle)

    values(storm(3, work))
    assert len(handled) == 30
    for key in ("k0", "k1", "k2"):
        sequences = [sequence for of_key, sequence in handled if of_key == key]
        assert sequences == sorted(sequences)
    assert_counts_are_exact()


def test_a_message_sent_while_its_predecessor_is_deleted_is_not_stuck() -> None:
    """The sender has found the key busy. The receiver deletes the predecessor: it waits for the sender, and then finds
    the new message. Without the feed's lock it would find none, and the new message would stay behind forever."""
    make_feed()
    send(new("a", "k"))
    (first,) = receive()
    with transactions.write(), connection.cursor() as cursor:
        cursor.execute("SELECT FROM feeds_feed FOR NO KEY UPDATE")
        deletion = ConcurrentCall(lambda: feeds.delete(OWNER, NAME, first.receipt_handle)).wait_until_blocked()
        _insert_behind("b", "k")
    deletion.result()
    assert ids(receive()) == ["b"]


def test_control_without_the_feeds_lock_the_message_is_stuck() -> None:
    make_feed()
    send(new("a", "k"))
    (first,) = receive()
    with transactions.write():
        _insert_behind("b", "k")  # The sender found the key busy; it has not committed.
        values(storm(1, lambda _: feeds.delete(OWNER, NAME, first.receipt_handle)))
    assert receive() == []
    assert Message.objects.get(message_id="b").state == "behind"


def _insert_behind(message_id: str, key: str) -> None:
    now = clock.now()
    Message.objects.create(
        feed=Feed.objects.get(), sequence=2, message_id=message_id, key=key, body="null", fingerprint="",
        state="behind", sent_at=now, visible_at=now, expires_at=now + timedelta(hours=1), receives_left=10,
    )  # fmt: skip


def test_a_deletion_beside_the_next_receive_has_one_winner() -> None:
    """The time-out has passed. The receive commits right before the deletion locks the message: the handle is old."""
    make_feed()
    send(new("a"))
    (old,) = receive(seconds=0)
    with rival_at("lock_messages", "before", receive) as rival, pytest.raises(feeds.ReceiptOutdated):
        feeds.delete(OWNER, NAME, old.receipt_handle)
    assert ids(rival.result) == ["a"]
    assert Message.objects.get().state == "ready"
    # The other way round: the deletion holds the lock, so the receive passes the message over.
    (latest,) = rival.result
    time_out()
    with rival_at("delete_messages", "before", receive) as rival:
        feeds.delete(OWNER, NAME, latest.receipt_handle)
    assert rival.result == []
    assert_counts_are_exact()


def test_a_message_sent_by_many_at_once_is_sent_once() -> None:
    make_feed()
    sent = values(storm(4, lambda _: send(new("a", "k"), new("b", "k"))))
    assert sorted(one.is_new for part in sent for one in part) == [False] * 6 + [True] * 2
    assert {(one.id, one.sequence) for part in sent for one in part} == {("a", 1), ("b", 2)}
    assert_counts_are_exact()


def test_concurrent_senders_do_not_exceed_the_limit(settings: object) -> None:
    settings.FEED_MESSAGES_MAX = 5  # type: ignore[attr-defined]
    make_feed()
    outcomes = storm(4, lambda number: send(new(f"{number}a"), new(f"{number}b")))
    refused = [one.error for one in outcomes if one.error is not None]
    assert len(refused) == 2
    assert all(isinstance(one, feeds.FeedFull) for one in refused)
    assert Feed.objects.get().message_count == 4
    assert_counts_are_exact()


def test_a_receiver_waits_for_no_sender() -> None:
    """A sender has the feed locked, and a message has no receive left: burying it is left to a later call."""
    make_feed(receives_max=1)
    send(new("bad", "k"), new("next", "k"), new("free"))
    assert ids(receive(seconds=0)) == ["bad", "free"]
    with transactions.write(), connection.cursor() as cursor:
        cursor.execute("SELECT FROM feeds_feed FOR NO KEY UPDATE")
        assert values(storm(1, lambda _: receive(), seconds_max=10))[0] == []
    assert ids(receive()) == ["next"]
