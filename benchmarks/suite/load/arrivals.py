"""The open loop: requests are sent at their arrival times, whether earlier ones have responses or not.

    python -m benchmarks.suite.load.arrivals PORT RATE SECONDS CONNECTIONS REQUESTS

Arrival times are generated in advance (independent, with this rate on average). Latency counts from the arrival time: a
request that finds every connection busy has waited since then, so that slowness of the server hides nothing. One
process, one thread, one line of JSON at the end.
"""

import ctypes
import json
import os
import random
import select
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 3.0
"""Responses are awaited this long after the last arrival."""
OPENED_AT_ONCE = 100
_FIRST_REQUEST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
LATE_SECONDS = 1.0
"""If the generator itself is this late, the measurement is invalid."""


@dataclass(frozen=True)
class Load:
    """The result of a run at a fixed arrival rate."""

    offered: int
    answered: int
    """With any status."""
    good: int
    """2xx."""
    good_in_time: int
    """2xx before the last arrival was due: without the backlog that is worked off afterwards."""
    statuses: dict[int, int]
    seconds: float
    p50_ms: float
    p99_ms: float
    good_p50_ms: float
    good_p99_ms: float
    generator_share: float

    @property
    def offered_rate(self) -> float:
        return self.offered / self.seconds

    @property
    def good_rate(self) -> float:
        return self.good_in_time / self.seconds


def send(port: int, requests: Sequence[bytes], *, rate: float, seconds: float, connections: int) -> Load:
    """Send the requests in order at this rate, from a separate process."""
    with tempfile.TemporaryDirectory(prefix="fairgate-arrivals-") as made:
        begun = begin(port, requests, rate=rate, seconds=seconds, connections=connections, folder=Path(made))
        return finish(begun)


