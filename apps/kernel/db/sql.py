"""Raw SQL lives in files, one statement each under a heading sentence; this is how a file becomes a statement.

Tests look over a statement's shoulder with `observe`: a rival can be let in right before or right after a named
file runs, which is how a race is shown without a single sleep.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, Protocol, TypeGuard

from django.db.backends.utils import CursorWrapper
from psycopg.pq import TransactionStatus

from apps.kernel.db import prepared as prepared_statements
from apps.kernel.db import roundtrip
from apps.kernel.db.arrays import Array
from apps.kernel.db.roundtrip import StatementResult

Observer = Callable[[str, str], None]
_observers: list[Observer] = []


class Cursor(Protocol):
    """What a statement needs of a cursor: Django's and psycopg's both have it."""

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
    """Connections that keep prepared statements keep this one: see prepared.py."""

    def rows(self, cursor: Cursor, **params: Any) -> Sequence[tuple[Any, ...]]:
        """The statement has run; its rows."""
        if _can_batch(cursor):
            return execute_batch(cursor, [Call(self, params)])[0].rows
        self._run(cursor, params)
        return cursor.fetchall()

    def count(self, cursor: Cursor, **params: Any) -> int:
        """The statement has run; how many rows it touched."""
        if _can_batch(cursor):
            return execute_batch(cursor, [Call(self, params)])[0].touched
        self._run(cursor, params)
        return cursor.rowcount

    def _run(self, cursor: Cursor, params: dict[str, Any]) -> None:
        if _observers and isinstance(cursor, roundtrip.Cursor):
            cursor.open()
        for observer in _observers:
            observer(self.name, "before")
        if self.prepared and prepared_statements.is_enabled_on(cursor.connection):
            cursor.execute(_execution(self.call(**params), _Literals(cursor)))
        else:
            cursor.execute(self.text, params)
        for observer in _observers:
            observer(self.name, "after")

    def call(self, **params: Any) -> "Call":
        """The statement with these parameters, to be run together with others."""
        return Call(self, params)


class Call(NamedTuple):
    statement: Statement
    params: dict[str, Any]


def execute_batch(cursor: Cursor, calls: Sequence[Call]) -> list[StatementResult]:
    """All of these statements have run, one after the other, in one round trip: what each gave, in order.

    Each sees what was committed before it began, as if it had been sent by itself, and after one that fails none runs.
    They go one by one where somebody looks on (a test lets a rival in between), and on cursors of other kinds than
    those of `transactions.write_on` and Django's.
    """
    if not calls:
        return []
    if _can_batch(cursor):
        return cursor.execute_batch(texts_of(cursor, calls))
    if _can_batch_on_django(cursor):
        return _execute_batch_on_django(cursor, calls)
    return [_execute_one(cursor, call) for call in calls]


def _can_batch(cursor: Cursor) -> TypeGuard[roundtrip.Cursor]:
    return isinstance(cursor, roundtrip.Cursor) and not _observers


def _can_batch_on_django(cursor: Any) -> TypeGuard[CursorWrapper]:
    """Whether it is a cursor of Django's connection, and Django has nobody to show its statements to."""
    if not isinstance(cursor, CursorWrapper) or _observers:
        return False
    return not (cursor.db.execute_wrappers or cursor.db.queries_logged)


def _execute_batch_on_django(cursor: CursorWrapper, calls: Sequence[Call]) -> list[StatementResult]:
    """Where Django's block has begun and its transaction has not, that travels too. Errors are Django's, as by its own
    cursor."""
    with cursor.db.wrap_database_errors:
        on = cursor.connection
        with roundtrip.Cursor(on) as own:
            if not on.autocommit and on.info.transaction_status == TransactionStatus.IDLE:
                own.set_opening(["BEGIN"])
            return own.execute_batch(texts_of(own, calls))


def execute_unobserved(cursor: CursorWrapper, call: Call) -> None:
    """The statement has run, and no observer was told: it is the transaction's, not its caller's."""
    if _can_batch_on_django(cursor):
        _execute_batch_on_django(cursor, [call])
    else:
        cursor.execute(call.statement.text, call.params)


