"""Large seated events and many buyers for benchmarks, written with one statement each, as the services would write
them.

The id of a buyer's queue entry is derived from the buyer's number, so that callers need no list of entries.
"""

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

SEATS_PER_ROW = 50

_FILL_SEATS = """
INSERT INTO events_seat (event_id, section_id, category_id, guid, row, number, x, y, row_index, place_index, rank,
                         accessible, companion)
SELECT section.event_id, section.id, category.id, section.slug || '-' || n,
       (n / %(row)s)::text, (n %% %(row)s)::text, n %% %(row)s, n / %(row)s, 10 + n / %(row)s, n %% %(row)s, 10 + n,
       false, false
FROM events_section AS section
JOIN events_category AS category ON category.event_id = section.event_id AND category.key = 'Standard'
CROSS JOIN generate_series(0, %(seats)s - 1) AS n
WHERE section.event_id = %(event_id)s AND section.kind = 'reserved'
ORDER BY section.id, n
"""
_COUNT_CAPACITY = """
UPDATE events_section SET capacity = counted.seats
FROM (
    SELECT section_id, count(*) AS seats FROM events_seat WHERE event_id = %(event_id)s GROUP BY section_id
) AS counted
WHERE id = counted.section_id
"""
_ADMIT = """
INSERT INTO queue_queueentry (id, event_id, number, in_lobby, nonce, marked, visitor_id, status, joined_at, ready_at,
                              admission_expires_at)
SELECT md5(%(slug)s || ' ' || n)::uuid, %(event_id)s, n + 1, false, '\\x00', '', 'visitor-' || n, 'ready',
       clock_timestamp(), clock_timestamp(), clock_timestamp() + interval '1 day'
FROM generate_series(%(begin)s::bigint, %(end)s::bigint - 1) AS n
"""
_MOVE_HEAD = """
UPDATE queue_waitingroom SET next_number = greatest(next_number, %(end)s + 1), head = greatest(head, %(end)s)
WHERE event_id = %(event_id)s
"""


@dataclass(frozen=True)
class SeatedEvent:
    """An event whose seats have consecutive ids."""

    event: Any
    first_seat: int
    seat_count: int
    floor: Any
    """Its general admission section."""


def make_seated_event(slug: str, *, sections: int, seats_per_section: int, floor: int) -> SeatedEvent:
    """Create a published event on sale with available seats, and a general admission section of capacity `floor`."""
    from django.db import connection

    from apps.events import facade as events
    from apps.events.creation import EventSpec, GeneralAdmission, create_event
    from apps.kernel import clock
    from apps.kernel.db import transactions
    from apps.reservations.inventory.setup import create_inventory

    lines = ["section,row,seat,x,y,category,accessible"]
    lines += [
        f"S{number:03d},first,{seat},{seat},{number},Standard,no" for number in range(sections) for seat in (1, 2)
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
            general_admission=(GeneralAdmission("Floor", floor, 2_500),),
            opens_at=clock.now() - timedelta(minutes=1),
        )
    )
    event = events.get_event(slug)
    with transactions.write(statement_ms=600_000, lock_ms=10_000), connection.cursor() as cursor:
        cursor.execute(_FILL_SEATS, {"event_id": event.id, "seats": seats_per_section - 2, "row": SEATS_PER_ROW})
        cursor.execute(_COUNT_CAPACITY, {"event_id": event.id})
        create_inventory(event.id)
    return find_seated_event(slug)


def find_seated_event(slug: str) -> SeatedEvent:
    from django.db import connection

    from apps.events import facade as events

    event = events.get_event(slug)
    with connection.cursor() as cursor:
        cursor.execute("SELECT min(id), max(id), count(*) FROM events_seat WHERE event_id = %s", [event.id])
        ((first, last, count),) = cursor.fetchall()
    assert last - first + 1 == count, "another event's seats were written in between"
    floor = next(section for section in events.list_sections(event.id) if section.is_general_admission)
    return SeatedEvent(event, first, count, floor)


def admit_buyers(event: Any, numbers: range) -> None:
    """Admit these buyers, so that they may start a reservation."""
    from django.db import connection, transaction

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = '10min'")
        cursor.execute(_ADMIT, {"slug": event.slug, "event_id": event.id, "begin": numbers.start, "end": numbers.stop})


def entry_of(event: Any, number: int) -> uuid.UUID:
    return uuid.UUID(hashlib.md5(f"{event.slug} {number}".encode(), usedforsecurity=False).hexdigest())


def make_hold_request(
    hall: SeatedEvent, number: int, *, seats: Sequence[int] = (), quantity: int = 0, best: Any = None
) -> Any:
    """Return the request of buyer `number`, resolved as the API would resolve it."""
    from apps.kernel.http import idempotency
    from apps.reservations.holds.requests import HoldRequest

    named = {seat: f"seat-{seat}" for seat in seats}
    floor = hall.floor if quantity else None
    return HoldRequest(
        reservation_id=uuid.uuid4(),
        event=hall.event,
        entry_id=entry_of(hall.event, number),
        buyer=f"visitor:visitor-{number}",
        idempotency_key=uuid.uuid4().hex,
        fingerprint=idempotency.fingerprint({"seats": list(named.values()), "ga_quantity": quantity}),
        seats=named,
        general_admission={floor.id: floor} if floor else {},
        quantities={floor.id: quantity} if floor else {},
        best=best,
    )


def seat_pair(first_seat: int, seat_count: int, number: int) -> list[int]:
    """Return two neighboring seats for buyer `number`: of no other buyer, and far from those of the next."""
    pairs = seat_count // 2
    assert number < pairs, "more buyers than seats"
    spread = 48_271 * number % pairs
    return [first_seat + 2 * spread, first_seat + 2 * spread + 1]


def vacuum_tables() -> None:
    """Vacuum and analyze all tables, and write them to disk."""
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("SET statement_timeout = 0")
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("RESET statement_timeout")
