"""Caches for values that many requests need. Each process reads a value once for all requests, and again in the
background when it is a little old. The other way to share a read is `batch_loader.BatchLoader`.

A room's snapshot and feed are kept elsewhere, because a snapshot serves only numbers below its end. They share
`InFlightReads`."""

import asyncio
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from apps.kernel.fastpath import thread_pool
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.kernel.heavy_work import duty_cycle
from apps.kernel.http import problems
from apps.kernel.observability import log_context

logger = logging.getLogger(__name__)


class Clearable(Protocol):
    def clear(self) -> None: ...


Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")
Cache = TypeVar("Cache", bound=Clearable)

_caches: list[Clearable] = []


def register(cache: Cache) -> Cache:
    """Add a cache of this process to those that `clear_all` clears, and return it."""
    _caches.append(cache)
    return cache


def make_room(values: dict[Key, Value], values_max: int, refreshed_at: Callable[[Value], float]) -> None:
    """If there are `values_max` values, remove the one that was refreshed the longest time ago. Those that many
    requests need are kept, however many others a client asks for. May be called by several threads at once."""
    if len(values) >= values_max:
        ages = {key: refreshed_at(value) for key, value in values.copy().items()}
        values.pop(min(ages, key=ages.__getitem__), None)


def clear_all() -> None:
    """Clear every cache of this process, as if it had just started (for tests)."""
    for cache in _caches:
        cache.clear()


def refreshing_caches() -> list["RefreshingCache[Any, Any] | BatchRefreshingCache[Any, Any]"]:
    return [cache for cache in _caches if isinstance(cache, (RefreshingCache, BatchRefreshingCache))]


class _Read:
    """A read of one key. Until it begins, it waits in the line of each client that needs it."""

    __slots__ = ("reader", "result", "turns")

    def __init__(self, result: "asyncio.Future[Any]") -> None:
        self.result = result
        self.turns: dict[str, asyncio.Task[None]] = {}
        """By the client's line."""
        self.reader: str | None = None
        """The line whose turn came first; None before."""

    def begin(self, line: str) -> bool:
        if self.reader is not None:
            return False
        self.reader = line
        return True


class InFlightReads(Generic[Key]):
    """Reads in progress in threads, at most one for each key. A read begins in the turn of the first client that has
    one, of those that need it: a client with many calls does not delay the others, with one key or many. `shared`:
    it goes first instead, as a read for all."""

    def __init__(self, *, shared: bool = False) -> None:
        self._shared = shared
        self._under_way: dict[Key, _Read] = {}

    def begin(self, key: Key, read: Callable[[], Any]) -> "asyncio.Future[Any]":
        """Return the result of the read of this key that is in progress, started in a thread if there was none."""
        loop = asyncio.get_running_loop()
        one = self._under_way.get(key)
        if one is None or one.result.done() or one.result.get_loop() is not loop:
            one = self._under_way[key] = _Read(loop.create_future())
            one.result.add_done_callback(partial(self._on_done, key, one))
        if one.reader is None:
            line = "" if self._shared else thread_pool.client_line()
            if line not in one.turns:
                create_task = thread_pool.create_shared_task if self._shared else loop.create_task
                one.turns[line] = create_task(_read_in_turn(one, line, read))
        return one.result

    async def wait(self, key: Key, read: Callable[[], Any]) -> Any:
        """Return the result of this key's read. A canceled caller does not cancel the read for others."""
        return await asyncio.shield(self.begin(key, read))

    def _on_done(self, key: Key, one: _Read, result: "asyncio.Future[Any]") -> None:
        if self._under_way.get(key) is one:
            del self._under_way[key]
        for turn in one.turns.values():
            turn.cancel()  # Those of other clients that still wait.
        error = None if result.cancelled() else result.exception()
        if error is not None and not isinstance(error, problems.Problem):
            # Requests that wait for the read get the error. After a background read, the next request tries again.
            logger.debug("a read in the background failed: %s", log_context.summarize_error(error))


async def _read_in_turn(one: _Read, line: str, read: Callable[[], Any]) -> None:
    """Read in the turn of this line, unless that of another one came first."""
    try:
        value = await thread_pool.run_if_first(partial(one.begin, line), read)
        if one.reader == line:
            one.result.set_result(value)
    except Exception as error:  # noqa: BLE001 - Every caller receives the error.
        del one.turns[line]
        # If too many calls of this client wait, the read still waits for the turns of others.
        if one.reader == line or (one.reader is None and not one.turns):
            one.result.set_exception(error)
    finally:
        if one.reader == line:
            one.result.cancel()  # No effect after a result; otherwise this task was canceled.


class _CacheEntry(NamedTuple, Generic[Value]):
    begun: float
    fresh_seconds: float
    stale_seconds: float
    value: Value