def begin(
    port: int, requests: Sequence[bytes], *, rate: float, seconds: float, connections: int, folder: Path
) -> "subprocess.Popen[str]":
    path = folder / f"requests-{port}-{len(requests)}-{time.monotonic_ns()}"
    path.write_bytes(b"\0".join(requests))
    command = [
        sys.executable,
        "-m",
        "benchmarks.suite.load.arrivals",
        *map(str, (port, rate, seconds, connections, path)),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(process: "subprocess.Popen[str]") -> Load:
    output, _ = process.communicate()
    if process.returncode != 0:
        raise RuntimeError("the arrival generator failed")
    result = json.loads(output)
    result["statuses"] = {int(status): times for status, times in result["statuses"].items()}
    return Load(**result)


def run(port: int, rate: float, seconds: float, connections: int, requests: Sequence[bytes]) -> dict[str, Any]:
    rng = random.Random(5)  # noqa: S311 - the same arrivals each time
    due: list[float] = []
    at = 0.0
    while (at := at + rng.expovariate(rate)) < seconds and len(due) < len(requests):
        due.append(at)
    if len(due) == len(requests):
        seconds = due[-1]
    sockets = {}
    poller = select.epoll()
    for one in _connect(port, connections):
        sockets[one.fileno()] = one
        poller.register(one.fileno(), select.EPOLLIN)
    timer = _Timer()
    poller.register(timer.fileno, select.EPOLLIN)
    idle = list(sockets)
    under_way: dict[int, float] = {}
    halves: dict[int, bytes] = {}
    waiting: deque[int] = deque()
    took: list[tuple[float, int]] = []
    good_in_time = 0
    begun = time.monotonic()
    until = begun + seconds + PATIENCE_SECONDS
    upcoming = 0
    cpu = time.process_time()
    while (upcoming < len(due) or under_way or waiting) and (now := time.monotonic()) < until and sockets:
        while upcoming < len(due) and begun + due[upcoming] <= now:
            waiting.append(upcoming)
            upcoming += 1
        while waiting and idle:
            number, connection = waiting.popleft(), idle.pop()
            under_way[connection] = begun + due[number]
            sockets[connection].send(requests[number])
        timer.set((begun + due[upcoming] - time.monotonic()) if upcoming < len(due) else 0.05)
        for connection, _ in poller.poll(0.2):
            if connection == timer.fileno:
                timer.clear()
                continue
            try:
                data = sockets[connection].recv(65_536)
            except BlockingIOError:
                continue
            except OSError:
                data = b""
            if not data:
                # Closed by the server: a request in progress gets no response.
                poller.unregister(connection)
                sockets.pop(connection).close()
                if under_way.pop(connection, None) is None and connection in idle:
                    idle.remove(connection)
                continue
            data = halves.pop(connection, b"") + data
            status = status_of(data)
            if status is None:
                halves[connection] = data
                continue
            ended = time.monotonic()
            took.append((ended - under_way.pop(connection), status))
            good_in_time += status < 300 and ended <= begun + seconds
            if b"\r\nconnection: close" in data.lower():
                poller.unregister(connection)
                sockets.pop(connection).close()
                continue
            idle.append(connection)
    cpu = time.process_time() - cpu
    statuses: dict[int, int] = {}
    for _, status in took:
        statuses[status] = statuses.get(status, 0) + 1
    good = sorted(seconds_taken for seconds_taken, status in took if status < 300)
    # A request without a response has waited at least as long as responses were awaited.
    unanswered = [PATIENCE_SECONDS] * (len(due) - len(took))
    everything = sorted(seconds_taken for seconds_taken, _ in took)
    return {
        "offered": len(due),
        "answered": len(took),
        "good": len(good),
        "good_in_time": good_in_time,
        "statuses": statuses,
        "seconds": seconds,
        "p50_ms": part(sorted(everything + unanswered), 0.5),
        "p99_ms": part(sorted(everything + unanswered), 0.99),
        "good_p50_ms": part(good, 0.5),
        "good_p99_ms": part(good, 0.99),
        "generator_share": cpu / seconds,
    }


def _connect(port: int, count: int) -> list[socket.socket]:
    """Open connections, and wait until the server has answered a request on each: otherwise the first arrivals would
    wait until it has accepted them."""
    opened: list[socket.socket] = []
    while len(opened) < count:
        group = [socket.create_connection(("127.0.0.1", port)) for _ in range(min(OPENED_AT_ONCE, count - len(opened)))]
        for one in group:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            one.sendall(_FIRST_REQUEST)
        for one in group:
            data = b""
            while status_of(data) is None:
                received = one.recv(65_536)
                if not received:
                    raise ConnectionError("the server closed a new connection")
                data += received
            one.setblocking(False)
        opened += group
    return opened


def status_of(data: bytes) -> int | None:
    """Return the status of the response, or None while it is incomplete."""
    head, end, body = data.partition(b"\r\n\r\n")
    if not end:
        return None
    lowered = head.lower()
    at = lowered.find(b"content-length:")
    if at < 0:
        # Chunked: the last chunk is empty.
        return int(head[9:12]) if body.endswith(b"0\r\n\r\n") else None
    length = int(lowered[at + 15 :].split(b"\r\n", 1)[0])
    return int(head[9:12]) if len(body) >= length else None


def part(ordered: Sequence[float], share: float) -> float:
    """Return this quantile in milliseconds; 0 of nothing."""
    if not ordered:
        return 0.0
    return 1_000 * ordered[min(len(ordered) - 1, int(len(ordered) * share))]


class _Timer:
    """A kernel timer: epoll alone wakes with millisecond precision, which is as long as a response takes."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        self.fileno = int(self._library.timerfd_create(1, os.O_NONBLOCK))
        if self.fileno < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def set(self, seconds: float) -> None:
        whole, rest = divmod(max(seconds, 0.000_01), 1)
        setting = struct.pack("qqqq", 0, 0, int(whole), int(rest * 1e9))
        self._library.timerfd_settime(self.fileno, 0, setting, None)

    def clear(self) -> None:
        try:
            os.read(self.fileno, 8)
        except BlockingIOError:
            return  # It was set again meanwhile.


def main() -> None:
    port, rate, seconds, connections, path = sys.argv[1:]
    requests = Path(path).read_bytes().split(b"\0")
    print(json.dumps(run(int(port), float(rate), float(seconds), int(connections), requests)))


if __name__ == "__main__":
    main()
