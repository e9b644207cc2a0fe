"""The holds of the source documents and Fairgate's, compared in one run on the same seats.

    python -m benchmarks.experiments.hold_strategies [--buyers 1,8,32,128] [--rounds 3] [--seconds 0.8] [--seats 220000]
        [--json docs/hold-strategies.json] [--svg docs/hold-strategies.svg] [--only ours] [--batchers 2x128,1x64]

Starts a PostgreSQL server that would survive a power cut (fsync and synchronous_commit on) and a Valkey server, and
removes both afterwards. Buyers are spread over two processes; each holds again as soon as it has its response. Every
hold is for two general-admission tickets of one section, or for two named seats that no other buyer requests, and
inserts a reservation, its lines and a ledger row. The strategies run in turn; the figures are medians of the rounds.

Fairgate's own strategy is the real code (`service.holds`), by threads as the site calls it and by tasks as an event
loop does. It does more for each hold than the others: it locks the buyer's queue entry and checks its admission, finds
or stores the response of the idempotency key with its fingerprint, fixes the price, keeps the entry's slot busy, and
enforces one live reservation per entry.

Before the race each strategy holds for 10,000 buyers, to show what a live hold occupies. Afterwards each sells out a
small section to 32 buyers who stop at their first refusal, and lets them compete for 300 seats; then its counts are
compared with its rows. The table shows what was sold twice or was left.
"""

import argparse
import json
import os
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.experiments import hold_memory, source_strategies
from benchmarks.support import chart, halls
from benchmarks.support.rooms import start_servers
from benchmarks.support.worker_pool import Report, WorkerPool, start_worker_pool

HALL, SMALL = "hall", "small"
SMALL_SEATS = 300
TIMEOUT_MS = 60_000
RIVALS = 32
UNITS = 250_000
MEMORY_NUMBERS = 5_000_000
"""The number of the first general admission buyer whose hold is measured."""
GENERAL_NUMBERS = 10_000_000
"""The first number of general admission buyers; buyers of seats have the numbers of the seats."""
NUMBERS_PER_SECOND = {1: 5_000, 8: 9_000, 32: 14_000, 128: 18_000}
OURS_PER_SECOND = {1: 1_500, 8: 4_000, 32: 8_000, 128: 12_000}


@dataclass(frozen=True)
class Strategy:
    key: str
    title: str
    hold: source_strategies.Hold | str | None = None
    """A function of `source_strategies`, the name of a method of its gate or its lock, or none: Fairgate's own."""
    by_tasks: bool = False
    committers: int = 0
    """0 for the site's batcher, otherwise the committers of a batcher with batches up to `batch_max`."""
    batch_max: int = 0

    @property
    def is_ours(self) -> bool:
        return self.hold is None


GENERAL_ADMISSION = (
    Strategy("pessimistic", "pessimistic, many statements", source_strategies.pessimistic),
    Strategy("conditional", "conditional UPDATE", source_strategies.conditional),
    Strategy("versioned", "version column, retried", source_strategies.versioned),
    Strategy("single", "single statement", source_strategies.single),
    Strategy("buckets", "16 buckets, SKIP LOCKED", source_strategies.buckets),
    Strategy("units", "a row per unit, SKIP LOCKED", source_strategies.units),
    Strategy("redlock", "Redlock, then conditional UPDATE", "under_lock"),
    Strategy("gate", "Redis gate, then single statement", "before_postgres"),
    Strategy("granted", "Redis decides, PostgreSQL records", "instead_of_postgres"),
    Strategy("threads", "ours, group commit, threads"),
    Strategy("tasks", "ours, group commit, tasks", by_tasks=True),
)
SEATS = (
    Strategy("pessimistic", "pessimistic, many statements", source_strategies.pessimistic_seats),
    Strategy("single", "single statement", source_strategies.single_seats),
    Strategy("threads", "ours, group commit, threads"),
    Strategy("tasks", "ours, group commit, tasks", by_tasks=True),
)
KINDS = {"general_admission": GENERAL_ADMISSION, "seats": SEATS}
KIND_TITLES = {"general_admission": "General admission, one section", "seats": "Two named seats"}


@dataclass(frozen=True)
class Cell:
    """The medians of the rounds for one strategy with one number of buyers."""

    kind: str
    key: str
    title: str
    buyers: int
    holds_per_second: float
    p50_ms: float
    p99_ms: float
    batch: float
    """The average number of holds in one transaction; only for Fairgate's own."""


