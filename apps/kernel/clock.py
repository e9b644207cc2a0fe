"""The one clock. A deadline is judged by the database's clock, so that every process and every machine agrees."""

import time
from datetime import UTC, datetime

from django.db import connection

from apps.kernel.db import sql

_read_clock = sql.load("apps.kernel", "read_clock", prepared=True)


def now() -> datetime:
    """The database's wall clock at this moment (`clock_timestamp()`): it moves on inside a transaction, where
    `now()` would stay frozen at its start (a decision that waited for a lock would judge an old hour)."""
    with connection.cursor() as cursor:
        return now_on(cursor)


def now_on(cursor: sql.Cursor) -> datetime:
    """The same, asked on the caller's cursor: for transactions on a connection that is not Django's."""
    cursor.execute("SELECT clock_timestamp()")
    ((moment,),) = cursor.fetchall()
    return moment


def now_call() -> sql.Call:
    """The same as a statement, for a transaction that sends it together with others: it gives one row of one moment."""
    return _read_clock.call()


def process_now() -> datetime:
    """This process's clock, for display, logs and token lifetimes. Never decides about stock, places or money."""
    return datetime.now(UTC)


def process_seconds() -> float:
    """The same in seconds since 1970: a third of the price, for what every poll asks."""
    return time.time()


def iso(moment: datetime) -> str:
    """The moment as the public API writes it: ISO 8601, UTC, to the millisecond."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
