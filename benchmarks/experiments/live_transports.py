"""Server-sent events, a WebSocket, short polls and Redis Pub/Sub compared: the same updates to as many listeners.

    python -m benchmarks.experiments.live_transports [--listeners 2000] [--rounds 3] [--seconds 30] [--holds 2]

Each transport gets a new process of `web` (one worker) and the relay, except Redis Pub/Sub, which the source document
compares with them: there each listener subscribes to the Redis server, and each hold publishes the section's count
after its commit, without a web server, identities, subscriptions or what a reconnected listener has missed.
`--listeners` clients listen, in another process, while `--holds` holds a second are committed, one ticket each.
Memory: the growth of the process after the first tenth of the listeners, per listener. Latency: from the hold's time
in PostgreSQL (a little before the commit) to the first frame or response that includes it; polls follow `next_poll`
and repeat the ETag. Bytes: what each client reads and sends in a minute, headers included, without the overhead of
TCP. CPU: the time of `web` (of Redis) in a second, for a thousand listeners. The transports run in turn; the figures
are medians of the rounds. The run fails unless the last frame of every listener equals PostgreSQL's state at the end.
A transport takes a minute in each round.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psutil

from benchmarks.scenarios.listeners import hold_one
from benchmarks.support import live_event, paced_calls
from benchmarks.support.rooms import start_servers
from benchmarks.support.stream_clients import CAPACITY, KINDS, PUBSUB_CHANNEL, SECTION, start_stream_clients

SETTLE_SECONDS = 3.0
POLLED_SECONDS = 6.0
"""Long enough for one more poll of every client."""
WITHIN_SECONDS = 2.0
COLUMNS = {
    "kib": "KiB each",
    "p50_ms": "p50, ms",
    "p99_ms": "p99, ms",
    "read_kb": "read, kB/min",
    "sent_kb": "sent, kB/min",
    "cpu_ms": "CPU, ms/s per 1,000",
}

Round = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listeners", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--holds", type=float, default=2, help="holds a second")
    options = parser.parse_args()
    with start_servers(), live_event.environment(WEB_WORKERS="1") as environment:
        return measure(options, environment)


def measure(options: argparse.Namespace, environment: dict[str, str]) -> int:
    event = live_event.make_event()
    found: dict[str, list[Round]] = {kind: [] for kind in KINDS}
    with live_event.run_commands(environment, ["relay"]):
        for _ in range(options.rounds):
            for kind, rounds in found.items():
                rounds.append(round_of(options, kind, environment, event))
                print(f"{KINDS[kind]}: {rounds[-1]}", flush=True)
    print(f"\n{options.listeners:,} listeners, {options.holds:g} holds/s, medians of {options.rounds} rounds")
    print(f"| | {' | '.join(COLUMNS.values())} |\n| --- |{' ---: |' * len(COLUMNS)}")
    for kind, title in KINDS.items():
        values = [statistics.median(one[key] for one in found[kind]) for key in COLUMNS]
        print(f"| {title} | {' | '.join(f'{value:,.1f}' for value in values)} |")
    wrong = sum(one["wrong"] for rounds in found.values() for one in rounds)
    print(f"never received, or a last frame that differs from PostgreSQL: {wrong:.0f}")
    return 1 if wrong else 0


@contextmanager
def run_sender(kind: str, environment: dict[str, str]) -> Iterator[tuple[psutil.Process, psutil.Process, int, str]]:
    """Yield the process that sends, its process with the connections, its port and the path for the listeners."""
    if kind == "pubsub":
        from apps.kernel import redis

        process = psutil.Process(int(redis.client().info("server")["process_id"]))
        url = os.environ["REDIS_URL"]
        yield process, process, urlsplit(url).port or 6379, url
        return
    from ticketing.devserver.ports import free_port

    port = free_port()
    with live_event.run_server(live_event.WEB, port, environment) as web:
        yield web, live_event.worker_of(web), port, live_event.PATH


def hold_and_publish(event: Any) -> None:
    """Hold one ticket, then publish what is left in its section. Only one thread calls this, so counts never rise."""
    from apps.kernel import redis

    hold_one(event)
    state = {"section_id": SECTION, "available_seats": CAPACITY - live_event.count_held()}
    redis.client().publish(PUBSUB_CHANNEL, json.dumps(state, separators=(",", ":")))


def round_of(options: argparse.Namespace, kind: str, environment: dict[str, str], event: Any) -> Round:
    hold = hold_and_publish if kind == "pubsub" else hold_one
    with (
        run_sender(kind, environment) as (sender, worker, port, path),
        start_stream_clients(port, path, kind) as pool,
    ):
        few = max(1, options.listeners // 10)
        pool.connect(few)
        time.sleep(SETTLE_SECONDS)
        begun_with = worker.memory_info().rss
        pool.connect(options.listeners - few)
        time.sleep(SETTLE_SECONDS)
        grown = worker.memory_info().rss - begun_with
        before = live_event.count_held()
        pool.begin()
        begun, cpu = time.monotonic(), live_event.cpu_seconds(sender)
        with paced_calls.run_at_rate({"hold": lambda: hold(event)}, options.holds):
            time.sleep(options.seconds)
        seconds, cpu = time.monotonic() - begun, live_event.cpu_seconds(sender) - cpu
        read, sent = pool.bytes()
        time.sleep(POLLED_SECONDS if kind == "poll" else SETTLE_SECONDS)
        report = pool.report(live_event.read_hold_times(before), before, within_seconds=WITHIN_SECONDS)
    each_minute = 60 / seconds / options.listeners / 1_000
    return {
        "kib": grown / max(1, options.listeners - few) / 1024,
        "p50_ms": report.p50_ms,
        "p99_ms": report.p99_ms,
        "read_kb": read * each_minute,
        "sent_kb": sent * each_minute,
        "cpu_ms": 1_000 * cpu / seconds / (options.listeners / 1_000),
        "wrong": float(report.lost + report.behind),
    }


if __name__ == "__main__":
    sys.exit(main())