@dataclass(frozen=True)
class Verdict:
    """The result of comparing a strategy's rows with its counts."""

    kind: str
    key: str
    twice: int
    """Tickets or seats sold beyond the capacity."""
    left: int
    """Tickets of the small section still free after every buyer was refused; 0 for seats."""
    holds: int
    """All holds of this run, equal by the callers' counts and by the rows."""


class Contest:
    """The work of a process of the pool: every strategy of both kinds, on the large hall and on the small one."""

    def __init__(self, schemas: dict[str, str], ours: list[Strategy]) -> None:
        from apps.kernel.db import transactions
        from apps.kernel.group_commit.batcher import Batcher, decide_finds_committed
        from apps.reservations.holds import service

        self._hold_outcome = service.Held
        self._ours = {strategy.key: strategy for strategy in ours}
        self._batchers = {
            strategy.key: Batcher(
                strategy.key,
                lambda connection, requests: service._rounds(requests, transactions.writes_on(connection)),
                find_committed=decide_finds_committed,
                committers=strategy.committers,
                batch_max=strategy.batch_max,
            )
            if strategy.committers
            else service.holds
            for strategy in ours
        }
        self._schemas = schemas
        self._halls = {
            slug: halls.find_seated_event(slug) for slug in (HALL, *(f"{SMALL}-{key}" for key in self._ours))
        }
        self._small_seats = next(slug for slug in self._halls if slug != HALL)
        self._gates: dict[str, source_strategies.Gate | source_strategies.Redlock] = {
            schema: (source_strategies.Redlock if key.endswith("/redlock") else source_strategies.Gate)(schema)
            for key, schema in schemas.items()
        }
        self._idle: list[Any] = []
        self._idle_of = ""
        self._lock = threading.Lock()

    @contextmanager
    def thread(self, way: str) -> Iterator[Callable[[int], bool]]:
        kind, key, size = way.split("/")
        if key in self._ours:
            yield lambda number: self._is_held(
                self._batchers[key].submit_sync(self._fairgate_request(kind, key, size, number), TIMEOUT_MS)
            )
            return
        strategy = find(kind, key)
        schema = self._schemas[f"{kind}/{key}"]
        hold = getattr(self._gates[schema], strategy.hold) if isinstance(strategy.hold, str) else strategy.hold
        assert hold is not None
        on = self._connection(schema)
        yield lambda number: hold(on, self._request(kind, size, number))
        with self._lock:
            self._idle.append(on)

    def task(self, way: str) -> Callable[[int], Awaitable[bool]] | None:
        kind, key, size = way.split("/")
        if key not in self._ours or not self._ours[key].by_tasks:
            return None

        async def act(number: int) -> bool:
            return self._is_held(await self._batchers[key].submit(self._fairgate_request(kind, key, size, number)))

        return act

    def note(self, way: str) -> float:
        """Return the number of batches so far."""
        from apps.kernel.group_commit import batcher

        key = way.split("/")[1]
        if key not in self._ours:
            return 0.0
        sizes = next(metric for metric in batcher.METRICS if metric._name == "fairgate_batch_size")
        return sum(
            sample.value
            for family in sizes.collect()
            for sample in family.samples
            if sample.name == "fairgate_batch_size_count" and sample.labels["batcher"] == self._batchers[key].name
        )

    def _is_held(self, outcome: Any) -> bool:
        return isinstance(outcome, self._hold_outcome)

    def _connection(self, schema: str) -> Any:
        with self._lock:
            if self._idle_of != schema:
                for on in self._idle:
                    on.close()
                self._idle, self._idle_of = [], schema
            if self._idle:
                return self._idle.pop()
        return source_strategies.connect(schema)

    def _seats(self, hall: halls.SeatedEvent, size: str, number: int) -> list[int]:
        if size == HALL:
            return halls.seat_pair(hall.first_seat, hall.seat_count, number)
        first = hall.first_seat + uuid.uuid4().int % (hall.seat_count - 1)
        return [first, first + 1]

    def _request(self, kind: str, size: str, number: int) -> source_strategies.HoldRequest:
        section = source_strategies.BIG if size == HALL else source_strategies.SMALL
        if kind == "general_admission":
            return source_strategies.HoldRequest(
                number, section, source_strategies.QUANTITY if size == HALL else source_strategies.SMALL_QUANTITY
            )
        hall = self._halls[HALL if size == HALL else self._small_seats]
        return source_strategies.HoldRequest(number, section, 0, self._seats(hall, size, number))

    def _fairgate_request(self, kind: str, key: str, size: str, number: int) -> Any:
        hall = self._halls[HALL if size == HALL else f"{SMALL}-{key}"]
        if kind == "general_admission":
            return halls.make_hold_request(
                hall, number, quantity=source_strategies.QUANTITY if size == HALL else source_strategies.SMALL_QUANTITY
            )
        return halls.make_hold_request(hall, number, seats=self._seats(hall, size, number))


