"""Row 6: joins over HTTP beside an INSERT for each."""

from benchmarks.suite.baselines import postgres_alone
from benchmarks.suite.bench import Bench
from benchmarks.suite.results import Findings, compare, in_turn


def run(bench: Bench) -> Findings:
    house = bench.house
    found = in_turn(
        bench.rounds,
        {
            "house": lambda: bench.joins(house),
            "alone": lambda: postgres_alone.rate(house, postgres_alone.JOIN, bench.seconds),
        },
        bench.say,
    )
    with bench.profiled("6", house):
        bench.joins(house)
    title = "joins over HTTP, 128 at once ÷ pgbench, one INSERT in a transaction, 32 clients"
    return Findings([compare("6", title, found["house"], found["alone"], acceptable=0.5, goal=1)])
