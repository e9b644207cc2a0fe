"""Row 5: how fast "sold out" is said, beside a status poll."""

from benchmarks.suite.bench import Bench
from benchmarks.suite.results import Findings, compare, in_turn


def run(bench: Bench) -> Findings:
    house = bench.house
    found = in_turn(
        bench.rounds,
        {"refusals": lambda: bench.refusals(house), "polls": lambda: bench.polls(house)},
        bench.say,
    )
    with bench.profiled("5", house):
        bench.refusals(house)
    ratio = compare(
        "5", "sold-out refusals ÷ status polls", found["refusals"], found["polls"], acceptable=0.6, goal=0.9
    )
    return Findings([ratio])
