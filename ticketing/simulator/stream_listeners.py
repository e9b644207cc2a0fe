"""Stream listeners: each has a stream that is reopened when it ends. At the end of a run, their last counts are
compared with the site's.

The transport of a stream is in `streams` and `sockets`. All listeners receive the same bytes, so each message is parsed
once.
"""

import asyncio
import random
from array import array
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from ticketing.simulator.api import RETRY_AFTER_SECONDS, Busy, NoResponse
from ticketing.simulator.visitors import FIRST_PAUSE_SECONDS, VisitorContext

OPENING_AT_ONCE = 100
OPENING_SECONDS_MAX = 15.0
PAUSE_SECONDS_MAX = 8.0
SILENT_SECONDS_MAX = 40.0
"""A working server sends something every fifteen seconds."""
CHECK_SECONDS = 0.5
SETTLED_SECONDS = 3.0
"""The site's counts are final once they have not changed for this long."""
SETTLE_SECONDS_MAX = 30.0
"""Listeners must have received the final counts within this time."""
SETTLING_SECONDS_MAX = 120.0
CACHED_FRAMES_MAX = 500

FreeCounts = tuple[tuple[str, int], ...]
"""Available seats by section id, in order of the ids."""


class Frame(msgspec.Struct, frozen=True):
    """The parts of a stream's message that concern a listener."""

    id: str = ""
    free: FreeCounts | None = None
    """None if the message has no counts."""
    retry_seconds: float | None = None
    """Set in the last message of a stream: reconnect after this time."""


class _Section(msgspec.Struct):
    section_id: str
    available_seats: int


class _Counts(msgspec.Struct):
    sections: list[_Section]


class _Farewell(msgspec.Struct):
    retry_ms: int


def free_in(document: Mapping[str, Any]) -> FreeCounts:
    """Return the counts in a response of the API. Raises msgspec.ValidationError."""
    return _sorted(msgspec.convert(document, _Counts))


def read_frame(kind: str, frame_id: str, data: bytes) -> Frame:
    """Parse a message of a stream. Raises msgspec.DecodeError."""
    if kind == "sections":
        return Frame(frame_id, _sorted(msgspec.json.decode(data, type=_Counts)))
    if kind == "bye":
        return Frame(frame_id, retry_seconds=msgspec.json.decode(data, type=_Farewell).retry_ms / 1_000)
    return Frame(frame_id)


def _sorted(counts: _Counts) -> FreeCounts:
    return tuple(sorted((one.section_id, one.available_seats) for one in counts.sections))


@dataclass(slots=True)
class ListenerResults:
    """The results of all listeners."""

    protocol: str
    listeners: int
    opened: int = 0
    frames: int = 0
    """Messages with counts, over all listeners."""
    broke: int = 0
    """Streams that ended without a last message, or fell silent."""
    sent_away: int = 0
    """Streams that the server ended with a last message."""
    came_back: int = 0
    away: "array[float]" = field(default_factory=lambda: array("d"))
    """Seconds without a stream until each reconnection."""
    wrong: int | None = None
    """Listeners that ended with other counts than the site's or without a stream; None: not checked."""
    first_right_at: float = 0.0
    last_right_at: float = 0.0
    """When the first and the last listener received the final counts, in seconds of the event loop."""


class OpenStream(Protocol):
    """An open stream."""

    def close(self) -> None: ...


@dataclass(eq=False, slots=True)
class StreamListener:
    """One listener. The transport of its stream calls `opened`, `receive`, `ended` and `refused`."""

    group: "StreamListeners"
    counts: FreeCounts | None = None
    changed_at: float = 0.0
    last_data_at: float = 0.0
    last_id: str = ""
    stream: OpenStream | None = None
    is_open: bool = False
    away_since: float | None = None
    retry: float | None = None
    tries: int = 0

    def opened(self) -> None:
        """Record that the stream is open."""
        results = self.group.results
        self.is_open = True
        self.tries = 0
        results.opened += 1
        if self.away_since is not None:
            results.came_back += 1
            results.away.append(self.group.context.now() - self.away_since)
            self.away_since = None

    def receive(self, frame: Frame) -> None:
        if frame.id:
            self.last_id = frame.id
        if frame.retry_seconds is not None:
            self.retry = frame.retry_seconds
        if frame.free is not None:
            self.group.results.frames += 1
            if frame.free != self.counts:
                self.counts, self.changed_at = frame.free, self.last_data_at

    def ended(self, why: str = "") -> None:
        """Record the end of the stream, by either side, and schedule its reopening."""
        was_open, self.is_open, self.stream = self.is_open, False, None
        if self.group.is_closing:
            return
        if was_open:
            self.away_since = self.group.context.now()
            if self.retry is not None:
                self.group.results.sent_away += 1
            else:
                self.group.results.broke += 1
        elif why:
            self.group.context.figures.retries[f"stream: {why}"] += 1
        pause, self.retry = self.retry, None
        if pause is None:
            pause = min(PAUSE_SECONDS_MAX, FIRST_PAUSE_SECONDS * 2**self.tries) * (0.5 + self.group.random.random())
            self.tries = min(self.tries + 1, 10)
        self.group.open_in(pause, self)

    def refused(self, status: int, retry_after_seconds: float = RETRY_AFTER_SECONDS) -> None:
        """Record a refusal by the server, and retry if it may be temporary."""
        self.group.context.figures.refusals[f"stream: {status}"] += 1
        self.stream = None
        if status < 500 and status != 429:
            self.group.context.breaches.note("unexpected responses", f"a listener: {status}")
            return
        if status >= 500 and status != 503:
            self.group.context.breaches.note("server errors", f"a listener: {status}")
        if not self.group.is_closing:
            self.group.open_in(retry_after_seconds * (1 + self.group.random.random()), self)

    def report_breach(self, example: str) -> None:
        """Record an invalid message; the listener continues."""
        self.group.context.breaches.note("unexpected responses", f"a listener: {example}")


