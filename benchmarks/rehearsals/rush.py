"""Rehearsal of a rush: 20,000 buyers without a waiting room want 10,000 tickets, then as many 5,000 seats.

    python -m benchmarks.rehearsals.rush [--buyers 20000] [--connections 512] [--tickets 10000] [--seats 5000]

Starts its own durable servers and every process of the Procfile with its commands. For each of the two events all
buyers arrive at once over HTTP, and at most `--connections` of their requests are in progress: each joins, holds two
tickets, checks out, pays with a card whose success the provider reports later, and polls its order until it has
tickets. In the hall a buyer first wants two neighboring seats by name, and then the best available in one section after
the other. Then mail catches up, and `audit` and `reconcile` run.

Prints, from the ledger, the seconds from the first hold to the last tickets, and how long it takes until the last buyer
has seen tickets (their polls wait for a connection behind the joins of those who will find nothing). With `--plot` it
writes an SVG of holds, orders, tickets and mails over the seconds. Exit status 1 unless every unit is sold to an order
with tickets, each buyer has two or none, and both commands find nothing.
"""

import argparse
import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.suite import systems
from benchmarks.suite.systems import CHECKOUT, Deployment
from benchmarks.support import purchases, time_chart
from benchmarks.support.time_chart import Line, Panel
from ticketing.devserver import postgres
from ticketing.devserver.ports import free_port

FLOOR, HALL = "rush-floor", "rush-hall"
SECTIONS, SEATS_PER_ROW = 5, 40
PAID_BY = "sandbox_delayed"
MAIL_SECONDS_MAX = 1_800.0
_PENDING = """
SELECT count(*) FROM outbox_outboxmessage
WHERE done_at IS NULL AND dead_at IS NULL AND topic NOT IN ('orders.ask', 'orders.reconcile_payment')
"""
_SOLD = """
SELECT (SELECT count(*) FROM orders_ticket AS ticket JOIN orders_order AS one ON one.id = ticket.order_id
        WHERE one.event_id = event.id AND one.status = 'confirmed' AND ticket.voided_at IS NULL),
       (SELECT count(*) FROM orders_order AS one WHERE one.event_id = event.id AND one.status = 'confirmed'),
       (SELECT count(*) FROM (SELECT FROM reservations_reservation AS owner
                              WHERE owner.event_id = event.id AND owner.status = 'confirmed'
                              GROUP BY owner.buyer HAVING count(*) > 1) AS twice),
       (SELECT extract(epoch FROM max(ticket.issued_at) - min(owner.created_at))::float8
        FROM orders_ticket AS ticket
        JOIN orders_order AS one ON one.id = ticket.order_id
        JOIN reservations_reservation AS owner ON owner.id = one.reservation_id
        WHERE one.event_id = event.id)
FROM events_event AS event WHERE event.slug = %s
"""
_MOMENTS = """
SELECT extract(epoch FROM owner.created_at)::float8, extract(epoch FROM one.placed_at)::float8,
       (SELECT extract(epoch FROM min(ticket.issued_at))::float8 FROM orders_ticket AS ticket
        WHERE ticket.order_id = one.id),
       extract(epoch FROM one.tickets_sent_at)::float8
FROM orders_order AS one
JOIN reservations_reservation AS owner ON owner.id = one.reservation_id
JOIN events_event AS event ON event.id = one.event_id
WHERE event.slug = %s AND one.status = 'confirmed'
"""