_begun = time.perf_counter()


def log(message: str) -> None:
    print(f"# {time.perf_counter() - _begun:4.0f} s, load {os.getloadavg()[0]:.0f}: {message}", file=sys.stderr)


def find(kind: str, key: str) -> Strategy:
    return next(strategy for strategy in KINDS[kind] if strategy.key == key)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--buyers", default="1,8,32,128")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.8, help="of one strategy with one number of buyers, a round")
    parser.add_argument("--seats", type=int, default=220_000, help="seats of the hall")
    parser.add_argument("--json", type=Path, help="file for the figures")
    parser.add_argument("--svg", type=Path, help="file for the plot")
    parser.add_argument("--only", default="", help="strategies by key, or `ours`")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--no-memory", action="store_true", help="do not measure the memory of held tickets")
    parser.add_argument("--batchers", default="", help="Fairgate's own by tasks with other committers x largest batch")
    options = parser.parse_args()
    more = [with_batcher(spec) for spec in options.batchers.split(",") if spec]
    chosen = {
        kind: [
            strategy
            for strategy in (*strategies, *more)
            if not options.only
            or strategy.committers
            or strategy.key in options.only.split(",")
            or (options.only == "ours" and strategy.is_ours)
        ]
        for kind, strategies in KINDS.items()
    }
    ours = list(dict.fromkeys(one for strategies in chosen.values() for one in strategies if one.is_ours))
    needs_locks = any(strategy.key == "redlock" for strategy in chosen["general_admission"])
    with start_servers(durable=True), source_strategies.lock_servers(needs_locks):
        schemas = prepare(chosen, ours, options.seats)
        with start_worker_pool(options.processes, Contest, schemas, ours) as callers:
            contest = Run(callers, options.seconds)
            memory = [] if options.no_memory else measure_memory(chosen, ours, schemas, contest)
            cells = contest.race(chosen, [int(count) for count in options.buyers.split(",")], options.rounds)
            verdicts = contest.sell_out(chosen, schemas)
    figures = {
        "cells": [asdict(cell) for cell in cells],
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "memory": [asdict(one) for one in memory],
    }
    print_table(cells, verdicts)
    hold_memory.print_table(memory, KIND_TITLES)
    log("done")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    if options.svg:
        options.svg.write_text(draw(cells))


def with_batcher(spec: str) -> Strategy:
    """Return Fairgate's own strategy with another number of committers and another largest batch."""
    committers, batch_max = (int(part) for part in spec.split("x"))
    return Strategy(f"tasks-{spec}", f"ours, tasks, {spec}", by_tasks=True, committers=committers, batch_max=batch_max)


