"""Transactions with limits. A transaction here never waits long for a lock, never runs long, never stays idle."""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any, Protocol

from django.conf import settings
from django.db import DatabaseError, connection, transaction
from psycopg import ClientCursor, Connection, Cursor, Error, errors
from psycopg.pq import TransactionStatus

from apps.kernel.db import roundtrip, sql

logger = logging.getLogger(__name__)

ROWCOUNT_MISMATCH = "FG001"
"""The SQLSTATE of `fairgate_check_rowcount`; PostgreSQL itself uses no class FG."""
FAILURES = (DatabaseError, Error)
"""What a statement can raise: Django's connection wraps it, others do not."""
# What a fresh attempt may cure: a deadlock's victim, a lock that did not come in time, a statement out of time.
_TRANSIENT = (errors.DeadlockDetected, errors.LockNotAvailable, errors.QueryCanceled, errors.SerializationFailure)

_set_limits = sql.load("apps.kernel", "set_limits", prepared=True)


class HasConnection(Protocol):
    """A cursor that knows the psycopg connection it is of."""

    @property
    def connection(self) -> Any: ...


class TransactionOpener(Protocol):
    """Opens a transaction with limits and yields its cursor: on Django's connection or on another. What is given one
    runs several transactions, one after the other, wherever its caller is at home."""

    def __call__(
        self, *, lock_ms: int | None = None, statement_ms: int | None = None
    ) -> AbstractContextManager[sql.Cursor]: ...


class OutsideTransaction(RuntimeError):
    """A function that joins its caller's transaction was called without one: a fault of the code, not of the input."""


@contextmanager
def write(*, lock_ms: int | None = None, statement_ms: int | None = None, idle_ms: int | None = None) -> Iterator[None]:
    """One transaction, with a bound on the wait for any lock and on any statement, in milliseconds, and on how long it
    may stay idle between two (a process that hangs must not keep its locks).

    Must be the outermost block: its limits last to the end of the transaction, and a savepoint inside somebody
    else's would quietly change theirs.
    """
    with transaction.atomic(durable=not _inside_test_transaction()):
        with connection.cursor() as cursor:
            sql.execute_unobserved(cursor, _set_limits.call(**_limits(lock_ms, statement_ms, idle_ms)))
        yield


@contextmanager
def write_on_django(*, lock_ms: int | None = None, statement_ms: int | None = None) -> Iterator[sql.Cursor]:
    """The same with its cursor: the `TransactionOpener` of this thread's own connection."""
    with write(lock_ms=lock_ms, statement_ms=statement_ms), connection.cursor() as cursor:
        yield cursor


def writes_on(on: Connection[Any]) -> TransactionOpener:
    """The `TransactionOpener` of a psycopg connection that is not Django's."""
    return partial(write_on, on)


@contextmanager
def write_on(
    on: Connection[Any], *, lock_ms: int | None = None, statement_ms: int | None = None
) -> Iterator[Cursor[Any]]:
    """The same on a psycopg connection that is not Django's: yields the cursor of one transaction with its limits. It
    begins with the first statement.

    Must be the outermost block here too. Errors are psycopg's own, unwrapped.
    """
    if on.info.transaction_status != TransactionStatus.IDLE:
        raise RuntimeError("a transaction is under way on this connection, or the connection is gone")
    travels = issubclass(on.cursor_factory, ClientCursor)
    cursor: Cursor[Any] = roundtrip.Cursor(on) if travels else on.cursor()
    with cursor:
        try:
            _open(cursor, _limits(lock_ms, statement_ms))
            yield cursor
            if on.info.transaction_status == TransactionStatus.INERROR:
                # PostgreSQL would take a COMMIT for a ROLLBACK, and say so only in passing.
                raise RuntimeError("a statement has failed and somebody went on: this cannot be committed")
        except BaseException as error:
            _roll_back(on, error)
            raise
        if not _is_idle(on):
            cursor.execute("COMMIT")


def _is_idle(on: Connection[Any]) -> bool:
    """Also if nothing was sent, or the COMMIT has travelled with what came last."""
    return on.info.transaction_status == TransactionStatus.IDLE


def _open(cursor: Cursor[Any], limits: dict[str, str]) -> None:
    if isinstance(cursor, roundtrip.Cursor):
        setting = sql.texts_of(cursor, [_set_limits.call(**limits)])
        cursor.set_opening(["BEGIN", *setting, *roundtrip.refresh_plans(cursor.connection)])
    else:
        # Parameters that travel apart from their statement allow only one in a journey.
        cursor.execute("BEGIN")
        cursor.execute(_set_limits.text, limits)


def _roll_back(on: Connection[Any], error: BaseException) -> None:
    if on.closed or on.info.transaction_status == TransactionStatus.IDLE:
        return
    try:
        on.execute("ROLLBACK")
    except Error as other:
        # The line is lost, and with it the transaction. What was raised first tells more.
        logger.warning("rolled back by its end after %s: %s", error, other)


def _limits(lock_ms: int | None, statement_ms: int | None, idle_ms: int | None = None) -> dict[str, str]:
    return {
        "lock": f"{settings.DATABASE_LOCK_TIMEOUT_MS if lock_ms is None else lock_ms}ms",
        "statement": f"{settings.DATABASE_STATEMENT_TIMEOUT_MS if statement_ms is None else statement_ms}ms",
        "idle": f"{settings.DATABASE_IDLE_IN_TRANSACTION_TIMEOUT_MS if idle_ms is None else idle_ms}ms",
    }


def _inside_test_transaction() -> bool:
    # Django's TestCase wraps each test in a transaction and marks it so; only there may `write` nest.
    return any(getattr(atomic, "_from_testcase", False) for atomic in connection.atomic_blocks)


def require_transaction(cursor: HasConnection | None = None) -> None:
    """Returns only inside a transaction: the one of this cursor, Django's or psycopg's, or without a cursor the one of
    Django's connection. Raises OutsideTransaction."""
    if cursor is None:
        inside = connection.in_atomic_block
    else:
        # Django's cursors hand on what they wrap. Both kinds of connection are in autocommit but inside a block, where
        # Django's leaves it and psycopg's has sent its BEGIN, or is about to.
        on = cursor.connection
        is_to_open = isinstance(cursor, roundtrip.Cursor) and cursor.has_pending_opening
        inside = is_to_open or not on.autocommit or on.info.transaction_status != TransactionStatus.IDLE
    if not inside:
        raise OutsideTransaction("this joins the caller's transaction, and there is none")


def violated_constraint(error: BaseException) -> str | None:
    """The name of the constraint behind an IntegrityError, so that the database's last word gets a name."""
    cause = _of_psycopg(error)
    return cause.diag.constraint_name if isinstance(cause, errors.Error) else None


def is_rowcount_mismatch(error: BaseException) -> bool:
    """Return whether an UPDATE touched another number of rows than it had to: see `sql.check_rowcount`."""
    cause = _of_psycopg(error)
    return isinstance(cause, errors.Error) and cause.sqlstate == ROWCOUNT_MISMATCH


def is_transient(error: BaseException) -> bool:
    """Whether another attempt may succeed: deadlock, lock or statement time-out. Never an error of the data."""
    return isinstance(_of_psycopg(error), _TRANSIENT)


def _of_psycopg(error: BaseException) -> BaseException | None:
    # Django wraps what psycopg raises; a transaction beside Django's connections raises it as it is.
    return error.__cause__ if isinstance(error, DatabaseError) else error
