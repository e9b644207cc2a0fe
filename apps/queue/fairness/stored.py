"""Checks that need the site's database. The proof must omit no entry, and each entry must have the number that it drew.
No unmarked entry may be admitted ahead of the head, or still wait for its first admission behind it. A draw by sign-up
may contain no more entries of an account than sign-ups."""

from django.db import connection

from apps.events import facade as events
from apps.kernel.db import sql
from apps.queue import invariants
from apps.queue.fairness.json_fields import Mismatch

_stored = sql.load("apps.queue", "proof_stored")
_misplaced = sql.load("apps.queue", "audit_numbers")
_unlike_draw = sql.load("apps.queue", "proof_unlike_draw")


def check(event_id: int) -> Mismatch | None:
    """Return the first contradiction between entries, draw and room; None if there is none."""
    with connection.cursor() as cursor:
        ((next_number, lobby_count, drawn_at, numbered_at, highest, lobby, beyond, below, drawn),) = _stored.rows(
            cursor, event_id=event_id
        )
        if highest is not None and highest >= next_number:
            return Mismatch(f"an entry has this number, but the next number is {next_number}", highest)
        if lobby != lobby_count:
            return Mismatch(f"{lobby} entries joined in the lobby, but the room counts {lobby_count}")
        if beyond is not None:
            return Mismatch(f"an entry of the lobby has this number, but the lobby's end with {lobby_count}", beyond)
        if below is not None and drawn_at is not None:
            return Mismatch(f"a late arrival has this number, but numbers up to {lobby_count} are the lobby's", below)
        if drawn_at is not None and drawn != lobby_count:
            return Mismatch(f"{drawn} numbers were drawn for {lobby_count} entries")
        for number, status, head, _ in _misplaced.rows(cursor, event_id=event_id):
            if number is None:
                return Mismatch(f"an entry that is {status} has no number: it was admitted before the draw")
            return Mismatch(f"its entry is {status} with the head at {head}, and is not marked", number)
        if numbered_at is not None:
            rows = _unlike_draw.rows(cursor, event_id=event_id)
            if rows:
                return Mismatch("its entry is not the one that drew it", rows[0][0])
    for count, buyer in invariants.entries_without_sign_up(events.get_event_by_id(event_id)):
        return Mismatch(f"{count} entries of {buyer} are in the draw, without a sign-up for each")
    return None
