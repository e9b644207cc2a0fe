"""Row 3: general admission holds of one section over HTTP, compared with updates of one row in PostgreSQL."""

from benchmarks.suite.baselines import postgres_alone
from benchmarks.suite.bench import Bench
from benchmarks.suite.results import Findings, compare, in_turn


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    found = in_turn(
        bench.rounds,
        {
            "ours": lambda: bench.general_admission(deployment),
            "row": lambda: postgres_alone.rate(deployment, postgres_alone.HOLD_GENERAL_ADMISSION, bench.seconds),
            "lean": lambda: postgres_alone.rate(deployment, postgres_alone.LEAN_GENERAL_ADMISSION, bench.seconds),
        },
        bench.say,
    )
    with bench.profiled("3", deployment):
        bench.general_admission(deployment)
    ours = found["ours"]
    return Findings(
        [
            compare("3", "general admission, one section, 128 buyers ÷ pgbench on that row, 32 clients", ours,
                    found["row"], acceptable=3, goal=8),
            compare("3-lean", "the same ÷ pgbench on lean tables", ours, found["lean"], acceptable=None, goal=None),
        ]
    )  # fmt: skip
