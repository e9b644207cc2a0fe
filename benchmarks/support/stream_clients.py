"""Thousands of listeners in a separate process: by server-sent events, WebSocket, polling or Redis Pub/Sub.

They record when they received which counts of one section (`SECTION`). Its availability only falls, so a frame with a
`taken` count covers all holds up to that number: a hold is delivered by the first frame with at least its number. Times
are from the machine's clock, which PostgreSQL uses too.
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
from urllib.parse import urlsplit

from benchmarks.suite.load.arrivals import status_of

SECTION = "floor-0"
CAPACITY = 1_000_000
"""Of that section."""
START_SECONDS_MAX = 180.0
RECEIVE_SECONDS_MAX = 60.0
CONNECTING_AT_ONCE = 200
PER_ADDRESS = 5_000
"""A local address has about 28,000 ports."""
SAMPLED_CLIENTS = 200
"""Enough for percentiles; late and lost deliveries are counted over all listeners."""
KINDS = {
    "events": "server-sent events",
    "socket": "socket",
    "poll": "short poll",
    "pubsub": "Redis Pub/Sub, no web server",
}
PUBSUB_CHANNEL = "benchmark-availability"

_SECTION = b'"section_id":"%b"' % SECTION.encode()
_FREE = b'"available_seats":'
_FREE_BEFORE = len(_FREE) + 12
"""If a count comes before the section's name, it begins at most this many bytes before it."""
_ID = re.compile(rb"\nid: ([^\n]+)\n")
_ETAG = re.compile(rb"\r\netag: ([^\r]+)\r\n", re.IGNORECASE)
_NEXT_POLL = re.compile(rb'"next_poll":(\d+)')
_OVERLAP_BYTES = 96
"""The end of the previous read that may contain the beginning of a match."""


@dataclass(frozen=True)
class DeliveryReport:
    """The deliveries of some holds: each hold once for each listener."""

    expected: int
    late: int
    """Not delivered within the limit, including those never delivered."""
    lost: int
    """Never delivered."""
    behind: int
    """Listeners whose last counts are not those of the ledger."""
    p50_ms: float
    p99_ms: float
    worst_ms: float
    frames: int
    """With new counts, over all listeners."""
    expected_by_stayers: int
    late_for_stayers: int
    """Like `late`, but only of listeners that never disconnected."""

    @property
    def on_time(self) -> float:
        return 1 - self.late / self.expected if self.expected else float("nan")

    @property
    def on_time_for_stayers(self) -> float:
        return 1 - self.late_for_stayers / self.expected_by_stayers if self.expected_by_stayers else float("nan")


