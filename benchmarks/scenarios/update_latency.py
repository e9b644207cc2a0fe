"""Whether ten thousand listeners receive every hold within two seconds, at half of the possible rate of holds.

    python -m benchmarks.scenarios.update_latency [--listeners 10000] [--rounds 3] [--seconds 30] [--connections 64]

Runs a durable deployment: `web` with its usual workers, the relay and the gatekeeper. With all listeners connected,
buyers hold one ticket each over HTTP in a closed loop, which measures the possible rate of holds; then they hold at
half of that rate for `--seconds`, each hold sent when it is due. In the middle a tenth of the listeners disconnect at
the same time and reconnect with the id of the last event that they have read. Each hold is measured for every listener:
from its time in PostgreSQL (a little before the commit) to the first frame that reports at least as many tickets taken,
including the time to reconnect. The run fails unless the last frame of each listener equals PostgreSQL's state at the
end, and unless at least `--share` reached the listeners that stayed connected in time. A round takes `--seconds` and
some ten seconds more, the start about a minute.
"""

import argparse
import statistics
import sys
import time
from typing import Any

from benchmarks.support import buyers, live_event
from benchmarks.support.rooms import start_servers
from benchmarks.support.stream_clients import DeliveryReport, StreamClients, start_stream_clients

WITHIN_SECONDS = 2.0
RECONNECT_ONE_IN = 10
SATURATION_MAX = 2_500
"""The holds a second for which buyers are admitted."""
SETTLE_SECONDS = 3.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listeners", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30, help="of each round")
    parser.add_argument("--saturation-seconds", type=float, default=8, help="of the closed loop before them")
    parser.add_argument("--connections", type=int, default=64, help="buyers at once in the closed loop")
    parser.add_argument("--share", type=float, default=0.999, help="the lowest acceptable share")
    options = parser.parse_args()
    with start_servers(durable=True), live_event.environment() as environment:
        return measure(options, environment)


def measure(options: argparse.Namespace, environment: dict[str, str]) -> int:
    from ticketing.devserver.ports import free_port

    port = free_port()
    event = live_event.make_event()
    most = SATURATION_MAX * (1 + options.saturation_seconds + options.rounds * options.seconds / 2)
    requests = buyers.hold_requests(live_event.SLUG, live_event.admit_buyers(event, int(most)))
    found: list[tuple[DeliveryReport, Any]] = []
    with (
        live_event.run_commands(environment, ["relay", "gatekeeper"]),
        live_event.run_server(live_event.WEB, port, environment),
        start_stream_clients(port, live_event.PATH) as pool,
        buyers.start_buyers(port, requests, options.connections) as buying,
    ):
        begun = time.monotonic()
        pool.connect(options.listeners)
        print(f"{options.listeners:,} listeners connected in {time.monotonic() - begun:.1f} s", flush=True)
        buying.run_closed_loop(1)  # Warms up.
        saturation = buying.run_closed_loop(options.saturation_seconds)
        print(
            f"saturation, {options.connections} concurrent buyers: {saturation.per_second:,.0f} holds/s, "
            f"p50 {saturation.ms(0.5):.0f} ms, p99 {saturation.ms(0.99):.0f} ms, {saturation.statuses}",
            flush=True,
        )
        for number in range(options.rounds):
            report, bought = round_of(options, pool, buying, saturation.per_second / 2)
            found.append((report, bought))
            print(
                f"round {number + 1}: {bought.per_second:,.0f} holds/s (p99 {bought.ms(0.99):.0f} ms), "
                f"{report.expected:,} updates expected: {report.on_time:.4%} within {WITHIN_SECONDS:.0f} s, "
                f"{report.on_time_for_stayers:.4%} of those without reconnecting, "
                f"p50 {report.p50_ms:.0f} ms, p99 {report.p99_ms:.0f} ms, worst {report.worst_ms:,.0f} ms, "
                f"never {report.lost}, last frame wrong {report.behind}; {report.frames:,} frames",
                flush=True,
            )
    return show(options, found)


def round_of(
    options: argparse.Namespace, pool: StreamClients, buying: buyers.BuyerProcess, per_second: float
) -> tuple[DeliveryReport, buyers.LoadResult]:
    time.sleep(SETTLE_SECONDS)
    before = live_event.count_held()
    pool.begin()
    buying.begin(per_second, options.seconds)
    time.sleep(options.seconds / 2)
    pool.reconnect(RECONNECT_ONE_IN)
    bought = buying.end(options.seconds)
    time.sleep(SETTLE_SECONDS)
    committed = live_event.read_hold_times(before)
    assert len(committed) >= bought.held, "PostgreSQL has fewer holds than were confirmed"
    return pool.report(committed, before, within_seconds=WITHIN_SECONDS), bought


def show(options: argparse.Namespace, found: list[tuple[DeliveryReport, Any]]) -> int:
    def median(name: str) -> float:
        return statistics.median(getattr(report, name) for report, _ in found)

    rate = statistics.median(bought.per_second for _, bought in found)
    wrong = sum(report.lost + report.behind for report, _ in found)
    worst = min(report.on_time_for_stayers for report, _ in found)
    print(f"\n{options.listeners:,} listeners, {rate:,.0f} holds/s, medians of {options.rounds} rounds")
    stayed = median("on_time_for_stayers")
    print(f"  within {WITHIN_SECONDS:.0f} s           {stayed:.4%} of those that stayed (worst round {worst:.4%})")
    print(f"                       {median('on_time'):.4%} of all, including reconnects")
    print(f"  from the commit      p50 {median('p50_ms'):.0f} ms, p99 {median('p99_ms'):.0f} ms")
    print(f"  the last             {median('worst_ms'):,.0f} ms (of all holds and listeners, including reconnects)")
    print(f"  never received, or a last frame that differs from PostgreSQL: {wrong}")
    return 1 if wrong or stayed < options.share else 0


if __name__ == "__main__":
    sys.exit(main())
