"""Row overload: holds, joins and checkouts at three times their saturation load in an open loop, and from ten times the
clients, which obey `Retry-After`.

Saturation is what 128 clients without pauses reach in the same round. The open loop has enough connections that each
arrival is sent at once. Goodput counts what was granted before the last arrival, not the backlog.
"""

import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from benchmarks.suite.bench import BUYERS, Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import arrivals, raw_requests, retries
from benchmarks.suite.results import Fact, Findings, compare
from benchmarks.suite.systems import Deployment

TIMES, CLIENTS = 3, 10 * BUYERS
CONNECTIONS = 6_000
P99_MS = 500.0


@dataclass
class _Kind:
    """A kind of request, and what it has measured."""

    name: str
    saturation: Callable[[], float]
    requests: Callable[[], list[bytes]]
    without_traces: Callable[[Deployment], AbstractContextManager[None]]
    rates: list[float] = field(default_factory=list)
    """At saturation."""
    open: list[arrivals.Load] = field(default_factory=list)
    obedient: list[retries.Served] = field(default_factory=list)


def run(bench: Bench) -> Findings:
    deployment, findings = bench.deployment, Findings()
    held_for = 2 * bench.seconds + 2  # Clients send checkouts in a second of warm-up and a slice.
    kinds = [
        _Kind("holds", lambda: bench.general_admission(deployment), lambda: _holds(deployment), bench.without_traces),
        _Kind("joins", lambda: bench.joins(deployment), lambda: raw_requests.joins(60_000), bench.without_traces),
        _Kind(
            "checkouts", lambda: bench.checkouts(deployment),
            lambda: bench.checkouts_to_send(deployment, seconds=held_for), bench.only_placed,
        ),
    ]  # fmt: skip
    for kind in kinds:
        _measure(bench, kind)
    with bench.without_traces(deployment), bench.profiled("overload", deployment):
        _open(bench, statistics.median(kinds[0].rates), _holds(deployment))
    limits = [P99_MS] * bench.rounds
    for kind in kinds:
        of_open = [load.good_rate for load in kind.open]
        of_obedient = [served.good_rate for served in kind.obedient]
        findings.ratios += [
            compare(f"{kind.name}-3x", f"{kind.name} at three times their saturation, open loop ÷ saturation", of_open,
                    kind.rates, acceptable=0.9, goal=0.95),
            compare(f"{kind.name}-3x-p99", "p99 of all its responses ÷ 500 ms", [load.p99_ms for load in kind.open],
                    limits, acceptable=1, goal=0.5, better="lower", unit="ms"),
            compare(f"{kind.name}-10x", f"{kind.name} of ten times the clients, which obey Retry-After ÷ saturation",
                    of_obedient, kind.rates, acceptable=0.9, goal=0.95),
            compare(f"{kind.name}-10x-p99", "p99 of all its responses ÷ 500 ms",
                    [served.p99_ms for served in kind.obedient], limits, acceptable=1, goal=0.5, better="lower",
                    unit="ms"),
        ]  # fmt: skip
        findings.facts.append(_fact(kind))
    return findings


def _measure(bench: Bench, kind: _Kind) -> None:
    for number in range(bench.rounds + 1):
        rate = kind.saturation()
        requests = kind.requests()
        with kind.without_traces(bench.deployment):
            load = _open(bench, rate, requests)
        bench.settle()
        requests = kind.requests()
        with kind.without_traces(bench.deployment):
            served = retries.send(bench.deployment.web_port, requests, seconds=bench.seconds, clients=CLIENTS)
        bench.settle()
        if unexpected := set(load.statuses) - {200, 201, 202, 503}:
            raise SuiteFailed(f"{kind.name} at {TIMES} times the load had the statuses {unexpected}")
        if served.others:
            raise SuiteFailed(f"{served.others} of the {kind.name} had other responses than 2xx and 503")
        if served.is_exhausted:
            raise SuiteFailed(f"{len(requests)} {kind.name} were too few for {CLIENTS} clients")
        # As in every row, the first round is not counted.
        if number:
            bench.say(
                f"  {kind.name}: saturation {rate:,.0f}/s; open loop {load.good_rate:,.0f}/s of "
                f"{load.offered_rate:,.0f}/s, p99 {load.p99_ms:,.0f} ms; "
                f"{CLIENTS:,} clients {served.good_rate:,.0f}/s, p99 {served.p99_ms:,.0f} ms"
            )
            kind.rates.append(rate)
            kind.open.append(load)
            kind.obedient.append(served)
            bench.shares.append(load.generator_share)


def _open(bench: Bench, rate: float, requests: list[bytes]) -> arrivals.Load:
    return arrivals.send(
        bench.deployment.web_port, requests, rate=TIMES * rate, seconds=bench.seconds + 1, connections=CONNECTIONS
    )


def _holds(deployment: Deployment) -> list[bytes]:
    return raw_requests.general_admission_holds("arena", deployment.facts["floor"], deployment.tokens("arena"))


def _fact(kind: _Kind) -> Fact:
    offered, answered = (sum(getattr(load, name) for load in kind.open) for name in ("offered", "answered"))
    middle = statistics.median
    return Fact(
        f"{kind.name.capitalize()} at {TIMES} times their saturation",
        f"{middle(load.offered_rate for load in kind.open):,.0f}/s requested, "
        f"{middle(load.good_rate for load in kind.open):,.0f}/s granted; p99 of what was granted "
        f"{middle(load.good_p99_ms for load in kind.open):,.0f} ms; {answered / offered:.2%} with a response. "
        f"{CLIENTS:,} clients: {middle(served.refused_rate for served in kind.obedient):,.0f}/s refused",
    )
