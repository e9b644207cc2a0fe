"""Coroutines that run without a task: a request that never waits is answered in the step in which it arrived, and one
that waits goes on as a callback of what it waits for."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

Value = TypeVar("Value")
OnEnd = Callable[[Value | None, BaseException | None], None]


def start(coroutine: Coroutine[Any, Any, Value], on_end: OnEnd[Value]) -> Value | None:
    """Run the coroutine to its end or its first wait. Return its result, which must not be None, or raise its
    exception. None: it waits, and `on_end` will be called with its result or its exception.

    Without a task there is no current task: `asyncio.timeout` and task groups do not work in such a coroutine. If its
    event loop ends while it waits, it is closed and `on_end` is not called.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration as stop:
        value: Value = stop.value
        return value
    _resume_after(awaited, coroutine, on_end)
    return None


def _resume_after(
    awaited: "asyncio.Future[Any] | None", coroutine: Coroutine[Any, Any, Value], on_end: OnEnd[Value]
) -> None:
    """Resume the coroutine when `awaited` is done (None: in the loop's next step)."""
    resume = partial(_resume, coroutine, on_end)
    if awaited is None:
        asyncio.get_running_loop().call_soon(resume)
        return
    # The mark is for a task, which would reset it. With it, no second coroutine could wait for this future.
    awaited._asyncio_future_blocking = False
    awaited.add_done_callback(resume)


def _resume(
    coroutine: Coroutine[Any, Any, Value], on_end: OnEnd[Value], _: "asyncio.Future[Any] | None" = None
) -> None:
    try:
        awaited = coroutine.send(None)  # What it waited for returns its result or raises its exception there.
    except StopIteration as stop:
        on_end(stop.value, None)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 - it is the caller's
        on_end(None, error)
    else:
        _resume_after(awaited, coroutine, on_end)
