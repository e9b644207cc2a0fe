"""How fast a sold-out event refuses requests, by the gate and by PostgreSQL, and what the gate costs other requests.

    python -m benchmarks.scenarios.gate [--rounds 20] [--calls 100] [--callers 16] [--live 10000] [--seats 60000]

Measures one sold-out event with servers of the benchmark. Both ways use the API's call (`reservations.hold_one`) in
this process, in turn within one run, with one caller and with many at once, so that a slow machine slows both. Also
measured: the check alone, a request that the gate passes, and one reset of a gate with `--seats` seats and `--live`
live reservations.
"""

import argparse
import random
import statistics
import threading
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from benchmarks.support.rooms import start_servers

PAYLOAD = {"ga_section": "floor", "ga_quantity": 1}
_LIVE = """
WITH made AS (
    INSERT INTO reservations_reservation
        (id, event_id, entry_id, buyer, email, status, expires_at, seat_count, total_minor, currency, created_at)
    SELECT gen_random_uuid(), %(event_id)s, entry.id, 'visitor:' || entry.visitor_id, '', 'pending_payment',
           clock_timestamp() + random() * interval '10 minutes', 1, 1, 'USD', clock_timestamp()
    FROM queue_queueentry AS entry
    WHERE entry.event_id = %(event_id)s
    RETURNING id, event_id, buyer
), lines AS (
    INSERT INTO reservations_reservationline
        (reservation_id, section_id, category_id, quantity, price_minor, live)
    SELECT id, %(section_id)s, %(category_id)s, 1, 1, true FROM made
), taken AS (
    UPDATE reservations_generaladmissioninventory
    SET taken = (SELECT count(*) FROM made)
    WHERE section_id = %(section_id)s
)
INSERT INTO kernel_idempotentanswer (scope, key, fingerprint, status, answer, created_at)
SELECT 'hold:' || event_id || ':' || buyer, id::text, '', 201, json_build_object('reservation_id', id)::text,
       clock_timestamp()
FROM made
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--calls", type=int, default=100, help="per round and way")
    parser.add_argument("--callers", type=int, default=16, help="concurrent callers in the second table")
    parser.add_argument("--live", type=int, default=10_000, help="live reservations of the event that is reset")
    parser.add_argument("--seats", type=int, default=60_000, help="seats of the event that is reset")
    options = parser.parse_args()
    with start_servers(durable=True):
        refusals(options.rounds, options.calls, options.callers)
        resets(options.live, options.seats)


def refusals(rounds: int, calls: int, callers: int) -> None:
    from django.db import connections

    from apps.events import facade as events
    from apps.reservations import facade as reservations
    from apps.reservations.gate import gate, rebuild
    from apps.reservations.holds.service import holds
    from tests.support.factories import hold, join, make_event

    sold_out = make_event("sold-out", rows=0, general_admission=2)
    free = make_event("free", rows=0, general_admission=1_000)
    for _ in range(2):
        hold(sold_out, **PAYLOAD)
    entries = [join(sold_out) for _ in range(50)]
    free_entries = [join(free) for _ in range(50)]
    check = gate.refusal

    def buy(event: events.EventView, entry: Any) -> None:
        try:
            reservations.hold_one(event, entry, PAYLOAD, uuid.uuid4().hex)
        except reservations.SoldOut:
            return
        raise AssertionError("the request was not refused")

    def by_gate(entry: Any) -> None:
        gate.refusal = check
        buy(sold_out, entry)

    def by_postgres(entry: Any) -> None:
        gate.refusal = lambda *_: None
        buy(sold_out, entry)

    def check_refused(entry: Any) -> None:
        assert check(sold_out, entry, PAYLOAD, uuid.uuid4().hex) is not None

    def check_passed(entry: Any) -> None:
        assert check(free, entry, PAYLOAD, uuid.uuid4().hex) is None

    ways: list[tuple[str, Callable[[Any], None], list[Any]]] = [
        ("refused by the gate", by_gate, entries),
        ("refused by PostgreSQL", by_postgres, entries),
        ("the check alone, refused", check_refused, entries),
        ("the check alone, passed", check_passed, free_entries),
    ]
    order = random.Random(1)  # noqa: S311
    for at_once in (1, callers):
        taken: dict[str, list[float]] = {name: [] for name, *_ in ways}
        begun = {name: 0.0 for name, *_ in ways}
        for number in range(rounds + 1):
            for name, act, buyers in order.sample(ways, len(ways)):
                for event in (sold_out, free):
                    assert rebuild.reset(event.id) in rebuild.OPENED
                start = time.perf_counter()
                times = all_at_once(at_once, calls, act, buyers)
                if number:  # The first round warms up.
                    taken[name] += times
                    begun[name] += time.perf_counter() - start
        print(f"\n{at_once} at once, {rounds} rounds of {calls} calls each")
        for name, *_ in ways:
            times = sorted(taken[name])
            p50, p99 = times[len(times) // 2], times[int(len(times) * 0.99)]
            rate = len(times) / begun[name]
            print(f"{name:<34} p50 {p50 * 1e3:7.2f} ms   p99 {p99 * 1e3:7.2f} ms   {rate:8,.0f} a second", flush=True)
    gate.refusal = check
    holds.close()
    connections.close_all()


def all_at_once(callers: int, calls: int, act: Callable[[Any], None], buyers: list[Any]) -> list[float]:
    """Make the calls from `callers` threads; return the seconds of each."""
    from django.db import connections

    times: list[float] = []

    def call(number: int) -> None:
        for repetition in range(calls // callers or 1):
            start = time.perf_counter()
            act(buyers[(number * 7 + repetition) % len(buyers)])
            times.append(time.perf_counter() - start)

    if callers == 1:
        call(0)
        return times

    def in_a_thread(number: int) -> None:
        try:
            call(number)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=in_a_thread, args=(number,)) for number in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return times


def resets(live: int, seats: int) -> None:
    from django.db import connection

    from apps.events import facade as events
    from apps.events.creation import EventSpec, GeneralAdmission, create_event
    from apps.kernel import clock, redis
    from apps.reservations.gate import rebuild
    from apps.reservations.lifecycle import gate_counts
    from benchmarks.support.rooms import _FILL

    lines = ["section,row,seat,x,y,category,accessible"]
    lines += [f"Block {n // 2000},{n % 2000 // 50},{n % 50},{n % 50},{n // 50},Standard,no" for n in range(seats)]
    create_event(
        EventSpec(
            slug="stadium",
            name="Stadium",
            venue="Stadium",
            starts_at=clock.now() + timedelta(days=30),
            currency="USD",
            plan="\n".join(lines).encode(),
            prices={"Standard": 1_000},
            general_admission=(GeneralAdmission("Floor", live, 1_000),),
            opens_at=clock.now() - timedelta(minutes=1),
        )
    )
    event = events.get_event("stadium")
    (floor,) = [section for section in events.list_sections(event.id) if section.is_general_admission]
    with connection.cursor() as cursor:
        cursor.execute(_FILL, {"event_id": event.id, "count": live})
        cursor.execute(_LIVE, {"event_id": event.id, "section_id": floor.id, "category_id": floor.category_id})
        cursor.execute("VACUUM ANALYZE")  # As autovacuum keeps the tables of a server.
    begun = time.perf_counter()
    assert rebuild.reset(event.id) == "open"
    first = time.perf_counter() - begun
    again = []
    for _ in range(20):
        time.sleep(0.4)  # Until the stored responses of the last reservations no longer count as recent.
        begun = time.perf_counter()
        assert rebuild.reset(event.id) == "open"
        again.append(time.perf_counter() - begun)
    size = sum(redis.client().memory_usage(key) or 0 for key in gate_counts.keys(event.id))
    print(f"\n{seats:,} seats in {len(events.list_sections(event.id)) - 1} sections, {live:,} live reservations")
    print(f"the first reset, with PostgreSQL read and all keys checked: {first * 1e3:.1f} ms")
    print(f"each later reset: median {statistics.median(again[14:]) * 1e3:.1f} ms, {size:,} bytes in Redis")


if __name__ == "__main__":
    main()
