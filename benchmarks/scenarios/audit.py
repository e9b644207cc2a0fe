"""How long the audit of a large event takes, idle and during a sale, and how much it slows the sale.

    python -m benchmarks.scenarios.audit [--rounds 5] [--seconds 6] [--buyers 4]

Starts a PostgreSQL server that would survive a power cut, and removes it afterwards. An event of 60,000 seats and
40,000 general-admission tickets has 50,000 reservations: sold ones with orders, payments and tickets, live ones and
ended ones. Ten more events have 500 reservations each. The rows are inserted in bulk, as the services would have
written them, and the audit must find no breach.

First the audit runs alone. Then buyers hold the best two seats of a section and release them, as fast as they can, for
some seconds at a time: alone, during audits that run one after another, during the same audits each read in one
transaction with one snapshot, and during a statement that only keeps a core busy, which shows what any work on the same
two cores costs them. The figures are medians of the rounds.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from benchmarks.support.rooms import start_servers

SECTIONS, ROWS, SEATS_IN_ROW = 40, 30, 50
GENERAL_ADMISSION = 40_000
RESERVATIONS = 50_000
OTHERS, OTHER_RESERVATIONS = 10, 500
AUDITS = 7
BESIDE = ("nothing", "audits in pieces", "audits in one snapshot", "a busy core")

_BUYERS = """
CREATE TEMPORARY TABLE person AS
SELECT n,
       gen_random_uuid() AS entry_id,
       gen_random_uuid() AS reservation_id,
       gen_random_uuid() AS order_id,
       gen_random_uuid() AS payment_id,
       'visitor:' || substr(md5(n::text || random()::text), 1, 24) AS buyer,
       CASE WHEN n %% 10 < 6 THEN 'confirmed' WHEN n %% 10 < 7 THEN 'paying' WHEN n %% 10 < 8 THEN 'pending_payment'
            WHEN n %% 10 < 9 THEN 'canceled' ELSE 'expired' END AS status,
       (n / 10) %% 5 < 2 AS is_general_admission
FROM generate_series(0, %(count)s - 1) AS n
"""
_SEATS = """
CREATE TEMPORARY TABLE numbered_seat AS
SELECT row_number() OVER (ORDER BY seat.rank, seat.id DESC) - 1 AS n, seat.id, seat.section_id, seat.category_id
FROM events_seat AS seat
WHERE seat.event_id = %(event_id)s
"""
_FILL = [
    """
INSERT INTO queue_queueentry (id, event_id, number, in_lobby, nonce, marked, visitor_id, status, joined_at, ready_at,
                              admission_expires_at, busy_until, ended_at)
SELECT entry_id, %(event_id)s, n + 1, false, decode(md5(n::text), 'hex'), '', substr(buyer, 9),
       CASE WHEN status IN ('paying', 'pending_payment') THEN 'ready' WHEN status = 'confirmed' THEN 'completed'
            ELSE 'expired' END,
       clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 day',
       CASE WHEN status IN ('paying', 'pending_payment') THEN clock_timestamp() + interval '1 day' END,
       CASE WHEN status NOT IN ('paying', 'pending_payment') THEN clock_timestamp() END
FROM person
""",
    """
INSERT INTO reservations_reservation (id, event_id, entry_id, buyer, email, status, expires_at, pay_deadline,
                                      seat_count, total_minor, currency, created_at, confirmed_at, ended_at)
SELECT reservation_id, %(event_id)s, entry_id, buyer, CASE WHEN status IN ('paying', 'confirmed')
       THEN substr(buyer, 9) || '@example.org' ELSE '' END, status, clock_timestamp() + interval '1 day',
       CASE WHEN status IN ('paying', 'confirmed') THEN clock_timestamp() + interval '1 day' END,
       2, 10000, 'USD', clock_timestamp(),
       CASE WHEN status = 'confirmed' THEN clock_timestamp() END,
       CASE WHEN status IN ('canceled', 'expired') THEN clock_timestamp() END
