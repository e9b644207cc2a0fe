"""What a best available choice costs, and whether a buyer is refused although enough suitable seats are free.

    python -m benchmarks.scenarios.best_available [--rounds 5] [--named-rounds 300] [--buyers 64]
        [--only cost|halls|named]

Starts a PostgreSQL server that would survive a power cut (fsync and synchronous_commit on) and records the time of each
commit, and removes it afterwards. Buyers hold by group commit, as on the site: each of two processes has a batcher.

- cost: the CPU time of one choice out of one read, for batches of 1, 64 and 256 requests for one to eight seats, in a
  section of 100,000 seats that is nearly free, in one of which a random 95 % are sold, and in one with only single
  seats left; and the read itself, also while an old snapshot keeps sold seats in the index.
- halls: two processes of 64 buyers each buy all seats of a hall of 2,000 in groups of one to six, starting with an
  empty hall or with one that is 95 % sold. One in ten releases the seats at once. A buyer who gets `busy` tries again,
  and each such response counts as a refusal. **A refusal is wrong** if at every moment between request and response at
  least as many suitable seats were free as were requested: neither sold nor held in any transaction committed by then.
  This is computed afterwards from the commit times of all holds and releases (`pg_xact_commit_timestamp`).
- named: two processes of 64 buyers each request one of 50 named seats at the same moment. **A refusal is wrong** if
  the seat is still free at the end. (Each buyer requests one seat and nothing is released, so no other error is
  possible.)

Each hall is audited at the end. A busy machine makes the times longer; the counts do not depend on speed.
"""

import argparse
import itertools
import json
import multiprocessing
import os
import random
import statistics
import threading
import time
import uuid
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

from tests.support.servers import temporary_server_folder
from ticketing.devserver import postgres
from ticketing.devserver.servers import new_password

PROCESSES = 2
ROWS, SEATS_PER_ROW = 50, 40
SOLD_BEFORE = 1_900
GROUP_SIZES = (1, 2, 2, 2, 2, 3, 3, 4, 4, 5, 6)
RELEASE_SHARE = 0.1
REQUESTS_MAX = 400
ENTRIES_EACH = 8
TIMEOUT_MS = 60_000
NAMED_SEATS = 50
SIZES = (1, 2, 2, 2, 3, 4, 4, 5, 6, 8)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="halls sold, of each kind")
    parser.add_argument("--named-rounds", type=int, default=300)
    parser.add_argument("--buyers", type=int, default=64, help="in each of the two processes")
    parser.add_argument("--only", choices=("cost", "halls", "named"))
    options = parser.parse_args()
    with bench_servers():
        if options.only != "cost":
            with BuyerPool(options.buyers) as pool:
                if options.only in (None, "halls"):
                    sell_halls(pool, options.rounds)
                if options.only in (None, "named"):
                    sell_named(pool, options.named_rounds)
        if options.only in (None, "cost"):
            cost()


@contextmanager
def bench_servers() -> Iterator[None]:
    """Set up Django with new, empty servers, and remove them afterwards."""
    from ticketing.devserver import valkey

    folder, end = temporary_server_folder()
    try:
        settings = postgres.DURABLE | {"track_commit_timestamp": "on"}
        cluster = postgres.start(folder, password=new_password(), superuser_password=new_password(), settings=settings)
        os.environ["DATABASE_URL"] = cluster.url()
        os.environ["REDIS_URL"] = valkey.start(folder, password=new_password()).url
        os.environ["SECRET_KEY"] = "public-key-of-all-benchmarks-never-use-elsewhere-" + new_password()
        os.environ["LOG_LEVEL"] = "ERROR"
        os.environ["DJANGO_SETTINGS_MODULE"] = "ticketing.settings"
        set_up()
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        yield
    finally:
        end()


def set_up() -> None:
    import django

    django.setup()


# --- two processes of buyers ------------------------------------------------------------------------------------------


class Attempt(NamedTuple):
    """One hold request and its result."""

    quantity: int
    began: float
    ended: float
    result: str
    """`held`, or the type of the problem."""
    reservation: str = ""
    seats: tuple[str, ...] = ()


@dataclass
class Task:
    """A task of a process; `kind` names the behavior of its buyers."""

    kind: str
    slug: str
    seed: int