class StreamClients:
    """The interface to the listeners' process."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def _request(self, *order: Any, seconds: float = START_SECONDS_MAX) -> Any:
        self._pipe.send(order)
        assert self._pipe.poll(seconds), "the listeners do not respond"
        result = self._pipe.recv()
        if isinstance(result, BaseException):
            raise result
        return result

    def connect(self, count: int) -> None:
        """Connect this many more listeners and wait until each has received something."""
        self._request("connect", count)

    def expect(self, words: bytes) -> None:
        """Make the listeners record when they next receive these bytes."""
        self._request("expect", words)

    def wait_for_expected(self) -> list[float]:
        """Return the times at which the listeners received the expected bytes."""
        found: list[float] = self._request("wait_for_expected", seconds=RECEIVE_SECONDS_MAX + 30)
        return found

    def begin(self) -> None:
        """Start recording, with all counters of bytes at 0."""
        self._request("begin")

    def reconnect(self, one_in: int) -> None:
        """Disconnect one in `one_in` listeners and reconnect them, as browsers do."""
        self._request("reconnect", one_in)

    def report(self, committed: Sequence[float], before: int, *, within_seconds: float) -> DeliveryReport:
        """Return the deliveries of the holds committed at these times, after `before` earlier ones."""
        found: DeliveryReport = self._request("report", list(committed), before, within_seconds)
        return found

    def bytes(self) -> tuple[int, int]:
        """Return the bytes read and sent since `begin`, without the overhead of TCP."""
        found: tuple[int, int] = self._request("bytes")
        return found


@contextmanager
def start_stream_clients(port: int, path: str, kind: str = "events") -> Iterator[StreamClients]:
    """Start a process without listeners."""
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


# --- one listener -----------------------------------------------------------------------------------------------------


class ClientLog:
    """The counts that one listener received and when, over all of its connections."""

    __slots__ = ("at", "has_come_back", "last", "taken", "text")

    def __init__(self) -> None:
        self.at = array("d")
        self.taken = array("l")
        self.last = -1
        """The last `taken` count."""
        self.text = b""
        """The text of the last frame with counts."""
        self.has_come_back = False


class EventStreamClient(asyncio.Protocol):
    """A listener by server-sent events, and the base of the others."""

    def __init__(self, pool: "ClientPool", log: ClientLog, address: tuple[str, int]) -> None:
        self.pool, self.log, self.address = pool, log, address
        self.is_in = False
        self.rest = b""
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        read = _ID.search(self.log.text)
        more = b"Last-Event-ID: %b\r\n" % read[1] if read else b""
        self.send(self.pool.request(b"Accept: text/event-stream\r\n" + more))

    def send(self, data: bytes) -> None:
        self.pool.bytes_sent += len(data)
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        self.pool.bytes_read += len(data)
        self.process(data)

    def process(self, data: bytes) -> None:
        pool = self.pool
        if not self.is_in:
            self.is_in = True
            pool.entered()
        text = self.rest + data  # A match may span two reads.
        self.rest = data[-_OVERLAP_BYTES:]
        if pool.words and pool.words in text and self not in pool.receiving:
            pool.record_expected(self)
        free = _free_in(text)
        if free is not None:
            log, taken = self.log, CAPACITY - free
            if pool.is_recording and taken > log.last:
                log.at.append(time.time())
                log.taken.append(taken)
            log.last, log.text = taken, data


def _free_in(text: bytes) -> int | None:
    """Return the newest count of the section in the text. Ten times as fast as a regular expression."""
    found = text.rfind(_SECTION)
    if found < 0:
        return None
    begin = text.rfind(_FREE, max(0, found - _FREE_BEFORE), found)
    if begin >= 0:  # Written by the relay.
        return int(text[begin + len(_FREE) : found - 1])
    begin = found + len(_SECTION) + 1  # Written by a process that counts for itself.
    end = text.find(b"}", begin)
    if end < 0 or not text.startswith(_FREE, begin):
        return None  # The rest has not arrived yet.
    return int(text[begin + len(_FREE) : end])


class WebSocketClient(EventStreamClient):
    """A listener over a WebSocket, which responds to pings."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.unread = b""
        self.is_open = False
        self.send(
            self.pool.request(
                b"Origin: http://localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: ZWlnaHRlZW4gb3Igc29tZQ==\r\n"
            )
        )

    def data_received(self, data: bytes) -> None:
        self.pool.bytes_read += len(data)
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
                self.process(body)


def _message(data: bytes) -> tuple[int, bytes, bytes] | None:
    """Return the first message's opcode and body, and the bytes after it."""
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
    """A listener that polls when the response allows, over one connection as long as that is open."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.etag = b""
        self.response = b""
        self.pause = 3.5
        self.poll()

    def poll(self) -> None:
        if self.transport is None:
            task = asyncio.get_running_loop().create_task(self.pool.open_connection(self.log, self.address))
            self.pool.tasks.add(task)
            task.add_done_callback(self.pool.tasks.discard)
            return
        condition = b"If-None-Match: %b\r\n" % self.etag if self.etag else b""
        self.send(self.pool.request(b"Accept: application/json\r\n" + condition))

    def data_received(self, data: bytes) -> None:
        self.pool.bytes_read += len(data)
        self.response += data
        status = (
            304 if self.response[9:12] == b"304" and self.response.endswith(b"\r\n\r\n") else status_of(self.response)
        )
        if status is None:
            return
        response, self.response = self.response, b""
        assert status in (200, 304), response
        if status == 200:
            if named := _ETAG.search(response):
                self.etag = named[1]
            if next_poll := _NEXT_POLL.search(response):
                self.pause = int(next_poll[1]) / 1_000
        self.rest = b""
        self.process(response)
        asyncio.get_running_loop().call_later(self.pause, self.poll)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None


class SubscribedClient(EventStreamClient):
    """A listener with a Redis connection of its own that subscribes to PUBSUB_CHANNEL; the path is the server's URL."""

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        url = urlsplit(self.pool.path)
        self.send(f"AUTH {url.username or 'default'} {url.password}\r\nSUBSCRIBE {PUBSUB_CHANNEL}\r\n".encode())


CLIENT_CLASSES = {
    "events": EventStreamClient,
    "socket": WebSocketClient,
    "poll": PollingClient,
    "pubsub": SubscribedClient,
}