def execute_batch_and_commit(cursor: Cursor, calls: Sequence[Call]) -> None:
    """The same as the last thing in the transaction of `write` that the cursor is of: it is committed in the same round
    trip if none fails, and else as its block ends. So nothing of theirs is looked at: each sees to it that it fails."""
    if _can_batch(cursor) and calls:
        cursor.execute_batch(texts_of(cursor, calls), commits=True)
    else:
        execute_batch(cursor, calls)


def texts_of(cursor: Cursor, calls: Sequence[Call]) -> list[str]:
    """How these calls read on the cursor's connection, complete with their values."""
    literals = _Literals(cursor)
    keeps = prepared_statements.is_enabled_on(cursor.connection)
    return [(_execution if keeps and call.statement.prepared else _bound)(call, literals) for call in calls]


class _Literals(dict[int, str]):
    """Values as they stand in a statement's text, as psycopg writes them; what is plain is written here, since its way
    to one value is as long as that to a whole statement."""

    def __init__(self, cursor: Any) -> None:
        self._cursor = cursor

    def of(self, value: Any) -> str:
        kind = type(value)
        if kind is Array or kind is str:
            text = value.text if kind is Array else value
            # A backslash means what the server's settings say.
            return self._cursor.mogrify("%s", [value]) if "\\" in text else f"""'{text.replace("'", "''")}'"""
        if kind is int and value >= 0:
            return str(value)
        if kind is datetime and value.tzinfo is not None:
            return f"'{value}'::timestamptz"
        key = id(value)
        return self.get(key) or self.setdefault(key, self._cursor.mogrify("%s", [value]))


def _execution(call: Call, literals: _Literals) -> str:
    statement, params = call
    return prepared_statements.execution(
        statement.name, [literals.of(params[name]) for name in prepared_statements.names(statement.text)]
    )


def _bound(call: Call, literals: _Literals) -> str:
    text, names = _template(call.statement.text)
    params = call.params
    return text % tuple([literals.of(params[name]) for name in names])


@cache
def _template(text: str) -> tuple[str, tuple[str, ...]]:
    """The statement with its parameters in order instead of by name."""
    return prepared_statements.PARAMETER.sub("%s", text), tuple(prepared_statements.PARAMETER.findall(text))


def _execute_one(cursor: Cursor, call: Call) -> StatementResult:
    call.statement.count(cursor, **call.params)
    return StatementResult(cursor.fetchall() if cursor.description else (), cursor.rowcount)


@cache
def load(package: str, name: str, *, prepared: bool = False, exactly: bool = False) -> Statement:
    """The statement in `<package>/sql/<name>.sql`, known to observers as `name`. `prepared`: it runs so often that
    committers keep its plan; its text says the type of every parameter. `exactly`: see there."""
    text = files(package).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
    if exactly:
        text = check_rowcount(text)
    if prepared:
        prepared_statements.add(name, text)
    return Statement(name, text, prepared)


def check_rowcount(text: str) -> str:
    """The UPDATE that fails, and its transaction with it, unless it touches as many rows as its further parameter
    `rows` says: it can be sent together with the COMMIT. See `transactions.is_rowcount_mismatch`."""
    return _ROWCOUNT_CHECK.replace("-- The UPDATE", text.rstrip())


ROWCOUNT_MISMATCH = "rows touched: "
_ROWCOUNT_CHECK = """WITH touched AS (
-- The UPDATE
RETURNING 1
)
-- Words are no number: PostgreSQL fails, and quotes them.
SELECT CASE WHEN count(*) = %(rows)s::bigint THEN count(*)
            ELSE ('rows touched: ' || count(*) || ' instead of ' || %(rows)s::bigint)::bigint END
FROM touched
"""


def is_text(value: str) -> bool:
    """Whether PostgreSQL can store it: no NUL, no half of a surrogate pair, which is what bytes that are no
    UTF-8 become on a command line."""
    return "\x00" not in value and (value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value))


@contextmanager
def observe(observer: Observer) -> Iterator[None]:
    """While the block runs, `observer(name, "before" | "after")` is called around every statement of every thread."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)
