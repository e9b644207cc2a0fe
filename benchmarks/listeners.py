"""What it takes to tell ten thousand, beside the smallest program that does nothing else.

    python -m benchmarks.listeners [--listeners 10000] [--rounds 5] [--frames 10]

One process of `web` (as the Procfile starts it) and the relay; as many listeners, in a process of their own, listen to
one event. Memory: what the process of `web` grew by, for each. Telling: from the moment at which a message is given to
the channel layer until a listener has it, median, 99th percentile and last, and the processor's time of the process for
each frame. From commit: the same, from the answer to a hold, the relay's window included. The bare broadcaster (`bare`)
is an ASGI application under uvicorn with one subscription to Redis and a queue for each connection, told the very same
bytes; both are measured in turn, in one run, and the ratios are medians of the rounds. Every listener has to have every
last frame, or the run fails.
"""

import argparse
import asyncio
import itertools
import json
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import psutil

from benchmarks.crowds import house

SLUG = "listened"
START_SECONDS_MAX = 120.0
HEAR_SECONDS_MAX = 60.0
CONNECTING_AT_ONCE = 200
PLACES = 1_000_000
BARE_CHANNEL = "bare"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listeners", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frames", type=int, default=10, help="told in each round")
    options = parser.parse_args()
    with house():
        return measure(options)


def measure(options: argparse.Namespace) -> int:
    from ticketing.embedded.ports import free_port

    event = make_event()
    environment = {**os.environ, "WEB_WORKERS": "1", "LIVE_LISTENERS_MAX": "50000", "WEB_CONNECTIONS_MAX": "50000"}
    relay = subprocess.Popen([sys.executable, "manage.py", "relay"], env=environment, stdout=subprocess.DEVNULL)
    try:
        port, bare_port = free_port(), free_port()
        path = f"/api/events/{SLUG}/sections/updates"
        with (
            served([sys.executable, "-m", "ticketing.web"], port, environment) as ours,
            served([sys.executable, "-m", "benchmarks.listeners_bare"], bare_port, environment) as bare,
        ):
            found: dict[str, list[dict[str, float]]] = {"ours": [], "bare": []}
            for _ in range(options.rounds):
                found["ours"].append(round_of(options, ours, port, path, tell_ours(event.id), event))
                found["bare"].append(round_of(options, bare, bare_port, "/", tell_bare, None))
            return show(options, found)
    finally:
        relay.send_signal(signal.SIGTERM)
        relay.wait(30)


def show(options: argparse.Namespace, found: dict[str, list[dict[str, float]]]) -> int:
    print(f"\n{options.listeners:,} listeners, one process, medians of {options.rounds} rounds")
    names = {
        "kib": "KiB per listener",
        "p50_ms": "told: median, ms",
        "p99_ms": "told: 99th percentile, ms",
        "last_ms": "told: the last, ms",
        "cpu_ms": "processor per frame, ms",
        "commit_p50_ms": "from commit: median, ms",
        "commit_p99_ms": "from commit: 99th percentile, ms",
    }
    for key, words in names.items():
        here = [one[key] for one in found["ours"]]
        there = [one[key] for one in found["bare"] if key in one]
        ratio = statistics.median(a / b for a, b in zip(here, there, strict=True)) if there else None
        beside = f" | bare {statistics.median(there):8.1f} | ratio {ratio:.2f}" if ratio is not None else ""
        print(f"  {words:<34} {statistics.median(here):8.1f}{beside}")
    late = sum(one["late"] for rounds in found.values() for one in rounds)
    print(f"  frames not heard: {late:.0f}")
    return 1 if late else 0


def make_event() -> Any:
    from datetime import timedelta

    from apps.events import facade as events
    from apps.events.creation import EventSpec, GeneralAdmission, create_event
    from ticketing.kernel import clock

    create_event(
        EventSpec(
            slug=SLUG, name="Listened", venue="The Venue", starts_at=clock.now() + timedelta(days=30), currency="USD",
            general_admission=tuple(GeneralAdmission(f"Floor {number}", PLACES, 1_000) for number in range(20)),
            opens_at=clock.now() - timedelta(minutes=1),
        )
    )  # fmt: skip
    return events.get_event(SLUG)


def tell_ours(event_id: int) -> Any:
    def tell(number: int) -> None:
        from ticketing.kernel.live import layer
        from ticketing.kernel.live.groups import group_of

        data = json.dumps({"number": number, "text": "x" * 1_000}).encode()
        told = layer.tell(group_of(event_id), {"type": "news", "event": event_id, "frames": [["mark", "", "", data]]})
        assert told, "Redis did not take it"

    return tell


def tell_bare(number: int) -> None:
    from ticketing.kernel import redis

    data = json.dumps({"number": number, "text": "x" * 1_000}).encode()
    redis.client().publish(BARE_CHANNEL, b"event: mark\ndata: %b\n\n" % data)


