"""Garbage collection of feeds, and the cost of a receive."""

from datetime import timedelta

import pytest
from django.db import connection

from apps.kernel import clock
from apps.kernel.feeds import facade as feeds
from apps.kernel.feeds import garbage, reconciliation
from apps.kernel.feeds.models import Feed, Message
from tests.support.kernel.feeds import (
    NAME,
    OWNER,
    assert_counts_are_exact,
    ids,
    make_feed,
    new,
    receive,
    send,
)
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)


def backdate(days: int, **filters: object) -> None:
    for name in ("ended_at", "expires_at"):
        given = Message.objects.filter(**filters).exclude(**{name: None})
        given.update(**{name: clock.now() - timedelta(days=days)})


def test_expired_messages_go_and_unblock_their_keys() -> None:
    make_feed()
    send(new("old", "k"), new("next", "k"), new("free"))
    backdate(1, message_id__in=["old", "free"])
    assert sum(values(storm(3, lambda _: garbage.collect_garbage()))) == 2
    assert ids(receive()) == ["next"]
    assert_counts_are_exact()
    assert garbage.collect_garbage() == 0


def test_rows_of_deleted_messages_are_kept_for_a_week(monkeypatch: pytest.MonkeyPatch) -> None:
    make_feed()
    send(*(new(f"{number}") for number in range(5)))
    for one in receive():
        feeds.delete(OWNER, NAME, one.receipt_handle)
    assert garbage.collect_garbage() == 0
    backdate(8, message_id="3")
    assert garbage.collect_garbage() == 1
    monkeypatch.setattr(garbage, "KEPT_MAX", 2)
    assert garbage.collect_garbage() == 2
    assert sorted(Message.objects.values_list("message_id", flat=True)) == ["2", "4"]
    assert_counts_are_exact()


def test_dead_letters_and_deleted_feeds_are_collected_in_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "BATCH_MAX", 2)
    make_feed(receives_max=1)
    send(*(new(f"{number}", "k") for number in range(5)))
    receive(seconds=0)
    assert garbage.collect_garbage() == 1
    assert [one.id for one in feeds.list_dead_letters(OWNER, NAME)] == ["0"]
    (following,) = receive()
    feeds.delete(OWNER, NAME, following.receipt_handle)
    assert_counts_are_exact()
    feeds.delete_feed(OWNER, NAME)
    assert garbage.collect_garbage() == 5
    assert not Feed.objects.exists()


BACKLOG = 20_000
"""Behind one key, and as many without a key."""


def test_a_receive_reads_no_more_with_a_long_backlog() -> None:
    """The plan of a receive, and of a deletion's unblocking, touches a few pages; without the index it would touch all
    (control)."""
    feed = make_feed()
    send(new("head", "hot"))
    (first,) = receive()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO feeds_message (feed_id, sequence, message_id, key, body, fingerprint, state, sent_at,"
            " visible_at, expires_at, receives, receives_left)"
            " SELECT %s, 1 + number, 'm' || number, CASE WHEN number %% 2 = 0 THEN 'hot' END, 'null', '',"
            " CASE WHEN number %% 2 = 0 THEN 'behind' ELSE 'ready' END, clock_timestamp(), clock_timestamp(),"
            " clock_timestamp() + interval '1 hour', 0, 10 FROM generate_series(1, %s) AS number",
            [feed.pk, 2 * BACKLOG],
        )
        cursor.execute("UPDATE feeds_feed SET message_count = 1 + %s, byte_count = 4 + 4 * %s", [2 * BACKLOG] * 2)
        cursor.execute("ANALYZE feeds_message")
        assert _pages(cursor, receive) < 400
        assert _pages(cursor, lambda: feeds.delete(OWNER, NAME, first.receipt_handle)) < 400
        cursor.execute("SELECT count(*) FROM feeds_message WHERE key = 'hot' AND state = 'ready'")
        assert cursor.fetchone() == (1,)
        cursor.execute("DROP INDEX feeds_message_due")
        try:
            assert _pages(cursor, receive) > 600
        finally:
            cursor.execute(
                "CREATE INDEX feeds_message_due ON feeds_message (feed_id, visible_at, sequence)"
                " WHERE receives_left > 0 AND state = 'ready'"
            )


def _pages(cursor: object, act: object) -> int:
    """Return how many pages of the table and its indexes `act` read."""

    def read() -> int:
        cursor.execute("SELECT pg_stat_force_next_flush()")  # type: ignore[attr-defined]
        cursor.execute(  # type: ignore[attr-defined]
            "SELECT heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit FROM pg_statio_user_tables"
            " WHERE relname = 'feeds_message'"
        )
        return int(cursor.fetchone()[0])  # type: ignore[attr-defined]

    before = read()
    act()  # type: ignore[operator]
    after = read()
    return after - before


def test_counts_that_differ_from_the_messages_are_found_and_repaired_while_others_send() -> None:
    make_feed(receives_max=1)
    send(new("a"), new("b", body="x"), new("c"))
    feeds.delete(OWNER, NAME, receive(1)[0].receipt_handle)
    assert list(reconciliation._find(None)) == []
    Feed.objects.update(message_count=9, byte_count=1, dead_count=1, deleted_count=0, next_sequence=2)
    (difference,) = reconciliation._find(None)
    assert difference.line.endswith("by its messages 2 messages, 7 bytes, 0 dead letters, 1 deleted, next number 4")
    Feed.objects.update(next_sequence=4)  # Until it is repaired, nothing could be sent.

    def act(number: int) -> object:
        return send(new(f"{number}")) if number % 2 else reconciliation._repair(difference, "an operator")

    outcomes = values(storm(4, act))
    assert sorted(one for one in outcomes if isinstance(one, str)) == ["gone", "repaired"]
    assert_counts_are_exact()
    Feed.objects.update(next_sequence=2)
    (difference,) = reconciliation._find(None)
    assert reconciliation._repair(difference, "an operator") == "repaired"
    assert send(new("later"))[0].sequence == 6
