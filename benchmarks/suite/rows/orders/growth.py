"""Row sale-growth: the processor time of a sale, mail apart, with few and with many orders in the database.

Each number of orders has a small deployment of its own, with the same event on sale and all processes. They sell in
turn.
"""

import sys
from contextlib import ExitStack
from dataclasses import replace

from benchmarks.suite import systems
from benchmarks.suite.bench import Bench
from benchmarks.suite.results import Findings, compare, in_turn
from benchmarks.suite.rows.orders import sales
from benchmarks.suite.systems import Deployment

SIZES = (5_000, 2_500, 5_000, 2)
"""Seats, old reservations, waiting visitors and small events of each."""
FIRST_REDIS_NUMBER = 5


def run(bench: Bench) -> Findings:
    counts = sorted(bench.orders)
    made = {count: _make(bench, number, count) for number, count in enumerate(counts, FIRST_REDIS_NUMBER)}
    with ExitStack() as until:
        for deployment in made.values():
            until.enter_context(systems.running(deployment))
            command = systems.command_of("worker")
            name = f"{deployment.name}-worker"
            deployment.processes["worker"] = until.enter_context(
                systems.started(bench.servers, name, command, deployment.environment)
            )
        slices = {
            count: sales.Slices(replace(bench, deployment=deployment), send_mails=False)
            for count, deployment in made.items()
        }
        in_turn(bench.rounds, {f"{count:,} orders": one.sell for count, one in slices.items()}, bench.say)
    least = counts[0]
    # The first of each is the warm-up.
    of_sales = {count: one.of_sales[-bench.rounds :] for count, one in slices.items()}
    return Findings(
        [
            compare(
                f"sale-growth-{count}", f"processor of a sale with {count:,} orders in the database ÷ with {least:,}",
                of_sales[count], of_sales[least], acceptable=1.3, goal=1.1, better="lower", unit="ms",
            )
            for count in counts[1:]
        ]
    )  # fmt: skip


def _make(bench: Bench, redis_number: int, count: int) -> Deployment:
    deployment = systems.make_deployment(bench.servers, f"orders_{count}", redis_number, SIZES)
    command = [sys.executable, "-m", "benchmarks.suite.old_orders", str(count)]
    systems.run(bench.servers, f"filling-orders-{count}", command, deployment.environment)
    return deployment
