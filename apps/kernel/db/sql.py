"""Loads statements from files. Raw SQL lives in files, one statement each under a heading sentence.

Tests can register an observer that runs before or after a named statement, for example to inject a competing write,
which shows a race without a sleep.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Protocol, TypeGuard

from django.db.backends.utils import CursorWrapper
from psycopg import errors
from psycopg.pq import TransactionStatus

from apps.kernel.db import roundtrip
from apps.kernel.db.roundtrip import StatementResult

Observer = Callable[[str, str], None]
_observers: list[Observer] = []


class Cursor(Protocol):
    """The part of a cursor that statements use; Django's and psycopg's both have it."""

    @property
    def rowcount(self) -> int: ...
    @property
    def description(self) -> Any: ...
    @property
    def connection(self) -> Any: ...
    def execute(self, query: Any, params: Any = None) -> Any: ...
    def fetchall(self) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class Statement:
    name: str
    text: str
    prepared: bool = False
    """Whether connections that keep prepared statements prepare it: see roundtrip.py."""

    def rows(self, cursor: Cursor, **params: Any) -> Sequence[tuple[Any, ...]]:
        """Execute the statement and return its rows."""
        if self._can_batch(cursor):
            return execute_batch(cursor, [Call(self, params)])[0].rows
        self._run(cursor, params)
        return cursor.fetchall()

    def count(self, cursor: Cursor, **params: Any) -> int:
        """Execute the statement and return how many rows it touched."""
        if self._can_batch(cursor):
            return execute_batch(cursor, [Call(self, params)])[0].touched
        self._run(cursor, params)
        return cursor.rowcount

    def _can_batch(self, cursor: Cursor) -> bool:
        is_prepared = self.prepared and roundtrip.is_prepared_on(cursor.connection)
        return _can_batch(cursor) or (is_prepared and can_batch_on_django(cursor))

    def _run(self, cursor: Cursor, params: dict[str, Any]) -> None:
        if _observers and isinstance(cursor, roundtrip.Cursor):
            cursor.open()
        for observer in _observers:
            observer(self.name, "before")
        if self.prepared and roundtrip.is_prepared_on(cursor.connection):
            cursor.execute(roundtrip.bind(cursor, self.name, self.text, params, prepared=True))
        else:
            cursor.execute(self.text, params)
        for observer in _observers:
            observer(self.name, "after")

    def call(self, **params: Any) -> "Call":
        """Return the statement with these parameters, to be executed together with others."""
        return Call(self, params)


class Call(NamedTuple):
    statement: Statement
    params: dict[str, Any]


def execute_batch(cursor: Cursor, calls: Sequence[Call]) -> list[StatementResult]:
    """Execute these statements in order, in one round trip, and return their results in order.

    Each statement sees what was committed before it began, as if it had been sent alone. If one fails, the later ones
    do not run. They are sent one by one while an observer is registered (a test may inject a competing write in
    between), and on cursors other than Django's and those of `transactions.write_on`.
    """
    if not calls:
        return []
    if _can_batch(cursor):
        return cursor.execute_batch(texts_of(cursor, calls))
    if can_batch_on_django(cursor):
        return _execute_batch_on_django(cursor, calls)
    return [_execute_one(cursor, call) for call in calls]


def is_observed() -> bool:
    """Return whether a test observes the statements."""
    return bool(_observers)


def _can_batch(cursor: Cursor) -> TypeGuard[roundtrip.Cursor]:
    return isinstance(cursor, roundtrip.Cursor) and not _observers


def can_batch_on_django(cursor: Any) -> TypeGuard[CursorWrapper]:
    """Return whether it is a cursor of Django's connection, and neither Django nor a test observes its statements."""
    if not isinstance(cursor, CursorWrapper) or _observers:
        return False
    return not (cursor.db.execute_wrappers or cursor.db.queries_logged)


def _execute_batch_on_django(cursor: CursorWrapper, calls: Sequence[Call]) -> list[StatementResult]:
    """Send the statements, with BEGIN if Django's atomic block has begun and its transaction has not. Wrap errors as
    Django's own cursor does."""
    with cursor.db.wrap_database_errors:
        on = cursor.connection
        with roundtrip.Cursor(on) as own:
            begins = not on.autocommit and on.info.transaction_status == TransactionStatus.IDLE
            own.set_opening([*(["BEGIN"] if begins else []), *roundtrip.refresh_plans(on)])
            try:
                return own.execute_batch(texts_of(own, calls))
            except (errors.InvalidSqlStatementName, errors.FeatureNotSupported) as error:
                # Behind a pooler, or after a migration. Outside a transaction none of the statements took effect.
                if not roundtrip.forget_prepared(on, error) or not on.autocommit:
                    raise
                return own.execute_batch(texts_of(own, calls))


def execute_unobserved(cursor: CursorWrapper, call: Call) -> None:
    """Execute a statement that manages the transaction, without calling observers."""
    if can_batch_on_django(cursor):
        _execute_batch_on_django(cursor, [call])
    else:
        cursor.execute(call.statement.text, call.params)


def execute_batch_and_commit(cursor: Cursor, calls: Sequence[Call]) -> list[StatementResult]:
    """Execute these statements as the last of the cursor's transaction and commit it in the same round trip if none
    fails; return their results. These come after the commit, so a statement that changes too few rows must fail by
    itself (`check_rowcount`)."""
    if _can_batch(cursor) and calls:
        return cursor.execute_batch(texts_of(cursor, calls), commits=True)
    return execute_batch(cursor, calls)


def texts_of(cursor: Cursor, calls: Sequence[Call]) -> list[str]:
    """Return these statements as they are sent on the cursor's connection, complete with their values."""
    return [
        roundtrip.bind(cursor, call.statement.name, call.statement.text, call.params, prepared=call.statement.prepared)
        for call in calls
    ]


def _execute_one(cursor: Cursor, call: Call) -> StatementResult:
    # Not by `count`: a batch has no result on the cursor, and an observer of another thread may end at any moment.
    call.statement._run(cursor, call.params)
    return StatementResult(cursor.fetchall() if cursor.description else (), cursor.rowcount)


@cache
def load(package: str, name: str, *, prepared: bool = False, exactly: bool = False) -> Statement:
    """Return the statement in `<package>/sql/<name>.sql`, known to observers as `name`. `prepared`: it runs so often
    that committers, deliveries and threads of `web` prepare it; its text must give the type of every
    parameter, and one plan serves all values. `exactly`: see `check_rowcount`."""
    text = files(package).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    if exactly:
        text = check_rowcount(name, text)
    if prepared:
        roundtrip.add_prepared(name, text)
    return Statement(name, text, prepared)


def check_rowcount(name: str, text: str) -> str:
    """Return the UPDATE with a further parameter `rows`: unless it touches exactly that many rows, it fails with
    `transactions.ROWCOUNT_MISMATCH`, and so does its transaction. It can therefore be sent together with COMMIT."""
    return (
        f"WITH touched AS (\n{text.rstrip()}\nRETURNING 1\n)\n"
        f"SELECT fairgate_check_rowcount(count(*), %(rows)s::bigint, '{name}') FROM touched\n"
    )


def is_text(value: str) -> bool:
    """Return whether PostgreSQL can store the text: it contains no NUL and no lone surrogate. Python decodes invalid
    UTF-8 on a command line to lone surrogates."""
    return "\x00" not in value and (value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value))


@contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """Call `observer(name, "before" | "after")` around every statement of every thread while the block runs."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)
