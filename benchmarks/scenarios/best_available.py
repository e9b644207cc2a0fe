"""The best seats for everybody: what a choice costs, and whether anybody is refused while seats that fit are free.

    python -m benchmarks.scenarios.best_available [--rounds 5] [--named-rounds 300] [--buyers 64]
        [--only cost|halls|named]

Starts a PostgreSQL of its own that would survive a power cut (fsync and synchronous_commit on), with the time of each
commit recorded, and removes it again. Buyers ask by group commit, as the site does: each of two processes has
a batcher.

- cost: processor time of one choice out of one read, for batches of 1, 64 and 256 parties of one to eight, in a
  section of 100,000 seats nearly free, in one of which 95 % are sold here and there, and in one where only single
  seats are left; and the read itself, also while an old snapshot keeps what is sold in the index.
- halls: two processes of 64 buyers each sell a hall of 2,000 seats to parties of one to six, from empty to the last
  seat, and from 95 % sold. One in ten gives the seats back at once. Who is told to try again does; each such answer
  counts as a refusal. **A refusal is wrong** if at every moment between the question and the answer at least as many
  seats that fit were free as the party wanted: neither sold nor held in any transaction committed by then. The ledger
  says so afterwards: the commit of each hold and of each release, by `pg_xact_commit_timestamp`.
- named: two processes of 64 buyers each want one of 50 named seats, at the same moment. **A refusal is wrong** if
  nobody holds the seat in the end. (With one seat each that is every way to be wrong: nothing is given back.)

Each hall is audited in the end. Figures of a busy machine are slower ones; no count depends on speed.
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
MIX = (1, 2, 2, 2, 2, 3, 3, 4, 4, 5, 6)
GIVES_BACK = 0.1
ASKS_MAX = 400
PLACES_EACH = 8
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
    with house():
        if options.only != "cost":
            with Crowd(options.buyers) as crowd:
                if options.only in (None, "halls"):
                    sell_halls(crowd, options.rounds)
                if options.only in (None, "named"):
                    sell_named(crowd, options.named_rounds)
        if options.only in (None, "cost"):
            cost()


@contextmanager
def house() -> Iterator[None]:
    """Django is set up over empty servers of its own, which are gone afterwards."""
    from ticketing.devserver import valkey

    place, end = temporary_server_folder()
    try:
        settings = postgres.DURABLE | {"track_commit_timestamp": "on"}
        cluster = postgres.start(place, password=new_password(), superuser_password=new_password(), settings=settings)
        os.environ["DATABASE_URL"] = cluster.url()
        os.environ["REDIS_URL"] = valkey.start(place, password=new_password()).url
        os.environ["SECRET_KEY"] = "known-to-every-benchmark-and-good-for-nothing-else-" + new_password()
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


class Asked(NamedTuple):
    """One question and its answer."""

    quantity: int
    began: float
    ended: float
    came_to: str
    """held, or the type of the problem."""
    reservation: str = ""
    seats: tuple[str, ...] = ()


@dataclass
class Task:
    """What a process is to do: `kind` names the behaviour of its buyers."""

    kind: str
    slug: str
    seed: int


class Crowd:
    """Processes of buyers that wait for tasks, begin each at the same moment and report everything asked."""

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

    def __enter__(self) -> "Crowd":
        return self

    def __exit__(self, *reason: object) -> None:
        for pipe, process in zip(self._pipes, self._processes, strict=True):
            pipe.send(None)
            process.join(timeout=20)

    def do(self, task: Task) -> list[Asked]:
        for pipe in self._pipes:
            pipe.send(task)
        return [Asked(*asked) for pipe in self._pipes for asked in pipe.recv()]


def live(number: int, buyers: int, pipe: Any, gate: Any) -> None:
    """One process: the buyers of each task, each in a thread, all of both processes at once."""
    set_up()
    from apps.events import facade as events

    while (task := pipe.recv()) is not None:
        event = events.get_event(task.slug)
        act = {"best": buy_best, "named": buy_named}[task.kind]
        places = join(event, buyers * (PLACES_EACH if task.kind == "best" else 1))
        buyer_of = [Buyer(event, number * buyers + each, task, places[each::buyers]) for each in range(buyers)]
        together = threading.Barrier(buyers, action=gate.wait)
        found: list[list[Asked]] = [[] for _ in range(buyers)]

        threads = [
            threading.Thread(target=buy, args=(act, buyer, together, report))
            for buyer, report in zip(buyer_of, found, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        pipe.send([tuple(asked) for asked in itertools.chain.from_iterable(found)])


def buy(
    act: Callable[["Buyer"], list[Asked]], buyer: "Buyer", together: threading.Barrier, report: list[Asked]
) -> None:
    """The buyer has bought; it is in the report."""
    from django.db import connections

    try:
        together.wait()
        report += act(buyer)
    finally:
        connections.close_all()


def join(event: Any, count: int) -> list[Any]:
    """So many places in the event's line, which has no waiting room."""
    from apps.queue import facade as queue

    callers = [queue.Caller(visitor_id=queue.new_visitor_id()) for _ in range(count)]
    return list(queue.join_many([queue.JoinRequest(event, caller) for caller in callers]))


