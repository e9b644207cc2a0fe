"""Prepared statements on Django's connections of our own threads."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.db import DatabaseError, connection, connections
from django.test import override_settings

from apps.kernel.db import pools, reads, roundtrip, sql, transactions

pytestmark = pytest.mark.django_db(transaction=True)
READ_CLOCK = sql.load("apps.kernel", "read_clock", prepared=True)


@pytest.fixture(autouse=True)
def opened_by_our_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(roundtrip._Pooled, "seen", False)
    connections.close_all()
    pools.renew_django_connections(prepares=True)
    yield
    pools.renew_django_connections()
    connections.close_all()


def read_clock() -> Any:
    (row,) = reads.run(reads.one(READ_CLOCK))
    return row[0]


def plans_made() -> int:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT generic_plans + custom_plans FROM pg_prepared_statements WHERE name = 'fairgate_read_clock'"
        )
        found = cursor.fetchone()
    return int(found[0]) if found else -1


def test_nothing_is_connected_before_the_first_statement() -> None:
    assert connection.connection is None


def test_a_statement_of_a_read_is_executed_as_prepared() -> None:
    read_clock()
    assert roundtrip.is_prepared_on(connection.connection)
    assert plans_made() == 1
    with connection.cursor() as cursor:
        assert READ_CLOCK.rows(cursor)
    assert plans_made() == 2


def test_plans_are_discarded_after_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    read_clock()
    monkeypatch.setattr(roundtrip, "PLANS_SECONDS", 0.0)
    texts = []
    send = roundtrip.Cursor._send_batch
    monkeypatch.setattr(
        roundtrip.Cursor, "_send_batch", lambda self, batch: texts.extend(self._opening) or send(self, batch)
    )
    read_clock()
    assert texts == ["DISCARD PLANS"]


def test_a_statement_that_has_vanished_is_sent_as_text_and_none_is_prepared_any_more() -> None:
    """As behind a pooler in transaction mode."""
    read_clock()
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    assert read_clock()
    assert roundtrip._Pooled.seen
    connections.close_all()
    assert read_clock()
    assert not roundtrip.is_prepared_on(connection.connection)


def test_in_a_transaction_it_fails_and_the_next_one_is_sent_as_text() -> None:
    read_clock()
    with connection.cursor() as cursor:
        cursor.execute("DEALLOCATE ALL")
    with pytest.raises(DatabaseError), transactions.write():
        read_clock()
    with transactions.write():
        assert read_clock()


def test_a_plan_that_a_migration_made_invalid_is_sent_as_text_on_this_connection_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE altered (n int)")
    monkeypatch.setattr(roundtrip, "_prepared_texts", dict(roundtrip._prepared_texts))
    text = "SELECT n FROM altered"
    roundtrip.add_prepared("altered", text)
    statement = sql.Statement("altered", text, prepared=True)
    try:
        connections.close_all()
        assert list(reads.run(reads.one(statement))) == []
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE altered ALTER COLUMN n TYPE text")
        assert list(reads.run(reads.one(statement))) == []
        assert not roundtrip.is_prepared_on(connection.connection)
        assert not roundtrip._Pooled.seen
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP TABLE altered")


def test_behind_a_pooler_nothing_is_prepared() -> None:
    connections.close_all()
    with override_settings(DATABASE_DIRECT_URL="postgresql://direct/other"):
        pools.renew_django_connections(prepares=True)
    read_clock()
    assert not roundtrip.is_prepared_on(connection.connection)
