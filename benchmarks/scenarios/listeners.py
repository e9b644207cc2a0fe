"""What it takes to send a message to ten thousand listeners, compared with a minimal program that does nothing else.

    python -m benchmarks.scenarios.listeners [--listeners 10000] [--rounds 5] [--frames 10]

One process of `web` (as the Procfile starts it) and the relay run, and the listeners connect to one event from another
process. Memory: the growth of the `web` process per listener, in total and after the first tenth, which leaves out
one-time allocations. Sending: the time from passing a message to the channel layer until a listener has it (median,
99th percentile and last), and the CPU time of the process for each frame. From commit: the same, from the response to a
hold, which includes the relay's window. The minimal broadcaster (`support.bare_broadcaster`) is an ASGI application
under uvicorn with one Redis subscription and a queue for each connection, and sends the same bytes. Both are started
again for each round and measured in turn within one run; the ratios are medians of the rounds. The run fails unless
every listener receives every frame. A round takes about a minute.
"""

import argparse
import itertools
import json
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from typing import Any

from benchmarks.support import live_event
from benchmarks.support.rooms import start_servers
from benchmarks.support.stream_clients import CAPACITY, StreamClients, percentile, start_stream_clients

BARE = [sys.executable, "-m", "benchmarks.support.bare_broadcaster"]
BARE_CHANNEL = "bare"
SETTLE_SECONDS = 2.0
NAMES = {
    "kib": "KiB per listener, in total",
    "kib_more": "KiB per listener, after the first tenth",
    "p50_ms": "sending: median, ms",
    "p99_ms": "sending: 99th percentile, ms",
    "last_ms": "sending: the last, ms",
    "cpu_ms": "CPU time per frame, ms",
}

Round = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listeners", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frames", type=int, default=10, help="frames sent in each round")
    options = parser.parse_args()
    with start_servers(), live_event.environment(WEB_WORKERS="1") as environment:
        return measure(options, environment)


def measure(options: argparse.Namespace, environment: dict[str, str]) -> int:
    event = live_event.make_event()
    found: dict[str, list[Round]] = {"ours": [], "bare": []}
    with live_event.run_commands(environment, ["relay"]):
        for number in range(options.rounds):
            found["ours"].append(
                round_of(options, live_event.WEB, live_event.PATH, environment, fairgate_sender(event.id), event)
            )
            found["bare"].append(round_of(options, BARE, "/", environment, send_bare, None))
            print(f"round {number + 1}: {found['ours'][-1]} | bare {found['bare'][-1]}", flush=True)
    print(f"\n{options.listeners:,} listeners, one process, medians of {options.rounds} rounds")
    for key, label in NAMES.items():
        here = [one[key] for one in found["ours"]]
        there = [one[key] for one in found["bare"] if key in one]
        ratio = statistics.median(a / b for a, b in zip(here, there, strict=True)) if there else None
        beside = f" | bare {statistics.median(there):8.1f} | ratio {ratio:.2f}" if ratio is not None else ""
        print(f"  {label:<38} {statistics.median(here):8.1f}{beside}")
    late = sum(one["late"] for rounds in found.values() for one in rounds)
    print(f"  frames not received: {late:.0f}")
    return 1 if late else 0


def fairgate_sender(event_id: int) -> Callable[[int], None]:
    def send(number: int) -> None:
        from apps.kernel.push import channel_layer
        from apps.kernel.push.channel_names import group_of

        data = json.dumps({"number": number, "text": "x" * 1_000}).encode()
        sent = channel_layer.send_to_group(
            group_of(event_id), {"type": "news", "event": event_id, "frames": [["mark", "", "", data]]}
        )
        assert sent, "Redis did not accept the message"

    return send


def send_bare(number: int) -> None:
    from apps.kernel import redis

    data = json.dumps({"number": number, "text": "x" * 1_000}).encode()
    redis.client().publish(BARE_CHANNEL, b"event: mark\ndata: %b\n\n" % data)


def round_of(
    options: argparse.Namespace,
    command: list[str],
    path: str,
    environment: dict[str, str],
    send: Callable[[int], None],
    event: Any,
) -> Round:
    """Connect the listeners to a new process, send the frames and disconnect."""
    from ticketing.devserver.ports import free_port

    port = free_port()
    with live_event.run_server(command, port, environment) as process, start_stream_clients(port, path) as pool:
        worker = live_event.worker_of(process)
        few = max(1, options.listeners // 10)
        grown = [worker.memory_info().rss]
        for count in (few, options.listeners - few):
            pool.connect(count)
            time.sleep(SETTLE_SECONDS)
            grown.append(worker.memory_info().rss)
        cpu = 0.0
        late, delays = 0, []
        for number in range(options.frames):
            cpu_before = sum(worker.cpu_times()[:2])
            received = after(pool, b'"number": %d,' % number, lambda number=number: send(number))  # type: ignore[misc]
            cpu += sum(worker.cpu_times()[:2]) - cpu_before
            late += options.listeners - len(received)
            delays += received
        result = {
            "kib": (grown[2] - grown[0]) / options.listeners / 1024,
            "kib_more": (grown[2] - grown[1]) / max(1, options.listeners - few) / 1024,
            "p50_ms": 1_000 * percentile(delays, 0.5),
            "p99_ms": 1_000 * percentile(delays, 0.99),
            "last_ms": 1_000 * percentile(delays, 1.0),
            "cpu_ms": 1_000 * cpu / options.frames,
        }
        if event is not None:
            committed: list[float] = []
            for _ in range(options.frames):
                text = b'"available_seats":%d,' % (CAPACITY - next(_held))
                received = after(pool, text, lambda: hold_one(event), from_response=True)
                late += options.listeners - len(received)
                committed += received
            result["commit_p50_ms"] = 1_000 * percentile(committed, 0.5)
            result["commit_p99_ms"] = 1_000 * percentile(committed, 0.99)
            result["commit_last_ms"] = 1_000 * percentile(committed, 1.0)
        return result | {"late": float(late)}


def after(pool: StreamClients, text: bytes, act: Callable[[], None], *, from_response: bool = False) -> list[float]:
    """Return how many seconds after `act` began, or after it ended, each listener received the text."""
    pool.expect(text)
    begun = time.time()
    act()
    if from_response:
        begun = time.time()
    return [moment - begun for moment in pool.wait_for_expected()]


_held = itertools.count(1)


def hold_one(event: Any) -> None:
    from apps.queue import facade as queue
    from apps.reservations import facade as reservations

    caller = queue.Caller(visitor_id=queue.new_visitor_secret())
    (entry,) = queue.join_many([queue.JoinRequest(event, caller)])
    request = reservations.resolve(event, entry, {"ga_section": "floor-0", "ga_quantity": 1}, uuid.uuid4().hex)
    (outcome,) = reservations.hold([request])
    assert isinstance(outcome, reservations.Held), outcome


if __name__ == "__main__":
    sys.exit(main())
