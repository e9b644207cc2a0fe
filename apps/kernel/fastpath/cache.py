"""What a process remembers of what everybody reads: read once for all who ask, and read anew beside those who ask
while it is only a little old."""

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from apps.kernel import duty_cycle
from apps.kernel.fastpath import thread_pool
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.kernel.http import problems
from apps.kernel.observability import log_context

logger = logging.getLogger(__name__)

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class InFlightReads(Generic[Key]):
    """Readings under way, one for each key at most."""

    def __init__(self) -> None:
        self._under_way: dict[Key, asyncio.Task[Any]] = {}

    def begin(self, key: Key, read: Callable[[], Any]) -> "asyncio.Task[Any]":
        """The reading under way of this key, begun in a thread if there was none. Its result is for who awaits it."""
        task = self._under_way.get(key)
        if task is None or task.done() or task.get_loop() is not asyncio.get_running_loop():
            task = asyncio.create_task(thread_pool.run_in_thread(read))
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
            logger.debug("a reading beside the requests failed: %s", log_context.summarize_error(error))


class _CacheEntry(NamedTuple, Generic[Value]):
    begun: float
    fresh_seconds: float
    stale_seconds: float
    value: Value


class _CacheBase(ABC, Generic[Key, Value]):
    """Values by key. Up to `fresh_seconds` old one is given at once; up to `stale_seconds` more too, while it is read
    anew; older ones, and none, wait for the reading. What is dear to read is read more seldom (`duty_cycle`): both last
    at least as long as the rest after the reading, so that nobody waits for one that goes on and on. At most `most` are
    kept; a refusal is not."""

    def __init__(self, *, fresh_seconds: float, stale_seconds: float, most: int) -> None:
        self.fresh_seconds = fresh_seconds
        self.stale_seconds = stale_seconds
        self._most = most
        self._kept: dict[Key, _CacheEntry[Value]] = {}

    async def get(self, key: Key) -> Value:
        """The value. Raises what its reading raised, and problems.Busy."""
        at_hand = self.peek(key)
        return at_hand if at_hand is not None else await self._read(key)

    def peek(self, key: Key) -> Value | None:
        """The value if it may be given at once; None: only `get` can tell. No value is None."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        age = time.monotonic() - kept.begun
        if age < kept.fresh_seconds:
            return kept.value
        if age < kept.fresh_seconds + kept.stale_seconds:
            self._refresh_in_background(key)
            return kept.value
        return None

    def forget(self) -> None:
        self._kept.clear()

    @abstractmethod
    async def _read(self, key: Key) -> Value:
        """The value, read now and kept, for whoever waits for it."""

    @abstractmethod
    def _refresh_in_background(self, key: Key) -> None:
        """It is being read, and nobody waits for it."""

    def _keep(self, values: Mapping[Key, Value], begun: float) -> None:
        """What a reading brought is dated by its beginning: what was committed since may be missing in it."""
        rest = duty_cycle.pause_seconds(begun)
        fresh, stale = max(self.fresh_seconds, rest), max(self.stale_seconds, rest)
        if len(self._kept) + len(values) > self._most and any(key not in self._kept for key in values):
            self._kept.clear()
        for key, value in values.items():
            self._kept[key] = _CacheEntry(begun, fresh, stale, value)


class RefreshingCache(_CacheBase[Key, Value]):
    """Values by key, as `read(key)` brings them from a thread: each by itself."""

    def __init__(self, read: Callable[[Key], Value], *, fresh_seconds: float, stale_seconds: float, most: int) -> None:
        super().__init__(fresh_seconds=fresh_seconds, stale_seconds=stale_seconds, most=most)
        self._read_one = read
        self._in_flight_reads: InFlightReads[Key] = InFlightReads()

    async def _read(self, key: Key) -> Value:
        value: Value = await self._in_flight_reads.wait(key, lambda: self._refresh(key))
        return value

    def _refresh_in_background(self, key: Key) -> None:
        self._in_flight_reads.begin(key, lambda: self._refresh(key))

    def _refresh(self, key: Key) -> Value:
        begun = time.monotonic()
        value = self._read_one(key)
        self._keep({key: value}, begun)
        return value


class BatchRefreshingCache(_CacheBase[Key, Value]):
    """Values by key, as `read(keys)` brings them from a thread, many in as many statements as one: with fifty events on
    sale each is read in the very journey in which the others are. Of one that it leaves out, `missing(key)` is raised.
    """

    def __init__(
        self,
        read: Callable[[Sequence[Key]], Mapping[Key, Value]],
        *,
        missing: Callable[[Key], Exception],
        fresh_seconds: float,
        stale_seconds: float,
        most: int,
    ) -> None:
        super().__init__(fresh_seconds=fresh_seconds, stale_seconds=stale_seconds, most=most)
        self._read_many = read
        self._missing = missing
        self._asked: set[Key] = set()
        """Since what was asked for was last read anew."""
        self._loader: BatchLoader[Key, Value] = BatchLoader(self._load_many)
        self._in_flight_reads: InFlightReads[None] = InFlightReads()

    def peek(self, key: Key) -> Value | None:
        value = super().peek(key)
        if value is not None:
            self._asked.add(key)
        return value

    def forget(self) -> None:
        super().forget()
        self._asked.clear()

    async def _read(self, key: Key) -> Value:
        return await self._loader.ask(key)

    def _load_many(self, keys: list[Key]) -> list[Value | Exception]:
        found = self._read_and_keep(list(dict.fromkeys(keys)))
        return [found[key] if key in found else self._missing(key) for key in keys]

    def _refresh_in_background(self, key: Key) -> None:
        self._in_flight_reads.begin(None, self._refresh)

    def _refresh(self) -> None:
        """All that were asked for lately are read anew, also where it is only soon time: then they stay together."""
        asked, self._asked = self._asked, set()
        half = time.monotonic() - self.fresh_seconds / 2
        # Copied in one step: the loop may still be adding to it.
        due = [key for key in list(asked) if (kept := self._kept.get(key)) is not None and kept.begun <= half]
        found = self._read_and_keep(due)
        for key in due:
            if key not in found:
                self._kept.pop(key, None)  # Whoever asks next is told why.

    def _read_and_keep(self, keys: Sequence[Key]) -> Mapping[Key, Value]:
        begun = time.monotonic()
        found = self._read_many(keys)
        self._keep(found, begun)
        return found
