"""The queue's audit check of invariant I9. It reads one event at a time, in short statements."""

from collections.abc import Iterator

from django.db import connection

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.checks import auditor
from apps.kernel.db import sql

_PACKAGE = "apps.queue"
_numbers = sql.load(_PACKAGE, "audit_numbers")
_twice = sql.load(_PACKAGE, "audit_twice")
_claims = sql.load(_PACKAGE, "audit_claims")
_cap = sql.load(_PACKAGE, "audit_cap")
_drawn = sql.load(_PACKAGE, "audit_drawn")
_sign_ups = sql.load(_PACKAGE, "audit_sign_ups")


def register() -> None:
    """Add the check to every audit."""
    auditor.register("I9", "one number, one entry; admission follows the numbers and never exceeds the cap", _check_i9)


def _check_i9(context: auditor.AuditContext) -> Iterator[str]:
    for event in [events.get_event(context.only)] if context.only else events.list_events():
        if context.since is not None:
            # No row tells which entries have changed. How many are active depends on no history.
            with connection.cursor() as cursor:
                yield from (_above(event, *row) for row in _cap.rows(cursor, event_id=event.id))
            continue
        with connection.cursor() as cursor:
            numbers = _numbers.rows(cursor, event_id=event.id)
            twice = _twice.rows(cursor, event_id=event.id)
            claims = _claims.rows(cursor, event_id=event.id)
            cap = _cap.rows(cursor, event_id=event.id)
            drawn = _drawn.rows(cursor, event_id=event.id)
        for number, status, head, next_number in numbers:
            yield f"{event.slug}: number {number} is {status} with the head at {head}, next number {next_number}"
        for buyer, count in twice:
            yield f"{event.slug}: {buyer} has {count} live entries"
        for number, status in claims:
            yield f"{event.slug}: number {number} has claimed its admission and is {status} again"
        for active, most in cap:
            yield _above(event, active, most)
        for drawn_number, number in drawn:
            actual = "none" if number is None else f"number {number}"
            yield f"{event.slug}: number {drawn_number} was drawn, the entry has {actual}"
        for count, buyer in entries_without_sign_up(event):
            yield f"{event.slug}: {count} entries of {buyer} in the draw, without a sign-up for each"


def _above(event: events.EventView, active: int, most: int) -> str:
    return f"{event.slug}: {active} are active with a cap of {most}"


def entries_without_sign_up(event: events.EventView) -> list[tuple[int, str]]:
    """Return the accounts and browsers that have more entries in the event's draw by sign-up than sign-ups, with how
    many entries. Empty once sales are over: sign-ups are then deleted before the entries of orders."""
    presale = event.policy.presale
    if presale is None or presale.sign_up_closes_at is None or event.is_over(clock.now()):
        return []
    with connection.cursor() as cursor:
        return list(_sign_ups.rows(cursor, event_id=event.id))
