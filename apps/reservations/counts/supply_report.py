"""What the waiting rooms are told of the stock: reported down to them, so that the arrows hold."""

import time

from django.db import connection

from apps.kernel import clock, duty_cycle
from apps.kernel.db import sql
from apps.queue import facade as queue

_supply_of_events = sql.load("apps.reservations", "supply_of_events")


class Reporter:
    """One loop's reports, with the rest between them: a quarter of its time at most goes into the counting."""

    def __init__(self) -> None:
        self._next_report_at = 0.0

    def report_if_due(self) -> int:
        if time.monotonic() < self._next_report_at:
            return 0
        begun = time.monotonic()
        count = report_supply()
        self._next_report_at = time.monotonic() + duty_cycle.pause_seconds(begun)
        return count


def report_supply() -> int:
    """Every room that lets people in, or may again, knows what is available and what is held; how many were told. One
    statement counts for all of them, and only rooms that know otherwise are touched."""
    event_ids = queue.rooms_in_use()
    if not event_ids:
        return 0
    read_at = clock.now()
    with connection.cursor() as cursor:
        rows = _supply_of_events.rows(cursor, event_ids=event_ids)
    queue.report_supplies({event_id: (available, held) for event_id, available, held in rows}, read_at=read_at)
    return len(event_ids)
