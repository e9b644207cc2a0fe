"""Transactions with limits on lock waits, on each statement, and on idling."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Protocol

from django.conf import settings
from django.db import DatabaseError, InterfaceError, connection, transaction
from psycopg import ClientCursor, Connection, Cursor, Error, errors
from psycopg.pq import TransactionStatus

from apps.kernel.db import roundtrip, sql

logger = logging.getLogger(__name__)

ROWCOUNT_MISMATCH = "FG001"
"""The SQLSTATE of `fairgate_check_rowcount`; PostgreSQL itself uses no class FG."""
FAILURES = (DatabaseError, Error)
"""The errors of a statement: Django's connection raises DatabaseError, other connections raise psycopg's Error."""
# Errors that a retry may cure: deadlock, lock timeout, statement timeout, serialization failure.
_TRANSIENT = (errors.DeadlockDetected, errors.LockNotAvailable, errors.QueryCanceled, errors.SerializationFailure)

_LOST_SQLSTATES = ("08", "57P", "53300")
"""Connection exceptions, the shutdown, crash or start of the server, and too many sessions."""

_set_limits = sql.load("apps.kernel", "set_limits", prepared=True)


class TransactionOpener(Protocol):
    """Opens a transaction with limits and yields its cursor, on Django's connection or another. Code that takes an
    opener can run several transactions, one after the other, on its caller's connection."""

    def __call__(
        self, *, lock_ms: int | None = None, statement_ms: int | None = None
    ) -> AbstractContextManager[sql.Cursor]: ...


class OutsideTransaction(RuntimeError):
    """A function that joins its caller's transaction was called outside one: a fault of the code, not of the input."""


@contextmanager
def write(*, lock_ms: int | None = None, statement_ms: int | None = None, idle_ms: int | None = None) -> Iterator[None]:
    """Run the block in one transaction with limits in milliseconds on the wait for a lock, on each statement, and on
    the time between two statements (a process that hangs must not keep its locks).

    Must be the outermost block: its limits last to the end of the transaction, so inside another transaction it would
    silently change that transaction's limits.
    """
    with transaction.atomic(durable=not _inside_test_transaction()):
        with connection.cursor() as cursor:
            sql.execute_unobserved(cursor, _set_limits.call(**_limits(lock_ms, statement_ms, idle_ms)))
        yield


@contextmanager
def write_on_django(*, lock_ms: int | None = None, statement_ms: int | None = None) -> Iterator[sql.Cursor]:
    """Run the block as `write` does and yield a cursor: the `TransactionOpener` of this thread's connection."""
    with write(lock_ms=lock_ms, statement_ms=statement_ms), connection.cursor() as cursor:
        yield cursor


def write_batch(
    calls: Sequence[sql.Call], *, lock_ms: int | None = None, statement_ms: int | None = None
) -> list[roundtrip.StatementResult]:
    """Execute these statements as one transaction with limits, as `write` does, on this thread's connection, and commit
    it if none fails. Return their results.

    Everything is sent in one round trip, BEGIN and COMMIT included; a test that observes statements, and one that runs
    in a transaction, has them sent one by one. No other transaction may be open.
    """
    with connection.cursor() as cursor:
        if sql.can_batch_on_django(cursor) and not connection.in_atomic_block:
            with (
                connection.wrap_database_errors,
                write_on(cursor.connection, lock_ms=lock_ms, statement_ms=statement_ms) as own,
            ):
                return sql.execute_batch_and_commit(own, calls)
    with write_on_django(lock_ms=lock_ms, statement_ms=statement_ms) as cursor:
        return sql.execute_batch(cursor, calls)


def writes_on(on: Connection[Any]) -> TransactionOpener:
    """Return the `TransactionOpener` of a psycopg connection that is not Django's."""
    return partial(write_on, on)


@contextmanager
def write_on(
    on: Connection[Any], *, lock_ms: int | None = None, statement_ms: int | None = None
) -> Iterator[Cursor[Any]]:
    """Yield the cursor of one transaction with limits on a psycopg connection that is not Django's. The transaction
    begins with the first statement.

    Must be the outermost block, like `write`. Errors are psycopg's own, unwrapped.
    """
    if not _is_idle(on):
        raise RuntimeError("a transaction is open on this connection, or the connection is closed")
    can_batch = issubclass(on.cursor_factory, ClientCursor)
    cursor: Cursor[Any] = roundtrip.Cursor(on) if can_batch else on.cursor()
    with cursor:
        try:
            _open(cursor, _limits(lock_ms, statement_ms))
            yield cursor
            if on.info.transaction_status == TransactionStatus.INERROR:
                # PostgreSQL would treat COMMIT as ROLLBACK and report that only in the command tag.
                raise RuntimeError("a statement has failed and its error was ignored: this cannot be committed")
        except BaseException as error:
            _roll_back(on, error)
            raise
        if not _is_idle(on):
            cursor.execute("COMMIT")