class Buyer:
    """Somebody with places in the line, one for each reservation, taken before the sale begins."""

    def __init__(self, event: Any, number: int, task: Task, places: list[Any]) -> None:
        self.event, self.number = event, number
        self.random = random.Random(task.seed * 1_000 + number)  # noqa: S311
        self._places = places
        seat = f"hall-1-{number % NAMED_SEATS + 1}"
        self.named: Any = self._resolved({"seats": [seat]}) if task.kind == "named" else None
        self._like: Any = (
            self._resolved({"best_available": {"section": "hall", "quantity": 1}}) if task.kind == "best" else None
        )

    def _resolved(self, payload: dict[str, Any]) -> Any:
        from apps.reservations import facade as reservations

        return reservations.resolve(self.event, self.entry(), payload, uuid.uuid4().hex)

    def wish(self, quantity: int) -> Any:
        """For the best so many seats, with another place in the line: what `resolve` gives, and without its reads, so
        that the buyers do not wait for connections of their own."""
        return replace(
            self._like,
            reservation_id=uuid.uuid4(),
            entry_id=self.entry().id,
            idempotency_key=uuid.uuid4().hex,
            best=replace(self._like.best, quantity=quantity),
        )

    def entry(self) -> Any:
        """Another place in the line."""
        if not self._places:
            self._places = join(self.event, PLACES_EACH)
        return self._places.pop()

    def ask(self, request: Any) -> Asked:
        """The request is decided with whatever else arrives meanwhile."""
        from apps.reservations import facade as reservations
        from apps.reservations.holds.service import holds

        began = time.time()
        outcome = holds.submit_sync(request, TIMEOUT_MS)
        if isinstance(outcome, reservations.Refused):
            return Asked(request.seat_count, began, time.time(), outcome.problem.type)
        body = json.loads(outcome.answer.body)
        return Asked(request.seat_count, began, time.time(), "held", body["reservation_id"], tuple(body["seats"]))


def buy_best(buyer: Buyer) -> list[Asked]:
    """Party after party, until one is told that it is too late even for one; some give back what they got."""
    from apps.reservations import facade as reservations

    asked: list[Asked] = []
    request = buyer.wish(buyer.random.choice(MIX))
    for _ in range(ASKS_MAX):
        asked.append(buyer.ask(request))
        quantity, came_to = asked[-1].quantity, asked[-1].came_to
        if came_to == "busy":
            continue
        if came_to == "held":
            if buyer.random.random() < GIVES_BACK:
                reservations.release(uuid.UUID(asked[-1].reservation), who="benchmark")
            request = buyer.wish(buyer.random.choice(MIX))
        elif came_to == "sold-out" or quantity == 1:
            return asked
        else:
            # A smaller party comes next.
            request = buyer.wish(quantity - 1)
    raise AssertionError("the hall is never sold out")


def buy_named(buyer: Buyer) -> list[Asked]:
    """One seat, and again for as long as the answer is to try again."""
    asked: list[Asked] = []
    for _ in range(ASKS_MAX):
        asked.append(buyer.ask(buyer.named)._replace(seats=tuple(buyer.named.seats.values())))
        if asked[-1].came_to != "busy":
            return asked
    raise AssertionError("busy for ever")


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
    """One hall, from the first question to the last."""

    asked: list[Asked]
    wrong: list[Asked]
    seconds: float
    orphans: int
    free_then: int


