"""Redis asked on the loop itself, over one connection of this process's own: no thread, and nobody waits for one.

A thread costs a question several times what Redis takes to answer it, since each of its journeys has to come by the
interpreter once more. What is asked here may always be asked in a thread as well: without a connection, over TLS, while
Redis rests after a failure or when it says something unexpected the courier has no answer, and whoever asked goes by
`apps.kernel.redis`, which says what that comes to. One failure is told once: whoever is silent here rests there.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from time import monotonic
from typing import Any, cast

import hiredis
from redis import Connection
from redis.exceptions import TimeoutError as RedisTimeout

from apps.kernel import redis

logger = logging.getLogger(__name__)

GRACE_SECONDS = 0.05
"""A loop that was held up itself reads first what has come meanwhile, before it calls Redis silent."""
ROUND_TRIPS_MAX = 64
"""Under way at once; what is more goes another way."""

Command = Sequence[Any]
OnReplies = Callable[[list[Any] | None], None]
"""Is called once, on the loop, with what Redis answered each command with; None: nobody knows, ask another way."""


class AsyncRedis:
    """Used on one loop at a time; on another one it begins anew."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connection: _Connection | None = None
        self._connection_task: asyncio.Task[None] | None = None
        """From the attempt to have a connection to that connection's end; the loop's own end is one too."""
        self._tried: asyncio.Future[None] | None = None
        self._not_before = 0.0

    def send(self, commands: Sequence[Command], hear: OnReplies) -> bool:
        """The commands are on their way, and `hear` will be called. False: they are not, ask another way; there may be
        a connection soon."""
        connection = self._current_connection()
        if connection is None or redis.is_paused():
            self._connect()
            return False
        return connection.send(commands, hear)

    async def wait_until_connected(self) -> bool:
        """Whether there is a connection, once it was tried to have one."""
        if self._current_connection() is None:
            if self._connection_task is not None and self._tried is not None and self._tried.done():
                await asyncio.wait([self._connection_task])  # The last one is just coming to its end.
            self._connect()
            if self._tried is not None:
                await asyncio.shield(self._tried)
        return self._current_connection() is not None

    def close(self) -> None:
        """There is no connection, until somebody asks again."""
        if self._connection is not None:
            self._connection.close()

    def _current_connection(self) -> "_Connection | None":
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # Those of a loop that has ended went with it.
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
        except asyncio.CancelledError:
            if connection is not None:
                connection.forget()
            raise
        except (OSError, TimeoutError):
            pass  # Whoever goes by a thread tells of it.
        except Exception:
            logger.exception("Redis is asked in threads only")
        finally:
            self._connection_task = None
            if not tried.done():
                tried.set_result(None)
            if connection is not None:
                connection.close()


async def _open_connection() -> "_Connection | None":
    """A connection that may be asked; None where only `apps.kernel.redis` can have one, or Redis does not let us
    in. Raises OSError, TimeoutError."""
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
        greeted: asyncio.Future[list[Any] | None] = loop.create_future()
        try:
            connection.send(greeting, partial(_settle, greeted))
            said = await greeted
        except BaseException:
            connection.close()
            raise
    if said is None or any(isinstance(word, Exception) for word in said):
        connection.close()
        return None
    return connection


def _settle(greeted: "asyncio.Future[list[Any] | None]", said: list[Any] | None) -> None:
    if not greeted.done():
        greeted.set_result(said)


class _Connection(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop, seconds_max: float) -> None:
        self.over = asyncio.Event()
        self.is_over = False
        self._loop = loop
        self._seconds_max = seconds_max
        self._reader = hiredis.Reader()
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[float, int, OnReplies]] = deque()
        """When each went, and how many answers it is still to be given together."""
        self._answers: list[Any] = []
        self._clock: asyncio.TimerHandle | None = None

    def send(self, commands: Sequence[Command], hear: OnReplies) -> bool:
        if self.is_over or self._transport is None or len(self._waiting) >= ROUND_TRIPS_MAX:
            return False
        packed = b"".join([hiredis.pack_command(tuple(command)) for command in commands])
        self._waiting.append((monotonic(), len(commands), hear))
        self._transport.write(packed)
        if self._clock is None:
            self._clock = self._loop.call_later(self._seconds_max, self._check_timeout)
        return True

    def close(self) -> None:
        """Nothing more is asked here, and whoever waits is told that nobody knows."""
        if self.is_over:
            return
        self.is_over = True
        self.over.set()
        if self._clock is not None:
            self._clock.cancel()
        if self._transport is not None:
            self._transport.abort()
        waiting, self._waiting = self._waiting, deque()
        for _, _, hear in waiting:
            hear(None)

    def forget(self) -> None:
        """As `close`, of a loop that ends: nobody is left to be told."""
        self._waiting.clear()
        self.close()

    # --- the transport's calls ---------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it.

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (answer := self._reader.gets()) is not False:
                if not self._waiting:
                    raise hiredis.ProtocolError("Redis says what nobody asked")
                self._answers.append(answer)
                _, count, hear = self._waiting[0]
                if len(self._answers) == count:
                    answers, self._answers = self._answers, []
                    self._waiting.popleft()
                    hear(answers)
        except hiredis.ProtocolError:
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.close()

    # --- the clock ---------------------------------------------------------------------------------------------------

    def _check_timeout(self, since: float | None = None) -> None:
        """Runs while something is asked; one for all of it, that looks what has happened meanwhile."""
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
