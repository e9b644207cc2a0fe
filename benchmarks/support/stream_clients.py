"""Those who listen, thousands of them, in a process of their own: by server-sent events, over a socket, or by polling.

They note when they were told what. What is told is the counts of one section (`SECTION`) in which places only ever get
fewer, so that whoever has been told of `taken` places knows of every hold before: a hold is heard with the first frame
that says at least as many. Moments are those of the machine's clock, which is the ledger's too.
"""

import asyncio
import os
import re
import resource
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.suite.load.arrivals import status_of

SECTION = "floor-0"
PLACES = 1_000_000
"""Of that section, when nobody has held any."""
START_SECONDS_MAX = 180.0
RECEIVE_SECONDS_MAX = 60.0
CONNECTING_AT_ONCE = 200
PER_ADDRESS = 5_000
"""A local address has some 28,000 ports."""
SAMPLED_CLIENTS = 200
"""For percentiles so many listeners are enough; what is late or lost is counted for all."""
KINDS = {"events": "server-sent events", "socket": "socket", "poll": "short poll"}

_SECTION = b'"section_id":"%b"' % SECTION.encode()
_FREE = b'"available_seats":'
_FREE_BEFORE = len(_FREE) + 12
"""So far before the section's name its count begins at most, where it stands before it."""
_ID = re.compile(rb"\nid: ([^\n]+)\n")
_ETAG = re.compile(rb"\r\netag: ([^\r]+)\r\n", re.IGNORECASE)
_NEXT_POLL = re.compile(rb'"next_poll":(\d+)')
_OVERLAP_BYTES = 96
"""Of what was read last, so much may be the beginning of what is looked for."""


@dataclass(frozen=True)
class DeliveryReport:
    """What the listeners were told of some holds: each hold once for each listener."""

    expected: int
    late: int
    """Not told within so many seconds, those never told among them."""
    lost: int
    """Never told."""
    behind: int
    """Listeners whose last word is not the ledger's."""
    p50_ms: float
    p99_ms: float
    worst_ms: float
    frames: int
    """With news in them, to all listeners together."""
    expected_by_stayers: int
    late_for_stayers: int
    """The same of those who never hung up."""

    @property
    def on_time(self) -> float:
        return 1 - self.late / self.expected if self.expected else float("nan")

    @property
    def on_time_for_stayers(self) -> float:
        return 1 - self.late_for_stayers / self.expected_by_stayers if self.expected_by_stayers else float("nan")


