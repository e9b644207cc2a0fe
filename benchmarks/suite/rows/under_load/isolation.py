"""Row 12: hold latency of one event while another has three times its sustainable load."""

import tempfile
from pathlib import Path

from benchmarks.suite import restore
from benchmarks.suite.bench import Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.load import arrivals, raw_requests
from benchmarks.suite.results import Findings, compare, in_turn
from benchmarks.suite.systems import Deployment

TIMES = 3
CONNECTIONS = 512
QUIET_EVENT = "show-01"
QUIET_RATE = 50.0


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    saturation = bench.general_admission(deployment)

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
            arrivals.finish(overload)
        restore.remove_holds(deployment)
        return _p50_ms(load)

    found = in_turn(bench.rounds, {"beside overload": beside_overload, "alone": quiet}, bench.say)
    with bench.profiled("12", deployment):
        beside_overload()
    title = "hold p50 of one event while another has 3 times its saturation load ÷ alone"
    ratio = compare(
        "12", title, found["beside overload"], found["alone"], acceptable=2, goal=2, better="lower", unit="ms"
    )
    return Findings([ratio])


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
