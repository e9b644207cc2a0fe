"""Rehearsal of a crash of PostgreSQL while buyers arrive at a steady rate.

    python -m benchmarks.rehearsals.outage [--rate 25] [--seconds 40] [--kill-after 20]

Starts its own durable servers and every process of the Procfile with its commands. Each buyer joins, holds two tickets,
checks out, pays with a card whose success the provider reports later, and polls its order until it has tickets. After
`--kill-after` seconds one session of PostgreSQL is killed with SIGKILL: the server ends all sessions and recovers.

Prints, by the second in which they began, the median and the longest time of checkouts and of whole sales, and the
requests that were asked to come back; then how long PostgreSQL was away, and when the last of the sales that it cut had
tickets. `audit` and `reconcile` run at the end. Exit status 1 unless every buyer has tickets and both find nothing.
"""

import argparse
import asyncio
import os
import signal
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.rehearsals import rush
from benchmarks.suite import systems
from benchmarks.suite.systems import Deployment
from benchmarks.support import purchases

WARM_UP_SECONDS = 15.0
"""For the processes that deliver messages and mails to start."""
_A_SESSION = """
SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() LIMIT 1
"""


@dataclass
class Timings:
    """What the buyers saw, in seconds since the first of them came."""

    began_at: float = 0.0
    checkouts: list[tuple[float, float]] = field(default_factory=list)
    """When each began, and how long it took until it was accepted, pauses included."""
    sales: list[tuple[float, float]] = field(default_factory=list)
    """When each hold was asked for, and how long it took until the order had tickets."""
    postponed: list[float] = field(default_factory=list)
    """When each request was asked to come back."""
    killed_at: float = 0.0
    back_at: float = 0.0

    def now(self) -> float:
        return time.monotonic() - self.began_at


class _Shop(purchases.Shop):
    """Records checkouts and refusals."""

    def __init__(self, port: int, connections: int, timings: Timings) -> None:
        super().__init__(port, connections)
        self.timings = timings

    async def call(self, request: bytes) -> purchases.Response:
        began = self.timings.now()
        response = await super().call(request)
        if b"/checkout " in request.split(b"\r\n", 1)[0]:
            self.timings.checkouts.append((began, self.timings.now() - began))
        return response

    async def _send(self, request: bytes) -> purchases.Response:
        response = await super()._send(request)
        if response.status == 503:
            self.timings.postponed.append(self.timings.now())
        return response


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=float, default=25, help="buyers that arrive in a second")
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--kill-after", type=float, default=20, help="seconds")
    parser.add_argument("--connections", type=int, default=512)
    options = parser.parse_args()
    buyers = int(options.rate * options.seconds)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="fairgate-outage-"))
    folder.chmod(0o755)  # The servers may run as another account.
    print(f"Logs: {folder}; load average {os.getloadavg()[0]:.1f}", flush=True)
    with systems.bench_servers(folder) as servers, ExitStack() as until:
        deployment = rush.create_deployment(servers, tickets=2 * buyers, seats=rush.SEATS_PER_ROW * rush.SECTIONS)
        until.enter_context(systems.running(deployment))
        for name in ("worker", "beat", "mailer"):
            until.enter_context(systems.started(servers, name, systems.command_of(name), deployment.environment))
        time.sleep(WARM_UP_SECONDS)
        timings = asyncio.run(_sell(deployment, options, buyers))
        _print(timings)
        failed = [] if len(timings.sales) == buyers else ["sales"]
        return rush.conclude(deployment, failed)


async def _sell(deployment: Deployment, options: argparse.Namespace, buyers: int) -> Timings:
    timings = Timings(began_at=time.monotonic())
    shop = _Shop(deployment.web_port, options.connections, timings)

    async def visit(number: int) -> None:
        await asyncio.sleep(number / options.rate)
        visitor = f"visitor-{number}"
        token = await purchases.join(shop, rush.FLOOR, visitor)
        began = timings.now()
        wanted = [{"ga_section": "floor", "ga_quantity": 2}]
        await purchases.buy(shop, rush.FLOOR, visitor, token, wanted, payment_method=rush.PAID_BY)
        timings.sales.append((began, timings.now() - began))

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(asyncio.to_thread(_crash, deployment, timings, options.kill_after))
            for number in range(buyers):
                group.create_task(visit(number))
    finally:
        shop.close()
    return timings


def _crash(deployment: Deployment, timings: Timings, seconds: float) -> None:
    """Kill a session after these seconds, and wait until PostgreSQL answers again."""
    time.sleep(seconds)
    with deployment.ledger() as ledger:
        ((process_id,),) = ledger.execute(_A_SESSION).fetchall()
        os.kill(process_id, signal.SIGKILL)
        timings.killed_at = timings.now()
    time.sleep(0.2)  # The server has yet to notice.
    while True:
        try:
            with deployment.ledger() as ledger:
                ledger.execute("SELECT 1")
            break
        except psycopg.OperationalError:
            time.sleep(0.05)
    timings.back_at = timings.now()


def _print(timings: Timings) -> None:
    print("| second | checkouts | median, ms | longest, ms | sales | median, s | longest, s | asked to come back |")
    print("| ---: " * 8 + "|")
    checkouts, sales = _by_second(timings.checkouts), _by_second(timings.sales)
    postponed = _by_second([(moment, 0.0) for moment in timings.postponed])
    for second in sorted({*checkouts, *sales, *postponed}):
        cells: list[Any] = [second, *_cells(checkouts[second], 1000, 0), *_cells(sales[second], 1, 1)]
        print("| " + " | ".join(str(cell) for cell in [*cells, len(postponed[second])]) + " |")
    cut = [began + taken for began, taken in timings.sales if began < timings.killed_at < began + taken]
    waited = max(cut, default=timings.back_at) - timings.back_at
    print(f"PostgreSQL was away for {timings.back_at - timings.killed_at:.1f} s (from {timings.killed_at:.1f} s)")
    print(f"{len(cut)} sales were cut; the last had tickets {waited:.1f} s after its return")


def _by_second(moments: Sequence[tuple[float, float]]) -> defaultdict[int, list[float]]:
    found: defaultdict[int, list[float]] = defaultdict(list)
    for began, taken in moments:
        found[int(began)].append(taken)
    return found


def _cells(values: Sequence[float], scale: int, digits: int) -> list[Any]:
    if not values:
        return [0, "", ""]
    return [len(values), f"{scale * statistics.median(values):.{digits}f}", f"{scale * max(values):.{digits}f}"]


if __name__ == "__main__":
    sys.exit(main())
