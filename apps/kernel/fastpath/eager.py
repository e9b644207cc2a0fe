"""Eager start of coroutines: a request that never waits is answered in the step in which it arrived, without a task."""

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

Value = TypeVar("Value")


def start(coroutine: Coroutine[Any, Any, Value]) -> Value | asyncio.Task[Value]:
    """Return the coroutine's result if it never waits, else the task that finishes it. Raises the coroutine's
    exception if it occurs before the first wait.

    Up to its first wait the coroutine has no current task, so `asyncio.timeout` does not work there. asyncio has eager
    tasks from Python 3.12 on; this creates no task at all for a coroutine that does not wait.
    """
    try:
        awaited = coroutine.send(None)
    except StopIteration as stop:
        value: Value = stop.value
        return value
    if awaited is not None:
        # The new task sets the mark again. Until it begins, another coroutine may begin to wait for the same future.
        awaited._asyncio_future_blocking = False
    return asyncio.get_running_loop().create_task(_finish(coroutine, awaited))


@types.coroutine
def _finish(coroutine: Coroutine[Any, Any, Value], awaited: "asyncio.Future[Any] | None") -> Generator[Any, Any, Value]:
    """Finish a coroutine that waits for `awaited` (None: for the loop's next step)."""
    while True:
        if awaited is not None:
            awaited._asyncio_future_blocking = True
        try:
            yield awaited
        except BaseException as error:  # noqa: BLE001 - It is raised in the coroutine.
            try:
                awaited = coroutine.throw(error)
            except StopIteration as stop:
                value: Value = stop.value
                return value
        else:
            return (yield from coroutine)
