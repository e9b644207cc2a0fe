"""Row 4: two named seats over HTTP in one hot section beside PostgreSQL alone, and beside Django used idiomatically."""

from benchmarks.suite.baselines import postgres_alone
from benchmarks.suite.baselines.idiomatic import server
from benchmarks.suite.bench import BUYERS, Bench
from benchmarks.suite.errors import SuiteFailed
from benchmarks.suite.results import Findings, compare, in_turn

IDIOMATIC_HOLDS = 20_000


def run(bench: Bench) -> Findings:
    house = bench.house
    with server.opened(house) as port:

        def idiomatic() -> float:
            found = bench.flow(port, server.holds(IDIOMATIC_HOLDS), connections=BUYERS)
            if found.refused:
                raise SuiteFailed(f"the idiomatic shop refused {found.refused} of {found.answers} holds")
            server.as_before(house)
            return found.good_rate

        found = in_turn(
            bench.rounds,
            {
                "house": lambda: bench.seats(house),
                "alone": lambda: postgres_alone.rate(house, postgres_alone.HOLD_SEATS, bench.seconds),
                "counted": lambda: postgres_alone.rate(house, postgres_alone.HOLD_SEATS_COUNTED, bench.seconds),
                "idiomatic": idiomatic,
                "lean": lambda: postgres_alone.rate(house, postgres_alone.LEAN_SEATS, bench.seconds),
            },
            bench.say,
        )
    with bench.profiled("4", house):
        bench.seats(house)
    ours = found["house"]
    return Findings(
        [
            compare("4a", "two named seats, one hot section, 128 buyers ÷ pgbench, one statement, 32 clients", ours,
                    found["alone"], acceptable=0.6, goal=1.2),
            compare("4b", "the same ÷ pgbench with a hot counter of the section", ours, found["counted"],
                    acceptable=4, goal=8),
            compare("4c", "the same ÷ the idiomatic DRF and ORM hold", ours, found["idiomatic"],
                    acceptable=15, goal=25),
            compare("4-lean", "the same ÷ pgbench on lean tables", ours, found["lean"], acceptable=None, goal=None),
        ]
    )  # fmt: skip
