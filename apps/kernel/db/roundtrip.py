"""Sends several statements with their values, and BEGIN and COMMIT too, to PostgreSQL in one round trip.

Statements are sent as one text in the simple query protocol. Those that run often are prepared once on each committer's
connection and called by EXECUTE, because parsing and planning is half the work of a small batch. Values are written as
literals by `literal`, which tests/kernel/db/test_literals.py fuzzes.

psycopg's `pipeline()` with its own prepared statements does the same by standard means. It is not used because it
encodes, describes and reads each statement separately in Python, on the thread that competes with the event loop.
Measured with one hold batch (2 cores, 2026-11-23, medians of 7), the process needed 20 % more processor time with 128
general-admission holds, 62 % more with 16, 35 % more with 64 holds of named seats, and 59 to 69 % more with one hold.
"""

import logging
import re
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID
from weakref import WeakKeyDictionary

from psycopg import ClientCursor, Connection, DataError, Error, errors, generators
from psycopg.adapt import Transformer
from psycopg.pq import ExecStatus

from apps.kernel.db import arrays
from apps.kernel.db.arrays import Array

logger = logging.getLogger(__name__)

PLANS_SECONDS = 2.0
"""The interval at which plans are discarded. A plan made while a table was empty scans the whole table until PostgreSQL
has analyzed it again: in the first minute of a sale, that may be a hundred thousand rows later."""

_SUCCESS = frozenset({ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK, ExecStatus.EMPTY_QUERY})
_PARAMETER = re.compile(r"%\((\w+)\)s")

_prepared_texts: dict[str, str] = {}
_prepared_on: "WeakKeyDictionary[Connection[Any], float]" = WeakKeyDictionary()
"""The connections that keep prepared statements, and when their plans were last discarded."""


class _Pooled:
    """Whether a prepared statement of this process has vanished between two transactions, as behind a pooler."""

    seen = False


class StatementResult(NamedTuple):
    """The rows that a statement returned, and how many rows it returned or changed."""

    rows: Sequence[tuple[Any, ...]]
    touched: int


class Cursor(ClientCursor[Any]):
    """The cursor of one transaction on a connection in autocommit. The statements that open the transaction are sent
    with the first statement; COMMIT can be sent with the last."""

    def __init__(self, connection: Connection[Any]) -> None:
        super().__init__(connection)
        self._opening: Sequence[str] = ()
        self._transformer = Transformer.from_context(self)

    def set_opening(self, texts: Sequence[str]) -> None:
        """Send these statements ahead of the first one."""
        self._opening = texts

    @property
    def has_pending_opening(self) -> bool:
        """Whether the opening has not been sent yet, so that PostgreSQL has begun no transaction."""
        return bool(self._opening)

    def open(self) -> None:
        """Begin the transaction, if it has not begun."""
        if self._opening:
            self._send_batch([])

    def execute_batch(self, texts: Sequence[str], *, commits: bool = False) -> list[StatementResult]:
        """Execute these statements in order in one round trip. If one fails, the later ones do not run. With `commits`,
        commit if all succeed."""
        results = self._send_batch([*texts, "COMMIT"] if commits else texts)
        return [self.load(result) for result in results[: len(texts)]]

    def execute(self, *args: Any, **kwargs: Any) -> Any:
        self.open()
        return super().execute(*args, **kwargs)

    def executemany(self, *args: Any, **kwargs: Any) -> None:
        self.open()
        super().executemany(*args, **kwargs)

    def stream(self, *args: Any, **kwargs: Any) -> Any:
        self.open()
        return super().stream(*args, **kwargs)

    def copy(self, *args: Any, **kwargs: Any) -> Any:
        self.open()
        return super().copy(*args, **kwargs)

    def _send_batch(self, texts: Sequence[str]) -> Sequence[Any]:
        """Send these statements behind the pending opening and return their results, without those of the opening."""
        opening, self._opening = self._opening, ()
        text = "\n;\n".join([*opening, *texts])
        if "\x00" in text:
            raise DataError("PostgreSQL text fields cannot contain NUL (0x00) bytes")
        connection = self.connection
        with connection.lock:
            connection.pgconn.send_query(text.encode(connection.info.encoding))
            results = connection.wait(generators.execute(connection.pgconn))
        for result in results:
            if result.status not in _SUCCESS:
                raise errors.error_from_result(result, connection.info.encoding)
        return results[len(opening) :]

    def load(self, result: Any) -> StatementResult:
        """Return what a successful statement returned, converted like psycopg's rows."""
        if result.status != ExecStatus.TUPLES_OK:
            return StatementResult((), -1 if result.command_tuples is None else result.command_tuples)
        self._transformer.set_pgresult(result)
        return StatementResult(self._transformer.load_rows(0, result.ntuples, tuple), result.ntuples)


