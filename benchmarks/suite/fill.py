"""Fills a deployment before it is measured, because empty tables would not be representative.

    python -m benchmarks.suite.fill FOLDER SEATS OLD WAITING EVENTS

Runs in the environment of the deployment (DATABASE_URL, REDIS_URL, SECRET_KEY). It creates an arena with this many
seats, in sections of up to 50,000, and a floor; as many old reservations in its ledger; a queue with this many
visitors; a sold-out event; small events that are on sale; and one whose seats are sold for good. FOLDER gets
`facts.json`, which describes the data, and the tokens of buyers and waiting visitors, one per line. Rows are written as
the services would leave them.
"""

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

FLOOR = 10_000_000
SECTION_SEATS_MAX = 50_000
BUYERS = 30_000
"""Visitors who may hold in the arena, each once in a slice."""
GONE_BUYERS = 5_000
SALES_SEATS = 10_000
"""Seats that are sold while sales are measured, and stay sold."""
WAITING_TOKENS = 20_000
ADMITTED_MAX = 5_000
"""Upper limit of admissions during a measurement: visitors near the head do not poll."""

_OLD_ENTRIES = """
INSERT INTO queue_queueentry (id, event_id, number, in_lobby, nonce, marked, visitor_id, status, joined_at, ready_at,
                              admission_expires_at, ended_at)
SELECT md5('old ' || n)::uuid, %(event_id)s, %(after)s + n, false, '\\x00', '', 'visitor-old-' || n, 'expired',
       clock_timestamp() - interval '2 hours', clock_timestamp() - interval '110 minutes',
       clock_timestamp() - interval '100 minutes', clock_timestamp() - interval '90 minutes'
FROM generate_series(1, %(count)s) AS n
"""
_OLD_RESERVATIONS = """
INSERT INTO reservations_reservation (id, event_id, entry_id, buyer, email, status, expires_at, seat_count, total_minor,
                                      currency, created_at, ended_at)
SELECT md5('old reservation ' || n)::uuid, %(event_id)s, md5('old ' || n)::uuid, 'visitor:visitor-old-' || n, '',
       'expired', clock_timestamp() - interval '95 minutes', 2, 5000, 'USD', clock_timestamp() - interval '105 minutes',
       clock_timestamp() - interval '95 minutes'
FROM generate_series(1, %(count)s) AS n
"""
_OLD_LINES = """
INSERT INTO reservations_reservationline (reservation_id, section_id, category_id, seat_id, quantity, price_minor, live)
SELECT md5('old reservation ' || n)::uuid, %(section_id)s, %(category_id)s, NULL, 2, 2500, false
FROM generate_series(1, %(count)s) AS n
"""
_OLD_STEPS = """
INSERT INTO reservations_reservationtransition (reservation_id, from_status, to_status, who, why, at)
SELECT md5('old reservation ' || n)::uuid, step.was, step.became, 'visitor', '', clock_timestamp() - step.ago
FROM generate_series(1, %(count)s) AS n
CROSS JOIN (VALUES ('', 'pending_payment', interval '105 minutes'),
                   ('pending_payment', 'expired', interval '95 minutes')) AS step (was, became, ago)
"""
_HOLD_EVERYTHING = """
WITH held AS (
    INSERT INTO reservations_reservation (id, event_id, entry_id, buyer, email, status, expires_at, seat_count,
                                          total_minor, currency, created_at)
    SELECT gen_random_uuid(), %(event_id)s, %(entry_id)s, 'visitor:visitor-0', '', 'pending_payment',
           clock_timestamp() + interval '1 day', %(quantity)s, %(quantity)s * 2500::bigint, 'USD', clock_timestamp()
    RETURNING id
), line AS (
    INSERT INTO reservations_reservationline
        (reservation_id, section_id, category_id, seat_id, quantity, price_minor, live)
    SELECT id, %(section_id)s, %(category_id)s, NULL, %(quantity)s, 2500, true FROM held
), step AS (
    INSERT INTO reservations_reservationtransition (reservation_id, from_status, to_status, who, why, at)
    SELECT id, '', 'pending_payment', 'visitor', '', clock_timestamp() FROM held
)
UPDATE reservations_generaladmissioninventory SET taken = %(quantity)s WHERE section_id = %(section_id)s
"""


