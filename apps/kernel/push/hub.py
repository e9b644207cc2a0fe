"""The hub: one process's listeners, and sending frames to them.

The event loop writes the same bytes to each listener, SLICE listeners at a time, and serves other requests in between.
Everything here runs on the loop's thread.
"""

import asyncio
import itertools
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from functools import partial
from operator import methodcaller
from time import monotonic

from prometheus_client import Counter, Gauge

from apps.kernel.push.frames import Frame, Key

SLICE = 200
"""Listeners written to, in two or three milliseconds, before the loop runs other callbacks."""
BEAT_SECONDS = 15.0
"""Interval of heartbeats, so that neither the client nor a proxy closes an idle connection."""
_BEATS = 60
LIFE_SECONDS = 3_600.0
"""A connection is closed after this time and reconnects at once, so that connections spread over new processes."""
LIFE_SHARE = 0.2
"""The lifetime is shortened by a random part of up to this share."""
HELD_BACK_MAX = 64
MERGED_BYTES_MAX = 64 * 1024
"""A frame that is merged for one listener is a copy of its own. A listener that would need a larger one is
disconnected: it gets the current state when it is back."""
RECONNECT_SECONDS_MAX = 8.0
"""Clients of a closing process reconnect at random moments within this time."""

listening = Gauge("fairgate_live_listeners_count", "Connected listeners, by transport.", ["door"], registry=None)
frames_sent = Counter("fairgate_live_frames", "Frames written to listeners.", registry=None)
held_back = Counter("fairgate_live_held_back", "Frames held back because their listener was slow.", registry=None)
ended = Counter("fairgate_live_ended", "Listeners that have disconnected, by reason.", ["why"], registry=None)
METRICS = (listening, frames_sent, held_back, ended)

_random = random.Random()  # noqa: S311 - Only spreads load.


class Listener(ABC):
    """A connected client. While it does not read, frames are held back: the newest of each key is sent later."""

    __slots__ = ("_held_back", "beat", "door", "is_gone", "on_gone", "on_left", "topics", "until")

    def __init__(self, door: str) -> None:
        self.door = door
        self.topics: tuple[str, ...] = ()
        self.is_gone = False
        self.beat = -1
        self.until = monotonic() + LIFE_SECONDS * (1 - LIFE_SHARE * _random.random())
        self.on_gone: Callable[[], object] | None = None
        """Set by the listener itself; called when it has left the hub, like `on_left`."""
        self.on_left: Callable[[], object] | None = None
        """Set by the code that created the listener."""
        self._held_back: dict[Key, Frame] | None = None

    @abstractmethod
    def write(self, frame: Frame) -> None:
        """Write the frame without waiting."""

    @abstractmethod
    def is_slow(self) -> bool:
        """Return whether earlier frames are still unread."""

    @abstractmethod
    def keep_alive(self) -> None:
        """Send a heartbeat."""

    @abstractmethod
    def close(self, retry_seconds: float) -> None:
        """Send the closing frame, after which nothing is written."""

    def send_frame(self, frame: Frame) -> None:
        if self.is_gone:
            return
        if not self._held_back and not self.is_slow():
            frames_sent.inc()
            self.write(frame)
            return
        held_back.inc()
        if self._held_back is None:
            self._held_back = {}
        waiting = self._held_back
        older = waiting.pop(frame.key, None)
        copied = len(older.data) + len(frame.data) if older is not None and frame.copies(older) else 0
        if copied <= MERGED_BYTES_MAX:
            waiting[frame.key] = frame if older is None else frame.merged_with(older)
        if copied > MERGED_BYTES_MAX or len(waiting) > HELD_BACK_MAX:
            waiting.clear()
            self.close(reconnect_seconds())

    def catch_up(self) -> None:
        """Write held-back frames for as long as the client reads them."""
        waiting = self._held_back
        while waiting and not self.is_gone and not self.is_slow():
            key = next(iter(waiting))
            frames_sent.inc()
            self.write(waiting.pop(key))
        if not waiting:
            self._held_back = None


def reconnect_seconds() -> float:
    """Return a random delay after which a disconnected client reconnects, so that not all do so at once."""
    return 0.5 + _random.random() * RECONNECT_SECONDS_MAX


