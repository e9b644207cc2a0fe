"""The load on Fairgate with a thousand and with ten thousand listeners in the waiting room.

    python -m benchmarks.scenarios.waiting_room_load [--listeners 1000,10000] [--rounds 2] [--seconds 20]

Runs `web` with its usual workers, the relay and the gatekeeper, and one event with an open room in which 50,000 wait,
some are admitted every second, and five holds a second are sent to all listeners, who listen by server-sent events.
With all of them connected, these are measured for `--seconds` and printed per second: HTTP requests by Fairgate's
metrics, transactions in PostgreSQL, commands in Redis, and the CPU time of `web`; the sizes in turn, medians of the
rounds. `with polls`: the same while each listener also requests its position every three minutes, as the page does. The
run fails if, with the stream alone, the most listeners cause more than `--ratio` times the load of the fewest. Each
size takes a minute and a half in each round.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path

from benchmarks.suite.load import raw_requests
from benchmarks.support import buyers, live_event
from benchmarks.support.rooms import start_servers
from benchmarks.support.stream_clients import start_stream_clients

WAITING = 50_000
BUYERS = 5_000
ADMITTED_PER_SECOND = 2
HOLDS_PER_SECOND = 5.0
POLL_SECONDS = 180.0
"""How often a waiting page polls even if nothing has happened (`static/js/wait.js`)."""
METRICS_SECONDS = 7.0
"""The processes write their metrics more often than this."""
CONNECTIONS = 16
SETTLE_SECONDS = 3.0
JUDGED = ("HTTP requests", "PostgreSQL transactions", "Redis commands")

Figures = dict[str, float]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listeners", default="1000,10000", help="the numbers of listeners")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--ratio", type=float, default=1.1, help="the highest acceptable ratio")
    options = parser.parse_args()
    with start_servers(durable=True), live_event.environment() as environment:
        return measure(options, [int(size) for size in options.listeners.split(",")], environment)


def measure(options: argparse.Namespace, sizes: list[int], environment: dict[str, str]) -> int:
    from apps.events import facade as events
    from ticketing.devserver.ports import free_port

    port = free_port()
    event = live_event.make_event(
        room=events.WaitingRoomSettings(rate_per_second=ADMITTED_PER_SECOND, active_max=BUYERS + WAITING)
    )
    tokens = live_event.admit_buyers(event, BUYERS)
    waiting = live_event.fill_waiting_room(event, WAITING, after=BUYERS)
    found: dict[tuple[str, int], list[Figures]] = {}
    with (
        live_event.run_commands(environment, ["relay", "gatekeeper"]),
        live_event.run_server(live_event.WEB, port, environment) as web,
        buyers.start_buyers(port, buyers.hold_requests(live_event.SLUG, tokens), CONNECTIONS) as buying,
        buyers.start_buyers(port, poll_requests(waiting), CONNECTIONS) as polling,
    ):
        for number in range(options.rounds):
            for size in sizes if number % 2 == 0 else sizes[::-1]:
                with start_stream_clients(port, live_event.PATH) as pool:
                    pool.connect(size)
                    time.sleep(SETTLE_SECONDS)
                    for way, per_second in (("the stream alone", 0.0), ("with polls", size / POLL_SECONDS)):
                        before = figures(environment, 0.0)
                        started = time.monotonic(), live_event.cpu_seconds(web), figures(environment, 1.0)
                        buying.begin(HOLDS_PER_SECOND, options.seconds)
                        if per_second:
                            polling.begin(per_second, options.seconds)
                        held = buying.end(options.seconds)
                        if per_second:
                            polls = polling.end(options.seconds)
                            assert set(polls.statuses) == {200}, polls.statuses
                        seconds, after = time.monotonic() - started[0], figures(environment, 1.0)
                        cpu = live_event.cpu_seconds(web) - started[1]
                        time.sleep(METRICS_SECONDS)
                        after["HTTP requests"] = figures(environment, 0.0)["HTTP requests"]
                        started[2]["HTTP requests"] = before["HTTP requests"]
                        rates = {name: (after[name] - started[2][name]) / seconds for name in after}
                        rates["CPU time of web, ms"] = 1_000 * cpu / seconds
                        found.setdefault((way, size), []).append(rates)
                        print(f"{size:>7,} listeners, {way}: {rates}, {held.statuses}", flush=True)
                time.sleep(SETTLE_SECONDS)
    return show(options, sizes, found)


def show(options: argparse.Namespace, sizes: list[int], found: dict[tuple[str, int], list[Figures]]) -> int:
    failed = False
    for way in ("the stream alone", "with polls"):
        print(f"\n{way}, each a second, medians of {options.rounds} rounds of {options.seconds:.0f} s")
        print(f"| | {' | '.join(f'{size:,}' for size in sizes)} | ratio |\n| --- |{' ---: |' * (len(sizes) + 1)}")
        for name in found[way, sizes[0]][0]:
            values = [statistics.median(one[name] for one in found[way, size]) for size in sizes]
            ratio = values[-1] / values[0] if values[0] else float("nan")
            failed |= way == "the stream alone" and name in JUDGED and ratio > options.ratio
            print(f"| {name} | {' | '.join(f'{value:,.1f}' for value in values)} | {ratio:.2f} |")
    return int(failed)


def poll_requests(tokens: list[str]) -> list[bytes]:
    path = f"/api/events/{live_event.SLUG}/queue/status"
    return [raw_requests.get(path, token) for token in tokens]


def figures(environment: dict[str, str], pause_seconds: float) -> Figures:
    """Return the totals since the deployment started. PostgreSQL's sessions report theirs within a second."""
    from django.db import connection

    from apps.kernel import redis

    time.sleep(pause_seconds)
    with connection.cursor() as cursor:
        cursor.execute("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()")
        ((transactions,),) = cursor.fetchall()
    requests = 0.0
    for file in Path(environment["METRICS_FOLDER"]).glob("web-*.json"):
        for name, _, _, samples in json.loads(file.read_bytes())["families"]:
            if name == "fairgate_http_request_seconds":
                requests += sum(value for sample, _, value in samples if sample.endswith("_count"))
    commands = redis.client().info("stats")["total_commands_processed"]
    return {
        "HTTP requests": requests,
        "PostgreSQL transactions": float(transactions),
        "Redis commands": float(commands),
    }


if __name__ == "__main__":
    sys.exit(main())
