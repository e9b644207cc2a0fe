"""Row 3: general admission on one section over HTTP beside PostgreSQL's own hot row."""

from benchmarks.suite.baselines import postgres_alone
from benchmarks.suite.bench import Bench
from benchmarks.suite.results import Findings, compare, in_turn


def run(bench: Bench) -> Findings:
    house = bench.house
    found = in_turn(
        bench.rounds,
        {
            "house": lambda: bench.places(house),
            "row": lambda: postgres_alone.rate(house, postgres_alone.HOLD_PLACES, bench.seconds),
            "lean": lambda: postgres_alone.rate(house, postgres_alone.LEAN_PLACES, bench.seconds),
        },
        bench.say,
    )
    with bench.profiled("3", house):
        bench.places(house)
    ours = found["house"]
    return Findings(
        [
            compare("3", "general admission, one section, 128 buyers ÷ pgbench on that row, 32 clients", ours,
                    found["row"], acceptable=3, goal=8),
            compare("3-lean", "the same ÷ pgbench on lean tables", ours, found["lean"], acceptable=None, goal=None),
        ]
    )  # fmt: skip