@dataclass(frozen=True)
class Result:
    slug: str
    seconds: float
    """From the first request to the last tickets that a buyer saw."""
    began_at: float
    bought: int
    refused: int
    """Buyers for whom nothing was left."""
    postponed: int
    """Requests that were asked to come back later."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--buyers", type=int, default=20_000, help="of each event")
    parser.add_argument("--connections", type=int, default=512)
    parser.add_argument("--tickets", type=int, default=10_000)
    parser.add_argument("--seats", type=int, default=5_000)
    parser.add_argument("--plot", type=Path, help="write the plot to this file")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = Path(tempfile.mkdtemp(prefix="fairgate-rush-"))
    folder.chmod(0o755)  # The servers may run as another account.
    print(f"Logs: {folder}; load average {os.getloadavg()[0]:.1f}", flush=True)
    with systems.bench_servers(folder) as servers, ExitStack() as until:
        deployment = create_deployment(servers, tickets=options.tickets, seats=options.seats)
        until.enter_context(systems.running(deployment))
        for name in ("worker", "beat", "mailer"):
            until.enter_context(systems.started(servers, name, systems.command_of(name), deployment.environment))
        results = [_rush(deployment, slug, options, _wanted(slug, options)) for slug in (FLOOR, HALL)]
        return _verdict(deployment, options, results)


def create_deployment(servers: systems.BenchServers, *, tickets: int, seats: int) -> Deployment:
    """Create a database with both events, on sale now, without waiting rooms."""
    port, site_port = free_port(), free_port()
    environment = {
        **servers.environment(postgres.OWNER, 1),
        "PORT": str(port),
        "SITE_PORT": str(site_port),
        "SITE_URL": f"http://127.0.0.1:{port}",
        "BEAT_FILE": str(servers.folder / "celerybeat"),
        "METRICS_FOLDER": str(servers.folder / "metrics"),
    }
    rows = ["section,row,seat,x,y,category,accessible"]
    for seat in range(seats):
        section, index = _place(seat, seats)
        row, number = divmod(index, SEATS_PER_ROW)
        rows.append(f"Block {section + 1},{row + 1},{number + 1},{section * 1000 + number * 20},{row * 25},Seat,no")
    plan = servers.folder / "hall.csv"
    plan.write_text("\n".join(rows))
    starts = (datetime.now(UTC) + timedelta(days=30)).isoformat(timespec="seconds")
    common = ["--timezone", "UTC", "--starts", starts, "--currency", "EUR", "--per-buyer", "2"]
    for slug, more in (
        (FLOOR, ["--general-admission", f"Floor:{tickets}:4000"]),
        (HALL, ["--plan", str(plan), "--price", "Seat:6000"]),
    ):
        command = [sys.executable, "manage.py", "create_event", slug, "--name", slug.title(), "--venue", "The Hall"]
        systems.run(servers, f"create-{slug}", [*command, *common, *more], environment)
    return Deployment(servers, "rush", postgres.OWNER, environment, servers.folder)


def _place(seat: int, seats: int) -> tuple[int, int]:
    """Return the section of this seat, and its number there."""
    return divmod(seat, seats // SECTIONS)


def _wanted(slug: str, options: argparse.Namespace) -> list[list[dict[str, Any]]]:
    """Return what each buyer wants, in order of preference."""
    if slug == FLOOR:
        return [[{"ga_section": "floor", "ga_quantity": 2}]] * options.buyers
    chance = random.Random(21)  # noqa: S311 - the same choices in every run
    wanted = []
    for _ in range(options.buyers):
        section, index = _place(2 * chance.randrange(options.seats // 2), options.seats)
        row, number = divmod(index, SEATS_PER_ROW)
        name = f"block-{section + 1}-{row + 1}-"
        named: dict[str, Any] = {"seats": [f"{name}{number + 1}", f"{name}{number + 2}"]}
        blocks = chance.sample(range(1, SECTIONS + 1), SECTIONS)
        wanted.append([named, *({"best_available": {"section": f"block-{block}", "quantity": 2}} for block in blocks)])
    return wanted


def _rush(
    deployment: Deployment, slug: str, options: argparse.Namespace, wanted: Sequence[list[dict[str, Any]]]
) -> Result:
    print(f"{slug}: {options.buyers:,} buyers …", flush=True)
    began_at, begun = time.time(), time.monotonic()
    moments, postponed = asyncio.run(_buy(deployment.web_port, slug, options.connections, wanted))
    bought = [moment for moment in moments if moment is not None]
    result = Result(slug, max(bought) - begun, began_at, len(bought), len(moments) - len(bought), postponed)
    print(
        f"  {result.seconds:.1f} s until the last buyer has seen tickets: {result.bought:,} bought, "
        f"{result.refused:,} found nothing, {result.postponed:,} requests were asked to come back",
        flush=True,
    )
    return result


async def _buy(
    port: int, slug: str, connections: int, wanted: Sequence[list[dict[str, Any]]]
) -> tuple[list[float | None], int]:
    async with purchases.open_shop(port, connections) as shop:

        async def visit(number: int, selections: list[dict[str, Any]]) -> float | None:
            visitor = f"{slug}-{number}"
            token = await purchases.join(shop, slug, visitor)
            return await purchases.buy(shop, slug, visitor, token, selections, payment_method=PAID_BY)

        moments = await asyncio.gather(*(visit(*each) for each in enumerate(wanted)))
        return list(moments), shop.refused_count


def _verdict(deployment: Deployment, options: argparse.Namespace, results: Sequence[Result]) -> int:
    failed = []
    with deployment.ledger() as ledger:
        began = time.monotonic()
        while (left := ledger.execute(_PENDING).fetchall()) != [(0,)] and time.monotonic() < began + MAIL_SECONDS_MAX:
            time.sleep(0.5)
        print(
            f"mail caught up {time.monotonic() - began:.0f} s after the last sale" if left == [(0,)] else "mail is late"
        )
        if left != [(0,)]:
            failed.append("mail")
        for result, units in zip(results, (options.tickets, options.seats), strict=True):
            ((tickets, orders, twice, seconds),) = ledger.execute(_SOLD, [result.slug]).fetchall()
            print(f"{result.slug}: {tickets:,} of {units:,} units have tickets ({orders:,} orders), {seconds:.1f} s")
            if (tickets, orders, twice) != (units, result.bought, 0):
                failed.append(result.slug)
        if options.plot:
            options.plot.write_text(time_chart.draw(list(_panels(ledger, results)), "A rush of 20,000 buyers"))
    return conclude(deployment, failed)


def conclude(deployment: Deployment, failed: list[str]) -> int:
    """Run `audit` and `reconcile`, print what has failed, and return the exit status."""
    for command in ("audit", "reconcile"):
        print(f"--- {command}", flush=True)
        if subprocess.run(
            [sys.executable, "manage.py", command], cwd=CHECKOUT, env=deployment.environment, check=False
        ).returncode:
            failed.append(command)
    print(f"load average {os.getloadavg()[0]:.1f}; " + (f"FAILED: {', '.join(failed)}" if failed else "all is well"))
    return int(bool(failed))


def _panels(ledger: psycopg.Connection[Any], results: Sequence[Result]) -> Iterator[Panel]:
    for result in results:
        rows = ledger.execute(_MOMENTS, [result.slug]).fetchall()
        columns = zip(*rows, strict=True)
        titles = ("holds", "orders", "tickets", "mails")
        yield Panel(
            f"{result.slug}: orders after so many seconds",
            [
                Line(title, sorted(moment - result.began_at for moment in column if moment is not None))
                for title, column in zip(titles, columns, strict=True)
            ],
        )


if __name__ == "__main__":
    sys.exit(main())