FROM person
""",
    """
INSERT INTO reservations_reservationline (reservation_id, section_id, category_id, seat_id, quantity, price_minor, live)
SELECT person.reservation_id, numbered_seat.section_id, numbered_seat.category_id, numbered_seat.id, 1, 5000,
       person.status NOT IN ('canceled', 'expired')
FROM (SELECT *, row_number() OVER (ORDER BY status IN ('canceled', 'expired'), n) - 1 AS position
      FROM person WHERE NOT is_general_admission) AS person
CROSS JOIN generate_series(0, 1) AS which
JOIN numbered_seat ON numbered_seat.n = (person.position * 2 + which) %% %(seats)s
""",
    """
INSERT INTO reservations_reservationline (reservation_id, section_id, category_id, seat_id, quantity, price_minor, live)
SELECT person.reservation_id, section.id, section.category_id, NULL, 2, 5000,
       person.status NOT IN ('canceled', 'expired')
FROM person
JOIN events_section AS section ON section.event_id = %(event_id)s AND section.kind = 'general_admission'
WHERE is_general_admission
""",
    """
UPDATE reservations_seatinventory AS seat
SET status = CASE WHEN person.status = 'confirmed' THEN 2 ELSE 1 END, reservation_id = person.reservation_id
FROM reservations_reservationline AS line JOIN person ON person.reservation_id = line.reservation_id
WHERE line.seat_id = seat.seat_id AND line.live
""",
    """
UPDATE reservations_generaladmissioninventory AS row
SET taken = (SELECT coalesce(sum(quantity), 0) FROM reservations_reservationline
             WHERE section_id = row.section_id AND live AND seat_id IS NULL)
WHERE row.event_id = %(event_id)s
""",
    """
INSERT INTO reservations_reservationtransition (reservation_id, from_status, to_status, who, why, at)
SELECT reservation_id, step.before, step.after, buyer, 'benchmark', clock_timestamp()
FROM person
CROSS JOIN (VALUES (1, '', 'pending_payment'), (2, 'pending_payment', 'paying'), (3, 'paying', 'confirmed'),
                   (4, 'pending_payment', 'canceled'), (5, 'pending_payment', 'expired')) AS step (n, before, after)
WHERE step.n = 1
   OR (step.n = 2 AND status IN ('paying', 'confirmed'))
   OR (step.n > 2 AND step.after = status)
ORDER BY step.n, person.n
""",
    """
INSERT INTO orders_order (id, number, reservation_id, event_id, entry_id, buyer, email, name, status, reason,
                          total_minor, currency, pay_deadline, placed_at, confirmed_at)
SELECT order_id, 'B' || %(event_id)s || '-' || n, reservation_id, %(event_id)s, entry_id, buyer,
       substr(buyer, 9) || '@example.org', 'A Buyer', CASE status WHEN 'paying' THEN 'paying' ELSE 'confirmed' END, '',
       10000, 'USD', (SELECT pay_deadline FROM reservations_reservation WHERE id = reservation_id), clock_timestamp(),
       CASE status WHEN 'confirmed' THEN clock_timestamp() END
FROM person
WHERE status IN ('paying', 'confirmed')
""",
    """
INSERT INTO kernel_idempotentanswer (scope, key, fingerprint, status, answer, created_at)
SELECT 'checkout:' || entry_id, order_id::text, '', 202,
       json_build_object('order_id', order_id, 'status', 'placed', 'total_minor', 10000, 'currency', 'USD')::text,
       clock_timestamp()
FROM person
WHERE status IN ('paying', 'confirmed')
""",
    """
INSERT INTO orders_payment (id, order_id, attempt, provider, method, reference, status, amount_minor, captured_minor,
                            refunded_minor, faults_count, currency, counts_until, created_at, started_at, occurred_at,
                            settled_at)
