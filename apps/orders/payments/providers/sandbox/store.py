"""The file of the sandbox's books: an SQLite database that all processes of a machine share (SANDBOX_BOOKS).

A change is on the disk before its call is answered (`synchronous=FULL`), so a charge that was acknowledged survives the
end of any process. Writers wait for each other; one transaction holds as many charges as its caller has.
"""

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from django.conf import settings

from apps.orders.payments.providers.protocol import ProviderFault

BUSY_SECONDS_MAX = 10.0
"""A writer waits this long for the writers of other processes."""
_SCHEMA = """
CREATE TABLE IF NOT EXISTS charge (
    pk INTEGER PRIMARY KEY,
    idempotency_key TEXT NOT NULL UNIQUE,
    method TEXT NOT NULL,
    amount_minor INTEGER NOT NULL,
    currency TEXT NOT NULL,
    status TEXT NOT NULL,
    occurred_at TEXT NOT NULL,
    then_status TEXT NOT NULL,
    then_at TEXT,
    return_url TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS charge_by_time ON charge (occurred_at);
CREATE TABLE IF NOT EXISTS refund (
    pk INTEGER PRIMARY KEY,
    idempotency_key TEXT NOT NULL UNIQUE,
    charge_pk INTEGER NOT NULL REFERENCES charge (pk) ON DELETE CASCADE,
    amount_minor INTEGER NOT NULL,
    status TEXT NOT NULL,
    failure TEXT NOT NULL,
    occurred_at TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS refund_by_time ON refund (occurred_at);
CREATE INDEX IF NOT EXISTS refund_of_charge ON refund (charge_pk);
"""

_lock = threading.Lock()
_open: dict[tuple[int, str], sqlite3.Connection] = {}
"""The connection of the process with this id to the file at this path. A forked process opens its own, and leaves that
of its parent alone."""


@contextmanager
def transaction(*, writes: bool = True) -> Iterator[sqlite3.Connection]:
    """Run the block in one transaction of the books. It is on the disk when the block has ended. Raises ProviderFault
    if the file cannot be read or written."""
    try:
        with _lock:
            on = _connection()
            on.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
            try:
                yield on
            except BaseException:
                on.execute("ROLLBACK")
                raise
            on.execute("COMMIT")
    except sqlite3.Error as error:
        raise ProviderFault(f"the sandbox's books: {error}") from error


def _connection() -> sqlite3.Connection:
    of = (os.getpid(), str(settings.SANDBOX_BOOKS))
    on = _open.get(of)
    if on is None:
        path = Path(of[1])
        path.parent.mkdir(parents=True, exist_ok=True)
        on = sqlite3.connect(path, timeout=BUSY_SECONDS_MAX, isolation_level=None, check_same_thread=False)
        on.execute("PRAGMA journal_mode = WAL")
        on.execute("PRAGMA synchronous = FULL")
        on.execute("PRAGMA foreign_keys = ON")
        on.executescript(_SCHEMA)
        _open[of] = on
    return on


def _new_lock() -> None:
    global _lock  # noqa: PLW0603 - Another thread of the parent may hold the old one.
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_new_lock)
