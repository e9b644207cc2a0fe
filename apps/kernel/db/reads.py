"""Reads of PostgreSQL as generators, so that a thread and an event loop can carry out the same one.

A read yields the statements of one round trip, receives their results, and returns its value. It changes nothing, so it
may be begun again after a failure. `run` carries it out in a thread, `AsyncReader.run` on the event loop.
"""

from collections.abc import Generator, Sequence
from typing import Any, TypeVar

from django.db import connection

from apps.kernel.db import sql
from apps.kernel.db.roundtrip import StatementResult

Value = TypeVar("Value")
Read = Generator[Sequence[sql.Call], list[StatementResult], Value]


def one(statement: sql.Statement, **params: Any) -> Read[Sequence[tuple[Any, ...]]]:
    """Read the rows of one statement."""
    (result,) = yield [statement.call(**params)]
    return result.rows


def run(read: Read[Value]) -> Value:
    """Carry out the read on Django's connection and return its value. Blocks."""
    try:
        calls = next(read)  # A read without statements needs no connection.
        with connection.cursor() as cursor:
            while True:
                calls = read.send(sql.execute_batch(cursor, calls))
    except StopIteration as end:
        value: Value = end.value
        return value
