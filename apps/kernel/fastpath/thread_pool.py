"""A small thread pool for the fast path's blocking calls. Each thread has Django connections of its own.

The event loop's thread never waits for PostgreSQL or Redis. A limited number of calls may wait for a thread. Beyond
that, a request is refused with Busy, while requests that need no thread (status polls, counts) are still answered.

Calls of all clients share the threads in the order of their arrival. A request that anyone can repeat, and that needs
a thread for itself instead of sharing a batch, takes its client's turn first (`turn_of`), so that the calls of one
client never wait in front of all others.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.db import close_old_connections, connections

from apps.kernel.db import pools
from apps.kernel.http import problems
from apps.kernel.rate_limits import limits

Params = ParamSpec("Params")
Value = TypeVar("Value")

WAITING_MAX = 500
CLIENT_WAITING_MAX = 100
"""Requests of one client address that may wait for its turn."""
CLOSE_SECONDS_MAX = 10.0

logger = logging.getLogger(__name__)


class _Threads:
    """The executor, created on first use so that a server may fork before, and the number of its unfinished calls."""

    executor: ThreadPoolExecutor | None = None
    waiting = 0


_threads = _Threads()


async def run_in_thread(act: Callable[Params, Value], *args: Params.args, **kwargs: Params.kwargs) -> Value:
    """Call `act` in a thread that may use Django's connections; return its result or raise its error. May raise Busy.

    A caller that is canceled loses the result; a call that has begun is completed.
    """
    if _threads.waiting >= WAITING_MAX:
        raise problems.Busy
    _threads.waiting += 1
    try:
        return await asyncio.get_running_loop().run_in_executor(_executor(), lambda: _carry_out(act, *args, **kwargs))
    finally:
        _threads.waiting -= 1


class _Turn:
    """The turn of one client, and the number of its requests that have it or wait for it."""

    __slots__ = ("lock", "requests")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.requests = 0


_turns: dict[str, _Turn] = {}


@asynccontextmanager
async def turn_of(address: str) -> AsyncIterator[None]:
    """Run the block while no other request of this client's address (IPv6: of its /48) runs one. Raises Busy if too
    many of its requests wait."""
    network = limits.network_of(address)
    subject = limits.site_of(network) or network
    turn = _turns.get(subject)
    if turn is None:
        turn = _turns[subject] = _Turn()
    if turn.requests > CLIENT_WAITING_MAX:
        raise problems.Busy
    turn.requests += 1
    try:
        async with turn.lock:
            yield
    finally:
        turn.requests -= 1
        if not turn.requests:
            _turns.pop(subject, None)


def _executor() -> ThreadPoolExecutor:
    if _threads.executor is None:
        _threads.executor = ThreadPoolExecutor(max_workers=settings.LANE_THREADS, thread_name_prefix="fastpath")
    return _threads.executor


def _carry_out(act: Callable[Params, Value], *args: Params.args, **kwargs: Params.kwargs) -> Value:
    # As Django does around each request: replaces a connection that was lost when the database restarted.
    pools.renew_django_connections()
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
