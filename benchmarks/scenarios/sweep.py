"""A hundred thousand reservations expire during a sale: how fast they are swept, and how much it slows the buyers.

    python -m benchmarks.scenarios.sweep [--history 900000] [--lapsed 100000] [--limits 100,250,500]
        [--buyers 8] [--plans]

Two events have half of the lapsed reservations each: two in five hold a seat, the others general admission. Buyers hold
continuously, seats and general admission of both events in turn, through the same group commit as the site. For each
limit they first do so alone and then during a sweep in another process. The server is durable (fsync on). The exit
status is 1 unless afterwards every lapsed reservation has expired exactly once and the audit finds no breach.
"""

import argparse
import itertools
import multiprocessing
import statistics
import sys
import threading
import time
import uuid
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from benchmarks.support.rooms import start_servers

EVENTS = 2
SEATS_PER_ROW = 100
PAUSE_SECONDS = 0.02
"""Between two holds of one buyer, so that the machine is not saturated."""
UNDISTURBED_SECONDS = 10.0
AUDITED = ("I1", "I2", "I3", "I8", "I10")


_ENTRIES = """
INSERT INTO queue_queueentry (id, event_id, number, in_lobby, nonce, marked, visitor_id, status, joined_at, ready_at,
    admission_expires_at)
SELECT gen_random_uuid(), %(event_id)s, number, false, decode(md5(random()::text), 'hex'), '', gen_random_uuid()::text,
       'ready', clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 day'
FROM generate_series(%(first)s::bigint, %(last)s::bigint) AS number
"""
_RESERVATIONS = """
INSERT INTO reservations_reservation (id, event_id, entry_id, buyer, email, status, expires_at, pay_deadline,
    seat_count, total_minor, currency, created_at, ended_at)
SELECT gen_random_uuid(), %(event_id)s, entry.id, 'visitor:' || entry.visitor_id, '',
       CASE WHEN number %% 10 = 0 THEN 'paying' ELSE 'pending_payment' END, late,
       CASE WHEN number %% 10 = 0 THEN late END, 1, 1000, 'USD', late - interval '10 minutes', NULL
FROM queue_queueentry AS entry
CROSS JOIN LATERAL (SELECT clock_timestamp() - number * 7919 %% 600 * interval '1 second' AS late) AS deadline
WHERE event_id = %(event_id)s AND number <= %(count)s
"""
_SEAT_LINES = """
INSERT INTO reservations_reservationline (reservation_id, section_id, category_id, seat_id, quantity, price_minor, live)
SELECT reservation.id, seat.section_id, seat.category_id, seat.seat_id, 1, 1000, true
FROM (SELECT r.id, e.number FROM reservations_reservation AS r JOIN queue_queueentry AS e ON e.id = r.entry_id
      WHERE r.event_id = %(event_id)s AND r.status IN ('pending_payment', 'paying')) AS reservation
JOIN (SELECT *, row_number() OVER (ORDER BY seat_id) AS number FROM reservations_seatinventory
      WHERE event_id = %(event_id)s) AS seat ON seat.number = reservation.number
WHERE reservation.number <= %(seats)s
"""
_FLOOR_LINES = """
INSERT INTO reservations_reservationline (reservation_id, section_id, category_id, seat_id, quantity, price_minor, live)
SELECT r.id, section.id, section.category_id, NULL, 1, 1000, true
FROM reservations_reservation AS r
JOIN queue_queueentry AS e ON e.id = r.entry_id
JOIN events_section AS section ON section.event_id = r.event_id AND section.slug = 'floor'
WHERE r.event_id = %(event_id)s AND r.status IN ('pending_payment', 'paying') AND e.number > %(seats)s
"""
_TAKE_SEATS = """
UPDATE reservations_seatinventory AS seat SET status = 1, reservation_id = line.reservation_id
FROM reservations_reservationline AS line
WHERE line.seat_id = seat.seat_id AND line.live AND seat.event_id = %(event_id)s AND seat.status = 0
"""
_TAKE_FLOOR = """
UPDATE reservations_generaladmissioninventory AS inventory SET taken = (
    SELECT coalesce(sum(quantity), 0) FROM reservations_reservationline AS line
    WHERE line.section_id = inventory.section_id AND line.live AND line.seat_id IS NULL)
WHERE inventory.event_id = %(event_id)s
"""
_LEDGER = """
INSERT INTO reservations_reservationtransition (reservation_id, from_status, to_status, who, why, at)
SELECT r.id, step.from_status, step.to_status, 'benchmark', '', r.created_at
FROM reservations_reservation AS r
CROSS JOIN (VALUES (1, '', 'pending_payment'), (2, 'pending_payment', 'paying')) AS step (nth, from_status, to_status)
WHERE r.event_id = %(event_id)s AND r.status IN ('pending_payment', 'paying') AND (nth = 1 OR r.status = 'paying')
  AND NOT EXISTS (SELECT 1 FROM reservations_reservationtransition AS t WHERE t.reservation_id = r.id)
ORDER BY nth
"""
_HISTORY = """
WITH old AS (
    INSERT INTO reservations_reservation (id, event_id, entry_id, buyer, email, status, expires_at, pay_deadline,
        seat_count, total_minor, currency, created_at, ended_at)
    SELECT gen_random_uuid(), %(event_id)s, entry.id, 'visitor:' || entry.visitor_id, '', 'expired', late, NULL,
           1, 1000, 'USD', late, late
    FROM generate_series(1, %(count)s::bigint) AS number
    CROSS JOIN LATERAL (SELECT clock_timestamp() - interval '1 hour' - number * interval '10 ms' AS late) AS deadline
    CROSS JOIN (SELECT * FROM queue_queueentry WHERE event_id = %(event_id)s LIMIT 1) AS entry
    RETURNING id, event_id, created_at
), lines AS (
    INSERT INTO reservations_reservationline (reservation_id, section_id, category_id, quantity, price_minor, live)
    SELECT old.id, section.id, section.category_id, 1, 1000, false
    FROM old JOIN events_section AS section ON section.event_id = old.event_id AND section.slug = 'floor'
)
INSERT INTO reservations_reservationtransition (reservation_id, from_status, to_status, who, why, at)
SELECT old.id, step.from_status, step.to_status, 'benchmark', '', old.created_at
FROM old
CROSS JOIN (VALUES (1, '', 'pending_payment'), (2, 'pending_payment', 'expired')) AS step (nth, from_status, to_status)
ORDER BY nth
"""