def fill(folder: Path, seats: int, old: int, waiting: int, small_events: int) -> dict[str, Any]:
    from apps.queue.identity.caller import issue_admission_token, issue_queue_token
    from apps.queue.models import QueueEntry
    from benchmarks.support import halls, rooms

    # Without foreign key triggers: this script writes the referring and the referenced rows correctly.
    _run_outside_transaction("SET session_replication_role = replica")

    def tokens(event: Any, count: int) -> list[str]:
        return [issue_admission_token(halls.entry_of(event, n), event.slug, n + 1, None) for n in range(count)]

    # First, while the tables that each publication analyzes are small.
    shows = []
    for number in range(small_events):
        # The first event is also measured alone, and the first ten as a group.
        buyers = BUYERS if number == 0 else BUYERS // 10 if number < 10 else BUYERS // small_events
        show = make_small_event(f"show-{number:02}", FLOOR)
        halls.admit_buyers(show.event, range(buyers))
        _set_head(show.event.id, buyers)
        _write(folder / f"{show.event.slug}.tokens", tokens(show.event, buyers))
        shows.append(show.event.slug)

    halls.make_seated_event("sales", sections=1, seats_per_section=SALES_SEATS, floor=10)

    section_seats = min(seats, SECTION_SEATS_MAX)
    arena = halls.make_seated_event(
        "arena", sections=seats // section_seats, seats_per_section=section_seats, floor=FLOOR
    )
    halls.admit_buyers(arena.event, range(BUYERS))
    _run([_OLD_ENTRIES], event_id=arena.event.id, after=BUYERS, count=old)
    place = {"event_id": arena.event.id, "section_id": arena.floor.id, "category_id": arena.floor.category_id}
    _run([_OLD_RESERVATIONS, _OLD_LINES, _OLD_STEPS], **place, count=old)
    _set_head(arena.event.id, BUYERS + old)

    rooms.make_full_room("line", waiting)

    gone = make_small_event("gone", 500)
    halls.admit_buyers(gone.event, range(GONE_BUYERS))
    _set_head(gone.event.id, GONE_BUYERS)
    place = {"event_id": gone.event.id, "section_id": gone.floor.id, "category_id": gone.floor.category_id}
    _run([_HOLD_EVERYTHING], **place, entry_id=halls.entry_of(gone.event, 0), quantity=500)

    _write(folder / "arena.tokens", tokens(arena.event, BUYERS))
    # The gate remembers the buyer who holds there, so that buyer sends no requests.
    _write(folder / "gone.tokens", tokens(gone.event, GONE_BUYERS)[1:])
    waits = QueueEntry.objects.filter(event__slug="line", status="waiting", number__gt=min(ADMITTED_MAX, waiting // 2))
    chosen = waits.order_by("id").values_list("id", "number")[:WAITING_TOKENS]
    _write(folder / "line.tokens", [issue_queue_token(entry, "line", number) for entry, number in chosen])
    _vacuum()
    facts = {
        "seats": seats,
        "section_seats": section_seats,
        "old": old,
        "waiting": waiting,
        "section": _section_slug(arena),
        "floor": arena.floor.slug,
        "shows": shows,
    }
    (folder / "facts.json").write_text(json.dumps(facts))
    return facts


def make_small_event(slug: str, floor: int) -> Any:
    from apps.events import facade as events
    from apps.events.creation import EventSpec, GeneralAdmission, create_event
    from apps.kernel import clock
    from benchmarks.support.halls import SeatedEvent

    create_event(
        EventSpec(
            slug=slug,
            name=slug.title(),
            venue=f"Venue of {slug}",
            starts_at=clock.now() + timedelta(days=30),
            currency="USD",
            general_admission=(GeneralAdmission("Floor", floor, 2_500),),
            opens_at=clock.now() - timedelta(minutes=1),
        )
    )
    event = events.get_event(slug)
    return SeatedEvent(event, 0, 0, events.list_sections(event.id)[0])


def _section_slug(hall: Any) -> str:
    from apps.events import facade as events

    return next(one.slug for one in events.list_sections(hall.event.id) if not one.is_general_admission)


def _set_head(event_id: int, head: int) -> None:
    """Update the room's row as after this many admissions."""
    from apps.queue.models import WaitingRoom

    WaitingRoom.objects.filter(event_id=event_id).update(next_number=head + 1, head=head)


def _run(statements: list[str], **values: Any) -> None:
    from django.db import connection, transaction

    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SET LOCAL statement_timeout = 0")
        for statement in statements:
            cursor.execute(statement, values)


def _run_outside_transaction(statement: str) -> None:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(statement)


def _vacuum() -> None:
    """Vacuum and analyze all tables, and write them to disk."""
    from benchmarks.support import halls

    halls.vacuum_tables()


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("\n".join(lines))


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "ticketing.settings")
    import django

    django.setup()
    folder, *numbers = sys.argv[1:]
    fill(Path(folder), *map(int, numbers))


if __name__ == "__main__":
    main()
