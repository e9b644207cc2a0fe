"""Row 5: sold-out responses to holds, compared with status polls."""

from benchmarks.suite.bench import Bench
from benchmarks.suite.results import Findings, compare, in_turn


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    found = in_turn(
        bench.rounds,
        {"refusals": lambda: bench.refusals(deployment), "polls": lambda: bench.polls(deployment)},
        bench.say,
    )
    with bench.profiled("5", deployment):
        bench.refusals(deployment)
    ratio = compare(
        "5", "sold-out refusals ÷ status polls", found["refusals"], found["polls"], acceptable=0.6, goal=0.9
    )
    return Findings([ratio])
