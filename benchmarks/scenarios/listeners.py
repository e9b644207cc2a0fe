"""What it takes to tell ten thousand, beside the smallest program that does nothing else.

    python -m benchmarks.scenarios.listeners [--listeners 10000] [--rounds 5] [--frames 10]

One process of `web` (as the Procfile starts it) and the relay; as many listeners, in a process of their own, listen to
one event. Memory: what the process of `web` grew by, for each; and the same from a tenth of them on, without what it
allocates once. Telling: from the moment at which a message is given to the channel layer until a listener has it,
median, 99th percentile and last, and the processor's time of the process for each frame. From commit: the same, from
the answer to a hold, the relay's window included. The bare broadcaster (`support.bare_broadcaster`) is an ASGI
application under uvicorn with one subscription to Redis and a queue for each connection, told the very same bytes; both
are started anew for each round and measured in turn, in one run, and the ratios are medians of the rounds. Every
listener has to have every last frame, or the run fails. A round takes about a minute.
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
CALM_SECONDS = 2.0
NAMES = {
    "kib": "KiB per listener, all that it grew by",
    "kib_more": "KiB per listener, from a tenth on",
    "p50_ms": "told: median, ms",
    "p99_ms": "told: 99th percentile, ms",
    "last_ms": "told: the last, ms",
    "cpu_ms": "processor per frame, ms",
    "commit_p50_ms": "from commit: median, ms",
    "commit_p99_ms": "from commit: 99th percentile, ms",
    "commit_last_ms": "from commit: the last, ms",
}

Round = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listeners", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--frames", type=int, default=10, help="told in each round")
    options = parser.parse_args()
    with start_servers(), live_event.environment(WEB_WORKERS="1") as environment:
        return measure(options, environment)


def measure(options: argparse.Namespace, environment: dict[str, str]) -> int:
    event = live_event.make_event()
    found: dict[str, list[Round]] = {"ours": [], "bare": []}
    with live_event.run_commands(environment, ["relay"]):
        for number in range(options.rounds):
            found["ours"].append(
                round_of(options, live_event.WEB, live_event.PATH, environment, tell_ours(event.id), event)
            )
            found["bare"].append(round_of(options, BARE, "/", environment, tell_bare, None))
            print(f"round {number + 1}: {found['ours'][-1]} | bare {found['bare'][-1]}", flush=True)
    print(f"\n{options.listeners:,} listeners, one process, medians of {options.rounds} rounds")
    for key, words in NAMES.items():
        here = [one[key] for one in found["ours"]]
        there = [one[key] for one in found["bare"] if key in one]
        ratio = statistics.median(a / b for a, b in zip(here, there, strict=True)) if there else None
        beside = f" | bare {statistics.median(there):8.1f} | ratio {ratio:.2f}" if ratio is not None else ""
        print(f"  {words:<38} {statistics.median(here):8.1f}{beside}")
    late = sum(one["late"] for rounds in found.values() for one in rounds)
    print(f"  frames not heard: {late:.0f}")
    return 1 if late else 0


def tell_ours(event_id: int) -> Callable[[int], None]:
    def tell(number: int) -> None:
        from apps.kernel.push import channel_layer
        from apps.kernel.push.channel_names import group_of

        data = json.dumps({"number": number, "text": "x" * 1_000}).encode()
        told = channel_layer.send_to_group(
            group_of(event_id), {"type": "news", "event": event_id, "frames": [["mark", "", "", data]]}
        )
        assert told, "Redis did not take it"

    return tell


def tell_bare(number: int) -> None:
    from apps.kernel import redis

    data = json.dumps({"number": number, "text": "x" * 1_000}).encode()
    redis.client().publish(BARE_CHANNEL, b"event: mark\ndata: %b\n\n" % data)


def round_of(
    options: argparse.Namespace,
    command: list[str],
    path: str,
    environment: dict[str, str],
    tell: Callable[[int], None],
    event: Any,
) -> Round:
    """One crowd of listeners comes to a process that is new, is told, and goes."""
    from ticketing.devserver.ports import free_port

    port = free_port()
    with live_event.run_server(command, port, environment) as process, start_stream_clients(port, path) as crowd:
        worker = live_event.worker_of(process)
        few = max(1, options.listeners // 10)
        grown = [worker.memory_info().rss]
        for count in (few, options.listeners - few):
            crowd.connect(count)
            time.sleep(CALM_SECONDS)
            grown.append(worker.memory_info().rss)
        cpu = 0.0
        late, told = 0, []
        for number in range(options.frames):
            cpu_before = sum(worker.cpu_times()[:2])
            heard = after(crowd, b'"number": %d,' % number, lambda number=number: tell(number))  # type: ignore[misc]
            cpu += sum(worker.cpu_times()[:2]) - cpu_before
            late += options.listeners - len(heard)
            told += heard
        result = {
            "kib": (grown[2] - grown[0]) / options.listeners / 1024,
            "kib_more": (grown[2] - grown[1]) / max(1, options.listeners - few) / 1024,
            "p50_ms": 1_000 * percentile(told, 0.5),
            "p99_ms": 1_000 * percentile(told, 0.99),
            "last_ms": 1_000 * percentile(told, 1.0),
            "cpu_ms": 1_000 * cpu / options.frames,
        }
        if event is not None:
            committed: list[float] = []
            for _ in range(options.frames):
                words = b'"available_seats":%d,' % (CAPACITY - next(_held))
                heard = after(crowd, words, lambda: hold_one(event), from_the_answer=True)
                late += options.listeners - len(heard)
                committed += heard
            result["commit_p50_ms"] = 1_000 * percentile(committed, 0.5)
            result["commit_p99_ms"] = 1_000 * percentile(committed, 0.99)
            result["commit_last_ms"] = 1_000 * percentile(committed, 1.0)
        return result | {"late": float(late)}


def after(crowd: StreamClients, words: bytes, act: Callable[[], None], *, from_the_answer: bool = False) -> list[float]:
    """How many seconds after it was done, or begun, each of the listeners heard the words."""
    crowd.expect(words)
    begun = time.time()
    act()
    if from_the_answer:
        begun = time.time()
    return [moment - begun for moment in crowd.wait_for_expected()]


_held = itertools.count(1)


def hold_one(event: Any) -> None:
    from apps.queue import facade as queue
    from apps.reservations import facade as reservations

    caller = queue.Caller(visitor_id=queue.new_visitor_id())
    (entry,) = queue.join_many([queue.JoinRequest(event, caller)])
    wish = reservations.resolve(event, entry, {"ga_section": "floor-0", "ga_quantity": 1}, uuid.uuid4().hex)
    (outcome,) = reservations.hold([wish])
    assert isinstance(outcome, reservations.Held), outcome


if __name__ == "__main__":
    sys.exit(main())
