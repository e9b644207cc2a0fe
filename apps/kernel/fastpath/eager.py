"""Coroutines that run without a task: a request that never waits is answered in the step in which it arrived, and one
that waits goes on as a callback of what it waits for."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")
OnEnd = Callable[[Value | None, BaseException | None], None]


class Waiting(Generic[Value]):
    """A coroutine at its first wait. `resume_later` must be called in the same step of the event loop."""

    __slots__ = ("_awaited", "_coroutine")

    def __init__(self, coroutine: Coroutine[Any, Any, Value], awaited: "asyncio.Future[Any] | None") -> None:
        self._coroutine = coroutine
        self._awaited = awaited

    def resume_later(self, on_end: OnEnd[Value]) -> None:
        """Resume the coroutine when its wait is over. `on_end` will be called with its result or its exception.

        It runs in the present context, and without a current task: `asyncio.timeout` and task groups do not work in it.
        If its event loop ends while it waits, it is closed and `on_end` is not called.
        """
        _resume_after(self._awaited, self._coroutine, on_end)


def start(coroutine: Coroutine[Any, Any, Value]) -> Value | Waiting[Value]:
    """Run the coroutine to its end or its first wait. Return its result, or raise its exception, if it never waits."""
    try:
        return Waiting(coroutine, coroutine.send(None))
    except StopIteration as stop:
        value: Value = stop.value
        return value


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
