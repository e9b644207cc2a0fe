"""Reports the available and held tickets to the waiting rooms, since the queue may not import this app."""

import time

from django.db import connection

from apps.kernel import clock
from apps.kernel.db import sql
from apps.kernel.heavy_work import duty_cycle
from apps.queue import facade as queue

_supply_of_events = sql.load("apps.reservations", "supply_of_events")


class Reporter:
    """Reports with pauses between them, so that counting takes at most a quarter of the time."""

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
    """Report the supply to every room that admits visitors or may do so again; return how many. One statement counts
    for all rooms, and only rooms with other values are updated."""
    event_ids = queue.rooms_in_use()
    if not event_ids:
        return 0
    read_at = clock.now()
    with connection.cursor() as cursor:
        rows = _supply_of_events.rows(cursor, event_ids=event_ids)
    queue.report_supplies({event_id: (available, held) for event_id, available, held in rows}, read_at=read_at)
    return len(event_ids)
