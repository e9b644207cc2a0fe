"""Row overload: holds, joins and checkouts at three times their saturation load in an open loop, and from ten times the
clients, which obey `Retry-After`.

Saturation is what 128 clients without pauses reach in the same round. The open loop has enough connections that each
arrival is sent at once. Goodput counts what was granted before the last arrival, not the backlog.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from benchmarks.suite import restore
from benchmarks.suite.bench import BUYERS, Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import arrivals, raw_requests, retries
from benchmarks.suite.results import Fact, Findings, compare
from benchmarks.suite.systems import Deployment

TIMES, CLIENTS = 3, 10 * BUYERS
CONNECTIONS = 6_000
P99_MS = 500.0


@dataclass
class _Rounds:
    saturation: list[float] = field(default_factory=list)
    open: list[arrivals.Load] = field(default_factory=list)
    obedient: list[retries.Served] = field(default_factory=list)


def run(bench: Bench) -> Findings:
    deployment, findings = bench.deployment, Findings()
    holds = _measure(bench, "holds", lambda: bench.general_admission(deployment), lambda: _holds(deployment))
    joins = _measure(bench, "joins", lambda: bench.joins(deployment), lambda: raw_requests.joins(60_000))
    checkouts = _measure(
        bench, "checkouts", lambda: bench.checkouts(deployment), lambda: bench.checkouts_to_send(deployment)
    )
    with bench.profiled("overload", deployment):
        _open(bench, statistics.median(holds.saturation), _holds(deployment))
    restore.remove_holds(deployment)
    for what, found in (("holds", holds), ("joins", joins), ("checkouts", checkouts)):
        of_open = [load.good_rate for load in found.open]
        of_obedient = [served.good_rate for served in found.obedient]
        limits = [P99_MS] * bench.rounds
        findings.ratios += [
            compare(f"{what}-3x", f"{what} at three times their saturation, open loop ÷ saturation", of_open,
                    found.saturation, acceptable=0.9, goal=0.95),
            compare(f"{what}-3x-p99", "p99 of all its responses ÷ 500 ms", [load.p99_ms for load in found.open], limits,
                    acceptable=1, goal=0.5, better="lower", unit="ms"),
            compare(f"{what}-10x", f"{what} of ten times the clients, which obey Retry-After ÷ saturation", of_obedient,
                    found.saturation, acceptable=0.9, goal=0.95),
            compare(f"{what}-10x-p99", "p99 of all its responses ÷ 500 ms", [one.p99_ms for one in found.obedient],
                    limits, acceptable=1, goal=0.5, better="lower", unit="ms"),
        ]  # fmt: skip
        findings.facts.append(_fact(what, found))
    return findings


def _measure(bench: Bench, what: str, saturation: Callable[[], float], requests: Callable[[], list[bytes]]) -> _Rounds:
    found = _Rounds()
    for number in range(bench.rounds + 1):
        rate = saturation()
        load = _open(bench, rate, requests())
        restore.remove_holds(bench.deployment)
        served = retries.send(bench.deployment.web_port, requests(), seconds=bench.seconds, clients=CLIENTS)
        restore.remove_holds(bench.deployment)
        if unexpected := set(load.statuses) - {200, 201, 202, 503}:
            raise SuiteFailed(f"{what} at {TIMES} times the load had the statuses {unexpected}")
        if served.others:
            raise SuiteFailed(f"{served.others} of the {what} had other responses than 2xx and 503")
        # As in every row, the first round is not counted.
        if number:
            bench.say(
                f"  {what}: saturation {rate:,.0f}/s; open loop {load.good_rate:,.0f}/s of {load.offered_rate:,.0f}/s, "
                f"p99 {load.p99_ms:,.0f} ms; {CLIENTS:,} clients {served.good_rate:,.0f}/s, p99 {served.p99_ms:,.0f} ms"
            )
            found.saturation.append(rate)
            found.open.append(load)
            found.obedient.append(served)
            bench.shares.append(load.generator_share)
    return found


def _open(bench: Bench, rate: float, requests: list[bytes]) -> arrivals.Load:
    return arrivals.send(
        bench.deployment.web_port, requests, rate=TIMES * rate, seconds=bench.seconds + 1, connections=CONNECTIONS
    )


def _holds(deployment: Deployment) -> list[bytes]:
    return raw_requests.general_admission_holds("arena", deployment.facts["floor"], deployment.tokens("arena"))


def _fact(what: str, found: _Rounds) -> Fact:
    offered, answered = (sum(getattr(load, name) for load in found.open) for name in ("offered", "answered"))
    middle = statistics.median
    return Fact(
        f"{what.capitalize()} at {TIMES} times their saturation",
        f"{middle(load.offered_rate for load in found.open):,.0f}/s requested, "
        f"{middle(load.good_rate for load in found.open):,.0f}/s granted; p99 of what was granted "
        f"{middle(load.good_p99_ms for load in found.open):,.0f} ms; {answered / offered:.2%} with a response. "
        f"{CLIENTS:,} clients: {middle(served.refused_rate for served in found.obedient):,.0f}/s refused",
    )
