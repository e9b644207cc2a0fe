"""Row 6: joins over HTTP, compared with one INSERT per transaction."""

from benchmarks.suite.baselines import postgres_alone
from benchmarks.suite.bench import Bench
from benchmarks.suite.results import Findings, compare, in_turn


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    found = in_turn(
        bench.rounds,
        {
            "ours": lambda: bench.joins(deployment),
            "alone": lambda: postgres_alone.rate(deployment, postgres_alone.JOIN, bench.seconds),
        },
        bench.say,
    )
    with bench.profiled("6", deployment):
        bench.joins(deployment)
    title = "joins over HTTP, 128 at once ÷ pgbench, one INSERT in a transaction, 32 clients"
    return Findings([compare("6", title, found["ours"], found["alone"], acceptable=0.5, goal=1)])
