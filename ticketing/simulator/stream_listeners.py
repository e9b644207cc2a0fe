"""Those who listen: each with a stream that is opened again when it ends, what each heard last, and whether in the end
that is what the house says.

How a stream travels is its door's business (`streams`, `sockets`). All listeners are told the same bytes, so what they
say is read once.
"""

import asyncio
import random
from array import array
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from ticketing.simulator.api import RETRY_AFTER_SECONDS, Busy, NoAnswer
from ticketing.simulator.visitors import FIRST_PAUSE_SECONDS, VisitorContext

OPENING_AT_ONCE = 100
OPENING_SECONDS_MAX = 15.0
PAUSE_SECONDS_MAX = 8.0
SILENT_SECONDS_MAX = 40.0
"""A house that lives says something every fifteen seconds."""
CHECK_SECONDS = 0.5
SETTLED_SECONDS = 3.0
"""The house must have said the same for so long, before it is taken for its last word."""
SETTLE_SECONDS_MAX = 30.0
"""So long after the house's last word everybody must have heard it, or has heard wrong."""
SETTLING_SECONDS_MAX = 120.0
CACHED_FRAMES_MAX = 500

FreeCounts = tuple[tuple[str, int], ...]
"""What is free in each section, by their names in order."""


class Frame(msgspec.Struct, frozen=True):
    """What one message of a stream says, as far as a listener cares."""

    id: str = ""
    free: FreeCounts | None = None
    """None: it is not about that."""
    retry_seconds: float | None = None
    """It is the last, and to come back after so long is what it asks for."""


class _Section(msgspec.Struct):
    section_id: str
    available_seats: int


class _Counts(msgspec.Struct):
    sections: list[_Section]


class _Farewell(msgspec.Struct):
    retry_ms: int


def free_in(document: Mapping[str, Any]) -> FreeCounts:
    """Of an answer of the API. Raises msgspec's ValidationError."""
    return _sorted(msgspec.convert(document, _Counts))


def read_frame(kind: str, frame_id: str, data: bytes) -> Frame:
    """Raises msgspec's DecodeError where it is none of the contract's."""
    if kind == "sections":
        return Frame(frame_id, _sorted(msgspec.json.decode(data, type=_Counts)))
    if kind == "bye":
        return Frame(frame_id, retry_seconds=msgspec.json.decode(data, type=_Farewell).retry_ms / 1_000)
    return Frame(frame_id)


def _sorted(counts: _Counts) -> FreeCounts:
    return tuple(sorted((one.section_id, one.available_seats) for one in counts.sections))


@dataclass(slots=True)
class ListenerResults:
    """What came of all listeners."""

    door: str
    listeners: int
    opened: int = 0
    frames: int = 0
    """Messages with counts, as often as they were heard."""
    broke: int = 0
    """Streams that ended without a word, or fell silent,"""
    sent_away: int = 0
    """and those that ended with one."""
    came_back: int = 0
    away: "array[float]" = field(default_factory=lambda: array("d"))
    """Seconds without a stream, of each time that somebody came back."""
    wrong: int | None = None
    """How many ended with other counts than the house's, or without a stream; None: it was not looked at."""
    first_right_at: float = 0.0
    last_right_at: float = 0.0
    """When the first and the last of them had the final counts for good: the loop's seconds."""


class OpenStream(Protocol):
    """One stream that is open."""

    def close(self) -> None: ...


class StreamListener:
    """One who listens. The stream's door tells it what happens."""

    __slots__ = (
        "away_since",
        "changed_at",
        "counts",
        "is_open",
        "last_data_at",
        "last_id",
        "line",
        "listeners",
        "retry",
        "tries",
    )

    def __init__(self, ears: "StreamListeners") -> None:
        self.listeners = ears
        self.counts: FreeCounts | None = None
        self.changed_at = 0.0
        self.last_data_at = 0.0
        self.last_id = ""
        self.line: OpenStream | None = None
        self.is_open = False
        self.away_since: float | None = None
        self.retry: float | None = None
        self.tries = 0

    def opened(self) -> None:
        """It is answered, and hears from now on."""
        heard = self.listeners.results
        self.is_open = True
        self.tries = 0
        heard.opened += 1
        if self.away_since is not None:
            heard.came_back += 1
            heard.away.append(self.listeners.door.now() - self.away_since)
            self.away_since = None

    def receive(self, frame: Frame) -> None:
        if frame.id:
            self.last_id = frame.id
        if frame.retry_seconds is not None:
            self.retry = frame.retry_seconds
        if frame.free is not None:
            self.listeners.results.frames += 1
            if frame.free != self.counts:
                self.counts, self.changed_at = frame.free, self.last_data_at

    def ended(self, why: str = "") -> None:
        """The stream is over, whoever ended it; it comes back."""
        was_open, self.is_open, self.line = self.is_open, False, None
        if self.listeners.is_closing:
            return
        if was_open:
            self.away_since = self.listeners.door.now()
            if self.retry is not None:
                self.listeners.results.sent_away += 1
            else:
                self.listeners.results.broke += 1
        elif why:
            self.listeners.door.figures.retries[f"stream: {why}"] += 1
        pause, self.retry = self.retry, None
        if pause is None:
            pause = min(PAUSE_SECONDS_MAX, FIRST_PAUSE_SECONDS * 2**self.tries) * (0.5 + self.listeners.random.random())
            self.tries = min(self.tries + 1, 10)
        self.listeners.open_in(pause, self)

    def refused(self, status: int, retry_after_seconds: float = RETRY_AFTER_SECONDS) -> None:
        """The house does not want it: for now, or this is no house of ours."""
        self.listeners.door.figures.refusals[f"stream: {status}"] += 1
        self.line = None
        if status < 500 and status != 429:
            self.listeners.door.breaches.note("unexpected answers", f"a listener: {status}")
            return
        if status >= 500 and status != 503:
            self.listeners.door.breaches.note("faults", f"a listener: {status}")
        if not self.listeners.is_closing:
            self.listeners.open_in(retry_after_seconds * (1 + self.listeners.random.random()), self)

    def report_breach(self, example: str) -> None:
        """The house says what it must not; it hears on."""
        self.listeners.door.breaches.note("unexpected answers", f"a listener: {example}")


