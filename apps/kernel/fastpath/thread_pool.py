"""A small thread pool for the fast path's blocking calls. Each thread has Django connections of its own.

The event loop's thread never waits for PostgreSQL or Redis. A limited number of calls may wait for a thread. Beyond
that, a request is refused with Busy, while requests that need no thread (status polls, counts) are still answered.

Calls that serve many requests, such as batches and what streams show, go first (`run_in_thread`). Calls of a single
request (`run_for_client`) wait in the line of its client, and the clients take turns, so that one client with many
requests does not delay the others.
"""

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, ContextVar, Token
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.db import close_old_connections, connections

from apps.kernel.db import pools
from apps.kernel.http import problems
from apps.kernel.rate_limits import address_caps, limits

Params = ParamSpec("Params")
Value = TypeVar("Value")

WAITING_MAX = 2_000
"""Calls of all clients that may wait."""
CLIENT_WAITING_MAX = 100
"""Calls of one client that may wait."""
CLOSE_SECONDS_MAX = 10.0
_SHARED = ""

logger = logging.getLogger(__name__)
_client: ContextVar[str] = ContextVar("fastpath_client", default="")


class _Threads:
    """The executor, created on first use so that a server may fork before, and the calls of one event loop."""

    def __init__(self) -> None:
        self.executor: ThreadPoolExecutor | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.running = 0
        self.waiting = 0
        self.lines: dict[str, deque[asyncio.Future[None]]] = {}
        """The waiting calls by client, in the order of the clients' turns."""

    async def enter(self, client: str, waiting_max: float) -> None:
        """Wait until a thread is free for this client, of which so many calls may wait. `leave` must follow. Raises
        Busy."""
        loop = asyncio.get_running_loop()
        if loop is not self.loop:
            # Calls of a closed event loop can no longer be waiting.
            self.loop, self.running, self.waiting, self.lines = loop, 0, 0, {}
        if self.running < settings.LANE_THREADS and not self.lines:
            self.running += 1
            return
        line = self.lines.get(client)
        if self.waiting >= WAITING_MAX or (line is not None and len(line) >= waiting_max):
            raise problems.Busy
        turn: asyncio.Future[None] = loop.create_future()
        self.lines.setdefault(client, deque()).append(turn)
        self.waiting += 1
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave()  # Its turn came in the step in which it was canceled.
            raise

    def leave(self) -> None:
        """Free a thread for the next call: a shared one, or the first one of the client whose turn it is."""
        self.running -= 1
        while self.lines and self.running < settings.LANE_THREADS:
            client = _SHARED if _SHARED in self.lines else next(iter(self.lines))
            line = self.lines.pop(client)
            turn = line.popleft()
            self.waiting -= 1
            if line:
                self.lines[client] = line  # Behind the other clients.
            if not turn.done():
                self.running += 1
                turn.set_result(None)


_threads = _Threads()


def set_client(address: str) -> Token[str]:
    """Let the calls of this task or step be those of the client at this address, until `reset_client`."""
    return _client.set(address)


def reset_client(token: Token[str]) -> None:
    _client.reset(token)


def create_shared_task(work: Coroutine[Any, Any, Value]) -> asyncio.Task[Value]:
    """Run `work`, which serves many requests, in a task with an empty context: its calls are not those of the client
    whose request happens to start it."""
    return asyncio.get_running_loop().create_task(work, context=Context())


async def run_in_thread(act: Callable[Params, Value], *args: Params.args, **kwargs: Params.kwargs) -> Value:
    """Call `act` in a thread that may use Django's connections; return its result or raise its error. May raise Busy.

    A caller that is canceled loses the result; a call that has begun is completed.
    """
    return await _run(_SHARED, WAITING_MAX, lambda: _carry_out(act, *args, **kwargs))


async def run_for_client(act: Callable[Params, Value], *args: Params.args, **kwargs: Params.kwargs) -> Value:
    """Call `act` like `run_in_thread`, in the turn of the client whose request is being answered (IPv6: of its /48).
    Clients that are exempt from rate limits share the first line; those of ADDRESS_CAPS_RAISED have longer ones."""
    return await _run(*_line_of_client(), lambda: _carry_out(act, *args, **kwargs))


async def run_if_first(begin: Callable[[], bool], act: Callable[[], Value]) -> Value | None:
    """Call `act` like `run_for_client` if `begin()`, which is called in the client's turn, returns True; else return
    None. So a call that waits in the lines of several clients is made once."""
    return await _run(*_line_of_client(), lambda: _carry_out(act), begin)


def client_line() -> str:
    """Return the name of the line in which calls of this task or step wait."""
    return _line_of_client()[0]


def _line_of_client() -> tuple[str, float]:
    """Return the line's name, and how many calls may wait in it."""
    address = _client.get()
    subject = limits.subject(address)
    client = limits.site_of(subject) or subject
    return (client, CLIENT_WAITING_MAX * address_caps.factor_of(address)) if client else (_SHARED, WAITING_MAX)


async def _run(client: str, waiting_max: float, act: Callable[[], Any], begin: Callable[[], bool] | None = None) -> Any:
    threads = _threads
    await threads.enter(client, waiting_max)
    try:
        if begin is not None and not begin():
            return None
        return await asyncio.get_running_loop().run_in_executor(_executor(), act)
    finally:
        threads.leave()


def _executor() -> ThreadPoolExecutor:
    if _threads.executor is None:
        _threads.executor = ThreadPoolExecutor(max_workers=settings.LANE_THREADS, thread_name_prefix="fastpath")
    return _threads.executor


def _carry_out(act: Callable[Params, Value], *args: Params.args, **kwargs: Params.kwargs) -> Value:
    # As Django does around each request: replaces a connection that was lost when the database restarted.
    pools.renew_django_connections(prepares=True)
    try:
        return act(*args, **kwargs)
    finally:
        close_old_connections()


def close() -> None:
    """Wait until all calls that have begun are completed, then end the threads and close their connections. Blocks."""
    executor, _threads.executor = _threads.executor, None
    if executor is None:
        return
    # Only its own thread can close a connection. The threads meet at a barrier, so that each does it exactly once.
    barrier = threading.Barrier(settings.LANE_THREADS)
    for _ in range(settings.LANE_THREADS):
        executor.submit(_close_connections, barrier)
    executor.shutdown(wait=True)


def _close_connections(barrier: threading.Barrier) -> None:
    try:
        barrier.wait(CLOSE_SECONDS_MAX)
    except threading.BrokenBarrierError:
        logger.warning("a thread of the fast path did not end in time")
    connections.close_all()
