"""Clients that obey `Retry-After`: each sends a request, waits for its response, and sends the next one; after a 503 it
waits as long as the response says and sends the same request again.

    python -m benchmarks.suite.load.retries PORT SECONDS CLIENTS REQUESTS

One process, one thread, one line of JSON at the end.
"""

import heapq
import json
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.suite.load.arrivals import part, status_of

WARM_UP_SECONDS = 1.0
"""Not counted: the clients begin together."""


@dataclass(frozen=True)
class Served:
    """The result of a run."""

    good_rate: float
    """2xx per second."""
    refused_rate: float
    """503 per second."""
    others: int
    p99_ms: float
    """Of all responses."""
    is_exhausted: bool
    """Whether the requests did not suffice."""


def send(port: int, requests: Sequence[bytes], *, seconds: float, clients: int) -> Served:
    """Send the requests from a separate process."""
    with tempfile.TemporaryDirectory(prefix="fairgate-retries-") as made:
        path = Path(made) / "requests"
        path.write_bytes(b"\0".join(requests))
        command = [sys.executable, "-m", "benchmarks.suite.load.retries", *map(str, (port, seconds, clients, path))]
        output = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    return Served(**json.loads(output))


def run(port: int, seconds: float, clients: int, requests: Sequence[bytes]) -> dict[str, Any]:
    left = deque(requests)
    poller = select.epoll()
    sockets: dict[int, socket.socket] = {}
    sent: dict[int, tuple[bytes, float]] = {}
    pausing: list[tuple[float, int, bytes]] = []
    halves: dict[int, bytes] = {}
    took: list[tuple[float, int]] = []

    def begin(connection: int, request: bytes) -> None:
        sent[connection] = request, time.monotonic()
        sockets[connection].send(request)

    for _ in range(clients):
        one = socket.create_connection(("127.0.0.1", port))
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.setblocking(False)
        sockets[one.fileno()] = one
        poller.register(one.fileno(), select.EPOLLIN)
    counted_from = time.monotonic() + WARM_UP_SECONDS
    until = counted_from + seconds
    for connection in sockets:
        begin(connection, left.popleft())
    while (now := time.monotonic()) < until and left:
        while pausing and pausing[0][0] <= now:
            _, connection, request = heapq.heappop(pausing)
            begin(connection, request)
        for connection, _ in poller.poll(0.01):
            data = halves.pop(connection, b"") + sockets[connection].recv(65_536)
            if not data:
                raise SystemExit("a connection was closed")
            status = status_of(data)
            if status is None:
                halves[connection] = data
                continue
            ended = time.monotonic()
            request, begun = sent.pop(connection)
            if ended >= counted_from:
                took.append((ended - begun, status))
            if status == 503:
                heapq.heappush(pausing, (ended + _retry_after(data), connection, request))
            elif left:
                begin(connection, left.popleft())
    measured = max(time.monotonic() - counted_from, 0.001)
    return {
        "good_rate": sum(status < 300 for _, status in took) / measured,
        "refused_rate": sum(status == 503 for _, status in took) / measured,
        "others": sum(300 <= status != 503 for _, status in took),
        "p99_ms": part(sorted(seconds_taken for seconds_taken, _ in took), 0.99),
        "is_exhausted": not left,
    }


def _retry_after(response: bytes) -> float:
    head = response.partition(b"\r\n\r\n")[0].lower()
    return float(head.partition(b"\r\nretry-after:")[2].split(b"\r\n", 1)[0])


def main() -> None:
    port, seconds, clients, path = sys.argv[1:]
    print(json.dumps(run(int(port), float(seconds), int(clients), Path(path).read_bytes().split(b"\0"))))


if __name__ == "__main__":
    main()