class BuyerPool:
    """Processes of buyers that wait for tasks, start each at the same moment and report all attempts."""

    def __init__(self, buyers: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.buyers = buyers
        self._gate = context.Barrier(PROCESSES)
        self._pipes: list[Any] = []
        self._processes: list[Any] = []
        for number in range(PROCESSES):
            ours, theirs = context.Pipe()
            process = context.Process(target=live, args=(number, buyers, theirs, self._gate), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    def __enter__(self) -> "BuyerPool":
        return self

    def __exit__(self, *reason: object) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send(None)
            process.join(timeout=20)

    def run(self, task: Task) -> list[Attempt]:
        for pipe in self._pipes:
            pipe.send(task)
        return [Attempt(*fields) for pipe in self._pipes for fields in pipe.recv()]


def live(number: int, buyers: int, pipe: Any, gate: Any) -> None:
    """Run the tasks of one process: a thread for each buyer, and all buyers of both processes start at once."""
    set_up()
    from apps.events import facade as events

    while (task := pipe.recv()) is not None:
        event = events.get_event(task.slug)
        act = {"best": buy_best, "named": buy_named}[task.kind]
        entries = join(event, buyers * (ENTRIES_EACH if task.kind == "best" else 1))
        task_buyers = [Buyer(event, number * buyers + each, task, entries[each::buyers]) for each in range(buyers)]
        together = threading.Barrier(buyers, action=gate.wait)
        found: list[list[Attempt]] = [[] for _ in range(buyers)]

        threads = [
            threading.Thread(target=buy, args=(act, buyer, together, report))
            for buyer, report in zip(task_buyers, found, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pipe.send([tuple(attempt) for attempt in itertools.chain.from_iterable(found)])


def buy(
    act: Callable[["Buyer"], list[Attempt]], buyer: "Buyer", together: threading.Barrier, report: list[Attempt]
) -> None:
    """Run the buyer in this thread and add its attempts to the report."""
    from django.db import connections

    try:
        together.wait()
        report += act(buyer)
    finally:
        connections.close_all()


def join(event: Any, count: int) -> list[Any]:
    """Return `count` new queue entries of the event, which has no waiting room."""
    from apps.queue import facade as queue

    callers = [queue.Caller(visitor_id=queue.new_visitor_secret()) for _ in range(count)]
    return list(queue.join_many([queue.JoinRequest(event, caller) for caller in callers]))


class Buyer:
    """A buyer with queue entries, one for each reservation, created before the sale begins."""

    def __init__(self, event: Any, number: int, task: Task, entries: list[Any]) -> None:
        self.event, self.number = event, number
        self.random = random.Random(task.seed * 1_000 + number)  # noqa: S311
        self._entries = entries
        seat = f"hall-1-{number % NAMED_SEATS + 1}"
        self.named: Any = self._resolved({"seats": [seat]}) if task.kind == "named" else None
        self._template: Any = (
            self._resolved({"best_available": {"section": "hall", "quantity": 1}}) if task.kind == "best" else None
        )

    def _resolved(self, payload: dict[str, Any]) -> Any:
        from apps.reservations import facade as reservations

        return reservations.resolve(self.event, self.entry(), payload, uuid.uuid4().hex)

    def request(self, quantity: int) -> Any:
        """Return a request for the best `quantity` seats with another queue entry.

        It equals the result of `resolve`, without its reads, so that the buyers do not wait for database connections.
        """
        entry = self.entry()
        return replace(
            self._template,
            reservation_id=uuid.uuid4(),
            entry_id=entry.id,
            buyer=entry.buyer,
            idempotency_key=uuid.uuid4().hex,
            best=replace(self._template.best, quantity=quantity),
        )

    def entry(self) -> Any:
        """Return another queue entry."""
        if not self._entries:
            self._entries = join(self.event, ENTRIES_EACH)
        return self._entries.pop()

    def submit(self, request: Any) -> Attempt:
        """Submit the request to the batcher, which decides it together with others."""
        from apps.reservations import facade as reservations
        from apps.reservations.holds.service import holds

        began = time.time()
        outcome = holds.submit_sync(request, TIMEOUT_MS)
        if isinstance(outcome, reservations.Refused):
            return Attempt(request.seat_count, began, time.time(), outcome.problem.type)
        body = json.loads(outcome.answer.body)
        return Attempt(request.seat_count, began, time.time(), "held", body["reservation_id"], tuple(body["seats"]))


def buy_best(buyer: Buyer) -> list[Attempt]:
    """Hold group after group until one seat alone is refused as sold out; release some of the holds."""
    from apps.reservations import facade as reservations

    attempts: list[Attempt] = []
    request = buyer.request(buyer.random.choice(GROUP_SIZES))
    for _ in range(REQUESTS_MAX):
        attempts.append(buyer.submit(request))
        quantity, result = attempts[-1].quantity, attempts[-1].result
        if result == "busy":
            continue
        if result == "held":
            if buyer.random.random() < RELEASE_SHARE:
                reservations.release(uuid.UUID(attempts[-1].reservation), who="benchmark")
            request = buyer.request(buyer.random.choice(GROUP_SIZES))
        elif result == "sold-out" or quantity == 1:
            return attempts
        else:
            # Try a smaller group next.
            request = buyer.request(quantity - 1)
    raise AssertionError("the hall is never sold out")


def buy_named(buyer: Buyer) -> list[Attempt]:
    """Request one seat, and repeat the request for as long as the result is `busy`."""
    attempts: list[Attempt] = []
    for _ in range(REQUESTS_MAX):
        attempts.append(buyer.submit(buyer.named)._replace(seats=tuple(buyer.named.seats.values())))
        if attempts[-1].result != "busy":
            return attempts
    raise AssertionError("busy until the last attempt")


# --- halls, sold to the last seat -------------------------------------------------------------------------------------

_CHANGES = """
SELECT extract(epoch FROM pg_xact_commit_timestamp(transition.xmin))::float8,
       CASE transition.to_status WHEN 'pending_payment' THEN -1 ELSE 1 END * reservation.seat_count
FROM reservations_reservationtransition AS transition
JOIN reservations_reservation AS reservation ON reservation.id = transition.reservation_id
WHERE reservation.event_id = %s
ORDER BY 1
"""
_SEATS = """
SELECT seat.row_index, seat.place_index, CASE transition.to_status WHEN 'pending_payment' THEN -1 ELSE 1 END
FROM reservations_reservationtransition AS transition
JOIN reservations_reservationline AS line ON line.reservation_id = transition.reservation_id
JOIN reservations_seatinventory AS seat ON seat.seat_id = line.seat_id
WHERE seat.event_id = %s
ORDER BY pg_xact_commit_timestamp(transition.xmin), transition.id
"""


@dataclass
class Sale:
    """One hall, from the first request to the last."""

    attempts: list[Attempt]
    wrong: list[Attempt]
    seconds: float
    orphans: int
    free_then: int


def sell_halls(pool: BuyerPool, rounds: int) -> None:
    print("\n| hall of 2,000 | requests | held | holds/s | refused | busy | wrong | rate | adjacent | single |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, sold in (("from empty", 0), ("from 95 % sold", SOLD_BEFORE)):
        sales = [sell_hall(pool, f"hall-{sold}-{number}", sold, number) for number in range(rounds)]
        attempts = [attempt for sale in sales for attempt in sale.attempts]
        held = [attempt for attempt in attempts if attempt.result == "held"]
        busy = [attempt for attempt in attempts if attempt.result == "busy"]
        final = [attempt for attempt in attempts if attempt.result in ("sold-out", "not-enough-left")]
        assert len(held) + len(busy) + len(final) == len(attempts), {attempt.result for attempt in attempts}
        wrong = [one for sale in sales for one in sale.wrong]
        groups = [attempt for attempt in held if attempt.quantity > 1]
        adjacent = sum(are_adjacent(attempt.seats) for attempt in groups)
        rate = statistics.median(sum(one.result == "held" for one in sale.attempts) / sale.seconds for sale in sales)
        # A hall that is 95 % sold at random starts with single seats.
        orphans, free = sum(sale.orphans for sale in sales), sum(sale.free_then for sale in sales)
        single = f"{orphans} of {free}" if sold == 0 else ""
        print(
            f"| {name} | {len(attempts):,} | {len(held):,} | {rate:,.0f} | {len(final):,} | {len(busy):,} |"
            f" {len(wrong):,} | {len(wrong) / (len(held) + len(wrong)):.3%} | {adjacent / len(groups):.1%} |"
            f" {single} |",
            flush=True,
        )
        for one in wrong[:5]:
            print(f"  wrong: {one.result} for {one.quantity} after {one.ended - one.began:.3f} s")
    audit_clean()


def sell_hall(pool: BuyerPool, slug: str, sold: int, seed: int) -> Sale:
    """Sell one hall until its last seat is taken, and examine all attempts."""
    from apps.reservations.models import SeatInventory

    event = open_hall(slug, ROWS, SEATS_PER_ROW)
    names = [f"hall-{row + 1}-{seat + 1}" for row in range(ROWS) for seat in range(SEATS_PER_ROW)]
    random.Random(seed).shuffle(names)  # noqa: S311
    for begin in range(0, sold, 100):
        sell(event, names[begin : begin + 100])
    attempts = pool.run(Task("best", slug, seed))
    left = SeatInventory.objects.filter(event_id=event.id, status=0).count()
    assert left == 0, f"{left} seats are free although every buyer was refused"
    changes = [(at, int(count)) for at, count in rows_of(_CHANGES, [event.id])]
    free, times, counts = ROWS * SEATS_PER_ROW, [], []
    for at, count in changes:
        free += count
        times.append(at)
        counts.append(free)
    assert free == 0
    wrong = [one for one in attempts if one.result != "held" and least_free(one, times, counts) >= one.quantity]
    began, ended = min(one.began for one in attempts), max(one.ended for one in attempts if one.result == "held")
    return Sale(attempts, wrong, ended - began, *singles(event.id))


def least_free(attempt: Attempt, times: list[float], counts: list[int]) -> int:
    """Return the lowest number of free seats at any moment between request and response."""
    first, last = bisect_right(times, attempt.began), bisect_right(times, attempt.ended)
    before = counts[first - 1] if first else ROWS * SEATS_PER_ROW
    return min([before, *counts[first:last]])


def singles(event_id: int) -> tuple[int, int]:
    """Return how many free seats had no free neighbor and how many were free, when a tenth of the hall was left."""
    free = {(row, index) for row in range(ROWS) for index in range(SEATS_PER_ROW)}
    for row, index, step in rows_of(_SEATS, [event_id]):
        (free.discard if step < 0 else free.add)((row, index))
        if len(free) <= ROWS * SEATS_PER_ROW // 10:
            break
    alone = [(row, index) for row, index in free if not {(row, index - 1), (row, index + 1)} & free]
    return len(alone), len(free)


def are_adjacent(guids: Sequence[str]) -> bool:
    positions = sorted(tuple(int(part) for part in guid.split("-")[1:]) for guid in guids)
    return all(one[0] == other[0] and one[1] + 1 == other[1] for one, other in itertools.pairwise(positions))


# --- named seats ------------------------------------------------------------------------------------------------------


def sell_named(pool: BuyerPool, rounds: int) -> None:
    from apps.reservations.models import SeatInventory

    wrong, busy, held, total = 0, 0, 0, 0
    for number in range(rounds):
        event = open_hall(f"named-{number}", 1, NAMED_SEATS)
        attempts = pool.run(Task("named", event.slug, number))
        free = set(SeatInventory.objects.filter(event_id=event.id, status=0).values_list("seat__guid", flat=True))
        refused = [one for one in attempts if one.result == "seats-unavailable"]
        held += sum(one.result == "held" for one in attempts)
        busy += sum(one.result == "busy" for one in attempts)
        total += len(attempts)
        wrong += sum(one.seats[0] in free for one in refused)
        assert {one.result for one in attempts} <= {"held", "busy", "seats-unavailable"}
        assert not free, f"still free: {sorted(free)}"
        if number % 50 == 49:
            print(f"{number + 1} rounds: {wrong} wrong", flush=True)
    print(
        f"\n{rounds} rounds of {PROCESSES} processes x {pool.buyers} buyers on {NAMED_SEATS} named seats:"
        f" {total:,} requests, {held:,} held, {busy:,} busy,"
        f" {wrong} refused although the seat was free at the end"
    )
    audit_clean()


# --- what a choice costs ----------------------------------------------------------------------------------------------


def cost() -> None:
    from apps.reservations.holds.seat_choice.best_available import BestAvailable, FreeSeatPool
    from apps.reservations.holds.seat_choice.free_runs import FreeSeat

    rows, width = 2_000, 50
    shuffled = random.Random(1)  # noqa: S311
    ranks = sorted(range(width), key=lambda index: abs(2 * index - width + 1))

    def seat(row: int, index: int) -> FreeSeat:
        rank = row * width + ranks.index(index) + 1
        return FreeSeat(row * width + index, 1, row, index, rank, 1, False, False)

    everything = [seat(row, index) for row in range(rows) for index in range(width)]
    sold = [one for one in everything if shuffled.random() < 0.05]
    halls = {
        "nearly free, the best 400 read": sorted(everything, key=lambda one: one.rank)[:400],
        "nearly free, the best 2,000 read": sorted(everything, key=lambda one: one.rank)[:2_000],
        "a random 95 % sold, all read": sold,
        "single seats only, 10,000 read": [one for one in everything if one.place_index % 2][:10_000],
    }
    print("\n| 100,000 seats | free seats read | prepared | a choice in 1 | in 64 | in 256 |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, seats in halls.items():
        begun = time.process_time()
        FreeSeatPool(seats)
        prepared = time.process_time() - begun
        figures = []
        for groups in (1, 64, 256):
            times = []
            for repetition in range(5 if groups > 1 else 40):
                sizes, pool = random.Random(repetition), FreeSeatPool(seats)  # noqa: S311
                begun = time.process_time()
                for _ in range(groups):
                    pool.take(one.seat_id for one in pool.choose(BestAvailable(1, sizes.choice(SIZES))) or ())
                times.append((time.process_time() - begun) / groups)
            figures.append(statistics.median(times))
        print(
            f"| {name} | {len(seats):,} | {prepared * 1_000:.1f} ms |"
            + "".join(f" {figure * 1_000_000:,.0f} µs |" for figure in figures),
            flush=True,
        )
    read()


def read() -> None:
    """Measure the read of the best 400 seats of 100,000: nearly free, 95 % sold, and 95 % sold with an old snapshot."""
    import psycopg
    from django.db import connection

    event = open_hall("large", 2_000, 50)
    statement = sql_of("free_seats")
    section = rows_of("SELECT section_id FROM reservations_seatinventory WHERE event_id = %s LIMIT 1", [event.id])[0][0]

    def once(limit: int | None) -> float:
        begun = time.perf_counter()
        with connection.cursor() as cursor:
            statement.rows(cursor, section_id=section, category_ids=[], limit=limit)
        return (time.perf_counter() - begun) * 1_000

    def print_times(name: str) -> None:
        first = once(400)
        again = statistics.median(once(400) for _ in range(20))
        more = statistics.median(once(10_000) for _ in range(5))
        print(f"| {name} | {first:.1f} ms | {again:.1f} ms | {more:.1f} ms |")

    print("\n| reading a section of 100,000 | the best 400 the first time | again | the best 10,000 |")
    print("| --- | ---: | ---: | ---: |")
    print_times("nearly free")
    with psycopg.connect(os.environ["DATABASE_URL"]) as old, connection.cursor() as cursor:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM reservations_seatinventory")
        # As after a sale, row after row: 95 of 100 seats are taken, and each row was updated once.
        cursor.execute(_SELL_MOST, {"section_id": section})
        print_times("95 % sold, an old snapshot still open")
    print_times("95 % sold")
    ((plan,),) = rows_of(
        "EXPLAIN (FORMAT JSON) " + statement.text, {"section_id": section, "category_ids": [], "limit": 400}
    )
    index = json.dumps(plan)
    assert "seat_inventory_free_by_rank" in index, plan
    assert "Sort" not in index, plan


# --- halls and statements ---------------------------------------------------------------------------------------------

_SELL_MOST = """
UPDATE reservations_seatinventory SET status = 2, reservation_id = gen_random_uuid()
WHERE section_id = %(section_id)s AND seat_id %% 20 <> 0
"""


def open_hall(slug: str, rows: int, seats_per_row: int) -> Any:
    """Return an event on sale with one section, `hall`, whose seats are `hall-1-1`, `hall-1-2` and so on."""
    from apps.events import facade as events
    from apps.events.creation import EventSpec, create_event
    from apps.kernel import clock

    lines = ["section,row,seat,x,y,category,accessible"]
    lines += [
        f"Hall,{row + 1},{seat + 1},{seat * 20},{row * 25},Standard,no"
        for row in range(rows)
        for seat in range(seats_per_row)
    ]
    create_event(
        EventSpec(
            slug=slug,
            name=slug.title(),
            venue=f"Venue of {slug}",
            starts_at=clock.now() + timedelta(days=30),
            currency="USD",
            plan="\n".join(lines).encode(),
            prices={"Standard": 5_000},
            opens_at=clock.now() - timedelta(minutes=1),
            seats_per_reservation_max=100,
        )
    )
    return events.get_event(slug)


def sell(event: Any, names: Sequence[str]) -> None:
    from apps.reservations import facade as reservations

    (entry,) = join(event, 1)
    (outcome,) = reservations.hold([reservations.resolve(event, entry, {"seats": list(names)}, uuid.uuid4().hex)])
    assert isinstance(outcome, reservations.Held), outcome


def rows_of(statement: str, params: Any) -> list[tuple[Any, ...]]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return list(cursor.fetchall())


def sql_of(name: str) -> Any:
    from apps.kernel.db import sql

    return sql.load("apps.reservations", name)


def audit_clean() -> None:
    from tests.support.factories import assert_audit_clean

    assert_audit_clean()
    print("the audit finds no breach")


if __name__ == "__main__":
    main()