StreamOpener = Callable[[StreamListener], Awaitable[None]]
"""Opens a stream, and sets the ear's line. Raises OSError or TimeoutError where nobody answers."""


class StreamListeners:
    """All who listen."""

    def __init__(self, door: VisitorContext, rng: random.Random, count: int, by: str, open_line: StreamOpener) -> None:
        self.door, self.random = door, rng
        self.results = ListenerResults(by, count)
        self.is_closing = False
        self._open_line = open_line
        self._all = [StreamListener(self) for _ in range(count)]
        self._slots = asyncio.Semaphore(OPENING_AT_ONCE)
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    def begin(self, over_seconds: float) -> None:
        """They come within so long."""
        for ear in self._all:
            self.open_in(self.random.uniform(0, over_seconds), ear)
        self.start(self._reconnect_silent())

    def open_in(self, seconds: float, ear: StreamListener) -> None:
        self._loop.call_later(max(0.0, seconds), self._open, ear)

    @property
    def open_count(self) -> int:
        return sum(ear.is_open for ear in self._all)

    def _open(self, ear: StreamListener) -> None:
        if not self.is_closing:
            self.start(self._open_one(ear))

    def start(self, act: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """It goes on until it ends, or all of this does."""
        task = self._loop.create_task(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _open_one(self, ear: StreamListener) -> None:
        async with self._slots:
            if self.is_closing:
                return
            ear.last_data_at = self.door.now()
            try:
                async with asyncio.timeout(OPENING_SECONDS_MAX):
                    await self._open_line(ear)
            except (OSError, TimeoutError) as error:
                ear.ended(type(error).__name__)

    async def _reconnect_silent(self) -> None:
        """Whoever hears nothing at all any more asks anew."""
        while True:
            await asyncio.sleep(SILENT_SECONDS_MAX / 8)
            before = self.door.now() - SILENT_SECONDS_MAX
            for ear in self._all:
                if ear.line is not None and ear.last_data_at < before:
                    self.door.figures.retries["stream: fell silent"] += 1
                    ear.line.close()

    async def settle(self, stopping: asyncio.Event) -> None:
        """Everybody has what the house says in the end, or it is known who has not."""
        begun = asked_at = self.door.now()
        truth: FreeCounts | None = None
        since = begun
        while not stopping.is_set():
            told = await self._fetch_counts()
            asked_at = self.door.now()
            if told is not None and told != truth:
                truth, since = told, asked_at
            if not any(self._find_outdated(truth)) and asked_at - since >= SETTLED_SECONDS:
                break
            if asked_at - since > SETTLE_SECONDS_MAX or asked_at - begun > SETTLING_SECONDS_MAX:
                break
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await stopping.wait()
        else:
            return
        self._record_outcome(truth)

    async def _fetch_counts(self) -> FreeCounts | None:
        """What is free now, as anybody is told who asks; the house counts anew each time."""
        try:
            answer = await self.door.api.call("check", "GET", f"/events/{self.door.event}/sections")
            return free_in(answer.document) if answer.status == 200 else None
        except (Busy, NoAnswer, msgspec.MsgspecError):
            return None

    def _find_outdated(self, truth: FreeCounts | None) -> Iterator[StreamListener]:
        return (ear for ear in self._all if truth is None or not ear.is_open or ear.counts != truth)

    def _record_outcome(self, truth: FreeCounts | None) -> None:
        heard, wrong = self.results, list(self._find_outdated(truth))
        heard.wrong = len(wrong)
        for ear in wrong:
            differing = [] if truth is None or ear.counts is None else sorted(set(ear.counts) ^ set(truth))[:4]
            said = "without a stream" if not ear.is_open else f"differing in {differing}" if differing else "no counts"
            self.door.breaches.note("listeners that ended wrong", said)
        right = [ear.changed_at for ear in self._all if ear.counts == truth and ear.is_open]
        if right:
            heard.first_right_at, heard.last_right_at = min(right), max(right)

    async def close(self) -> None:
        """Nobody listens any more."""
        self.is_closing = True
        for ear in self._all:
            if ear.line is not None:
                ear.line.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