class StreamClients:
    """The listeners, seen from outside."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def _ask(self, *order: Any, seconds: float = START_SECONDS_MAX) -> Any:
        self._pipe.send(order)
        return self._answer(seconds)

    def _answer(self, seconds: float) -> Any:
        assert self._pipe.poll(seconds), "the listeners do not answer"
        answer = self._pipe.recv()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def come(self, count: int) -> None:
        """So many more listen, and each has been told something."""
        self._ask("come", count)

    def expect(self, words: bytes) -> None:
        """The listeners note when they hear these words, the next time."""
        self._ask("expect", words)

    def hear(self) -> list[float]:
        """The moments at which they heard them."""
        found: list[float] = self._ask("hear", seconds=RECEIVE_SECONDS_MAX + 30)
        return found

    def begin(self) -> None:
        """From now on each notes what it is told, and bytes are counted anew."""
        self._ask("begin")

    def reconnect(self, one_in: int) -> None:
        """Every so-manyth hangs up and is back, as a browser comes back."""
        self._ask("reconnect", one_in)

    def heard(self, committed: Sequence[float], before: int, *, within_seconds: float) -> DeliveryReport:
        """What became of the holds committed at these moments, `before` having been held when the first was."""
        found: DeliveryReport = self._ask("heard", list(committed), before, within_seconds)
        return found

    def bytes(self) -> tuple[int, int]:
        """Read and sent since `begin`, without what TCP adds."""
        found: tuple[int, int] = self._ask("bytes")
        return found


@contextmanager
def start_stream_clients(port: int, path: str, kind: str = "events") -> Iterator[StreamClients]:
    """A process in which nobody listens yet."""
    here, there = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_run, args=(there, port, path, kind), daemon=True)
    process.start()
    try:
        yield StreamClients(here)
    finally:
        process.kill()
        process.join()


def percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


# --- one who listens --------------------------------------------------------------------------------------------------


class ClientLog:
    """What one listener was told and when, over all of its connections."""

    __slots__ = ("at", "has_come_back", "last", "taken", "text")

    def __init__(self) -> None:
        self.at = array("d")
        self.taken = array("l")
        self.last = -1
        """What it was told last."""
        self.text = b""
        """Where it was told so."""
        self.has_come_back = False


class EventStreamClient(asyncio.Protocol):
    """By server-sent events. Also the beginning of the other two."""

    def __init__(self, crowd: "ClientPool", notes: ClientLog, address: tuple[str, int]) -> None:
        self.crowd, self.notes, self.address = crowd, notes, address
        self.is_in = False
        self.rest = b""
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        read = _ID.search(self.notes.text)
        more = b"Last-Event-ID: %b\r\n" % read[1] if read else b""
        self.send(self.crowd.request(b"Accept: text/event-stream\r\n" + more))

    def send(self, data: bytes) -> None:
        self.crowd.bytes_sent += len(data)
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        self.crowd.bytes_read += len(data)
        self.look(data)

    def look(self, data: bytes) -> None:
        crowd = self.crowd
        if not self.is_in:
            self.is_in = True
            crowd.entered()
        text = self.rest + data  # What is looked for may lie across two pieces.
        self.rest = data[-_OVERLAP_BYTES:]
        if crowd.words and crowd.words in text and self not in crowd.hearing:
            crowd.note(self)
        free = _free_in(text)
        if free is not None:
            notes, taken = self.notes, PLACES - free
            if crowd.takes_notes and taken > notes.last:
                notes.at.append(time.time())
                notes.taken.append(taken)
            notes.last, notes.text = taken, data


def _free_in(text: bytes) -> int | None:
    """The newest count of the section in it. Ten times as quick as a regular expression, for what is read so often."""
    found = text.rfind(_SECTION)
    if found < 0:
        return None
    begin = text.rfind(_FREE, max(0, found - _FREE_BEFORE), found)
    if begin >= 0:  # As the relay writes it.
        return int(text[begin + len(_FREE) : found - 1])
    begin = found + len(_SECTION) + 1  # As a process does that counts for itself.
    end = text.find(b"}", begin)
    if end < 0 or not text.startswith(_FREE, begin):
        return None  # The rest is still to come.
    return int(text[begin + len(_FREE) : end])


class WebSocketClient(EventStreamClient):
    """Over a socket, pings answered."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.unread = b""
        self.is_open = False
        self.send(
            self.crowd.request(
                b"Origin: http://localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ZWlnaHRlZW4gb3Igc29tZQ==\r\n"
            )
        )

    def data_received(self, data: bytes) -> None:
        self.crowd.bytes_read += len(data)
        self.unread += data
        if not self.is_open:
            head, end, self.unread = self.unread.partition(b"\r\n\r\n")
            if not end:
                self.unread = head
                return
            assert b" 101 " in head, head
            self.is_open = True
        while (found := _message(self.unread)) is not None:
            operation, body, self.unread = found
            if operation == 9:
                mask = os.urandom(4)
                masked = bytes(one ^ mask[n % 4] for n, one in enumerate(body))
                self.send(bytes((0x8A, 0x80 | len(body))) + mask + masked)
            elif operation == 1:
                self.look(body)


def _message(data: bytes) -> tuple[int, bytes, bytes] | None:
    """Its kind, its body and what comes after it."""
    if len(data) < 2:
        return None
    size, begin = data[1] & 0x7F, 2
    if size == 126:
        size, begin = int.from_bytes(data[2:4]), 4
    elif size == 127:
        size, begin = int.from_bytes(data[2:10]), 10
    end = begin + size
    return (data[0] & 0x0F, data[begin:end], data[end:]) if len(data) >= end else None


