"""Carries out reads of PostgreSQL on the event loop, over connections of its own, without a thread.

A read in a thread takes twice as long: the thread has to be woken, and competes with the event loop for the interpreter
lock (docs/performance.md). While no connection is free, and after every failure, there is no value here: the caller
carries out the same read in a thread, which handles the failure.
"""

import asyncio
import logging
from collections.abc import Sequence
from time import monotonic
from typing import Any, NamedTuple, TypeVar

from django.conf import settings
from psycopg import Connection, Error
from psycopg.pq import ConnStatus, DiagnosticField, ExecStatus
from psycopg.pq.abc import PGresult

from apps.kernel.db import pools, roundtrip, sql
from apps.kernel.db.reads import Read
from apps.kernel.db.roundtrip import StatementResult

logger = logging.getLogger(__name__)

CONNECTIONS_MAX = 2
RETRY_SECONDS = 1.0
"""The pause between two attempts to connect."""
AGE_SECONDS_MAX = 3_600.0
"""A connection is replaced at this age, as by the pools of committers."""
GRACE_SECONDS = 1.0
"""PostgreSQL ends a statement at its time limit. A connection without results for so much longer is closed."""
_SUCCESS = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
_STATEMENT_MISSING = b"26000"
"""The SQLSTATE of EXECUTE without the prepared statement."""

Value = TypeVar("Value")
Results = Sequence[PGresult] | None
"""None if the statements must be sent in a thread."""


class Done(NamedTuple):
    """The value of a read that was carried out."""

    value: Any


class AsyncReader:
    """The connections of one event loop. Nothing is read here before `start` and after `close`."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._links: list[_Link] = []
        self._connecting: asyncio.Task[None] | None = None
        self._not_before = 0.0
        self._has_failed = False

    async def start(self) -> None:
        """Use the running loop from now on, and wait for the attempt to open the first connection."""
        self._loop = asyncio.get_running_loop()
        self._connect()
        if self._connecting is not None:
            await asyncio.wait([self._connecting])

    async def close(self) -> None:
        """Close the connections. Reads under way have no value."""
        self._loop = None
        if self._connecting is not None:
            await asyncio.wait([self._connecting])
        for link in self._links:
            link.close()
        self._links = []

    async def run(self, read: Read[Value]) -> Done | None:
        """Carry out the read and return its value; None if it must be begun again in a thread. Raises its errors."""
        if self._loop is None or sql.is_observed():
            return None
        link = self._free_link()
        if link is None:
            return None
        try:
            results = await link.execute(next(read))
            while results is not None:
                results = await link.execute(read.send(results))
        except StopIteration as end:
            return Done(end.value)
        finally:
            link.is_free = True
        return None

    def _free_link(self) -> "_Link | None":
        """Take a connection that is free; start to open another one if there is none."""
        self._links = [link for link in self._links if not link.is_over]
        for link in self._links:
            if link.is_free:
                if monotonic() - link.opened_at > AGE_SECONDS_MAX:
                    link.close()
                    continue
                link.is_free = False
                return link
        self._connect()
        return None

    def _connect(self) -> None:
        if self._connecting is not None or self._loop is None or monotonic() < self._not_before:
            return
        if sum(not link.is_over for link in self._links) < CONNECTIONS_MAX:
            self._not_before = monotonic() + RETRY_SECONDS
            self._connecting = self._loop.create_task(self._open_link(self._loop))

    async def _open_link(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            connection = await loop.run_in_executor(None, pools.connect, "reads")
            self._links.append(_Link(loop, connection))
            self._has_failed = False
        except Error as error:
            if not self._has_failed:
                logger.warning("reads are carried out in threads until PostgreSQL is back: %s", error)
            self._has_failed = True
        finally:
            self._connecting = None


class _Link:
    """A connection that executes the statements of one read at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, connection: "Connection[Any]") -> None:
        self.is_free = True
        self.is_over = False
        self.opened_at = monotonic()
        self._loop = loop
        self._connection = connection
        self._cursor = roundtrip.Cursor(connection)
        self._pg = connection.pgconn
        self._pg.nonblocking = 1
        self._socket = self._pg.socket
        self._results: list[PGresult] = []
        self._waiting: asyncio.Future[Results] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sent_at = 0.0
        # Also while nothing is awaited: the end of the session is noticed when it comes.
        loop.add_reader(self._socket, self._on_readable)

    async def execute(self, calls: Sequence[sql.Call]) -> list[StatementResult] | None:
        """Execute the statements in one round trip and return their results; None after a failure."""
        if not calls:
            return []
        opening = roundtrip.refresh_plans(self._connection)
        text = "\n;\n".join([*opening, *sql.texts_of(self._cursor, calls)])
        if self.is_over or "\x00" in text:
            return None
        packed = text.encode()
        waiting = self._waiting = self._loop.create_future()
        self._sent_at = monotonic()
        if self._timer is None:
            self._timer = self._loop.call_later(_seconds_max(), self._check_timeout)
        try:
            self._pg.send_query(packed)
            self._flush()
        except Error:
            self.close()
        try:
            results = await waiting
        except asyncio.CancelledError:
            self.close()  # Results would come while the next read waits for its own.
            raise
        if results is None:
            return None
        if any(one.status not in _SUCCESS for one in results):
            if results[-1].error_field(DiagnosticField.SQLSTATE) == _STATEMENT_MISSING:
                roundtrip.disable_prepared()
            return None
        return [self._cursor.load(one) for one in results[len(opening) :]]

    def close(self) -> None:
        if self.is_over:
            return
        self.is_over = True
        self._loop.remove_reader(self._socket)
        self._loop.remove_writer(self._socket)
        if self._timer is not None:
            self._timer.cancel()
        self._connection.close()
        self._end(None)

    def _end(self, results: Results) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(results)

    def _flush(self) -> None:
        if self._pg.flush():
            self._loop.add_writer(self._socket, self._on_writable)

    def _on_writable(self) -> None:
        self._loop.remove_writer(self._socket)
        try:
            self._flush()
        except Error:
            self.close()

    def _on_readable(self) -> None:
        try:
            self._pg.consume_input()
            while not self._pg.is_busy():
                result = self._pg.get_result()
                if result is None:
                    break
                self._results.append(result)
            else:
                return
        except Error:
            self.close()
            return
        if self._pg.status != ConnStatus.OK:
            self.close()
            return
        results, self._results = self._results, []
        if results:
            self._end(results)

    def _check_timeout(self) -> None:
        """Close the connection if results are late. One timer for all statements: it is set again at its end."""
        self._timer = None
        if self._waiting is None:
            return
        left = self._sent_at + _seconds_max() - monotonic()
        if left > 0:
            self._timer = self._loop.call_later(left, self._check_timeout)
        else:
            logger.warning("a read got no results from PostgreSQL in time")
            self.close()


def _seconds_max() -> float:
    return settings.DATABASE_STATEMENT_TIMEOUT_MS / 1_000 + GRACE_SECONDS


shared = AsyncReader()
"""This process's connections, for every route of the fast path."""
