"""Row checkout: checkouts over HTTP, compared with holds of two named seats."""

from benchmarks.suite.bench import Bench
from benchmarks.suite.results import Findings, compare, in_turn


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    found = in_turn(
        bench.rounds,
        {"checkouts": lambda: bench.checkouts(deployment), "holds": lambda: bench.seats(deployment)},
        bench.say,
    )
    with bench.profiled("checkout", deployment):
        bench.checkouts(deployment)
    title = "checkouts of two named seats over HTTP, 128 buyers ÷ holds of two named seats"
    return Findings([compare("checkout", title, found["checkouts"], found["holds"], acceptable=0.4, goal=0.6)])