SELECT person.payment_id, order_id, 1, 'sandbox', 'card', person.payment_id::text,
       CASE person.status WHEN 'paying' THEN 'pending' ELSE 'succeeded' END, 10000,
       CASE person.status WHEN 'paying' THEN 0 ELSE 10000 END, 0, 0, 'USD',
       reservation.pay_deadline + interval '1 minute',
       clock_timestamp(), clock_timestamp(), CASE person.status WHEN 'confirmed' THEN clock_timestamp() END,
       CASE person.status WHEN 'confirmed' THEN clock_timestamp() END
FROM person
JOIN reservations_reservation AS reservation ON reservation.id = person.reservation_id
WHERE person.status IN ('paying', 'confirmed')
""",
    """
INSERT INTO orders_providermessage (provider, message_id, kind, payment_id, reference, amount_minor, currency,
                                    occurred_at, refund_key, refund_reference, failure, dispute_reference, raw,
                                    received_at, processed_at, outcome)
SELECT payment.provider, payment.reference, 'payment.succeeded', payment.id, payment.reference, payment.captured_minor,
       payment.currency, payment.occurred_at, '', '', '', '', '', payment.occurred_at, payment.occurred_at, 'captured'
FROM orders_payment AS payment
JOIN person ON person.payment_id = payment.id
WHERE person.status = 'confirmed'
""",
    """
INSERT INTO orders_orderline (order_id, kind, reservation_line_id, place, description, category, price_minor,
                              discount_minor, fee_minor, tax_rate, tax_included, tax_minor, total_minor)
SELECT person.order_id, 'place', line.id, place, 'A ticket', 'Standard', 5000, 0, 0, 0, true, 0, 5000
FROM person
JOIN reservations_reservationline AS line ON line.reservation_id = person.reservation_id
CROSS JOIN generate_series(1, line.quantity) AS place
WHERE person.status IN ('paying', 'confirmed')
""",
    """
INSERT INTO orders_ticket (code, order_id, order_line_id, line_id, place, seat_id, label, section, row, number,
                           category, price_minor, holder, issued_at, replaced_by)
SELECT replace(gen_random_uuid()::text, '-', ''), person.order_id, sold.id, line.id, sold.place, line.seat_id,
       'A ticket', 'A section', '', '', 'Standard', 5000, 'A Buyer', clock_timestamp(), ''