@dataclass
class Waits:
    """How long the holds of one phase took, in seconds."""

    seconds: list[float] = field(default_factory=list)
    refused: int = 0

    def row(self) -> str:
        centiles = statistics.quantiles(self.seconds, n=100) if len(self.seconds) > 1 else self.seconds * 99
        return (
            f"{len(self.seconds):,} | {self.refused} | {centiles[49] * 1e3:.1f} ms | {centiles[98] * 1e3:.1f} ms "
            f"| {max(self.seconds) * 1e3:.0f} ms"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", type=int, default=900_000, help="reservations that ended long ago")
    parser.add_argument("--lapsed", type=int, default=100_000)
    parser.add_argument("--limits", default="100,250,500", help="reservations in one transaction")
    parser.add_argument("--buyers", type=int, default=8)
    parser.add_argument("--plans", action="store_true", help="print the plan of the sweep's first statement too")
    options = parser.parse_args()
    with start_servers(durable=True):
        return measure(options)


def measure(options: argparse.Namespace) -> int:
    half = options.lapsed // EVENTS
    seats = half * 2 // 5
    events = [make_event(f"event-{number}", seats, half) for number in range(1, EVENTS + 1)]
    begun = time.perf_counter()
    for event in events:
        run(_ENTRIES, event_id=event.id, first=1, last=half)
        run(
            "UPDATE queue_waitingroom SET next_number = %(next)s WHERE event_id = %(event_id)s",
            event_id=event.id,
            next=half + 1,
        )
        run(_HISTORY, event_id=event.id, count=options.history // EVENTS)
    print(f"# {options.history:,} ended reservations in {time.perf_counter() - begun:.0f} s", file=sys.stderr)
    rows = []
    for limit in [int(limit) for limit in options.limits.split(",")]:
        for event in events:
            lapse(event, half, seats)
        vacuum_tables()
        if options.plans:
            print_plans(limit)
        buyers = Buyers(events, options.buyers)
        alone = buyers.during(lambda: time.sleep(UNDISTURBED_SECONDS))
        swept = Sweep(limit)
        beside = buyers.during(swept.run)
        rows.append((limit, swept, alone, beside))
        buyers.end()
        check(limit, options.lapsed, seats * EVENTS)
        print(f"# {limit}: swept in {swept.seconds:.1f} s", file=sys.stderr)
    print("| limit | swept/s | longest transaction | buyers | holds | refused | p50 | p99 | longest |")
    print("| ---: | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    for limit, swept, alone, beside in rows:
        print(f"| {limit} | | | alone | {alone.row()} |")
        rate = swept.count / swept.seconds
        print(f"| {limit} | {rate:,.0f} | {swept.longest * 1e3:.0f} ms | during the sweep | {beside.row()} |")
    return 0


def make_event(slug: str, seats: int, capacity: int) -> Any:
    from apps.events import facade
    from apps.events.creation import EventSpec, GeneralAdmission, create_event
    from apps.kernel import clock

    # Twice as many seats, so that the buyers have free ones.
    rows = 2 * seats // SEATS_PER_ROW
    lines = ["section,row,seat,x,y,category,accessible"]
    lines += [
        f"Hall,{r},{s},{s * 20},{r * 25},Standard,no" for r in range(1, rows + 1) for s in range(1, SEATS_PER_ROW + 1)
    ]
    create_event(
        EventSpec(
            slug=slug, name=slug, venue=f"Venue of {slug}", starts_at=clock.now() + timedelta(days=30), currency="USD",
            plan="\n".join(lines).encode(), prices={"Standard": 1_000},
            general_admission=(GeneralAdmission("Floor", 2 * capacity, 1_000),),
            opens_at=clock.now() - timedelta(minutes=1),
        )
    )  # fmt: skip
    return facade.get_event(slug)


def run(statement: str, **params: Any) -> list[Any]:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


def lapse(event: Any, count: int, seats: int) -> None:
    """Insert lapsed reservations of the event, in the state in which holds and checkouts leave them."""
    # The holds of earlier buyers have been released; they used seats of the second half and entries of their own.
    for statement in (_RESERVATIONS, _SEAT_LINES, _FLOOR_LINES, _TAKE_SEATS, _TAKE_FLOOR, _LEDGER):
        run(statement, event_id=event.id, count=count, seats=seats)


def vacuum_tables() -> None:
    for table in ("reservation", "reservationline", "reservationtransition", "seatinventory"):
        run(f"VACUUM ANALYZE reservations_{table}")
    run("VACUUM ANALYZE queue_queueentry")


def print_plans(limit: int) -> None:
    from apps.reservations.lifecycle import release

    statement = release._lock_lapsed
    params = {"limit": limit, "lapsed_seconds": 0.0, "apart_from": []}
    found = run(f"EXPLAIN (ANALYZE, BUFFERS) {statement.text}", **params)
    print("\n".join(line for (line,) in found))


class Buyers:
    """Buyers who hold continuously, with a new admission for each hold."""

    def __init__(self, events: list[Any], count: int) -> None:
        self.events, self.count = events, count
        self.numbers = itertools.count()

    def during(self, act: Any) -> Waits:
        """Return how long their holds took while `act` ran."""
        stopping, waits = threading.Event(), [Waits() for _ in range(self.count)]
        threads = [threading.Thread(target=self._buy, args=(stopping, one)) for one in waits]
        for thread in threads:
            thread.start()
        act()
        stopping.set()
        for thread in threads:
            thread.join()
        return Waits([s for one in waits for s in one.seconds], sum(one.refused for one in waits))

    def _buy(self, stopping: threading.Event, waits: Waits) -> None:
        from django.db import connections

        from apps.reservations import facade as reservations
        from apps.reservations.holds.service import holds
        from tests.support.factories import join

        try:
            while not stopping.is_set():
                number = next(self.numbers)
                event = self.events[number % EVENTS]
                payload: dict[str, Any] = (
                    {"ga_section": "floor", "ga_quantity": 1}
                    if number // EVENTS % 2
                    else {"best_available": {"section": "hall", "quantity": 1}}
                )
                entry = join(event)
                request = reservations.resolve(event, entry, payload, uuid.uuid4().hex)
                begun = time.perf_counter()
                outcome = holds.submit_sync(request, 10_000)
                waits.seconds.append(time.perf_counter() - begun)
                waits.refused += not isinstance(outcome, reservations.Held)
                stopping.wait(PAUSE_SECONDS)
        finally:
            connections.close_all()

    def end(self) -> None:
        """Release all holds."""
        from apps.reservations import facade as reservations
        from apps.reservations.models import Reservation

        live = Reservation.objects.filter(status__in=Reservation.LIVE, expires_at__gt=clock_now())
        for pk in live.values_list("pk", flat=True):
            reservations.release(pk, who="benchmark")


def clock_now() -> Any:
    from apps.kernel import clock

    return clock.now()


class Sweep:
    """A sweep in another process, until nothing is left."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.count, self.seconds, self.longest = 0, 0.0, 0.0

    def run(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        here, there = spawn.Pipe()
        process = spawn.Process(target=sweep, args=(self.limit, there), daemon=True)
        process.start()
        self.count, self.seconds, self.longest = here.recv()
        process.join()


def sweep(limit: int, pipe: Any) -> None:
    import django

    django.setup()
    from apps.reservations.lifecycle import release

    total, longest = 0, 0.0
    begun = time.perf_counter()
    while True:
        one = time.perf_counter()
        count = release.sweep(limit, by=f"limit {limit}").reservations
        if not count:
            break
        longest = max(longest, time.perf_counter() - one)
        total += count
    pipe.send((total, time.perf_counter() - begun, longest))


def check(limit: int, lapsed: int, seats: int) -> None:
    """Assert that each reservation expired once, that the log counts it once, and that the audit finds no breach."""
    from apps.kernel.checks import auditor

    ((swept_seats, swept_general),) = run(
        "SELECT sum(seats_released), sum(general_admission_released) FROM reservations_cleanuplog"
        " WHERE swept_by = %(by)s",
        by=f"limit {limit}",
    )
    assert (swept_seats, swept_general) == (seats, lapsed - seats), (swept_seats, swept_general)
    ((twice,),) = run(
        "SELECT count(*) FROM (SELECT 1 FROM reservations_reservationtransition WHERE to_status = 'expired'"
        " GROUP BY reservation_id HAVING count(*) > 1) AS twice"
    )
    assert twice == 0, f"{twice} expired twice"
    breaches = [breach for finding in auditor.run() if finding.invariant in AUDITED for breach in finding.breaches]
    assert not breaches, breaches[:5]


if __name__ == "__main__":
    sys.exit(main())
