"""Sends Redis commands from the event loop over one connection per process, without a thread.

A command sent in a thread costs several times as much as in Redis itself, since each of its steps has to wait for the
interpreter lock. Without a connection, over TLS, during the pause after an outage, and after an unexpected reply, there
is no result here: the caller then sends the same command in a thread with `apps.kernel.redis`, which handles the
failure. An outage detected here starts the pause of that module too, so it is logged once.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Sequence
from time import monotonic
from typing import Any, cast

import hiredis
from redis import Connection
from redis.exceptions import TimeoutError as RedisTimeout

from apps.kernel import redis

logger = logging.getLogger(__name__)

GRACE_SECONDS = 0.05
"""Time after a timeout to read replies that arrived while the loop was blocked. Then Redis counts as unresponsive."""
ROUND_TRIPS_MAX = 64
"""The most batches under way at once. Further ones are sent in threads."""

Command = Sequence[Any]
Replies = list[Any] | None
"""The reply to each command; None if there is no result and the commands must be sent in a thread."""


class AsyncRedis:
    """Used on one loop at a time; on another loop it reconnects."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: _Connection | None = None
        self._connection_task: asyncio.Task[None] | None = None
        """Runs from the attempt to connect to the end of the connection, or of the loop."""
        self._tried: asyncio.Future[None] | None = None
        self._not_before = 0.0

    async def execute(self, commands: Sequence[Command]) -> Replies:
        """Send the commands in one batch and return the replies. Without a connection, return None and start to
        connect."""
        connection = self._current_connection()
        if connection is None or redis.is_paused():
            self._connect()
            return None
        return await connection.execute(commands)

    async def wait_until_connected(self) -> bool:
        """Wait for an attempt to connect, and return whether there is a connection."""
        if self._current_connection() is None:
            if self._connection_task is not None and self._tried is not None and self._tried.done():
                await asyncio.wait([self._connection_task])  # The last connection is just ending.
            self._connect()
            if self._tried is not None:
                await asyncio.shield(self._tried)
        return self._current_connection() is not None

    def close(self) -> None:
        """Close the connection. The next command opens one again."""
        if self._connection is not None:
            self._connection.close()

    def _current_connection(self) -> "_Connection | None":
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # Connections of a closed loop ended with it.
            self._loop, self._connection, self._connection_task, self._tried, self._not_before = (
                loop,
                None,
                None,
                None,
                0.0,
            )
        return None if self._connection is None or self._connection.is_over else self._connection

    def _connect(self) -> None:
        if self._connection_task is None and monotonic() >= self._not_before and not redis.is_paused():
            loop = asyncio.get_running_loop()
            self._tried = loop.create_future()
            self._connection_task = loop.create_task(self._run_connection(self._tried))

    async def _run_connection(self, tried: "asyncio.Future[None]") -> None:
        self._not_before = monotonic() + redis.OUTAGE_PAUSE_SECONDS
        connection = None
        try:
            connection = self._connection = await _open_connection()
            tried.set_result(None)
            if connection is not None:
                await connection.over.wait()
        except (OSError, TimeoutError):
            pass  # The caller sends the command in a thread, which logs the failure.
        except Exception:
            logger.exception("commands to Redis are sent in threads only")
        finally:
            self._connection_task = None
            if not tried.done():
                tried.set_result(None)
            if connection is not None:
                connection.close()


async def _open_connection() -> "_Connection | None":
    """Return a connection that is ready for commands. Return None if only `apps.kernel.redis` supports this kind of
    connection, or if Redis refuses the login. Raises OSError, TimeoutError."""
    pool = redis.client().connection_pool
    if pool.connection_class is not Connection:
        return None
    options = pool.connection_kwargs
    seconds_max = options["socket_timeout"]
    greeting: list[Command] = []
    if password := options.get("password"):
        user = options.get("username")
        greeting.append(("AUTH", user, password) if user else ("AUTH", password))
    greeting.append(("SELECT", options.get("db") or 0))
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(options["socket_connect_timeout"]):
        _, connection = await loop.create_connection(
            lambda: _Connection(loop, seconds_max), options["host"], options["port"]
        )
        try:
            replies = await connection.execute(greeting)
        except BaseException:
            connection.close()
            raise
    if replies is None or any(isinstance(reply, Exception) for reply in replies):
        connection.close()
        return None
    return connection


class _Connection(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop, seconds_max: float) -> None:
        self.over = asyncio.Event()
        self.is_over = False
        self._loop = loop
        self._seconds_max = seconds_max
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[float, int, asyncio.Future[Replies]]] = deque()
        """For each batch under way: when it was sent, its number of commands, and the future of its replies."""
        self._replies: list[Any] = []
        self._clock: asyncio.TimerHandle | None = None

    async def execute(self, commands: Sequence[Command]) -> Replies:
        if self.is_over or self._transport is None or len(self._waiting) >= ROUND_TRIPS_MAX:
            return None
        packed = b"".join([hiredis.pack_command(tuple(command)) for command in commands])
        future: asyncio.Future[Replies] = self._loop.create_future()
        self._waiting.append((monotonic(), len(commands), future))
        self._transport.write(packed)
        if self._clock is None:
            self._clock = self._loop.call_later(self._seconds_max, self._check_timeout)
        return await future

    def close(self) -> None:
        """End the connection. Batches under way get None as their result."""
        if self.is_over:
            return
        self.is_over = True
        self.over.set()
        if self._clock is not None:
            self._clock.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, deque()
        for _, _, future in waiting:
            if not future.done():
                future.set_result(None)

    # --- called by the transport ------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports do not inherit from it.

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not False:
                if not self._waiting:
                    raise hiredis.ProtocolError("Redis sent a reply without a command")
                self._replies.append(reply)
                _, count, future = self._waiting[0]
                if len(self._replies) == count:
                    replies, self._replies = self._replies, []
                    self._waiting.popleft()
                    if not future.done():
                        future.set_result(replies)
        except hiredis.ProtocolError:
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.close()

    # --- timeouts -------------------------------------------------------------------------------------------------

    def _check_timeout(self, since: float | None = None) -> None:
        """Close the connection if the oldest batch has waited too long. While batches are under way, one timer for all
        of them calls this; `since` is the oldest batch if the previous call found it late."""
        self._clock = None
        if not self._waiting:
            return
        oldest = self._waiting[0][0]
        left = oldest + self._seconds_max - monotonic()
        if left > 0:
            self._clock = self._loop.call_later(left, self._check_timeout)
        elif since != oldest:
            self._clock = self._loop.call_later(GRACE_SECONDS, self._check_timeout, oldest)
        else:
            redis.note_outage(RedisTimeout("Timeout reading from socket"))
            self.close()


shared = AsyncRedis()
"""This process's connection, for every route of the fast path."""
