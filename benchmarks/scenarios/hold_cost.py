"""What a hold costs with few and with very many seats in the database.

    python -m benchmarks.scenarios.hold_cost [--sizes 1000,100000,1000000] [--rounds 7] [--alone 40] [--together 32]

Each size is a database of its own in one server that would survive a power cut: events of up to 200,000 seats in
sections of up to 10,000, all vacuumed and analyzed. Holds go through `service.hold` on a connection like a batcher's,
one at a time and in batches, in random events: two named seats, the best two of any section (a batch reads each of its
sections once), the best two of one section, two general-admission tickets. Each round measures every database in a new
random order and then removes its holds. The figures are medians of the rounds. CPU time includes the caller's process
and its PostgreSQL backend.

A size followed by index names, as in `100000-seat_inventory_event`, is a database without these indexes: it shows what
they cost a hold.
"""

import argparse
import multiprocessing
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from benchmarks.support import halls
from benchmarks.support.rooms import start_servers

EVENT_SEATS_MAX = 200_000
SECTION_SEATS_MAX = 10_000
EARLIER_HOLDS = 10_000
"""Holds made before the measurement, so that no table is empty."""
KINDS = {
    "named": "two named seats",
    "best": "best two, in any section",
    "section": "best two, all in one section",
    "general_admission": "general admission",
}


@dataclass(frozen=True)
class Cost:
    """The cost of one hold."""

    wall_us: float
    cpu_us: float
    wal_bytes: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,100000,1000000")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--alone", type=int, default=40, help="holds one by one, per round, size and kind")
    parser.add_argument("--together", type=int, default=32, help="holds in one batch")
    options = parser.parse_args()
    with start_servers(durable=True) as servers:
        assert servers.postgres is not None
        measure(
            options.sizes.split(","), options.rounds, options.alone, options.together, servers.postgres.superuser_url()
        )