class Hub:
    """The listeners of this process, by topic."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[Listener, None]] = {}
        """The listeners of each topic; a topic without listeners has no entry."""
        self.count = 0
        self._beats: list[dict[Listener, None]] = [{} for _ in range(_BEATS)]
        self._next_beat = itertools.cycle(range(_BEATS))
        self._due: dict[tuple[str, Key], Frame] = {}
        self._delivery_task: asyncio.Task[None] | None = None
        self._heartbeat_task: asyncio.Task[None] | None = None
        self.is_closing = False

    def has_listeners(self, name: str) -> bool:
        return name in self._topics

    def listener_count(self, name: str) -> int:
        return len(self._topics.get(name, ()))

    def listen(self, listener: Listener, topics: Iterable[str]) -> None:
        """Subscribe the listener to `topics`. The caller sends it the current state."""
        if listener.is_gone:
            return
        listener.topics = (*listener.topics, *topics)
        for name in listener.topics:
            self._topics.setdefault(name, {})[listener] = None
        if listener.beat < 0:
            listener.beat = _random.randrange(_BEATS)
            self._beats[listener.beat][listener] = None
            self.count += 1
            listening.labels(listener.door).inc()
            if self._heartbeat_task is None or self._heartbeat_task.done():
                self._heartbeat_task = asyncio.get_running_loop().create_task(self._beat())

    def leave(self, listener: Listener, why: str = "gone") -> None:
        """Unsubscribe the listener from everything. Calling this again has no effect."""
        if listener.is_gone:
            return
        listener.is_gone = True
        for name in listener.topics:
            self._forget(listener, name)
        listener.topics = ()
        if listener.beat >= 0:
            self._beats[listener.beat].pop(listener, None)
            self.count -= 1
            listening.labels(listener.door).dec()
            ended.labels(why).inc()
        if listener.on_gone is not None:
            listener.on_gone()
        if listener.on_left is not None:
            listener.on_left()

    def leave_topic(self, listener: Listener, name: str) -> None:
        """Unsubscribe the listener from one topic."""
        self._forget(listener, name)
        listener.topics = tuple(topic for topic in listener.topics if topic != name)

    def _forget(self, listener: Listener, name: str) -> None:
        if (listeners := self._topics.get(name)) is not None:
            listeners.pop(listener, None)
            if not listeners:
                del self._topics[name]

    def publish(self, topic: str, frame: Frame) -> None:
        """Schedule the frame for the topic's listeners; an unsent older frame of the same key is merged into it."""
        if topic not in self._topics:
            return
        older = self._due.pop((topic, frame.key), None)
        self._due[topic, frame.key] = frame if older is None else frame.merged_with(older)
        if self._delivery_task is None or self._delivery_task.done():
            self._delivery_task = asyncio.get_running_loop().create_task(self._deliver_due())

    async def _deliver_due(self) -> None:
        while self._due:
            topic, key = next(iter(self._due))
            frame = self._due.pop((topic, key))
            await in_slices(list(self._topics.get(topic, ())), methodcaller("send_frame", frame))

    async def _beat(self) -> None:
        while self.count:
            await asyncio.sleep(BEAT_SECONDS / _BEATS)
            await in_slices(list(self._beats[next(self._next_beat)]), partial(self._check_listener, monotonic()))

    def _check_listener(self, now: float, listener: Listener) -> None:
        if listener.is_gone:
            return
        if now >= listener.until:
            self.disconnect(listener, "time")
        elif not listener.is_slow():
            listener.keep_alive()

    def disconnect(self, listener: Listener, why: str = "closing") -> None:
        """Send the closing frame and unsubscribe the listener."""
        if not listener.is_gone:
            listener.close(reconnect_seconds())
            self.leave(listener, why)

    async def close(self) -> None:
        """Disconnect all listeners; each reconnects after its own random delay."""
        self.is_closing = True
        listeners = [listener for beat in self._beats for listener in beat]
        await in_slices(listeners, self.disconnect)
        for task in (self._delivery_task, self._heartbeat_task):
            if task is not None:
                task.cancel()


async def in_slices(listeners: list[Listener], act: Callable[[Listener], object]) -> None:
    """Call `act` with each listener, letting other callbacks run after every SLICE of them."""
    for start in range(0, len(listeners), SLICE):
        for listener in listeners[start : start + SLICE]:
            act(listener)
        await asyncio.sleep(0)