def prepare(chosen: dict[str, list[Strategy]], ours: list[Strategy], seats: int) -> dict[str, str]:
    """Make the halls and each strategy's own tables with the same seats; return its schema by kind and key."""
    from django.db import connection

    sections = max(1, seats // 5_000)
    hall = halls.make_seated_event(HALL, sections=sections, seats_per_section=seats // sections, floor=1_000_000)
    small = [
        halls.make_seated_event(
            f"{SMALL}-{strategy.key}", sections=1, seats_per_section=SMALL_SEATS, floor=source_strategies.SMALL_CAPACITY
        )
        for strategy in ours
    ]
    schemas = {}
    for kind, strategies in chosen.items():
        for strategy in strategies:
            if strategy.is_ours:
                continue
            schema = f"{kind}_{strategy.key}"
            events = [hall.event.id, small[0].event.id] if kind == "seats" else []
            source_strategies.make_tables(schema, events, units=UNITS if strategy.key == "units" else 0)
            gate = source_strategies.Gate(schema)
            gate.fill(source_strategies.BIG, 100_000_000)
            gate.fill(source_strategies.SMALL, source_strategies.SMALL_CAPACITY)
            schemas[f"{kind}/{strategy.key}"] = schema
    hold_earlier(source_strategies.PAST_RESERVATIONS)
    connection.close()
    halls.vacuum_tables()
    log(f"prepared: {seats:,} seats")
    return schemas


def measure_memory(
    chosen: dict[str, list[Strategy]], ours: list[Strategy], schemas: dict[str, str], run: "Run"
) -> list[hold_memory.Memory]:
    """Measure what the live holds of each strategy occupy; Fairgate's own once, since its rows are always the same."""
    contest = Contest(schemas, ours)
    hall = halls.find_seated_event(HALL)
    first = {"general_admission": MEMORY_NUMBERS, "seats": hall.seat_count // 2 - hold_memory.HOLDS}
    found = []
    for kind, strategies in chosen.items():
        for strategy in strategies:
            if strategy.is_ours and strategy.by_tasks:
                continue
            numbers = range(first[kind], first[kind] + hold_memory.HOLDS)
            if strategy.is_ours:
                halls.admit_buyers(hall.event, numbers)
            schema = schemas.get(f"{kind}/{strategy.key}", "public")
            opened = partial(contest.thread, f"{kind}/{strategy.key}/{HALL}")
            found.append(hold_memory.measure(kind, strategy.title, schema, opened, numbers))
            run.note_held(kind, strategy, HALL, hold_memory.HOLDS)
    log("measured memory")
    return found


def hold_earlier(count: int) -> None:
    """Make holds of an earlier sale, so that no table is empty."""
    from apps.reservations.holds import service

    earlier = halls.make_seated_event("earlier", sections=1, seats_per_section=2, floor=10 * count)
    halls.admit_buyers(earlier.event, range(count))
    for begin in range(0, count, 100):
        outcomes = service.hold([halls.make_hold_request(earlier, begin + number, quantity=2) for number in range(100)])
        assert all(isinstance(outcome, service.Held) for outcome in outcomes)


class Run:
    def __init__(self, callers: WorkerPool, seconds: float) -> None:
        self._callers = callers
        self._seconds = seconds
        self._next: dict[str, int] = {}
        """The number of the next buyer, by the tables in which the buyers hold."""
        self._held: dict[tuple[str, str, str], int] = {}

    def race(self, chosen: dict[str, list[Strategy]], buyers: list[int], rounds: int) -> list[Cell]:
        found: dict[tuple[str, str, int], list[tuple[float, float, float, float]]] = {}
        for number in range(rounds):
            log(f"round {number + 1} of {rounds}")
            for kind, strategies in chosen.items():
                for strategy in strategies[:: 1 if number % 2 == 0 else -1]:
                    for count in buyers:
                        reports = self._cell(kind, strategy, count)
                        found.setdefault((kind, strategy.key, count), []).append(figures_of(reports))
        cells = []
        for kind, strategies in chosen.items():
            for strategy in strategies:
                for count in buyers:
                    rate, p50, p99, batch = (
                        statistics.median(one) for one in zip(*found[kind, strategy.key, count], strict=True)
                    )
                    cells.append(Cell(kind, strategy.key, strategy.title, count, rate, p50, p99, batch))
        return cells

    def _cell(self, kind: str, strategy: Strategy, buyers: int) -> list[Report]:
        per_second = OURS_PER_SECOND if strategy.is_ours else NUMBERS_PER_SECOND
        most = int(per_second[max(size for size in per_second if size <= buyers)] * self._seconds) + 2 * buyers
        tables = f"{kind}/{'ours' if strategy.is_ours else strategy.key}"
        begin = self._next.get(tables, GENERAL_NUMBERS if kind == "general_admission" else 0)
        self._next[tables] = begin + most
        if strategy.is_ours:
            halls.admit_buyers(halls.find_seated_event(HALL).event, range(begin, begin + most))
        reports = self._callers.carry_out(f"{kind}/{strategy.key}/{HALL}", buyers, self._seconds, begin, most)
        refused = sum(report.refused for report in reports)
        assert refused == 0, f"{kind}, {strategy.title}: {refused} refusals without competing buyers"
        self._count(kind, strategy, HALL, reports)
        return reports

    def _count(self, kind: str, strategy: Strategy, size: str, reports: list[Report]) -> None:
        self.note_held(kind, strategy, size, sum(report.held + report.warmed for report in reports))

    def note_held(self, kind: str, strategy: Strategy, size: str, held: int) -> None:
        """Add holds to those that the rows are compared with at the end."""
        self._held[kind, strategy.key, size] = self._held.get((kind, strategy.key, size), 0) + held

    def sell_out(self, chosen: dict[str, list[Strategy]], schemas: dict[str, str]) -> list[Verdict]:
        """Sell out the small hall with every strategy, then compare all of its rows."""
        log("selling out")
        verdicts = []
        begin = 1_000_000
        for kind, strategies in chosen.items():
            for strategy in strategies:
                most = 2_000 if kind == "general_admission" else 6_000
                if strategy.is_ours:
                    halls.admit_buyers(
                        halls.find_seated_event(f"{SMALL}-{strategy.key}").event, range(begin, begin + most)
                    )
                reports = self._callers.carry_out(
                    f"{kind}/{strategy.key}/{SMALL}",
                    RIVALS,
                    20.0 if kind == "general_admission" else 0.5,
                    begin,
                    most,
                    until_refused=kind == "general_admission",
                )
                self._count(kind, strategy, SMALL, reports)
                check = check_ours if strategy.is_ours else check_source
                held = {size: self._held[kind, strategy.key, size] for size in (HALL, SMALL)}
                verdicts.append(check(kind, strategy, schemas.get(f"{kind}/{strategy.key}", ""), held))
                begin += most
        self._check_fairgate(chosen)
        return verdicts

    def _check_fairgate(self, chosen: dict[str, list[Strategy]]) -> None:
        """Assert the counts of the hall that Fairgate's strategies share, and that the audit finds no breach."""
        from tests.support.factories import audit_breaches

        held = {
            kind: sum(self._held[kind, strategy.key, HALL] for strategy in strategies if strategy.is_ours)
            for kind, strategies in chosen.items()
        }
        hall = halls.find_seated_event(HALL)
        expected = source_strategies.QUANTITY * held["general_admission"]
        assert general_admission_of(hall) == expected, (general_admission_of(hall), held)
        assert seats_of(hall) == 2 * held["seats"], (seats_of(hall), held)
        # The buyers joined no queue (I9) and paid nothing (I4), and nothing sweeps lapsed holds here (I10).
        breaches = [breach for breach in audit_breaches() if not breach.startswith(("I9", "I4", "I10"))]
        assert not breaches, breaches
        log(f"Fairgate's own: {held} held, audit clean")


def figures_of(reports: list[Report]) -> tuple[float, float, float, float]:
    """Return holds a second, median and 99th percentile in milliseconds, and holds in a batch."""
    taken = sorted(latency for report in reports for latency in report.latencies)
    batches = sum(report.noted for report in reports)
    held = sum(report.held for report in reports)
    return (
        sum(report.held / report.seconds for report in reports),
        1_000 * taken[len(taken) // 2],
        1_000 * taken[min(len(taken) - 1, len(taken) * 99 // 100)],
        (held + sum(report.warmed for report in reports)) / batches if batches else 0.0,
    )


def check_source(kind: str, strategy: Strategy, schema: str, held: dict[str, int]) -> Verdict:
    with source_strategies.connect(schema) as on:

        def one(query: str) -> int:
            row = on.execute(query).fetchone()  # type: ignore[call-overload]
            return int(row[0] or 0)

        rows = one("SELECT count(*) FROM ledger") - source_strategies.PAST_RESERVATIONS
        assert rows == sum(held.values()), f"{strategy.title}: {rows} ledger rows for {held}"
        if kind == "seats":
            twice = one("SELECT count(*) - count(DISTINCT seat_id) FROM line WHERE seat_id IS NOT NULL")
            missing = one(
                "SELECT count(*) FROM line JOIN seat ON seat.id = seat_id"
                " WHERE seat.status <> 1 OR seat.reservation_id <> line.reservation_id"
            )
            return Verdict(kind, strategy.key, twice + missing, 0, rows)
        sold = one("SELECT sum(quantity) FROM line WHERE section_id = 2")
        if strategy.key == "buckets":
            counted = source_strategies.SMALL_CAPACITY - one("SELECT sum(remaining) FROM bucket WHERE section_id = 2")
        elif strategy.key == "units":
            counted = one("SELECT count(*) FROM unit WHERE section_id = 2 AND reservation_id IS NOT NULL")
        elif strategy.key == "granted":
            counted = source_strategies.SMALL_CAPACITY - int(
                source_strategies.Gate(schema).redis.get(f"{schema}:{{2}}:left") or 0
            )
        else:
            counted = source_strategies.SMALL_CAPACITY - one("SELECT remaining FROM section WHERE id = 2")
        assert counted == sold, f"{strategy.title}: {counted} counted, {sold} on its lines"
        return Verdict(
            kind,
            strategy.key,
            max(0, sold - source_strategies.SMALL_CAPACITY),
            max(0, source_strategies.SMALL_CAPACITY - sold),
            rows,
        )


def check_ours(kind: str, strategy: Strategy, schema: str, held: dict[str, int]) -> Verdict:
    hall = halls.find_seated_event(f"{SMALL}-{strategy.key}")
    if kind == "seats":
        taken = seats_of(hall)
        assert taken == 2 * held[SMALL], (taken, held)
        return Verdict(kind, strategy.key, 0, 0, sum(held.values()))
    sold = general_admission_of(hall)
    assert sold == source_strategies.SMALL_QUANTITY * held[SMALL], (sold, held)
    return Verdict(
        kind,
        strategy.key,
        max(0, sold - source_strategies.SMALL_CAPACITY),
        max(0, source_strategies.SMALL_CAPACITY - sold),
        sum(held.values()),
    )


def general_admission_of(hall: halls.SeatedEvent) -> int:
    """Return how many tickets the inventory row counts as taken, and assert that the lines have as many."""
    from django.db.models import Sum

    from apps.reservations.models import GeneralAdmissionInventory, ReservationLine

    taken = GeneralAdmissionInventory.objects.get(pk=hall.floor.id).taken
    lines = ReservationLine.objects.filter(section_id=hall.floor.id).aggregate(sum=Sum("quantity"))["sum"] or 0
    assert taken == lines, (taken, lines)
    return taken


def seats_of(hall: halls.SeatedEvent) -> int:
    """Return the held seats by the inventory rows, and assert that the lines have as many and no seat twice."""
    from apps.reservations.models import ReservationLine, SeatInventory

    held = SeatInventory.objects.filter(event_id=hall.event.id, status=1).count()
    lines = ReservationLine.objects.filter(reservation__event_id=hall.event.id, seat__isnull=False)
    assert held == lines.count() == lines.values("seat_id").distinct().count()
    return held


def print_table(cells: list[Cell], verdicts: list[Verdict]) -> None:
    buyers = sorted({cell.buyers for cell in cells})
    by_key = {(cell.kind, cell.key, cell.buyers): cell for cell in cells}
    print(
        "\n| | " + " | ".join(f"{count}" for count in buyers) + " | " + " | ".join(f"{count}" for count in buyers),
        end="",
    )
    print(" | oversold | left |")
    print("| --- |" + " ---: |" * (2 * len(buyers) + 2))
    for kind in KINDS:
        print(f"| **{KIND_TITLES[kind]}** |" + " |" * (2 * len(buyers) + 2))
        for verdict in verdicts:
            if verdict.kind != kind:
                continue
            row = [by_key[kind, verdict.key, count] for count in buyers]
            rates = " | ".join(f"{cell.holds_per_second:,.0f}" for cell in row)
            times = " | ".join(f"{cell.p50_ms:,.1f}, {cell.p99_ms:,.0f}" for cell in row)
            left = f"{verdict.left}" if kind == "general_admission" else ""
            print(f"| {row[0].title} | {rates} | {times} | {verdict.twice} | {left} |")
    batches = [cell for cell in cells if cell.batch]
    print("\nHolds in a batch: ", end="")
    print("; ".join(f"{cell.kind} {cell.key} {cell.buyers}: {cell.batch:.1f}" for cell in batches))


def draw(cells: list[Cell]) -> str:
    panels = []
    for kind, title in KIND_TITLES.items():
        for figure, of in (("holds_per_second", "holds a second"), ("p99_ms", "99th percentile, ms")):
            lines = []
            for strategy in KINDS[kind]:
                points = [
                    (cell.buyers, getattr(cell, figure))
                    for cell in cells
                    # A strategy that made no hold has no point: the axes are logarithmic.
                    if (cell.kind, cell.key) == (kind, strategy.key) and cell.holds_per_second
                ]
                if points:
                    lines.append(chart.Line(strategy.title, points, is_ours=strategy.is_ours))
            panels.append(chart.Panel(f"{title}: {of}", lines))
    return chart.draw(panels, "Ways to hold, by the number of concurrent buyers")


if __name__ == "__main__":
    main()
