"""The few threads in which a handler's blocking questions are asked, each with Django connections of its own.

The loop's own thread never waits for PostgreSQL or Redis. How many may wait for a thread is bounded: past that the
caller is told to come back, and those who need no thread (who waits, who reads counts) go on being answered.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from django.conf import settings
from django.db import close_old_connections, connections

from apps.kernel.http import problems

Params = ParamSpec("Params")
Value = TypeVar("Value")

WAITING_MAX = 500
CLOSE_SECONDS_MAX = 10.0

logger = logging.getLogger(__name__)


class _Threads:
    """The executor, made when first needed, so that a server may fork before, and how many wait for it."""

    executor: ThreadPoolExecutor | None = None
    waiting = 0


_threads = _Threads()


async def run_in_thread(act: Callable[Params, Value], *args: Params.args, **kwargs: Params.kwargs) -> Value:
    """What `act` returns or raises, in a thread where it may use Django's connections. Raises problems.Busy.

    A caller that is canceled loses the answer; what was begun is finished.
    """
    if _threads.waiting >= WAITING_MAX:
        raise problems.Busy
    _threads.waiting += 1
    try:
        return await asyncio.get_running_loop().run_in_executor(_executor(), lambda: _carry_out(act, *args, **kwargs))
    finally:
        _threads.waiting -= 1


def _executor() -> ThreadPoolExecutor:
    if _threads.executor is None:
        _threads.executor = ThreadPoolExecutor(max_workers=settings.LANE_THREADS, thread_name_prefix="lane")
    return _threads.executor


def _carry_out(act: Callable[Params, Value], *args: Params.args, **kwargs: Params.kwargs) -> Value:
    # As Django does around each of its own requests: a connection that died with a restarted database is replaced.
    close_old_connections()
    try:
        return act(*args, **kwargs)
    finally:
        close_old_connections()


def close() -> None:
    """What was begun has ended, and no thread of ours and no connection of theirs is left. Blocks."""
    executor, _threads.executor = _threads.executor, None
    if executor is None:
        return
    # A connection is its thread's own to close. All of them meet, so that none does it twice and another not at all.
    everybody = threading.Barrier(settings.LANE_THREADS)
    for _ in range(settings.LANE_THREADS):
        executor.submit(_close_connections, everybody)
    executor.shutdown(wait=True)


def _close_connections(everybody: threading.Barrier) -> None:
    try:
        everybody.wait(CLOSE_SECONDS_MAX)
    except threading.BrokenBarrierError:
        logger.warning("a thread of the lane did not end in time")
    connections.close_all()