def round_of(
    options: argparse.Namespace, served_by: psutil.Process, port: int, path: str, tell: Any, event: Any
) -> dict[str, float]:
    """One crowd of listeners comes, is told, and goes."""
    worker = worker_of(served_by)
    before = worker.memory_info().rss
    with crowd(port, path, options.listeners) as asked:
        time.sleep(2)
        kib = (worker.memory_info().rss - before) / options.listeners / 1024
        latencies: list[float] = []
        late, cpu = 0, 0.0
        for number in range(options.frames):
            expect(asked, b'"number": %d,' % number)
            cpu_before, begun = sum(worker.cpu_times()[:2]), time.monotonic()
            tell(number)
            heard = hear(asked)
            cpu += sum(worker.cpu_times()[:2]) - cpu_before
            late += options.listeners - len(heard)
            latencies += [moment - begun for moment in heard]
        result = {
            "kib": kib,
            "p50_ms": 1_000 * at(latencies, 0.5),
            "p99_ms": 1_000 * at(latencies, 0.99),
            "last_ms": 1_000 * at(latencies, 1.0),
            "cpu_ms": 1_000 * cpu / options.frames,
        }
        if event is not None:
            committed: list[float] = []
            for _ in range(options.frames):
                expect(asked, b'"available_seats":%d,' % (PLACES - next(_held)))
                hold_one(event)
                begun = time.monotonic()
                heard = hear(asked)
                late += options.listeners - len(heard)
                committed += [moment - begun for moment in heard]
            result["commit_p50_ms"] = 1_000 * at(committed, 0.5)
            result["commit_p99_ms"] = 1_000 * at(committed, 0.99)
        return result | {"late": float(late)}


_held = itertools.count(1)


def hold_one(event: Any) -> None:
    from apps.queue import facade as queue
    from apps.reservations import facade as reservations

    caller = queue.Caller(visitor_id=queue.new_visitor_id())
    (entry,) = queue.join_many([queue.JoinRequest(event, caller)])
    wish = reservations.resolve(event, entry, {"ga_section": "floor-0", "ga_quantity": 1}, uuid.uuid4().hex)
    (outcome,) = reservations.hold([wish])
    assert isinstance(outcome, reservations.Held), outcome


def at(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


# --- what listens -----------------------------------------------------------------------------------------------------


def expect(asked: Connection, words: bytes) -> None:
    """The listeners note when they hear these words."""
    asked.send(words)
    assert asked.poll(HEAR_SECONDS_MAX), "the listeners do not answer"
    asked.recv()


def hear(asked: Connection) -> list[float]:
    """The moments at which the listeners heard them."""
    assert asked.poll(HEAR_SECONDS_MAX + 10), "the listeners do not answer"
    found: list[float] = asked.recv()
    return found


@contextmanager
def crowd(port: int, path: str, count: int) -> Iterator[Connection]:
    here, there = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=listen, args=(there, port, path, count), daemon=True)
    process.start()
    try:
        assert here.poll(START_SECONDS_MAX), "they do not all connect"
        here.recv()
        yield here
    finally:
        process.kill()
        process.join()


class Ear(asyncio.Protocol):
    """One who listens, and looks for words."""

    def __init__(self, crowd: "Crowd", request: bytes) -> None:
        self.crowd = crowd
        self.request = request
        self.is_in = False
        self.last = b""

    def connection_made(self, transport: Any) -> None:
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        crowd = self.crowd
        if not self.is_in:
            self.is_in = True
            crowd.entered()
        # Words may lie across two pieces.
        if crowd.words and crowd.words in self.last + data and self not in crowd.heard:
            crowd.note(self)
        self.last = data[-64:]


class Crowd:
    def __init__(self, count: int) -> None:
        self.count = count
        self.inside = 0
        self.all_in = asyncio.Event()
        self.words = b""
        self.heard: dict[Ear, float] = {}
        self.all_heard = asyncio.Event()

    def entered(self) -> None:
        self.inside += 1
        if self.inside == self.count:
            self.all_in.set()

    def note(self, ear: Ear) -> None:
        self.heard[ear] = time.monotonic()
        if len(self.heard) == self.count:
            self.all_heard.set()


def listen(asked: Connection, port: int, path: str, count: int) -> None:
    import uvloop

    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    uvloop.run(_listen(asked, port, path, count))


async def _listen(asked: Connection, port: int, path: str, count: int) -> None:
    loop, crowd = asyncio.get_running_loop(), Crowd(count)
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode()
    for begun in range(0, count, CONNECTING_AT_ONCE):
        some = range(min(CONNECTING_AT_ONCE, count - begun))
        # A local address has some 28,000 ports: each thousand listeners have one of their own.
        own = (f"127.0.0.{2 + begun // 5_000}", 0)
        connecting = [
            loop.create_connection(lambda: Ear(crowd, request), "127.0.0.1", port, local_addr=own) for _ in some
        ]
        await asyncio.gather(*connecting)
    await crowd.all_in.wait()
    asked.send("in")
    while True:
        words = await asyncio.to_thread(asked.recv)
        crowd.heard, crowd.words = {}, words
        crowd.all_heard.clear()
        asked.send("ready")
        try:
            async with asyncio.timeout(HEAR_SECONDS_MAX):
                await crowd.all_heard.wait()
        except TimeoutError:
            pass
        asked.send(list(crowd.heard.values()))


# --- what is listened to ----------------------------------------------------------------------------------------------


@contextmanager
def served(command: list[str], port: int, environment: dict[str, str]) -> Iterator[psutil.Process]:
    process = psutil.Popen(command, env={**environment, "PORT": str(port)}, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + START_SECONDS_MAX
    try:
        while True:
            assert process.poll() is None, f"{command} ended"
            assert time.monotonic() < deadline, f"{command} does not listen"
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.2)
        time.sleep(3)
        yield process
    finally:
        for one in [*process.children(recursive=True), process]:
            with suppress(psutil.Error):
                one.kill()
        process.wait()


def worker_of(process: psutil.Process) -> psutil.Process:
    """The process that has the connections."""
    family = [process, *process.children(recursive=True)]
    return max(family, key=lambda one: one.memory_info().rss)


if __name__ == "__main__":
    sys.exit(main())
