"""Server-sent events, a WebSocket and short polls compared: the same updates sent to as many listeners by each.

    python -m benchmarks.experiments.live_transports [--listeners 2000] [--rounds 3] [--seconds 30] [--holds 2]

Each transport gets a new process of `web` (one worker) and the relay. `--listeners` clients listen, in another process,
while `--holds` holds a second are committed, one ticket each. Memory: the growth of the process after the first tenth
of the listeners, per listener. Latency: from the hold's time in PostgreSQL (a little before the commit) to the first
frame or response that includes it; polls follow `next_poll` and repeat the ETag. Bytes: what each client reads and
sends in a minute, headers included, without the overhead of TCP. CPU: the time of `web` in a second, for a thousand
listeners. The transports run in turn; the figures are medians of the rounds. The run fails unless the last frame of
every listener equals PostgreSQL's state at the end. A transport takes a minute in each round.
"""

import argparse
import statistics
import sys
import time
from typing import Any

from benchmarks.scenarios.listeners import hold_one
from benchmarks.support import live_event, paced_calls
from benchmarks.support.rooms import start_servers
from benchmarks.support.stream_clients import KINDS, start_stream_clients

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


def round_of(options: argparse.Namespace, kind: str, environment: dict[str, str], event: Any) -> Round:
    from ticketing.devserver.ports import free_port

    port = free_port()
    with (
        live_event.run_server(live_event.WEB, port, environment) as web,
        start_stream_clients(port, live_event.PATH, kind) as pool,
    ):
        worker = live_event.worker_of(web)
        few = max(1, options.listeners // 10)
        pool.connect(few)
        time.sleep(SETTLE_SECONDS)
        begun_with = worker.memory_info().rss
        pool.connect(options.listeners - few)
        time.sleep(SETTLE_SECONDS)
        grown = worker.memory_info().rss - begun_with
        before = live_event.count_held()
        pool.begin()
        begun, cpu = time.monotonic(), live_event.cpu_seconds(web)
        with paced_calls.run_at_rate({"hold": lambda: hold_one(event)}, options.holds):
            time.sleep(options.seconds)
        seconds, cpu = time.monotonic() - begun, live_event.cpu_seconds(web) - cpu
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