def _is_idle(on: Connection[Any]) -> bool:
    """Return whether no transaction is open: none has begun, or COMMIT was sent with its last statement."""
    return on.info.transaction_status == TransactionStatus.IDLE


def _open(cursor: Cursor[Any], limits: dict[str, str]) -> None:
    if isinstance(cursor, roundtrip.Cursor):
        setting = sql.texts_of(cursor, [_set_limits.call(**limits)])
        cursor.set_opening(["BEGIN", *setting, *roundtrip.refresh_plans(cursor.connection)])
    else:
        # Parameters bound by the server allow only one statement in a round trip.
        cursor.execute("BEGIN")
        cursor.execute(_set_limits.text, limits)


def _roll_back(on: Connection[Any], error: BaseException) -> None:
    if on.closed or _is_idle(on):
        return
    try:
        on.execute("ROLLBACK")
    except Error as other:
        # The connection is lost, and with it the transaction. The first error states the cause.
        logger.warning("the end of the connection rolled the transaction back after %s: %s", error, other)


def _limits(lock_ms: int | None, statement_ms: int | None, idle_ms: int | None = None) -> dict[str, str]:
    return {
        "lock": f"{settings.DATABASE_LOCK_TIMEOUT_MS if lock_ms is None else lock_ms}ms",
        "statement": f"{settings.DATABASE_STATEMENT_TIMEOUT_MS if statement_ms is None else statement_ms}ms",
        "idle": f"{settings.DATABASE_IDLE_IN_TRANSACTION_TIMEOUT_MS if idle_ms is None else idle_ms}ms",
    }


def _inside_test_transaction() -> bool:
    # Django's TestCase wraps each test in a transaction and marks it so; only there may `write` nest.
    return any(getattr(atomic, "_from_testcase", False) for atomic in connection.atomic_blocks)


def require_transaction(cursor: sql.Cursor | None = None) -> None:
    """Raise OutsideTransaction unless a transaction is open on the connection of this cursor, Django's or psycopg's;
    without a cursor, on Django's connection."""
    if cursor is None:
        inside = connection.in_atomic_block
    else:
        # Both kinds of connection are in autocommit outside a block. Inside, Django's leaves autocommit, and psycopg's
        # has sent BEGIN or is about to.
        on = cursor.connection
        is_to_open = isinstance(cursor, roundtrip.Cursor) and cursor.has_pending_opening
        inside = is_to_open or not on.autocommit or not _is_idle(on)
    if not inside:
        raise OutsideTransaction("this function joins its caller's transaction, but none is open")


def violated_constraint(error: BaseException) -> str | None:
    """Return the name of the constraint behind an IntegrityError."""
    cause = _of_psycopg(error)
    return cause.diag.constraint_name if isinstance(cause, errors.Error) else None


def is_rowcount_mismatch(error: BaseException) -> bool:
    """Return whether an UPDATE touched more or fewer rows than required: see `sql.check_rowcount`."""
    cause = _of_psycopg(error)
    return isinstance(cause, errors.Error) and cause.sqlstate == ROWCOUNT_MISMATCH


def is_statement_missing(error: BaseException) -> bool:
    """Return whether the session lacks a statement that was prepared on its connection: see
    `roundtrip.disable_prepared`."""
    return isinstance(_of_psycopg(error), errors.InvalidSqlStatementName)


def is_transient(error: BaseException) -> bool:
    """Return whether a retry may succeed: after a deadlock, a lock or statement timeout or a serialization failure, but
    never after a data error."""
    return isinstance(_of_psycopg(error), _TRANSIENT)


def is_connection_lost(error: BaseException) -> bool:
    """Return whether a statement failed because its session ended or none could be opened: the statement is not at
    fault, and whether a COMMIT was carried out is not known."""
    cause = error.__cause__ if isinstance(error, InterfaceError) else _of_psycopg(error)
    if not isinstance(cause, errors.OperationalError | errors.InterfaceError):
        return False
    return cause.sqlstate is None or cause.sqlstate.startswith(_LOST_SQLSTATES)


def _of_psycopg(error: BaseException) -> BaseException | None:
    # Django wraps psycopg's errors; transactions on other connections raise them as they are.
    return error.__cause__ if isinstance(error, DatabaseError) else error
