"""Row 12: hold latency of one event while another has three times its sustainable load. Reported without a verdict: the
responses at saturation and at three times that.
"""

import statistics
import tempfile
from pathlib import Path

from benchmarks.suite import restore
from benchmarks.suite.bench import BUYERS, Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import arrivals, raw_requests
from benchmarks.suite.results import Fact, Findings, compare, in_turn
from benchmarks.suite.systems import Deployment

TIMES = 3
CONNECTIONS = 512
QUIET_EVENT = "show-01"
QUIET_RATE = 50.0


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    saturation = bench.general_admission(deployment)
    overloads: list[arrivals.Load] = []

    def quiet() -> float:
        load = arrivals.send(
            deployment.web_port, _quiet_requests(deployment), rate=QUIET_RATE, seconds=bench.seconds, connections=16
        )
        restore.remove_holds(deployment)
        return _p50_ms(load)

    def beside_overload() -> float:
        with tempfile.TemporaryDirectory(prefix="fairgate-overload-") as made:
            folder = Path(made)
            overload = arrivals.begin(
                deployment.web_port, _busy_requests(deployment), rate=TIMES * saturation, seconds=bench.seconds + 1,
                connections=CONNECTIONS, folder=folder,
            )  # fmt: skip
            quiet_load = arrivals.begin(
                deployment.web_port,
                _quiet_requests(deployment),
                rate=QUIET_RATE,
                seconds=bench.seconds,
                connections=16,
                folder=folder,
            )
            load = arrivals.finish(quiet_load)
            overloads.append(arrivals.finish(overload))
        restore.remove_holds(deployment)
        return _p50_ms(load)

    found = in_turn(bench.rounds, {"beside overload": beside_overload, "alone": quiet}, bench.say)
    with bench.profiled("12", deployment):
        beside_overload()
    at_saturation = [_at(bench, deployment, saturation, BUYERS) for _ in range(bench.rounds)]
    title = "hold p50 of one event while another has 3 times its saturation load ÷ alone"
    ratio = compare(
        "12", title, found["beside overload"], found["alone"], acceptable=2, goal=2, better="lower", unit="ms"
    )
    return Findings([ratio], [_fact("at saturation", at_saturation), _fact("at 3 times that", overloads[1:])])


def _at(bench: Bench, deployment: Deployment, rate: float, connections: int) -> arrivals.Load:
    load = arrivals.send(
        deployment.web_port, _busy_requests(deployment), rate=rate, seconds=bench.seconds, connections=connections
    )
    restore.remove_holds(deployment)
    return load


def _busy_requests(deployment: Deployment) -> list[bytes]:
    return raw_requests.general_admission_holds("arena", deployment.facts["floor"], deployment.tokens("arena"))


def _quiet_requests(deployment: Deployment) -> list[bytes]:
    return raw_requests.general_admission_holds(QUIET_EVENT, "floor", deployment.tokens(QUIET_EVENT))


def _p50_ms(load: arrivals.Load) -> float:
    """Return the median latency, with the full waiting time for requests without a response. Raises SuiteFailed for
    refusals, which are fast and would look like low latency."""
    if load.answered - load.good > load.offered * 0.1:
        raise SuiteFailed(f"the quiet event: {load.good} of {load.offered} holds granted: {load.statuses}")
    return load.p50_ms


def _fact(when: str, loads: list[arrivals.Load]) -> Fact:
    middle = statistics.median
    offered, answered = sum(load.offered for load in loads), sum(load.answered for load in loads)
    kinds = sorted({status for load in loads for status in load.statuses})
    of_kinds = ", ".join(f"{kind}: {sum(load.statuses.get(kind, 0) for load in loads):,}" for kind in kinds)
    requested, held = middle(load.offered_rate for load in loads), middle(load.good_rate for load in loads)
    return Fact(
        f"Holds {when} (target: 500 ms, 99.99 % with a response)",
        f"{requested:,.0f}/s requested, {held:,.0f}/s granted; p99 of all responses "
        f"{middle(load.p99_ms for load in loads):,.0f} ms, of granted holds "
        f"{middle(load.good_p99_ms for load in loads):,.0f} ms; {answered / offered:.2%} with a response ({of_kinds})",
    )