FROM person
JOIN reservations_reservationline AS line ON line.reservation_id = person.reservation_id
JOIN orders_orderline AS sold ON sold.reservation_line_id = line.id
WHERE person.status = 'confirmed'
""",
    "UPDATE queue_waitingroom SET head = %(count)s, next_number = %(count)s + 1 WHERE event_id = %(event_id)s",
    "DROP TABLE person, numbered_seat",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=6, help="of each measurement")
    parser.add_argument("--buyers", type=int, default=4)
    parser.add_argument("--beside", choices=BESIDE[1:], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.beside:
        repeat_until_stopped(options.beside)
        return
    with start_servers(durable=True):
        measure(options.rounds, options.seconds, options.buyers)


def measure(rounds: int, seconds: float, buyers: int) -> None:
    great = fill("great", SECTIONS, ROWS, SEATS_IN_ROW, GENERAL_ADMISSION, RESERVATIONS)
    for number in range(OTHERS):
        fill(f"other-{number}", 2, 20, 25, 2_000, OTHER_RESERVATIONS)
    vacuum_tables()
    audits = [timed_audit() for _ in range(AUDITS + 1)][1:]
    print_audits("the audit alone", audits)
    alone = [timed_audit(great.slug) for _ in range(3)]
    print_audits("the audit of the large event alone", alone)

    rates: dict[str, list[float]] = {name: [] for name in BESIDE}
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in BESIDE}
    load(great, buyers, seconds)
    for number in range(rounds):
        for name in BESIDE[:: 1 if number % 2 == 0 else -1]:
            with beside(name) as reports:
                rates[name].append(load(great, buyers, seconds))
            found[name] += reports
    print(f"\n| {buyers} buyers hold and release, during | holds/s | ratio | audits | median | longest statement |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    base = statistics.median(rates["nothing"])
    for name in BESIDE:
        rate, audits = statistics.median(rates[name]), found[name]
        took = f"{statistics.median(one['seconds'] for one in audits):.1f} s" if audits else ""
        longest = f"{max(one['longest_ms'] for one in audits):,.0f} ms" if audits else ""
        print(f"| {name} | {rate:,.0f} | {rate / base:.2f} | {len(audits) or ''} | {took} | {longest} |")
    spans = ", ".join(f"{name} {min(of):,.0f} to {max(of):,.0f}" for name, of in rates.items())
    print(f"\nrange of holds/s over the rounds: {spans}")
    breaches = [breach for audits in found.values() for one in audits for breach in one["breaches"]]
    last = timed_audit()
    print(f"breaches found in {sum(map(len, found.values()))} audits during the sale: {len(breaches)}; after it: "
          f"{len(last['breaches'])}")  # fmt: skip
    if breaches or last["breaches"]:
        raise SystemExit("\n".join((breaches + last["breaches"])[:20]))


def fill(slug: str, sections: int, rows: int, row_seats: int, general_admission: int, reservations: int) -> Any:
    """Create a published event with `reservations` reservations, in the state in which the services leave them."""
    from django.db import connection, transaction

    from apps.events import facade as events
    from apps.events.creation import EventSpec, GeneralAdmission, create_event
    from apps.kernel import clock

    lines = ["section,row,seat,x,y,category,accessible"]
    for section, row, seat in itertools.product(range(sections), range(rows), range(row_seats)):
        lines.append(f"Block {section},{row + 1},{seat + 1},{section * 2000 + seat * 20},{row * 25},Standard,no")
    create_event(
        EventSpec(
            slug=slug,
            name=slug.title(),
            venue=f"Venue of {slug}",
            starts_at=clock.now() + timedelta(days=30),
            currency="USD",
            plan="\n".join(lines).encode(),
            prices={"Standard": 5_000},
            general_admission=(GeneralAdmission("Floor", general_admission, 5_000),),
            per_buyer_max=8,
            opens_at=clock.now() - timedelta(minutes=1),
        )
    )
    event = events.get_event(slug)
    params = {"event_id": event.id, "count": reservations, "seats": sections * rows * row_seats}
    begun = time.perf_counter()
    with transaction.atomic(), connection.cursor() as cursor:
        for statement in (_BUYERS, _SEATS, *_FILL):
            cursor.execute(statement, params)
            if "TEMPORARY" in statement:
                cursor.execute(f"ANALYZE {statement.split()[3]}")
    if reservations == RESERVATIONS:
        print(f"{slug}: {params['seats']:,} seats, {general_admission:,} general-admission tickets, "
              f"{reservations:,} reservations, written in {time.perf_counter() - begun:.1f} s", flush=True)  # fmt: skip
    return event


def vacuum_tables() -> None:
    """Bring the tables into the state in which autovacuum keeps those of a server."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")


def timed_audit(only: str = "", *, in_one_snapshot: bool = False) -> dict[str, Any]:
    """Run one audit; return its seconds, its statement count, the longest statement and the breaches."""
    from django.db import connection, transaction

    from apps.kernel.checks import auditor
    from apps.kernel.db import sql

    took: dict[str, list[float]] = {}
    begun_at: dict[str, float] = {}

    def record_statement(name: str, when: str) -> None:
        if when == "before":
            begun_at[name] = time.perf_counter()
        else:
            took.setdefault(name, []).append((time.perf_counter() - begun_at[name]) * 1_000)

    read = auditor.read_cursor

    @contextmanager
    def same_transaction() -> Iterator[Any]:
        with connection.cursor() as cursor:
            yield cursor

    begun = time.perf_counter()
    with sql.observe(record_statement):
        if in_one_snapshot:
            auditor.read_cursor = same_transaction
            try:
                with transaction.atomic(), connection.cursor() as cursor:
                    cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                    findings = auditor.run(only)
            finally:
                auditor.read_cursor = read
        else:
            findings = auditor.run(only)
    seconds = time.perf_counter() - begun
    assert not any(finding.unchecked for finding in findings), findings
    longest = max(took, key=lambda name: max(took[name]))
    return {
        "seconds": seconds,
        "statements": sum(map(len, took.values())),
        "longest_ms": max(took[longest]),
        "longest": longest,
        "sums": {name: sum(times) for name, times in took.items()},
        "breaches": [f"{found.invariant}: {breach}" for found in findings for breach in found.breaches],
    }