def sell_halls(crowd: Crowd, rounds: int) -> None:
    print("\n| hall of 2,000 | asked | held | holds/s | refused | try again | wrong | rate | side by side | single |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, sold in (("from empty", 0), ("from 95 % sold", SOLD_BEFORE)):
        sales = [sell_hall(crowd, f"hall-{sold}-{number}", sold, number) for number in range(rounds)]
        asked = [one for sale in sales for one in sale.asked]
        held = [one for one in asked if one.came_to == "held"]
        busy = [one for one in asked if one.came_to == "busy"]
        final = [one for one in asked if one.came_to in ("sold-out", "not-enough-left")]
        assert len(held) + len(busy) + len(final) == len(asked), {one.came_to for one in asked}
        wrong = [one for sale in sales for one in sale.wrong]
        parties = [one for one in held if one.quantity > 1]
        together = sum(side_by_side(one.seats) for one in parties)
        rate = statistics.median(sum(one.came_to == "held" for one in sale.asked) / sale.seconds for sale in sales)
        # A hall in which 95 % are sold here and there begins with single seats.
        orphans, free = sum(sale.orphans for sale in sales), sum(sale.free_then for sale in sales)
        single = f"{orphans} of {free}" if sold == 0 else ""
        print(
            f"| {name} | {len(asked):,} | {len(held):,} | {rate:,.0f} | {len(final):,} | {len(busy):,} |"
            f" {len(wrong):,} | {len(wrong) / (len(held) + len(wrong)):.3%} | {together / len(parties):.1%} |"
            f" {single} |",
            flush=True,
        )
        for one in wrong[:5]:
            print(f"  wrong: {one.came_to} for {one.quantity} after {one.ended - one.began:.3f} s")
    audit_clean()


def sell_hall(crowd: Crowd, slug: str, sold: int, seed: int) -> Sale:
    """All that is asked in one hall until its last seat is gone."""
    from apps.reservations.models import SeatInventory

    event = open_hall(slug, ROWS, SEATS_PER_ROW)
    names = [f"hall-{row + 1}-{seat + 1}" for row in range(ROWS) for seat in range(SEATS_PER_ROW)]
    random.Random(seed).shuffle(names)  # noqa: S311
    for begin in range(0, sold, 100):
        sell(event, names[begin : begin + 100])
    asked = crowd.do(Task("best", slug, seed))
    left = SeatInventory.objects.filter(event_id=event.id, status=0).count()
    assert left == 0, f"{left} seats were left although everybody was told that nothing is"
    changes = [(at, int(count)) for at, count in rows_of(_CHANGES, [event.id])]
    free, times, counts = ROWS * SEATS_PER_ROW, [], []
    for at, count in changes:
        free += count
        times.append(at)
        counts.append(free)
    assert free == 0
    wrong = [one for one in asked if one.came_to != "held" and least_free(one, times, counts) >= one.quantity]
    began, ended = min(one.began for one in asked), max(one.ended for one in asked if one.came_to == "held")
    return Sale(asked, wrong, ended - began, *singles(event.id))


def least_free(asked: Asked, times: list[float], counts: list[int]) -> int:
    """The fewest seats that were free at any moment between the question and the answer."""
    first, last = bisect_right(times, asked.began), bisect_right(times, asked.ended)
    before = counts[first - 1] if first else ROWS * SEATS_PER_ROW
    return min([before, *counts[first:last]])


def singles(event_id: int) -> tuple[int, int]:
    """When a tenth of the hall was left: how many free seats had no free neighbour, and how many were free."""
    free = {(row, place) for row in range(ROWS) for place in range(SEATS_PER_ROW)}
    for row, place, step in rows_of(_SEATS, [event_id]):
        (free.discard if step < 0 else free.add)((row, place))
        if len(free) <= ROWS * SEATS_PER_ROW // 10:
            break
    alone = [(row, place) for row, place in free if not {(row, place - 1), (row, place + 1)} & free]
    return len(alone), len(free)


def side_by_side(guids: Sequence[str]) -> bool:
    places = sorted(tuple(int(part) for part in guid.split("-")[1:]) for guid in guids)
    return all(one[0] == other[0] and one[1] + 1 == other[1] for one, other in itertools.pairwise(places))


# --- named seats ------------------------------------------------------------------------------------------------------


def sell_named(crowd: Crowd, rounds: int) -> None:
    from apps.reservations.models import SeatInventory

    wrong, busy, held, wanted = 0, 0, 0, 0
    for number in range(rounds):
        event = open_hall(f"named-{number}", 1, NAMED_SEATS)
        asked = crowd.do(Task("named", event.slug, number))
        free = set(SeatInventory.objects.filter(event_id=event.id, status=0).values_list("seat__guid", flat=True))
        refused = [one for one in asked if one.came_to == "seats-unavailable"]
        held += sum(one.came_to == "held" for one in asked)
        busy += sum(one.came_to == "busy" for one in asked)
        wanted += len(asked)
        wrong += sum(one.seats[0] in free for one in refused)
        assert {one.came_to for one in asked} <= {"held", "busy", "seats-unavailable"}
        assert not free, f"nobody has {sorted(free)}"
        if number % 50 == 49:
            print(f"{number + 1} rounds: {wrong} wrong", flush=True)
    print(
        f"\n{rounds} rounds of {PROCESSES} processes x {crowd.buyers} buyers on {NAMED_SEATS} named seats:"
        f" {wanted:,} asked, {held:,} held, {busy:,} told to try again,"
        f" {wrong} refused a seat that nobody has in the end"
    )
    audit_clean()


# --- what a choice costs ----------------------------------------------------------------------------------------------


def cost() -> None:
    from apps.reservations.holds.best_available import BestAvailable, FreeSeat, FreeSeatPool

    rows, width = 2_000, 50
    shuffled = random.Random(1)  # noqa: S311
    ranks = sorted(range(width), key=lambda place: abs(2 * place - width + 1))

    def seat(row: int, place: int) -> FreeSeat:
        rank = row * width + ranks.index(place) + 1
        return FreeSeat(row * width + place, 1, row, place, rank, 1, False, False)

    everything = [seat(row, place) for row in range(rows) for place in range(width)]
    sold = [one for one in everything if shuffled.random() < 0.05]
    halls = {
        "nearly free, the best 400 read": sorted(everything, key=lambda one: one.rank)[:400],
        "nearly free, the best 2,000 read": sorted(everything, key=lambda one: one.rank)[:2_000],
        "95 % sold here and there, all read": sold,
        "single seats only, 10,000 read": [one for one in everything if one.place_index % 2][:10_000],
    }
    print("\n| 100,000 seats | free seats read | put on the shelf | a choice in 1 | in 64 | in 256 |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for name, seats in halls.items():
        begun = time.process_time()
        FreeSeatPool(seats)
        shelf = time.process_time() - begun
        figures = []
        for parties in (1, 64, 256):
            times = []
            for turn in range(5 if parties > 1 else 40):
                sizes, among = random.Random(turn), FreeSeatPool(seats)  # noqa: S311
                begun = time.process_time()
                for _ in range(parties):
                    among.take(one.seat_id for one in among.choose(BestAvailable(1, sizes.choice(SIZES))) or ())
                times.append((time.process_time() - begun) / parties)
            figures.append(statistics.median(times))
        print(
            f"| {name} | {len(seats):,} | {shelf * 1_000:.1f} ms |"
            + "".join(f" {figure * 1_000_000:,.0f} µs |" for figure in figures),
            flush=True,
        )
    read()


def read() -> None:
    """The read of the best 400 in a section of 100,000: nearly free, 95 % sold, and sold under an old snapshot."""
    import psycopg
    from django.db import connection

    event = open_hall("large", 2_000, 50)
    statement = sql_of("free_seats")
    section = rows_of("SELECT section_id FROM reservations_seatinventory WHERE event_id = %s LIMIT 1", [event.id])[0][0]

    def once(limit: int | None) -> float:
        begun = time.perf_counter()
        with connection.cursor() as cursor:
            statement.rows(cursor, section_id=section, category_id=None, limit=limit)
        return (time.perf_counter() - begun) * 1_000

    def told(name: str) -> None:
        first = once(400)
        again = statistics.median(once(400) for _ in range(20))
        more = statistics.median(once(10_000) for _ in range(5))
        print(f"| {name} | {first:.1f} ms | {again:.1f} ms | {more:.1f} ms |")

    print("\n| reading a section of 100,000 | the best 400 the first time | again | the best 10,000 |")
    print("| --- | ---: | ---: | ---: |")
    told("nearly free")
    with psycopg.connect(os.environ["DATABASE_URL"]) as old, connection.cursor() as cursor:
        old.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM reservations_seatinventory")
        # As a sale leaves it, row after row: 95 of 100 are somebody's, each row version written once.
        cursor.execute(_SELL_MOST, {"section_id": section})
        told("95 % sold, an old snapshot still open")
    told("95 % sold")
    ((plan,),) = rows_of(
        "EXPLAIN (FORMAT JSON) " + statement.text, {"section_id": section, "category_id": None, "limit": 400}
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
    """An event on sale with one section, `hall`, of rows 1, 2, …: seats `hall-1-1` …"""
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
    print("the auditor finds nothing")


if __name__ == "__main__":
    main()
