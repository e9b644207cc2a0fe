"""Transactions with time limits, statements from files, and the clock."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from django.db import DatabaseError, IntegrityError, connection, transaction
from psycopg import errors
from psycopg.pq import TransactionStatus

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.models import IdempotentAnswer
from tests.support.races import ConcurrentCall, rival_connection, statements

pytestmark = pytest.mark.django_db(transaction=True)

ROW = {"fingerprint": "f", "status": 201, "answer": "{}"}


def test_a_write_commits_whole_or_not_at_all() -> None:
    with transactions.write():
        IdempotentAnswer.objects.create(scope="a", key="1", created_at=clock.now(), **ROW)
        transaction.set_rollback(True)
    assert IdempotentAnswer.objects.count() == 0
    with transactions.write():
        IdempotentAnswer.objects.create(scope="a", key="1", created_at=clock.now(), **ROW)
    with rival_connection() as rival, rival.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM kernel_idempotentanswer")
        assert cursor.fetchone() == (1,)


def test_a_write_inside_another_transaction_raises() -> None:
    """Its limits would apply to the outer transaction, and its end would not commit."""
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic(), transactions.write():
        raise AssertionError("never reached")


def test_a_write_on_another_connection_than_django_s_has_the_same_limits_and_may_not_be_nested() -> None:
    shown = "SELECT current_setting('lock_timeout'), current_setting('statement_timeout')"
    now = clock.now()
    with rival_connection() as other:
        other.ensure_connection()
        beside = other.connection
        assert beside is not None
        with transactions.write_on(beside, lock_ms=10, statement_ms=2_000) as cursor:
            cursor.execute(shown)
            assert cursor.fetchone() == ("10ms", "2s")
            with pytest.raises(RuntimeError, match="a transaction is open"), transactions.write_on(beside):
                raise AssertionError("never reached")
            IdempotentAnswer.objects.create(scope="a", key="1", created_at=now, **ROW)
            cursor.execute("SELECT count(*) FROM kernel_idempotentanswer")
            assert cursor.fetchone() == (1,)
        assert beside.execute(shown).fetchone() != ("10ms", "2s"), "the limits end with the transaction"
        insert = "INSERT INTO kernel_idempotentanswer (scope, key, fingerprint, status, answer, created_at)"
        with pytest.raises(errors.UniqueViolation) as twice, transactions.write_on(beside) as cursor:
            cursor.execute(insert + " SELECT scope, key, '', 0, '', created_at FROM kernel_idempotentanswer")
        assert transactions.violated_constraint(twice.value) == "idempotent_answer_once"
        with transaction.atomic():
            IdempotentAnswer.objects.update(status=202)
            with pytest.raises(errors.LockNotAvailable) as late, transactions.write_on(beside, lock_ms=10) as cursor:
                cursor.execute("UPDATE kernel_idempotentanswer SET status = 203")
        assert transactions.is_transient(late.value)
        assert not transactions.is_transient(twice.value)
        beside.close()
        with pytest.raises(RuntimeError, match="closed"), transactions.write_on(beside):
            raise AssertionError("never reached")


def test_a_write_begins_with_its_first_statement_and_may_commit_with_its_last() -> None:
    insert = sql.Statement(
        "insert",
        "INSERT INTO kernel_idempotentanswer (scope, key, fingerprint, status, answer, created_at)"
        " VALUES (%(scope)s, '1', 'f', 201, '{}', clock_timestamp())",
    )
    update = sql.Statement(
        "update",
        sql.check_rowcount("update", "UPDATE kernel_idempotentanswer SET status = 202 WHERE scope = %(scope)s"),
    )
    with rival_connection() as other:
        other.ensure_connection()
        beside = other.connection
        assert beside is not None
        status = beside.info
        with transactions.write_on(beside) as cursor:
            transactions.require_transaction(cursor)
            assert status.transaction_status == TransactionStatus.IDLE
        assert status.transaction_status == TransactionStatus.IDLE, "no statement, so no transaction"
        with transactions.write_on(beside, lock_ms=10) as cursor:
            assert sql.execute_batch(cursor, [sql.Statement("show", "SHOW lock_timeout").call()])[0].rows == [("10ms",)]
            sql.execute_batch_and_commit(cursor, [insert.call(scope="a"), update.call(scope="a", rows=1)])
            assert status.transaction_status == TransactionStatus.IDLE
            assert IdempotentAnswer.objects.get().status == 202
        with (
            pytest.raises(errors.DatabaseError, match="update: 1 rows instead of 2") as wrong,
            transactions.write_on(beside) as cursor,
        ):
            sql.execute_batch_and_commit(cursor, [insert.call(scope="b"), update.call(scope="b", rows=2)])
        assert transactions.is_rowcount_mismatch(wrong.value)
        assert not transactions.is_rowcount_mismatch(ValueError())
        with (
            sql.observe(lambda name, when: None),
            pytest.raises(errors.DatabaseError, match="instead of 0") as observed,
            transactions.write_on(beside) as cursor,
        ):
            sql.execute_batch_and_commit(cursor, [insert.call(scope="b"), update.call(scope="b", rows=0)])
        assert transactions.is_rowcount_mismatch(observed.value)
        assert IdempotentAnswer.objects.count() == 1


def test_a_batch_is_a_transaction_of_its_own_in_one_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    insert = sql.Statement(
        "insert",
        "INSERT INTO kernel_idempotentanswer (scope, key, fingerprint, status, answer, created_at)"
        " VALUES (%(scope)s, '1', 'f', 201, '{}', clock_timestamp())",
    )
    limit = sql.Statement("show", "SHOW lock_timeout")
    trips = 0
    wait = psycopg.Connection.wait

    def counted(*args: Any, **options: Any) -> Any:
        nonlocal trips
        trips += 1
        return wait(*args, **options)

    connection.ensure_connection()
    monkeypatch.setattr(psycopg.Connection, "wait", counted)
    _, shown = transactions.write_batch([insert.call(scope="a"), limit.call()], lock_ms=10)
    assert (shown.rows, trips) == ([("10ms",)], 1)
    with pytest.raises(IntegrityError) as twice:
        transactions.write_batch([insert.call(scope="b"), insert.call(scope="b")])
    assert transactions.violated_constraint(twice.value) == "idempotent_answer_once"
    with statements() as sent:
        transactions.write_batch([insert.call(scope="c"), limit.call()])
    assert sent == ["insert", "show"]
    assert set(IdempotentAnswer.objects.values_list("scope", flat=True)) == {"a", "c"}
    with pytest.raises(RuntimeError, match="durable"), transaction.atomic():
        transactions.write_batch([limit.call()])
    assert connection.get_autocommit()


def test_require_transaction_accepts_cursors_of_django_and_of_psycopg() -> None:
    with connection.cursor() as django_cursor:
        with pytest.raises(transactions.OutsideTransaction):
            transactions.require_transaction(django_cursor)
        with transaction.atomic():
            transactions.require_transaction(django_cursor)
        with transactions.write():
            transactions.require_transaction(django_cursor)
    with rival_connection() as other:
        other.ensure_connection()
        beside = other.connection
        assert beside is not None
        with beside.cursor() as psycopg_cursor, pytest.raises(transactions.OutsideTransaction):
            transactions.require_transaction(psycopg_cursor)
        with transactions.write_on(beside) as psycopg_cursor:
            transactions.require_transaction(psycopg_cursor)
            before = clock.now_on(psycopg_cursor)
            assert clock.now_on(psycopg_cursor) > before, "the clock advances inside a transaction"
            with pytest.raises(transactions.OutsideTransaction):
                transactions.require_transaction()


def test_require_transaction_raises_outside_a_transaction() -> None:
    with pytest.raises(transactions.OutsideTransaction):
        transactions.require_transaction()
    with transactions.write():
        transactions.require_transaction()


def test_a_lock_timeout_is_transient_and_a_constraint_violation_is_not() -> None:
    now = clock.now()
    IdempotentAnswer.objects.create(scope="a", key="1", created_at=now, **ROW)
    with rival_connection() as keeper:
        keeper.set_autocommit(False)
        with keeper.cursor() as cursor:
            cursor.execute("SELECT 1 FROM kernel_idempotentanswer FOR NO KEY UPDATE")
        with pytest.raises(DatabaseError) as late, transactions.write(lock_ms=10):
            IdempotentAnswer.objects.update(status=202)
        keeper.rollback()
    assert transactions.is_transient(late.value)
    assert isinstance(late.value.__cause__, errors.LockNotAvailable)
    with pytest.raises(IntegrityError) as twice, transactions.write():
        IdempotentAnswer.objects.create(scope="a", key="1", created_at=now, **ROW)
    assert not transactions.is_transient(twice.value)
    assert transactions.violated_constraint(twice.value) == "idempotent_answer_once"
    assert transactions.violated_constraint(ValueError()) is None
    assert not transactions.is_transient(ValueError())


def test_the_victim_of_a_deadlock_is_transient() -> None:
    """A: locks row 1. B: locks row 2, wants 1, waits. A: wants 2. PostgreSQL cancels one of them."""
    for key in "12":
        IdempotentAnswer.objects.create(scope="a", key=key, created_at=clock.now(), **ROW)

    def update(*keys: str) -> None:
        for key in keys:
            IdempotentAnswer.objects.filter(key=key).update(status=202)

    def rival() -> None:
        with transactions.write():
            update("2", "1")

    ended: list[BaseException | None] = []
    try:
        with transactions.write():
            update("1")
            beside = ConcurrentCall(rival).wait_until_blocked()
            update("2")
    except DatabaseError as error:
        ended.append(error)
    ended.append(beside.outcome().error)
    (victim,) = [error for error in ended if error is not None]
    assert transactions.is_transient(victim)


def test_the_clock_is_the_database_s_and_advances_inside_a_transaction() -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT now()")
        (frozen,) = cursor.fetchone()
        first, second = clock.now(), clock.now()
    assert frozen < first < second
    assert first.utcoffset() == timedelta(0)


def test_a_published_timestamp_is_utc_to_the_millisecond() -> None:
    moment = datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=timezone(timedelta(hours=2)))
    assert clock.iso(moment) == "2030-01-02T01:04:05.678Z"
    assert clock.iso(datetime(2030, 1, 2, tzinfo=UTC)) == "2030-01-02T00:00:00.000Z"


def test_a_statement_is_loaded_from_its_file_and_returns_rows_or_a_count() -> None:
    statement = sql.load("apps.reservations", "read_clock")
    assert statement is sql.load("apps.reservations", "read_clock")
    assert statement.text.startswith("-- ")
    with connection.cursor() as cursor:
        ((moment,),) = statement.rows(cursor)
        assert isinstance(moment, datetime)
        assert sql.load("apps.queue", "expire_admissions").count(cursor, limit=5, event_id=None, grace_seconds=0) == 0
    with pytest.raises(FileNotFoundError):
        sql.load("apps.reservations", "no_such_statement")


def test_an_observer_is_called_before_and_after_every_statement_until_it_is_removed() -> None:
    statement, seen = sql.load("apps.reservations", "read_clock"), []
    with sql.observe(lambda name, moment: seen.append((name, moment))), connection.cursor() as cursor:
        statement.rows(cursor)
    with connection.cursor() as cursor:
        statement.rows(cursor)
    assert seen == [("read_clock", "before"), ("read_clock", "after")]