class ClientPool:
    """All listeners, in their process."""

    def __init__(self, port: int, path: str, kind: str) -> None:
        self.port, self.path, self.kind = port, path, kind
        self.listeners: list[EventStreamClient] = []
        self.inside = self.expected = 0
        self.all_in = asyncio.Event()
        self.words = b""
        self.receiving: dict[EventStreamClient, float] = {}
        self.all_received = asyncio.Event()
        self.is_recording = False
        self.bytes_read = self.bytes_sent = 0
        self.tasks: set[asyncio.Task[EventStreamClient]] = set()

    def request(self, more: bytes) -> bytes:
        return b"GET %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % (self.path.encode(), more)

    def entered(self) -> None:
        self.inside += 1
        if self.inside >= self.expected:
            self.all_in.set()

    def record_expected(self, client: EventStreamClient) -> None:
        self.receiving[client] = time.time()
        if len(self.receiving) == len(self.listeners):
            self.all_received.set()

    async def open_connection(self, log: ClientLog, address: tuple[str, int]) -> EventStreamClient:
        made = CLIENT_CLASSES[self.kind](self, log, address)
        await asyncio.get_running_loop().create_connection(lambda: made, "127.0.0.1", self.port, local_addr=address)
        return made

    async def connect(self, count: int) -> None:
        self.expected, self.inside = count, 0
        self.all_in.clear()
        for begun in range(0, count, CONNECTING_AT_ONCE):
            some = range(min(CONNECTING_AT_ONCE, count - begun))
            address = (f"127.0.0.{2 + len(self.listeners) // PER_ADDRESS}", 0)
            self.listeners += await asyncio.gather(*(self.open_connection(ClientLog(), address) for _ in some))
        await self.all_in.wait()

    async def expect(self, words: bytes) -> None:
        self.receiving, self.words = {}, words
        self.all_received.clear()

    async def wait_for_expected(self) -> list[float]:
        try:
            async with asyncio.timeout(RECEIVE_SECONDS_MAX):
                await self.all_received.wait()
        except TimeoutError:
            pass
        self.words = b""
        return list(self.receiving.values())

    async def begin(self) -> None:
        for one in self.listeners:
            del one.log.at[:], one.log.taken[:]
        self.is_recording = True
        self.bytes_read = self.bytes_sent = 0

    async def reconnect(self, one_in: int) -> None:
        chosen = range(0, len(self.listeners), one_in)
        self.expected, self.inside = len(chosen), 0
        self.all_in.clear()
        for number in chosen:
            self.listeners[number].transport.abort()
            self.listeners[number].log.has_come_back = True
        for begun in range(0, len(chosen), CONNECTING_AT_ONCE):
            some = chosen[begun : begun + CONNECTING_AT_ONCE]
            back = [self.open_connection(self.listeners[number].log, self.listeners[number].address) for number in some]
            for number, client in zip(some, await asyncio.gather(*back), strict=True):
                self.listeners[number] = client
        await self.all_in.wait()

    async def bytes(self) -> tuple[int, int]:
        return self.bytes_read, self.bytes_sent

    async def report(self, committed: list[float], before: int, within_seconds: float) -> DeliveryReport:
        self.is_recording = False
        logs = [one.log for one in self.listeners]
        late = lost = late_for_stayers = 0
        worst = 0.0
        took: list[float] = []
        # Odd, so that the sample is not exactly the reconnected listeners, which are one in ten.
        step = max(1, len(logs) // SAMPLED_CLIENTS) | 1
        for index, log in enumerate(logs):
            known, late_before = 0, late
            for moment, taken in zip(log.at, log.taken, strict=True):
                now_known = min(taken - before, len(committed))
                if now_known <= known:
                    continue
                worst = max(worst, moment - committed[known])
                overdue = min(bisect_left(committed, moment - within_seconds), now_known)
                late += max(0, overdue - known)
                if index % step == 0:
                    took += [moment - one for one in committed[known:now_known]]
                known = now_known
            lost += len(committed) - known
            late += len(committed) - known
            late_for_stayers += 0 if log.has_come_back else late - late_before
        return DeliveryReport(
            expected=len(committed) * len(logs),
            late=late,
            lost=lost,
            behind=sum(log.last != before + len(committed) for log in logs),
            p50_ms=1_000 * percentile(took, 0.5),
            p99_ms=1_000 * percentile(took, 0.99),
            worst_ms=1_000 * worst,
            frames=sum(len(log.at) for log in logs),
            expected_by_stayers=len(committed) * sum(not log.has_come_back for log in logs),
            late_for_stayers=late_for_stayers,
        )


def _run(pipe: Connection, port: int, path: str, kind: str) -> None:
    import uvloop

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    uvloop.run(_serve(pipe, ClientPool(port, path, kind)))


async def _serve(pipe: Connection, pool: ClientPool) -> None:
    while True:
        name, *values = await asyncio.to_thread(pipe.recv)
        try:
            pipe.send(await getattr(pool, name)(*values))
        except Exception as error:  # noqa: BLE001 - raised by the caller
            pipe.send(error)
