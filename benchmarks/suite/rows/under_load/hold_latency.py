"""Row 7: the tail latency of holds at a rate below saturation."""

import statistics

from benchmarks.suite import restore
from benchmarks.suite.bench import BUYERS, Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import arrivals, raw_requests
from benchmarks.suite.results import Fact, Findings, compare

SHARE = 0.7


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    facts = deployment.facts
    slow, middle, rates = [], [], []
    # As in every row, the first round is not counted.
    for number in range(bench.rounds + 1):
        rate = SHARE * bench.seats(deployment)
        requests = raw_requests.seat_holds(
            "arena", facts["section"], facts["section_seats"] - 2, deployment.tokens("arena")
        )
        load = arrivals.send(deployment.web_port, requests, rate=rate, seconds=bench.seconds, connections=BUYERS)
        restore.remove_holds(deployment)
        if load.good < load.offered * 0.99:
            raise SuiteFailed(f"at {rate:,.0f}/s {load.good} of {load.offered} were held: {load.statuses}")
        if number:
            bench.say(f"  {rate:,.0f}/s: p50 {load.p50_ms:.1f} ms, p99 {load.p99_ms:.1f} ms")
            slow.append(load.p99_ms)
            middle.append(load.p50_ms)
            rates.append(load.offered_rate)
            bench.shares.append(load.generator_share)
    title = "p99 of a hold at 70 % of its saturation ÷ its p50"
    ratio = compare("7", title, slow, middle, acceptable=6, goal=3, better="lower", unit="ms")
    return Findings([ratio], [Fact("Row 7 load", f"{statistics.median(rates):,.0f} holds/s, random arrivals")])