class PollingClient(EventStreamClient):
    """Asks again when it was told to, over the same connection as long as that is open."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.etag = b""
        self.answer = b""
        self.pause = 3.5
        self.ask()

    def ask(self) -> None:
        if self.transport is None:
            task = asyncio.get_running_loop().create_task(self.crowd.connect(self.notes, self.address))
            self.crowd.tasks.add(task)
            task.add_done_callback(self.crowd.tasks.discard)
            return
        seen = b"If-None-Match: %b\r\n" % self.etag if self.etag else b""
        self.send(self.crowd.request(b"Accept: application/json\r\n" + seen))

    def data_received(self, data: bytes) -> None:
        self.crowd.bytes_read += len(data)
        self.answer += data
        status = 304 if self.answer[9:12] == b"304" and self.answer.endswith(b"\r\n\r\n") else status_of(self.answer)
        if status is None:
            return
        answer, self.answer = self.answer, b""
        assert status in (200, 304), answer
        if status == 200:
            if named := _ETAG.search(answer):
                self.etag = named[1]
            if told := _NEXT_POLL.search(answer):
                self.pause = int(told[1]) / 1_000
        self.rest = b""
        self.look(answer)
        asyncio.get_running_loop().call_later(self.pause, self.ask)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None


CLIENT_CLASSES = {"events": EventStreamClient, "socket": WebSocketClient, "poll": PollingClient}


class ClientPool:
    """All of them, in their process."""

    def __init__(self, port: int, path: str, kind: str) -> None:
        self.port, self.path, self.kind = port, path, kind
        self.listeners: list[EventStreamClient] = []
        self.inside = self.expected = 0
        self.all_in = asyncio.Event()
        self.words = b""
        self.hearing: dict[EventStreamClient, float] = {}
        self.all_heard = asyncio.Event()
        self.takes_notes = False
        self.bytes_read = self.bytes_sent = 0
        self.tasks: set[asyncio.Task[EventStreamClient]] = set()

    def request(self, more: bytes) -> bytes:
        return b"GET %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % (self.path.encode(), more)

    def entered(self) -> None:
        self.inside += 1
        if self.inside >= self.expected:
            self.all_in.set()

    def note(self, ear: EventStreamClient) -> None:
        self.hearing[ear] = time.time()
        if len(self.hearing) == len(self.listeners):
            self.all_heard.set()

    async def connect(self, notes: ClientLog, address: tuple[str, int]) -> EventStreamClient:
        made = CLIENT_CLASSES[self.kind](self, notes, address)
        await asyncio.get_running_loop().create_connection(lambda: made, "127.0.0.1", self.port, local_addr=address)
        return made

    async def come(self, count: int) -> None:
        self.expected, self.inside = count, 0
        self.all_in.clear()
        for begun in range(0, count, CONNECTING_AT_ONCE):
            some = range(min(CONNECTING_AT_ONCE, count - begun))
            address = (f"127.0.0.{2 + len(self.listeners) // PER_ADDRESS}", 0)
            self.listeners += await asyncio.gather(*(self.connect(ClientLog(), address) for _ in some))
        await self.all_in.wait()

    async def expect(self, words: bytes) -> None:
        self.hearing, self.words = {}, words
        self.all_heard.clear()

    async def hear(self) -> list[float]:
        try:
            async with asyncio.timeout(RECEIVE_SECONDS_MAX):
                await self.all_heard.wait()
        except TimeoutError:
            pass
        self.words = b""
        return list(self.hearing.values())

    async def begin(self) -> None:
        for one in self.listeners:
            del one.notes.at[:], one.notes.taken[:]
        self.takes_notes = True
        self.bytes_read = self.bytes_sent = 0

    async def reconnect(self, one_in: int) -> None:
        chosen = range(0, len(self.listeners), one_in)
        self.expected, self.inside = len(chosen), 0
        self.all_in.clear()
        for number in chosen:
            self.listeners[number].transport.abort()
            self.listeners[number].notes.has_come_back = True
        for begun in range(0, len(chosen), CONNECTING_AT_ONCE):
            some = chosen[begun : begun + CONNECTING_AT_ONCE]
            back = [self.connect(self.listeners[number].notes, self.listeners[number].address) for number in some]
            for number, ear in zip(some, await asyncio.gather(*back), strict=True):
                self.listeners[number] = ear
        await self.all_in.wait()

    async def bytes(self) -> tuple[int, int]:
        return self.bytes_read, self.bytes_sent

    async def heard(self, committed: list[float], before: int, within_seconds: float) -> DeliveryReport:
        self.takes_notes = False
        everybody = [one.notes for one in self.listeners]
        late = lost = late_for_stayers = 0
        worst = 0.0
        took: list[float] = []
        # Odd, so that it does not meet those who came back, one in ten, and nobody else.
        step = max(1, len(everybody) // SAMPLED_CLIENTS) | 1
        for place, notes in enumerate(everybody):
            known, late_before = 0, late
            for moment, taken in zip(notes.at, notes.taken, strict=True):
                now_known = min(taken - before, len(committed))
                if now_known <= known:
                    continue
                worst = max(worst, moment - committed[known])
                overdue = min(bisect_left(committed, moment - within_seconds), now_known)
                late += max(0, overdue - known)
                if place % step == 0:
                    took += [moment - one for one in committed[known:now_known]]
                known = now_known
            lost += len(committed) - known
            late += len(committed) - known
            late_for_stayers += 0 if notes.has_come_back else late - late_before
        return DeliveryReport(
            expected=len(committed) * len(everybody),
            late=late,
            lost=lost,
            behind=sum(notes.last != before + len(committed) for notes in everybody),
            p50_ms=1_000 * percentile(took, 0.5),
            p99_ms=1_000 * percentile(took, 0.99),
            worst_ms=1_000 * worst,
            frames=sum(len(notes.at) for notes in everybody),
            expected_by_stayers=len(committed) * sum(not notes.has_come_back for notes in everybody),
            late_for_stayers=late_for_stayers,
        )


def _run(pipe: Connection, port: int, path: str, kind: str) -> None:
    import uvloop

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    uvloop.run(_serve(pipe, ClientPool(port, path, kind)))


async def _serve(pipe: Connection, crowd: ClientPool) -> None:
    while True:
        name, *values = await asyncio.to_thread(pipe.recv)
        try:
            pipe.send(await getattr(crowd, name)(*values))
        except Exception as error:  # noqa: BLE001 - Raised where it was asked.
            pipe.send(error)
