"""A request in group commit and its answer. A waiting thread is woken by an event, a coroutine through its event
loop."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

logger = logging.getLogger(__name__)

Request = TypeVar("Request")
Outcome = TypeVar("Outcome")


@dataclass(eq=False, slots=True)
class Call(Generic[Request, Outcome]):
    """A request and, later, its answer. Exactly one of `future` and `done` is set, to wake the caller."""

    request: Request
    key: Hashable = None
    """Requests with the same key share a queue: see batcher.py."""
    future: asyncio.Future[None] | None = None
    done: threading.Event | None = None
    since: float = field(default_factory=time.monotonic)
    outcome: Outcome | None = None
    error: BaseException | None = None
    answered: bool = False
    woken: bool = False

    def answer(self, outcome: Outcome) -> None:
        self.outcome, self.answered = outcome, True

    def result(self) -> Outcome:
        if self.error is not None:
            raise self.error
        return cast("Outcome", self.outcome)


def refuse(calls: Sequence[Call[Any, Any]], make: Callable[[], BaseException]) -> None:
    """Answer each call with a new exception: one that is raised in two tasks would collect both tracebacks."""
    for call in calls:
        call.error, call.answered = make(), True
    wake(calls)


def wake(calls: Sequence[Call[Any, Any]]) -> None:
    """Wake the callers, those of one event loop together, because each wake-up of a loop writes to a socket."""
    of_loops: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for call in calls:
        if call.woken:
            continue
        call.woken = True
        if call.done is not None:
            call.done.set()
        elif call.future is not None:
            of_loops.setdefault(call.future.get_loop(), []).append(call.future)
    for loop, futures in of_loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, futures)
        except RuntimeError:
            logger.info("group commit: an event loop has ended; %s of its answers are lost", len(futures))


def _resolve(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        # A caller that was canceled in the meantime has canceled its future too.
        if not future.done():
            future.set_result(None)
