"""ASGI servers for the API: the same small responses during ten thousand idle streams, by each server, in one run.

    python -m benchmarks.experiments.web_servers [--workers 1] [--rounds 5] [--streams 10000] [--seconds 1]
        [--connections 64]

Needs `wrk`. Every server runs the same application: a poll (a small JSON response), a hold (a POST whose JSON body is
read and parsed) and an event stream that sends one event and then nothing. The servers are measured in a new random
order in each round, first without streams and then with all of them open; the figures are medians. Memory is the growth
of all processes of a server with the streams, per stream.
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import psutil

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

BODY = b'{"status":"waiting","position_in_queue":12345,"estimated_wait_time":600,"next_poll":5000}'
HEADERS = [
    (b"content-type", b"application/json"),
    (b"content-length", str(len(BODY)).encode()),
    (b"cache-control", b"no-store"),
]
PAYLOAD = {"seats": ["stalls-A-1", "stalls-A-2"]}
CALLS = ("poll", "hold")


class Hold(msgspec.Struct):
    seats: list[str]


_hold = msgspec.json.Decoder(Hold)


async def application(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "http":
        return
    if scope["path"] == "/stream":
        await _stream(receive, send)
        return
    if scope["method"] == "POST":
        body = b""
        while (message := await receive()).get("more_body"):
            body += message["body"]
        assert _hold.decode(body + message["body"]).seats
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


async def _stream(receive: Receive, send: Send) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
    await send({"type": "http.response.body", "body": b"event: hello\n\n", "more_body": True})
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass
class Server:
    name: str
    port: int
    process: subprocess.Popen[bytes]

    def memory(self) -> int:
        """Return the bytes of memory that its processes do not share."""
        return sum(process.memory_full_info().uss for process in self._processes())

    def spent(self) -> float:
        """Return the CPU seconds of its processes."""
        return sum(sum(process.cpu_times()[:2]) for process in self._processes())

    def _processes(self) -> list[psutil.Process]:
        parent = psutil.Process(self.process.pid)
        return [parent, *parent.children(recursive=True)]


def commands(port: int, workers: int, streams: int) -> dict[str, list[str]]:
    python = sys.executable
    uvicorn = ["--loop", "uvloop", "--http", "httptools", "--lifespan", "off", "--no-access-log", "--backlog", "4096"]
    # The default would silently stop at backlog ÷ workers connections.
    most = ["--backlog", "4096", "--backpressure", str(streams + 1_000)]
    granian = ["--interface", "asginl", "--loop", "uvloop", "--no-ws", "--log-level", "error", *most]
    quiet = ["--log-level", "error"]
    target = "benchmarks.experiments.web_servers:application"
    return {
        "uvicorn": [python, "-m", "uvicorn", target, "--port", str(port), "--workers", str(workers), *uvicorn, *quiet],
        "uvicorn, Fairgate's protocol": [
            python,
            "-m",
            "benchmarks.experiments.web_servers",
            "--serve",
            f"{port},{workers}",
        ],
        "granian": [python, "-m", "granian", target, "--port", str(port), "--workers", str(workers), *granian],
    }


def serve_with_protocol(port: int, workers: int) -> None:
    """Serve this application as `ticketing.server.run` does it."""
    import uvicorn
    from uvicorn.supervisors.multiprocess import Multiprocess

    config = uvicorn.Config(
        "benchmarks.experiments.web_servers:application",
        port=port,
        workers=workers,
        loop="uvloop",
        http="ticketing.server.http_protocol:HttpProtocol",
        lifespan="off",
        access_log=False,
        log_level="error",
        backlog=4096,
    )
    Multiprocess(config, sockets=[config.bind_socket()]).run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--streams", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=1)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if options.serve:
        serve_with_protocol(*map(int, options.serve.split(",")))
        return
    if shutil.which("wrk") is None:
        sys.exit("This needs wrk: apt-get install wrk")
    names = list(commands(0, 1, 0))
    ports = {name: free_port() for name in names}
    servers = []
    for name, port in ports.items():
        command = commands(port, options.workers, options.streams)[name]
        servers.append(Server(name, port, subprocess.Popen(command)))
    holders: list[Any] = []
    try:
        with tempfile.TemporaryDirectory() as folder:
            script = write_script(Path(folder))
            for server in servers:
                wait_for(server)
                rate(server, "poll", options, script)
            without = rounds(servers, options, script)
            before = {server.name: server.memory() for server in servers}
            took = {}
            for server in servers:
                begun = time.monotonic()
                holders.append(hold_streams(server.port, options.streams))
                took[server.name] = time.monotonic() - begun
            after = {server.name: server.memory() for server in servers}
            with_streams = rounds(servers, options, script)
            for _, pipe in holders:
                pipe.send("count")
                assert pipe.recv() == options.streams, "a stream was closed"
    finally:
        for holder, _ in holders:
            holder.kill()
        for server in servers:
            server.process.terminate()
        for server in servers:
            server.process.wait(20)
    print(f"{options.workers} worker(s), {options.connections} connections, {options.streams:,} streams\n")
    print("| server | polls/s | CPU time of a poll | holds/s | of a hold", end=" ")
    print("| with streams: polls/s | p99 | holds/s | p99 | connected in | a stream |")
    print("| --- |" + " ---: |" * 10)
    for server in servers:
        name = server.name
        cells = []
        for call in CALLS:
            cells += [f"{median(without, name, call, 0):,.0f}", f"{median(without, name, call, 2):.0f} µs"]
        for call in CALLS:
            cells += [f"{median(with_streams, name, call, 0):,.0f}", f"{median(with_streams, name, call, 1):.1f} ms"]
        kib = (after[name] - before[name]) / options.streams / 1024
        print(f"| {name} | {' | '.join(cells)} | {took[name]:.1f} s | {kib:.1f} KiB |")


Measured = list[dict[tuple[str, str], tuple[float, float, float]]]


def rounds(servers: list[Server], options: argparse.Namespace, script: Path) -> Measured:
    pairs = [(server, call) for server in servers for call in CALLS]
    return [
        {(server.name, call): rate(server, call, options, script) for server, call in random.sample(pairs, len(pairs))}
        for _ in range(options.rounds)
    ]


def median(measured: Measured, name: str, call: str, index: int) -> float:
    return statistics.median(one[name, call][index] for one in measured)


def write_script(folder: Path) -> Path:
    script = folder / "hold.lua"
    script.write_text(
        f"wrk.method = 'POST'\nwrk.body = '{json.dumps(PAYLOAD)}'\nwrk.headers['Content-Type'] = 'application/json'\n"
    )
    return script


def rate(server: Server, call: str, options: argparse.Namespace, script: Path) -> tuple[float, float, float]:
    """Return the responses a second, the 99th percentile of the response time in ms, and the CPU time of one in µs."""
    more = ["-s", str(script)] if call == "hold" else []
    url = f"http://127.0.0.1:{server.port}/api/events/midsummer-night/queue/status"
    begun = server.spent()
    output = subprocess.run(
        ["wrk", "-t1", f"-c{options.connections}", f"-d{options.seconds}s", "--latency", *more, url],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    if "Non-2xx" in output or "Socket errors" in output:
        sys.exit(f"{server.name}: some requests failed:\n{output}")
    spent = 1e6 * (server.spent() - begun) / int(output.split(" requests in")[0].split()[-1])
    per_second = re.search(r"Requests/sec:\s+([\d.]+)", output)
    slow = re.search(r"99%\s+([\d.]+)(us|ms|s)", output)
    assert per_second is not None, output
    assert slow is not None, output
    return float(per_second[1]), float(slow[1]) * {"us": 0.001, "ms": 1, "s": 1000}[slow[2]], spent


def hold_streams(port: int, count: int) -> tuple[Any, Any]:
    """Start a process that keeps `count` streams open; they are open when this returns."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    holder = context.Process(target=keep_open, args=(port, count, theirs), daemon=True)
    holder.start()
    assert ours.recv() == count
    return holder, ours


def keep_open(port: int, count: int, pipe: Any) -> None:
    asyncio.run(_keep_open(port, count, pipe))


async def _keep_open(port: int, count: int, pipe: Any) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    connecting = asyncio.Semaphore(200)

    async def one() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        async with connecting:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2048)
            writer.write(b"GET /stream HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await reader.readuntil(b"hello")
            return reader, writer

    streams = await asyncio.gather(*(one() for _ in range(count)))
    pipe.send(len(streams))
    await asyncio.to_thread(pipe.recv)
    pipe.send(sum(not reader.at_eof() for reader, _ in streams))
    await asyncio.Event().wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def wait_for(server: Server) -> None:
    from urllib.request import urlopen

    until = time.monotonic() + 20
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{server.port}/") as response:
                assert response.read() == BODY, server.name
                return
        except OSError:
            if time.monotonic() > until or server.process.poll() is not None:
                raise
            time.sleep(0.1)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONPATH", str(Path(__file__).resolve().parent.parent.parent))
    main()