def print_audits(title: str, audits: list[dict[str, Any]]) -> None:
    seconds = [one["seconds"] for one in audits]
    longest = max(audits, key=lambda one: one["longest_ms"])
    print(f"\n{title}: {statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f})", end=", ")
    print(f"{audits[0]['statements']} statements, the longest {longest['longest_ms']:.0f} ms ({longest['longest']})")
    sums = audits[0]["sums"]
    print("  " + ", ".join(f"{name} {sums[name]:.0f} ms" for name in sorted(sums, key=lambda n: -sums[n])[:8]))
    found = [breach for one in audits for breach in one["breaches"]]
    if found:
        raise SystemExit("\n".join(found[:20]))


def load(event: Any, buyers: int, seconds: float) -> float:
    """Return the holds a second of buyers who each hold the best two seats of a section and release them."""
    from django.db import connections

    from apps.queue import facade as queue
    from apps.reservations import facade as reservations

    entries = [queue.join(event, queue.Caller(visitor_id=queue.new_visitor_secret())) for _ in range(buyers)]
    start = threading.Barrier(buyers + 1)
    counts = [0] * buyers
    end: list[float] = []

    def buy(number: int) -> None:
        wanted = {"best_available": {"section": f"block-{SECTIONS - 1}", "quantity": 2}}
        connections["default"].ensure_connection()
        start.wait()
        while time.perf_counter() < end[0]:
            request = reservations.resolve(event, entries[number], wanted, uuid.uuid4().hex)
            (outcome,) = reservations.hold([request])
            if isinstance(outcome, reservations.Held):
                reservations.release(outcome.reservation_id, who="benchmark")
                counts[number] += 1
        connections.close_all()

    threads = [threading.Thread(target=buy, args=(number,)) for number in range(buyers)]
    for thread in threads:
        thread.start()
    end.append(time.perf_counter() + seconds)
    begun = time.perf_counter()
    start.wait()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - begun)


@contextmanager
def beside(name: str) -> Iterator[list[dict[str, Any]]]:
    """Run `name` in another process while the block runs; afterwards its reports are in the list."""
    reports: list[dict[str, Any]] = []
    if name == "nothing":
        yield reports
        return
    command = [sys.executable, "-m", "benchmarks.scenarios.audit", "--beside", name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        other.stdin.write("go\n")
        other.stdin.flush()
        yield reports
        other.stdin.close()
        reports += [json.loads(line) for line in other.stdout]
    assert other.returncode == 0


def repeat_until_stopped(name: str) -> None:
    """Repeat this work until standard input ends, and print a report each time."""
    import django

    assert os.environ["DJANGO_SETTINGS_MODULE"]
    django.setup()
    from django.db import connection

    connection.ensure_connection()
    print("ready", flush=True)
    sys.stdin.readline()
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    while not stop.is_set():
        if name == "a busy core":
            with connection.cursor() as cursor:
                cursor.execute("SELECT sum(n) FROM generate_series(1, 100000) AS n")
        else:
            print(json.dumps(timed_audit(in_one_snapshot=name == "audits in one snapshot")), flush=True)


if __name__ == "__main__":
    main()