StreamOpener = Callable[[StreamListener], Awaitable[None]]
"""Opens a stream and sets the listener's `stream`. Raises OSError or TimeoutError without a response."""


class StreamListeners:
    """All stream listeners of a run."""

    def __init__(
        self, context: VisitorContext, rng: random.Random, count: int, protocol: str, open_stream: StreamOpener
    ) -> None:
        self.context, self.random = context, rng
        self.results = ListenerResults(protocol, count)
        self.is_closing = False
        self._open_stream = open_stream
        self._all = [StreamListener(self) for _ in range(count)]
        self._slots = asyncio.Semaphore(OPENING_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    def begin(self, over_seconds: float) -> None:
        """Open all streams, at random times within this many seconds."""
        for listener in self._all:
            self.open_in(self.random.uniform(0, over_seconds), listener)
        self.start(self._reconnect_silent())

    def open_in(self, seconds: float, listener: StreamListener) -> None:
        self._loop.call_later(max(0.0, seconds), self._open, listener)

    @property
    def open_count(self) -> int:
        return sum(listener.is_open for listener in self._all)

    def _open(self, listener: StreamListener) -> None:
        if not self.is_closing:
            self.start(self._open_one(listener))

    def start(self, act: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run the coroutine as a task until it ends or `close` is called."""
        task = self._loop.create_task(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _open_one(self, listener: StreamListener) -> None:
        async with self._slots:
            if self.is_closing:
                return
            listener.last_data_at = self.context.now()
            try:
                async with asyncio.timeout(OPENING_SECONDS_MAX):
                    await self._open_stream(listener)
            except (OSError, TimeoutError) as error:
                listener.ended(type(error).__name__)

    async def _reconnect_silent(self) -> None:
        """Close streams that have been silent for too long, so that they are reopened."""
        while True:
            await asyncio.sleep(SILENT_SECONDS_MAX / 8)
            before = self.context.now() - SILENT_SECONDS_MAX
            for listener in self._all:
                if listener.stream is not None and listener.last_data_at < before:
                    self.context.figures.retries["stream: fell silent"] += 1
                    listener.stream.close()

    async def settle(self, stopping: asyncio.Event) -> None:
        """Wait until all listeners have the site's final counts, and record those that do not."""
        begun = fetched_at = self.context.now()
        truth: FreeCounts | None = None
        since = begun
        while not stopping.is_set():
            counts = await self._fetch_counts()
            fetched_at = self.context.now()
            if counts is not None and counts != truth:
                truth, since = counts, fetched_at
            if not any(self._find_outdated(truth)) and fetched_at - since >= SETTLED_SECONDS:
                break
            if fetched_at - since > SETTLE_SECONDS_MAX or fetched_at - begun > SETTLING_SECONDS_MAX:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await stopping.wait()
        else:
            return
        self._record_outcome(truth)

    async def _fetch_counts(self) -> FreeCounts | None:
        """Return the site's current counts, which it computes anew for each request."""
        try:
            response = await self.context.api.call("check", "GET", f"/events/{self.context.event}/sections")
            return free_in(response.document) if response.status == 200 else None
        except (Busy, NoResponse, msgspec.MsgspecError):
            return None

    def _find_outdated(self, truth: FreeCounts | None) -> Iterator[StreamListener]:
        return (listener for listener in self._all if truth is None or not listener.is_open or listener.counts != truth)

    def _record_outcome(self, truth: FreeCounts | None) -> None:
        results, wrong = self.results, list(self._find_outdated(truth))
        results.wrong = len(wrong)
        for listener in wrong:
            if not listener.is_open:
                detail = "without a stream"
            elif truth is None or listener.counts is None:
                detail = "no counts"
            else:
                detail = f"differing in {sorted(set(listener.counts) ^ set(truth))[:4]}"
            self.context.breaches.note("listeners with wrong counts", detail)
        right = [listener.changed_at for listener in self._all if listener.counts == truth and listener.is_open]
        if right:
            results.first_right_at, results.last_right_at = min(right), max(right)

    async def close(self) -> None:
        """Close all streams."""
        self.is_closing = True
        for listener in self._all:
            if listener.stream is not None:
                listener.stream.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
