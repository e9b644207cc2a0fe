"""Whether ten thousand hear of every hold within two seconds, while holds run at half of what the house can do.

    python -m benchmarks.scenarios.update_latency [--listeners 10000] [--rounds 3] [--seconds 30] [--connections 64]

A durable house: `web` with its usual workers, the relay and the gatekeeper. With all listeners there, buyers hold one
place each over HTTP, in a closed loop, until it is known how many holds a second are possible; then half as many, as
they come, for so many seconds. In the middle a tenth of the listeners hang up at once and come back with what they have
read. Counted is every hold for every listener: from the moment that stands in the ledger (a little before the commit)
to the first frame that says at least as many places are taken, the time for coming back included. In the end each
listener's last word has to be the ledger's, or the run fails; so it does where less than `--share` reached those who
stayed in time. A round takes `--seconds` and
some ten more, the beginning about a minute.
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
ONE_IN_COMES_BACK = 10
SATURATION_MAX = 2_500
"""Buyers are let in for so many holds a second."""
CALM_SECONDS = 3.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--listeners", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30, help="of each round")
    parser.add_argument("--saturation-seconds", type=float, default=8, help="of the closed loop before them")
    parser.add_argument("--connections", type=int, default=64, help="buyers at once in the closed loop")
    parser.add_argument("--share", type=float, default=0.999, help="acceptable")
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
        start_stream_clients(port, live_event.PATH) as crowd,
        buyers.start_buyers(port, requests, options.connections) as buying,
    ):
        begun = time.monotonic()
        crowd.connect(options.listeners)
        print(f"{options.listeners:,} listeners came in {time.monotonic() - begun:.1f} s", flush=True)
        buying.run_closed_loop(1)  # Whatever is made with the first hold is made.
        saturation = buying.run_closed_loop(options.saturation_seconds)
        print(
            f"saturation, {options.connections} buyers at once: {saturation.per_second:,.0f} holds/s, "
            f"p50 {saturation.ms(0.5):.0f} ms, p99 {saturation.ms(0.99):.0f} ms, {saturation.statuses}",
            flush=True,
        )
        for number in range(options.rounds):
            heard, bought = round_of(options, crowd, buying, saturation.per_second / 2)
            found.append((heard, bought))
            print(
                f"round {number + 1}: {bought.per_second:,.0f} holds/s (p99 {bought.ms(0.99):.0f} ms), "
                f"{heard.expected:,} times to hear of one: {heard.on_time:.4%} within {WITHIN_SECONDS:.0f} s, "
                f"{heard.on_time_for_stayers:.4%} of who stayed, "
                f"p50 {heard.p50_ms:.0f} ms, p99 {heard.p99_ms:.0f} ms, worst {heard.worst_ms:,.0f} ms, "
                f"never {heard.lost}, last word wrong {heard.behind}; {heard.frames:,} frames",
                flush=True,
            )
    return show(options, found)


def round_of(
    options: argparse.Namespace, crowd: StreamClients, buying: buyers.BuyerProcess, per_second: float
) -> tuple[DeliveryReport, buyers.LoadResult]:
    time.sleep(CALM_SECONDS)
    before = live_event.count_held()
    crowd.begin()
    buying.begin(per_second, options.seconds)
    time.sleep(options.seconds / 2)
    crowd.reconnect(ONE_IN_COMES_BACK)
    bought = buying.end(options.seconds)
    time.sleep(CALM_SECONDS)
    committed = live_event.read_hold_times(before)
    assert len(committed) >= bought.held, "the ledger has fewer holds than were answered"
    return crowd.report(committed, before, within_seconds=WITHIN_SECONDS), bought


def show(options: argparse.Namespace, found: list[tuple[DeliveryReport, Any]]) -> int:
    def middle(name: str) -> float:
        return statistics.median(getattr(heard, name) for heard, _ in found)

    rate = statistics.median(bought.per_second for _, bought in found)
    wrong = sum(heard.lost + heard.behind for heard, _ in found)
    worst = min(heard.on_time_for_stayers for heard, _ in found)
    print(f"\n{options.listeners:,} listeners, {rate:,.0f} holds/s, medians of {options.rounds} rounds")
    stayed = middle("on_time_for_stayers")
    print(
        f"  heard within {WITHIN_SECONDS:.0f} s        {stayed:.4%} of those who stayed (the worst round {worst:.4%})"
    )
    print(f"                         {middle('on_time'):.4%} of all, the gaps of who came back included")
    print(f"  from the ledger      p50 {middle('p50_ms'):.0f} ms, p99 {middle('p99_ms'):.0f} ms")
    print(f"  the very last        {middle('worst_ms'):,.0f} ms (of all holds and listeners, coming back included)")
    print(f"  never heard, or a last word that was not the ledger's: {wrong}")
    return 1 if wrong or stayed < options.share else 0


if __name__ == "__main__":
    sys.exit(main())
