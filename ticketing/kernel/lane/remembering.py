"""What a process remembers of what everybody reads: read once for all who ask, and read anew beside those who ask
while it is only a little old."""

import asyncio
import logging
import time
from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

from ticketing.kernel import problems, telemetry
from ticketing.kernel.lane import threads

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


REST_TIMES = 3.0


class Flights(Generic[Key]):
    """Readings under way, one for each key at most."""

    def __init__(self) -> None:
        self._under_way: dict[Key, asyncio.Task[Any]] = {}

    def begin(self, key: Key, read: Callable[[], Any]) -> "asyncio.Task[Any]":
        """The reading under way of this key, begun in a thread if there was none. Its result is for who awaits it."""
        task = self._under_way.get(key)
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            task = asyncio.create_task(threads.ask(read))
            self._under_way[key] = task
            task.add_done_callback(lambda done: self._ended(key, done))
        return task

    async def wait(self, key: Key, read: Callable[[], Any]) -> Any:
        """What that reading brings. A caller that is canceled ends it for nobody else."""
        return await asyncio.shield(self.begin(key, read))

    def _ended(self, key: Key, task: "asyncio.Task[Any]") -> None:
        if self._under_way.get(key) is task:
            del self._under_way[key]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, problems.Problem):
            # Whoever waits for it is told; that somebody else reads next is all there is to do about it here.
            logger.debug("a reading beside the requests failed: %s", telemetry.brief(error))


class _Kept(NamedTuple, Generic[Value]):
    begun: float
    fresh_seconds: float
    stale_seconds: float
    value: Value


class Remembered(Generic[Key, Value]):
    """Values by key, as `read(key)` brings them from a thread.

    Up to `fresh_seconds` old one is given at once; up to `stale_seconds` more too, while it is read anew; older ones,
    and none, wait for the reading. What is dear to read is read more seldom: both are at least REST_TIMES as long as
    the reading took, so that it is under way for a quarter of the time at most and nobody waits for one that goes on
    and on. At most `most` are kept; a refusal of `read` is not.
    """

    def __init__(self, read: Callable[[Key], Value], *, fresh_seconds: float, stale_seconds: float, most: int) -> None:
        self.fresh_seconds = fresh_seconds
        self.stale_seconds = stale_seconds
        self._read = read
        self._most = most
        self._kept: dict[Key, _Kept[Value]] = {}
        self._flights: Flights[Key] = Flights()

    async def get(self, key: Key) -> Value:
        """The value. Raises what `read` raised, and problems.Busy."""
        at_hand = self.peek(key)
        if at_hand is not None:
            return at_hand
        value: Value = await self._flights.wait(key, lambda: self._renew(key))
        return value

    def peek(self, key: Key) -> Value | None:
        """The value if it may be given at once; None: only `get` can tell. No value is None."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        age = time.monotonic() - kept.begun
        if age < kept.fresh_seconds:
            return kept.value
        if age < kept.fresh_seconds + kept.stale_seconds:
            self._flights.begin(key, lambda: self._renew(key))
            return kept.value
        return None

    def forget(self) -> None:
        self._kept.clear()

    def _renew(self, key: Key) -> Value:
        # Dated by its beginning: what was committed since may be missing in it.
        begun = time.monotonic()
        value = self._read(key)
        if len(self._kept) >= self._most and key not in self._kept:
            self._kept.clear()
        rest = REST_TIMES * (time.monotonic() - begun)
        self._kept[key] = _Kept(begun, max(self.fresh_seconds, rest), max(self.stale_seconds, rest), value)
        return value
