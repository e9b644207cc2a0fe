"""The event loop on which a process's calls to payment providers wait, in a thread of its own.

Only calls to providers run there, and none of them reads or writes the database: one statement would delay every other
call. The thread starts with the first call. A forked process starts its own.
"""

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

Result = TypeVar("Result")

_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""The loop of the process with this id."""


def submit(call: Coroutine[Any, Any, Result]) -> "Future[Result]":
    """Run the coroutine on the loop and return its result to come, without waiting. May be called from any thread."""
    return asyncio.run_coroutine_threadsafe(call, _loop())


def _loop() -> asyncio.AbstractEventLoop:
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            loop = asyncio.new_event_loop()
            _loops.clear()
            _loops[os.getpid()] = loop
            threading.Thread(target=loop.run_forever, name="provider-calls", daemon=True).start()
        return loop
