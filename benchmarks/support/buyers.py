"""Buyers who hold over HTTP, in a separate process: a closed loop with one request per connection at any time, or an
open loop at a fixed rate. Each request is for one ticket, by another buyer.
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from benchmarks.suite.load import raw_requests
from benchmarks.suite.load.arrivals import status_of
from benchmarks.support.stream_clients import SECTION, percentile

RESPONSE_SECONDS_MAX = 10.0
"""Responses are awaited this long after the last request."""
START_SECONDS_MAX = 60.0


@dataclass
class LoadResult:
    """The result of a load."""

    seconds: float
    sent: int = 0
    held: int = 0
    statuses: dict[int, int] = field(default_factory=dict)
    took: list[float] = field(default_factory=list)
    """Latency of each granted hold, from its due time."""

    @property
    def per_second(self) -> float:
        return self.held / self.seconds

    def ms(self, share: float) -> float:
        return 1_000 * percentile(self.took, share)


def hold_requests(slug: str, tokens: Sequence[str]) -> list[bytes]:
    run = secrets.token_hex(6)
    path, body = f"/api/events/{slug}/reservations", f'{{"ga_section":"{SECTION}","ga_quantity":1}}'
    return [raw_requests.post(path, body, token, f"{run}-{number}") for number, token in enumerate(tokens)]


class BuyerProcess:
    """The interface to the buyers' process."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe

    def run_closed_loop(self, seconds: float) -> LoadResult:
        """Send the next request on a connection as soon as the previous response arrives."""
        self._pipe.send((None, seconds))
        return self.end(seconds)

    def begin(self, per_second: float, seconds: float) -> None:
        """Start an open loop with this many requests per second."""
        self._pipe.send((per_second, seconds))

    def end(self, seconds: float) -> LoadResult:
        assert self._pipe.poll(seconds + RESPONSE_SECONDS_MAX + START_SECONDS_MAX), "the buyers do not respond"
        found = self._pipe.recv()
        if isinstance(found, BaseException):
            raise found
        assert isinstance(found, LoadResult)
        return found


@contextmanager
def start_buyers(port: int, requests: Sequence[bytes], connections: int) -> Iterator[BuyerProcess]:
    """Start a process that sends these requests, each once."""
    here, there = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=_run, args=(there, port, requests, connections), daemon=True)
    process.start()
    try:
        yield BuyerProcess(here)
    finally:
        process.kill()
        process.join()


class _BuyerConnection(asyncio.Protocol):
    def __init__(self, pool: "_ConnectionPool") -> None:
        self.pool = pool
        self.transport: Any = None
        self.response = b""
        self.due = 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def send(self, request: bytes, due: float) -> None:
        self.due = due
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        self.response += data
        status = status_of(self.response)
        if status is not None:
            self.response = b""
            self.pool.answered(self, status)

    def connection_lost(self, error: Exception | None) -> None:
        self.transport = None


class _ConnectionPool:
    def __init__(self, port: int, requests: Sequence[bytes]) -> None:
        self.port = port
        self.requests = deque(requests)
        self.idle: list[_BuyerConnection] = []
        self.due: deque[float] = deque()
        """Due times of requests that wait for a connection."""
        self.under_way = 0
        self.bought = LoadResult(0)
        self.again_until = 0.0
        self.all_answered = asyncio.Event()
        self.are_too_few = False

    async def connect(self, count: int) -> None:
        self.idle = [one for one in self.idle if one.transport is not None and not one.transport.is_closing()]
        while len(self.idle) < count:
            made = _BuyerConnection(self)
            await asyncio.get_running_loop().create_connection(lambda made=made: made, "127.0.0.1", self.port)  # type: ignore[misc]
            self.idle.append(made)

    def send(self) -> None:
        """Send due requests, as far as connections are free."""
        if self.due and not self.requests:
            self.are_too_few = True
        while self.due and self.idle and self.requests:
            one, due = self.idle.pop(), self.due.popleft()
            if one.transport is None or one.transport.is_closing():
                self.due.appendleft(due)
                continue
            self.under_way += 1
            self.all_answered.clear()
            self.bought.sent += 1
            one.send(self.requests.popleft(), due)

    def answered(self, one: _BuyerConnection, status: int) -> None:
        now = time.monotonic()
        bought = self.bought
        self.under_way -= 1
        bought.statuses[status] = bought.statuses.get(status, 0) + 1
        if status == 201:
            bought.held += 1
            bought.took.append(now - one.due)
        self.idle.append(one)
        if now < self.again_until:
            self.due.append(now)
        self.send()
        if not self.under_way:
            self.all_answered.set()

    async def run_closed_loop(self, seconds: float) -> LoadResult:
        begun = time.monotonic()
        self.bought = LoadResult(seconds)
        self.again_until = begun + seconds
        self.due.extend([begun] * len(self.idle))
        self.send()
        await self._until_answered(self.again_until)
        self.bought.seconds = max(seconds, time.monotonic() - begun)
        return self.bought

    async def run_at_rate(self, per_second: float, seconds: float) -> LoadResult:
        begun, scheduled = time.monotonic(), 0
        self.bought, self.again_until = LoadResult(seconds), 0.0
        while (passed := time.monotonic() - begun) < seconds:
            until = int(passed * per_second)
            self.due.extend(begun + number / per_second for number in range(scheduled, until))
            scheduled = until
            self.send()
            await asyncio.sleep(min(0.01, 1 / per_second))
        await self._until_answered(begun + seconds)
        return self.bought

    async def _until_answered(self, end: float) -> None:
        await asyncio.sleep(max(0.0, end - time.monotonic()))
        if self.under_way:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.all_answered.wait(), RESPONSE_SECONDS_MAX)


def _run(pipe: Connection, port: int, requests: Sequence[bytes], connections: int) -> None:
    import uvloop

    uvloop.run(_serve(pipe, _ConnectionPool(port, requests), connections))


async def _serve(pipe: Connection, pool: _ConnectionPool, connections: int) -> None:
    while True:
        per_second, seconds = await asyncio.to_thread(pipe.recv)
        try:
            await pool.connect(connections)
            bought = await (
                pool.run_closed_loop(seconds) if per_second is None else pool.run_at_rate(per_second, seconds)
            )
            pipe.send(RuntimeError("there are not enough admitted buyers") if pool.are_too_few else bought)
        except Exception as error:  # noqa: BLE001 - raised by the caller
            pipe.send(error)