class _CacheBase(ABC, Generic[Key, Value]):
    """Values by key, at most `most`. Errors are not cached.

    For `fresh_seconds` a value is returned as it is. For `stale_seconds` more it is returned and read again in the
    background. After that, requests wait for the read. Both times are extended after a slow read (`duty_cycle`), so
    that a process does not read without pause.
    """

    def __init__(self, *, fresh_seconds: float, stale_seconds: float, most: int) -> None:
        self.fresh_seconds = fresh_seconds
        self.stale_seconds = stale_seconds
        self._most = most
        self._kept: dict[Key, _CacheEntry[Value]] = {}
        self._reading: dict[Key, threading.Lock] = {}
        """A lock for each key that a thread is reading, so that a slow read of one key does not delay others."""
        register(self)

    async def get(self, key: Key) -> Value:
        """Return the value. Raises the error of its read, and problems.Busy."""
        value = self.peek(key)
        return value if value is not None else await self._read_async(key)

    def peek(self, key: Key) -> Value | None:
        """Return the value, or None if the caller would have to wait for it. For the event loop. No value is None."""
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

    def read(self, key: Key) -> Value:
        """Return the value. For threads: a value that is too old is read in the caller's thread, and other threads that
        need it wait for that read. Raises the error of the read."""
        value = self._usable(key)
        if value is not None:
            return value
        try:
            with self._reading.setdefault(key, threading.Lock()):
                value = self._usable(key)  # Another thread may have read it while this one waited.
                return value if value is not None else self._read_now(key)
        finally:
            self._reading.pop(key, None)

    def _usable(self, key: Key) -> Value | None:
        kept = self._kept.get(key)
        if kept is None or time.monotonic() - kept.begun >= kept.fresh_seconds + kept.stale_seconds:
            return None
        return kept.value

    def clear(self) -> None:
        self._kept.clear()

    @abstractmethod
    async def _read_async(self, key: Key) -> Value:
        """Read and keep the value, for requests that wait for it."""

    @abstractmethod
    def _read_now(self, key: Key) -> Value:
        """Read and keep the value in this thread."""

    @abstractmethod
    def _refresh_in_background(self, key: Key) -> None:
        """Start reading the value, without waiting."""

    def _keep(self, values: Mapping[Key, Value], begun: float) -> None:
        """Keep the values. Their age counts from the beginning of their read, since they may lack later commits."""
        pause = duty_cycle.pause_seconds(begun)
        fresh, stale = max(self.fresh_seconds, pause), max(self.stale_seconds, pause)
        if len(self._kept) + len(values) > self._most and any(key not in self._kept for key in values):
            self._kept.clear()
        for key, value in values.items():
            self._kept[key] = _CacheEntry(begun, fresh, stale, value)


class RefreshingCache(_CacheBase[Key, Value]):
    """Values by key, each read by itself with `read_one(key)` in a thread."""

    def __init__(
        self, read_one: Callable[[Key], Value], *, fresh_seconds: float, stale_seconds: float, most: int
    ) -> None:
        super().__init__(fresh_seconds=fresh_seconds, stale_seconds=stale_seconds, most=most)
        self._read_one = read_one
        self._in_flight_reads: InFlightReads[Key] = InFlightReads()

    async def _read_async(self, key: Key) -> Value:
        value: Value = await self._in_flight_reads.wait(key, lambda: self._read_now(key))
        return value

    def _refresh_in_background(self, key: Key) -> None:
        self._in_flight_reads.begin(key, lambda: self._read_now(key))

    def _read_now(self, key: Key) -> Value:
        begun = time.monotonic()
        value = self._read_one(key)
        self._keep({key: value}, begun)
        return value


class BatchRefreshingCache(_CacheBase[Key, Value]):
    """Values by key, read with `read_many(keys)` in a thread: fifty events take as many statements as one. For a key
    without a value, `missing(key)` is raised. A value for which `is_large` is true is read by itself from then on, so
    that others do not wait for it."""

    def __init__(
        self,
        read_many: Callable[[Sequence[Key]], Mapping[Key, Value]],
        *,
        missing: Callable[[Key], Exception],
        fresh_seconds: float,
        stale_seconds: float,
        most: int,
        is_large: Callable[[Value], bool] | None = None,
    ) -> None:
        super().__init__(fresh_seconds=fresh_seconds, stale_seconds=stale_seconds, most=most)
        self._read_many = read_many
        self._missing = missing
        self._is_large = is_large
        self._large: set[Key] = set()
        """Keys whose value was large when it was read last."""
        self._requested: set[Key] = set()
        """Keys requested since the last refresh."""
        self._loader: BatchLoader[Key, Value] = BatchLoader(self._load_many)
        self._in_flight_reads: InFlightReads[None] = InFlightReads(shared=True)
        self._reads_alone: InFlightReads[Key] = InFlightReads()

    def peek(self, key: Key) -> Value | None:
        value = super().peek(key)
        if value is not None and key not in self._large:
            self._requested.add(key)
        return value

    def clear(self) -> None:
        super().clear()
        self._requested.clear()
        self._large.clear()

    async def _read_async(self, key: Key) -> Value:
        if key in self._large:
            value: Value = await self._reads_alone.wait(key, lambda: self._read_now(key))
            return value
        return await self._loader.ask(key)

    def _read_now(self, key: Key) -> Value:
        (value,) = self._load_many([key])
        if isinstance(value, Exception):
            raise value
        return value

    def _load_many(self, keys: list[Key]) -> list[Value | Exception]:
        found = self._read_and_keep(list(dict.fromkeys(keys)))
        return [found[key] if key in found else self._missing(key) for key in keys]

    def _refresh_in_background(self, key: Key) -> None:
        if key in self._large:
            self._reads_alone.begin(key, lambda: self._read_now(key))
        else:
            self._in_flight_reads.begin(None, self._refresh)

    def _refresh(self) -> None:
        """Read all recently requested keys again, also those that will be due soon, so that they stay in one batch."""
        requested, self._requested = self._requested, set()
        half = time.monotonic() - self.fresh_seconds / 2
        # Copied in one step, because the event loop may still add to it.
        due = [key for key in list(requested) if (kept := self._kept.get(key)) is not None and kept.begun <= half]
        found = self._read_and_keep(due)
        for key in due:
            if key not in found:
                self._kept.pop(key, None)  # The next request raises `missing`.

    def _read_and_keep(self, keys: Sequence[Key]) -> Mapping[Key, Value]:
        begun = time.monotonic()
        found = self._read_many(keys)
        self._keep(found, begun)
        if self._is_large is not None:
            large = {key for key, value in found.items() if self._is_large(value)}
            self._large = (self._large - set(keys)) | large
        return found
