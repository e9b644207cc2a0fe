"""Several statements in one round trip, and lists sent as array literals."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import psycopg
import pytest
from django.db import DataError, transaction
from django.db import connection as django

from apps.kernel.db import arrays, roundtrip, sql, transactions
from tests.support.batches import connect

pytestmark = pytest.mark.django_db(transaction=True)

HARD_WORDS = [
    "",
    "null",
    "NULL",
    "a b",
    'say "so"',
    "it's",
    "back\\slash",
    "{}",
    "a,b",
    "ö 漢",
    "\n",
    "%s %(x)s",
    "$1",
    ";--",
]


@pytest.fixture
def cursor() -> Iterator[roundtrip.Cursor]:
    with connect() as connection, roundtrip.Cursor(connection) as found:
        yield found


def statement(text: str) -> sql.Statement:
    return sql.Statement("made up", text)


def test_each_statement_returns_its_rows_or_its_row_count(cursor: roundtrip.Cursor) -> None:
    calls = [
        statement("-- Heading.\nCREATE TEMPORARY TABLE thing (n int) -- trailing").call(),
        statement("INSERT INTO thing SELECT unnest(%(ns)s::int[])").call(ns=[1, 2, 3]),
        statement("SELECT n FROM thing WHERE n > %(ns)s ORDER BY n").call(ns=1),
        statement("UPDATE thing SET n = n + 1 WHERE n = %(n)s").call(n=3),
        statement("SELECT n FROM thing WHERE n = %(n)s").call(n=3),
    ]
    results = sql.execute_batch(cursor, calls)
    assert [done.rows for done in results] == [(), (), [(2,), (3,)], (), []]
    assert [done.touched for done in results[1:4]] == [3, 2, 1]
    cursor.execute("DROP TABLE thing")
    with sql.observe(lambda name, moment: None):
        one_by_one = sql.execute_batch(cursor, calls)
    assert [(list(done.rows), done.touched) for done in one_by_one] == [
        (list(done.rows), done.touched) for done in results
    ]


def test_on_django_s_connection_a_batch_joins_the_transaction_and_fails_as_django_s_statements_do() -> None:
    create = statement("CREATE TABLE passing (n int)").call()
    insert = statement("INSERT INTO passing VALUES (%(n)s), (%(n)s)").call(n=3)
    with django.cursor() as cursor, suppress(KeyError), transaction.atomic():
        assert [done.touched for done in sql.execute_batch(cursor, [create, insert])][1] == 2
        with pytest.raises(DataError), transaction.atomic():
            sql.execute_batch(cursor, [insert, statement("SELECT 1 / %(n)s").call(n=0)])
        assert sql.execute_batch(cursor, [statement("SELECT n FROM passing").call()])[0].rows == [(3,), (3,)]
        raise KeyError
    with django.cursor() as cursor:
        assert sql.execute_batch(cursor, [statement("SELECT to_regclass('passing')").call()])[0].rows == [(None,)]


def test_after_a_statement_fails_no_other_runs_and_the_transaction_is_rolled_back() -> None:
    with connect() as connection:
        connection.cursor_factory = psycopg.ClientCursor
        with pytest.raises(psycopg.errors.DivisionByZero), transactions.write_on(connection) as on:
            sql.execute_batch(on, [
                statement("CREATE TABLE never (n int)").call(),
                statement("SELECT 1 / %(n)s").call(n=0),
                statement("SELECT 2").call(),
            ])  # fmt: skip
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        assert connection.execute("SELECT to_regclass('never')").fetchall() == [(None,)]


def test_a_transaction_with_a_suppressed_error_is_never_committed() -> None:
    with connect() as connection:
        with (
            pytest.raises(RuntimeError, match="cannot be committed"),
            transactions.write_on(connection) as on,
            suppress(psycopg.errors.DivisionByZero),
        ):
            on.execute("SELECT 1 / 0")
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_an_array_literal_is_read_back_as_it_was_sent(cursor: roundtrip.Cursor) -> None:
    ids, now = [uuid4() for _ in range(3)], datetime.now(UTC)
    times = [now, now, now + timedelta(seconds=1)]
    cursor.execute(
        "SELECT %s::uuid[], %s::bigint[], %s::timestamptz[], %s::text[], %s::text[], %s::text[], %s::uuid[]",
        [
            arrays.uuids(ids), arrays.numbers([1, None, -2**62]), arrays.moments(times), arrays.texts(HARD_WORDS),
            arrays.texts(["plain", "visitor:some-one"]), arrays.texts([]), arrays.uuids([]),
        ],
    )  # fmt: skip
    found = [ids, [1, None, -(2**62)], times, HARD_WORDS, ["plain", "visitor:some-one"], [], []]
    assert cursor.fetchall() == [tuple(found)]
    cursor.execute(
        "SELECT %s::boolean[], %s::bytea[]", [arrays.flags([True, False]), arrays.byte_strings([b"", b"\x00\xff'"])]
    )
    assert cursor.fetchall() == [([True, False], [b"", b"\x00\xff'"])]


def test_values_of_every_type_in_a_batch_are_read_back_as_they_were_sent(
    cursor: roundtrip.Cursor,
) -> None:
    now = datetime.now(UTC)
    values = [
        arrays.texts(HARD_WORDS),
        HARD_WORDS,
        *HARD_WORDS,
        7,
        -7,
        None,
        True,
        1.5,
        now,
        uuid4(),
        b"\x00'\\",
        [1, None],
    ]
    casts = ["text[]", "text[]", *["text"] * len(HARD_WORDS), "int", "int", "text", "boolean", "float8", "timestamptz",
             "uuid", "bytea", "int[]"]  # fmt: skip
    calls = [
        statement(f"SELECT %(value)s::{cast}, 3 %% 2, %(value)s::{cast}").call(value=value)
        for value, cast in zip(values, casts, strict=True)
    ]
    expected = [HARD_WORDS, *values[1:]]
    assert [done.rows[0][0] for done in sql.execute_batch(cursor, calls)] == expected