def bind(cursor: Any, name: str, text: str, params: Mapping[str, Any], *, prepared: bool) -> str:
    """Return the statement with its values as literals: as text, or as EXECUTE if the connection has it prepared."""
    if prepared and is_prepared_on(cursor.connection):
        values = ", ".join([literal(cursor, params[parameter]) for parameter in _parameters(text)])
        return f"EXECUTE {_prepared_name(name)} ({values})" if values else f"EXECUTE {_prepared_name(name)}"
    template, parameters = _template(text)
    return template % tuple([literal(cursor, params[parameter]) for parameter in parameters])


def literal(cursor: Any, value: Any) -> str:
    """Return the value as an SQL literal. Common types are written here, because psycopg takes as long for one value as
    for a whole statement; psycopg writes all others."""
    kind = type(value)
    if kind is list and (text := arrays.try_literal(value)) is not None:
        kind, value = Array, Array(text)
    if kind is Array or kind is str:
        text = value.text if kind is Array else value
        if "\\" not in text:  # The meaning of a backslash depends on standard_conforming_strings.
            return f"""'{text.replace("'", "''")}'"""
    elif kind is int and value >= 0:
        return str(value)
    elif kind is UUID:
        return f"'{value}'::uuid"
    elif kind is datetime and value.tzinfo is not None:
        return f"'{value}'::timestamptz"
    written: str = cursor.mogrify("%s", [value])
    return written


@cache
def _template(text: str) -> tuple[str, tuple[str, ...]]:
    """Return the statement with positional parameters, and their names in order."""
    return _PARAMETER.sub("%s", text), tuple(_PARAMETER.findall(text))


@cache
def _parameters(text: str) -> tuple[str, ...]:
    """Return the parameters in the order in which the text first names them."""
    return tuple(dict.fromkeys(_PARAMETER.findall(text)))


def add_prepared(name: str, text: str) -> None:
    """Prepare this statement on connections made from now on. Its text must give the type of every parameter."""
    assert _prepared_texts.setdefault(name, text) == text, f"two prepared statements are called {name}"


def prepare_all(connection: Connection[Any]) -> None:
    """Prepare all statements on the connection, which is in autocommit and bypasses any pooler. If one of them does not
    fit the current tables (before a migration), the connection uses none."""
    if _Pooled.seen or not _prepared_texts:
        return
    try:
        connection.execute(";\n".join([_preparation(name, text) for name, text in _prepared_texts.items()]))
    except Error as error:
        if connection.closed:
            raise
        logger.warning("statements are sent as text, since they could not be prepared: %s", error)
    else:
        _prepared_on[connection] = time.monotonic()


def disable_prepared() -> None:
    """Send every statement of this process as text from now on, because a prepared one has vanished: behind a pooler in
    transaction mode, the next transaction runs on another session."""
    if not _Pooled.seen:
        logger.warning("prepared statements were lost: DATABASE_DIRECT_URL must connect to PostgreSQL without a pooler")
    _Pooled.seen = True
    _prepared_on.clear()


def forget_prepared(connection: Any, error: Error) -> bool:
    """Send statements on this connection as text from now on, after one failed with this error; those of the whole
    process if one has vanished. Return False if the connection keeps no prepared statements."""
    was_prepared = _prepared_on.pop(connection, None) is not None
    if was_prepared and isinstance(error, errors.InvalidSqlStatementName):
        disable_prepared()
    return was_prepared


def is_prepared_on(connection: Any) -> bool:
    """Return whether the connection keeps prepared statements."""
    return connection in _prepared_on


def refresh_plans(connection: Connection[Any]) -> list[str]:
    """Return the statements to send first so that plans are made for the tables as they are now."""
    made_at = _prepared_on.get(connection)
    if made_at is None or time.monotonic() - made_at < PLANS_SECONDS:
        return []
    _prepared_on[connection] = time.monotonic()
    return ["DISCARD PLANS"]


def _preparation(name: str, text: str) -> str:
    order = {parameter: f"${number}" for number, parameter in enumerate(_parameters(text), 1)}
    # The line feed ends a comment at the end of the file.
    return (
        f"PREPARE {_prepared_name(name)} AS {_PARAMETER.sub(lambda found: order[found[1]], text).replace('%%', '%')}\n"
    )


def _prepared_name(name: str) -> str:
    return f"fairgate_{name}"
