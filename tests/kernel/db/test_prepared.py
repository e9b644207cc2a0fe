"""Statements that committers' connections prepare."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import Connection

from apps.kernel.db import pools, roundtrip, sql, transactions
from apps.kernel.group_commit.batcher import Batcher, decide_finds_committed

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def connection() -> Iterator[Connection[Any]]:
    pool = pools.create_pool("preparing", size_max=1, connect_ms=10_000, prepares=True)
    pool.open()
    try:
        with pool.connection() as found:
            yield found
    finally:
        pool.close()


@pytest.fixture(autouse=True)
def restore_prepared_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roundtrip, "_prepared_texts", dict(roundtrip._prepared_texts))
    monkeypatch.setattr(roundtrip._Pooled, "seen", False)


def prepared_names(connection: Connection[Any]) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM pg_prepared_statements")}


def add_statement(name: str, text: str) -> sql.Statement:
    roundtrip.add_prepared(name, text)
    return sql.Statement(name, text, prepared=True)


def test_a_committer_s_connection_prepares_every_statement_marked_prepared(connection: Connection[Any]) -> None:
    assert roundtrip.is_prepared_on(connection)
    assert prepared_names(connection) == {f"fairgate_{name}" for name in roundtrip._prepared_texts}
    assert {"fairgate_insert_reservations", "fairgate_lock_entries_skipping"} <= prepared_names(connection)
    names = "SELECT name, parameter_types::text FROM pg_prepared_statements"
    untyped = [name for name, types in connection.execute(names) if "unknown" in types]
    assert untyped == [], "every parameter needs a type"


def test_a_prepared_statement_returns_the_same_rows_as_its_text(connection: Connection[Any]) -> None:
    statement = add_statement(
        "made_up", "-- Heading.\nSELECT %(word)s::text, %(n)s::bigint + %(n)s, 5 %% 3, %(ids)s::uuid[] -- end"
    )
    connection.execute("DEALLOCATE ALL")
    roundtrip.prepare_all(connection)
    params: dict[str, Any] = {"word": "it's $1 ö %(n)s", "n": 4, "ids": []}
    with connection.cursor() as cursor:
        by_plan = statement.rows(cursor, **params)
        (both,) = sql.execute_batch(cursor, [statement.call(**params)])
        as_text = sql.Statement("made_up", statement.text).rows(cursor, **params)
    assert by_plan == both.rows == as_text == [("it's $1 ö %(n)s", 8, 2, [])]
    ((calls,),) = connection.execute(
        "SELECT generic_plans + custom_plans FROM pg_prepared_statements WHERE name = 'fairgate_made_up'"
    ).fetchall()
    assert calls == 2


def test_if_one_statement_does_not_fit_the_tables_none_is_prepared(connection: Connection[Any]) -> None:
    add_statement("to_come", "SELECT %(n)s::int FROM a_table_of_the_next_migration")
    pool = pools.create_pool("preparing too early", size_max=1, connect_ms=10_000, prepares=True)
    pool.open()
    try:
        with pool.connection() as early, early.cursor() as cursor:
            assert not roundtrip.is_prepared_on(early)
            assert len(sql.load("apps.kernel", "read_clock", prepared=True).rows(cursor)) == 1
    finally:
        pool.close()


def test_a_prepared_statement_that_is_gone_causes_a_retry_and_fails_no_request() -> None:
    """As behind a pooler in transaction mode that hands out a server connection without our prepared statements."""
    read_clock = sql.load("apps.kernel", "read_clock", prepared=True)

    def decide(connection: Connection[Any], requests: list[int]) -> list[int]:
        if roundtrip.is_prepared_on(connection):
            connection.execute("DEALLOCATE ALL")
        with transactions.write_on(connection) as cursor:
            read_clock.rows(cursor)
        return requests

    batcher: Batcher[int, int] = Batcher("pooled", decide, find_committed=decide_finds_committed)
    try:
        assert batcher.submit_sync(1, 20_000) == 1
        assert batcher.submit_sync(2, 20_000) == 2
    finally:
        batcher.close()
    assert roundtrip._Pooled.seen


def test_two_prepared_statements_of_one_name_are_refused() -> None:
    with pytest.raises(AssertionError, match="read_clock"):
        roundtrip.add_prepared("read_clock", "SELECT 1")


def test_preparing_on_a_closed_connection_raises(connection: Connection[Any]) -> None:
    connection.close()
    with pytest.raises(psycopg.OperationalError):
        roundtrip.prepare_all(connection)


def test_statements_of_committers_use_indexes_whatever_the_statistics_say(connection: Connection[Any]) -> None:
    """A table of one page is otherwise read as a whole, also after it has grown, until it is analyzed."""
    connection.execute("CREATE TEMPORARY TABLE growing (id bigint PRIMARY KEY)")
    connection.execute("INSERT INTO growing VALUES (1)")
    connection.execute("ANALYZE growing")
    plan = connection.execute("EXPLAIN SELECT * FROM growing WHERE id = 1").fetchall()
    assert "Index" in plan[0][0], plan