def measure(sizes: list[str], rounds: int, alone: int, together: int, superuser_url: str) -> None:
    spawn = multiprocessing.get_context("spawn")
    pipes: dict[str, Connection] = {}
    processes = []
    for size in sizes:
        begun = time.perf_counter()
        url = copy_database(f"seats_{len(pipes)}")
        pipes[size], theirs = spawn.Pipe()
        process = spawn.Process(target=serve, args=(theirs, url, size), daemon=True)
        process.start()
        processes.append(process)
        assert pipes[size].recv() == "filled"
        print(f"# {size}: {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    with psycopg.connect(superuser_url, autocommit=True) as on:
        # The first change of a page after a checkpoint writes the whole page to the log; all databases start equal.
        on.execute("CHECKPOINT")
    batches = {"alone": [1] * alone, f"{together} at once": [together] * 2}
    found: dict[tuple[str, str, str], list[Cost]] = {}
    for number in range(rounds + 1):
        print(f"# round {number} of {rounds}, load {os.getloadavg()[0]:.0f}", file=sys.stderr)
        for kind in KINDS:
            for way, sizes_of_batches in batches.items():
                for size in random.sample(sizes, len(sizes)):
                    pipes[size].send((kind, sizes_of_batches))
                    cost = pipes[size].recv()
                    if isinstance(cost, BaseException):
                        raise cost
                    if number:  # The first one warms up.
                        found.setdefault((kind, way, size), []).append(cost)
    for pipe in pipes.values():
        pipe.send(None)
    for process in processes:
        process.join(timeout=30)
    print_table(found, sizes)


def print_table(found: dict[tuple[str, str, str], list[Cost]], sizes: Sequence[str]) -> None:
    print("\n| hold | seats in the database | CPU time | | wall time | | log written |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for kind, way in dict.fromkeys((kind, way) for kind, way, _ in found):

        def middle(size: str, of: Callable[[Cost], float], kind: str = kind, way: str = way) -> float:
            return statistics.median(of(cost) for cost in found[kind, way, size])

        for size in sizes:
            cpu, wall = middle(size, lambda cost: cost.cpu_us), middle(size, lambda cost: cost.wall_us)
            first_cpu, first_wall = (
                middle(sizes[0], lambda cost: cost.cpu_us),
                middle(sizes[0], lambda cost: cost.wall_us),
            )
            seats, _, without = size.partition("-")
            print(
                f"| {KINDS[kind]}, {way} | {int(seats):,}{f' without {without}' if without else ''} "
                f"| {cpu:,.0f} µs | {cpu / first_cpu:.2f} | {wall:,.0f} µs | {wall / first_wall:.2f} "
                f"| {middle(size, lambda cost: cost.wal_bytes):,.0f} B |"
            )


def copy_database(name: str) -> str:
    """Create a copy of the migrated database, without events, and return its URL."""
    from django.db import connections

    connections.close_all()
    url = os.environ["DATABASE_URL"]
    parts = urlsplit(url)
    with psycopg.connect(parts._replace(path="/postgres").geturl(), autocommit=True) as on:
        on.execute(f"CREATE DATABASE {name} TEMPLATE {parts.path[1:]}")  # type: ignore[call-overload]
    return parts._replace(path=f"/{name}").geturl()


def serve(pipe: Connection, url: str, size: str) -> None:
    os.environ["DATABASE_URL"] = os.environ["DATABASE_DIRECT_URL"] = url
    import django

    django.setup()
    holder = Holder(size)
    pipe.send("filled")
    while (order := pipe.recv()) is not None:
        try:
            pipe.send(holder.cost(*order))
        except BaseException as error:  # noqa: BLE001 - Raised by the receiver.
            pipe.send(error)


class Holder:
    """A filled database and one connection that makes holds in it."""

    def __init__(self, size: str) -> None:
        from django.db import connection

        from apps.kernel.db import pools

        seats, *without = size.split("-")
        self._halls = [
            halls.make_seated_event(
                f"hall-{first}",
                sections=max(1, count // SECTION_SEATS_MAX),
                seats_per_section=min(count, SECTION_SEATS_MAX),
                floor=1_000_000,
            )
            for first in range(0, int(seats), EVENT_SEATS_MAX)
            for count in [min(EVENT_SEATS_MAX, int(seats) - first)]
        ]
        with connection.cursor() as cursor:
            for index in without:
                cursor.execute(f"DROP INDEX {index}")
        self._pool = pools.create_pool("hold-cost", size_max=1, connect_ms=10_000, prepares=True)
        self._pool.open()
        self._random = random.Random(4)  # noqa: S311
        self._next = dict.fromkeys(range(len(self._halls)), 0)
        self._hold_earlier()
        halls.vacuum_tables()
        with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as on:
            on.execute("VACUUM ANALYZE")
        self._pool.close()
        # A new session plans its statements for the tables as they are now.
        self._pool = pools.create_pool("hold-cost", size_max=1, connect_ms=10_000, prepares=True)
        self._pool.open()

    def _hold_earlier(self) -> None:
        for _ in range(0, EARLIER_HOLDS, 100):
            self._hold(self._make_requests("general_admission", 100))

    def _make_requests(self, kind: str, count: int) -> list[Any]:
        from apps.events import facade as events
        from apps.reservations.holds.seat_choice.best_available import BestAvailable

        any_hall, any_section = self._random.randrange(len(self._halls)), self._random.randrange(1_000)
        chosen = [any_hall if kind == "section" else self._random.randrange(len(self._halls)) for _ in range(count)]
        numbers: dict[int, list[int]] = {}
        for index in set(chosen):
            needed = chosen.count(index)
            begin, self._next[index] = self._next[index], self._next[index] + needed
            halls.admit_buyers(self._halls[index].event, range(begin, begin + needed))
            numbers[index] = list(range(begin, begin + needed))
        pairs = {
            index: self._random.sample(range(self._halls[index].seat_count // 2), chosen.count(index))
            for index in set(chosen)
        }
        requests = []
        for index in chosen:
            hall, number = self._halls[index], numbers[index].pop()
            if kind == "named":
                first = hall.first_seat + 2 * pairs[index].pop()
                requests.append(halls.make_hold_request(hall, number, seats=[first, first + 1]))
            elif kind in ("best", "section"):
                sections = [one for one in events.list_sections(hall.event.id) if not one.is_general_admission]
                index_of = any_section if kind == "section" else self._random.randrange(1_000)
                best = BestAvailable(sections[index_of % len(sections)].id, 2)
                requests.append(halls.make_hold_request(hall, number, best=best))
            else:
                requests.append(halls.make_hold_request(hall, number, quantity=2))
        return requests

    def cost(self, kind: str, batches: list[int]) -> Cost:
        """Return the cost of one hold, the average over batches of these sizes, and remove the holds."""
        from apps.kernel.db import transactions
        from apps.reservations.holds import service

        requests = self._make_requests(kind, sum(batches))
        with self._pool.connection() as on:
            write = transactions.writes_on(on)
            pid = on.info.backend_pid
            log, cpu_before, cpu, begun = (
                log_position(on),
                backend_cpu_us(pid),
                time.process_time(),
                time.perf_counter(),
            )
            rest, outcomes = requests, []
            for count in batches:
                outcomes += service.hold(rest[:count], write)
                rest = rest[count:]
            wall = time.perf_counter() - begun
            cpu_us = 1e6 * (time.process_time() - cpu) + backend_cpu_us(pid) - cpu_before
            written = log_position(on) - log
            assert all(isinstance(outcome, service.Held) for outcome in outcomes), outcomes
            self._remove_holds(on, outcomes)
        return Cost(1e6 * wall / len(requests), cpu_us / len(requests), written / len(requests))

    def _hold(self, requests: list[Any]) -> None:
        from apps.kernel.db import transactions
        from apps.reservations.holds import service

        with self._pool.connection() as on:
            outcomes = service.hold(requests, transactions.writes_on(on))
            assert all(isinstance(outcome, service.Held) for outcome in outcomes), outcomes

    def _remove_holds(self, on: Any, outcomes: list[Any]) -> None:
        from apps.kernel.db import transactions
        from apps.reservations.lifecycle.release import end_reservations
        from apps.reservations.models import Reservation

        ended = {outcome.reservation_id: "pending_payment" for outcome in outcomes}
        with transactions.write_on(on, statement_ms=60_000) as cursor:
            end_reservations(cursor, ended, Reservation.Status.CANCELED, who="benchmark", why="measured")
        on.execute("VACUUM reservations_seatinventory, reservations_generaladmissioninventory")


def log_position(on: Any) -> int:
    ((position,),) = on.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchall()
    return int(position)


def backend_cpu_us(pid: int) -> float:
    """Return the CPU time of this process according to the scheduler, which counts nanoseconds."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1_000


if __name__ == "__main__":
    main()
