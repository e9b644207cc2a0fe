"""Row 4: holds of two named seats in one section over HTTP, compared with PostgreSQL alone and with idiomatic
Django."""

from benchmarks.suite.baselines import postgres_alone
from benchmarks.suite.baselines.idiomatic import server
from benchmarks.suite.bench import BUYERS, Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.results import Findings, compare, in_turn

IDIOMATIC_HOLDS = 20_000


def run(bench: Bench) -> Findings:
    deployment = bench.deployment
    with server.running(deployment) as port:

        def idiomatic() -> float:
            found = bench.flow(port, server.holds(IDIOMATIC_HOLDS), connections=BUYERS)
            if found.refused:
                raise SuiteFailed(f"the idiomatic shop refused {found.refused} of {found.responses} holds")
            server.restore(deployment)
            return found.good_rate

        found = in_turn(
            bench.rounds,
            {
                "ours": lambda: bench.seats(deployment),
                "alone": lambda: postgres_alone.rate(deployment, postgres_alone.HOLD_SEATS, bench.seconds),
                "counted": lambda: postgres_alone.rate(deployment, postgres_alone.HOLD_SEATS_COUNTED, bench.seconds),
                "idiomatic": idiomatic,
                "lean": lambda: postgres_alone.rate(deployment, postgres_alone.LEAN_SEATS, bench.seconds),
            },
            bench.say,
        )
    with bench.profiled("4", deployment):
        bench.seats(deployment)
    ours = found["ours"]
    return Findings(
        [
            compare("4a", "two named seats, one hot section, 128 buyers ÷ pgbench, one statement, 32 clients", ours,
                    found["alone"], acceptable=0.6, goal=1.2),
            compare("4b", "the same ÷ pgbench with a hot counter of the section", ours, found["counted"],
                    acceptable=2, goal=3),
            compare("4c", "the same ÷ the idiomatic DRF and ORM hold", ours, found["idiomatic"],
                    acceptable=5, goal=8),
            compare("4-lean", "the same ÷ pgbench on lean tables", ours, found["lean"], acceptable=None, goal=None),
        ]
    )  # fmt: skip
