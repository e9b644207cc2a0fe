"""The current time. Deadlines are compared with the database's clock, so that all processes and hosts agree."""

import time
from datetime import UTC, datetime

from django.db import connection

from apps.kernel.db import sql

_read_clock = sql.load("apps.kernel", "read_clock", prepared=True)


def now() -> datetime:
    """Return the database's current time (`clock_timestamp()`).

    It advances within a transaction. `now()` in SQL stays at the transaction's start, so a decision made after waiting
    for a lock would use an outdated time.
    """
    with connection.cursor() as cursor:
        return now_on(cursor)


def now_on(cursor: sql.Cursor) -> datetime:
    """Return the database's current time, read on the caller's cursor, for connections that are not Django's."""
    cursor.execute("SELECT clock_timestamp()")
    ((moment,),) = cursor.fetchall()
    return moment


def now_call() -> sql.Call:
    """Return the statement that reads the database's time (one row), to be sent in a batch with others."""
    return _read_clock.call()


def process_now() -> datetime:
    """Return this process's time, for display, logs and token lifetimes. Never used for stock, positions or money."""
    return datetime.now(UTC)


def process_seconds() -> float:
    """Return this process's time in seconds since 1970, for hot paths: a third of the cost of `process_now`."""
    return time.time()


def iso(moment: datetime) -> str:
    """Return the time in the public API's format: ISO 8601, UTC, with milliseconds."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
