"""Several statements in one round trip, and lists written out before they are sent."""

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


def test_each_statement_gives_its_own_rows_or_how_many_it_touched(cursor: roundtrip.Cursor) -> None:
    calls = [
        statement("-- Heading.\nCREATE TEMPORARY TABLE thing (n int) -- trailing").call(),
        statement("INSERT INTO thing SELECT unnest(%(ns)s::int[])").call(ns=[1, 2, 3]),
        statement("SELECT n FROM thing WHERE n > %(ns)s ORDER BY n").call(ns=1),
        statement("UPDATE thing SET n = n + 1 WHERE n = %(n)s").call(n=3),
        statement("SELECT n FROM thing WHERE n = %(n)s").call(n=3),
    ]
    together = sql.execute_batch(cursor, calls)
    assert [done.rows for done in together] == [(), (), [(2,), (3,)], (), []]
    assert [done.touched for done in together[1:4]] == [3, 2, 1]
    cursor.execute("DROP TABLE thing")
    with sql.observe(lambda name, moment: None):
        one_by_one = sql.execute_batch(cursor, calls)
    assert [(list(done.rows), done.touched) for done in one_by_one] == [
        (list(done.rows), done.touched) for done in together
    ]


def test_on_django_s_connection_they_take_the_beginning_along_and_fail_as_its_own_do() -> None:
    made = statement("CREATE TABLE passing (n int)").call()
    filled = statement("INSERT INTO passing VALUES (%(n)s), (%(n)s)").call(n=3)
    with django.cursor() as cursor, suppress(KeyError), transaction.atomic():
        assert [done.touched for done in sql.execute_batch(cursor, [made, filled])][1] == 2
        with pytest.raises(DataError), transaction.atomic():
            sql.execute_batch(cursor, [filled, statement("SELECT 1 / %(n)s").call(n=0)])
        assert sql.execute_batch(cursor, [statement("SELECT n FROM passing").call()])[0].rows == [(3,), (3,)]
        raise KeyError
    with django.cursor() as cursor:
        assert sql.execute_batch(cursor, [statement("SELECT to_regclass('passing')").call()])[0].rows == [(None,)]


def test_after_one_that_fails_none_runs_and_the_transaction_is_undone() -> None:
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


def test_a_failure_that_was_swallowed_is_never_committed() -> None:
    with connect() as connection:
        with (
            pytest.raises(RuntimeError, match="cannot be committed"),
            transactions.write_on(connection) as on,
            suppress(psycopg.errors.DivisionByZero),
        ):
            on.execute("SELECT 1 / 0")
        assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_what_is_written_out_is_read_back(cursor: roundtrip.Cursor) -> None:
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


def test_together_every_kind_of_value_stands_in_the_text_as_psycopg_would_bind_it(
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
