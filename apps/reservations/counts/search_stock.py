"""Reports what is left of events' tickets to the search, since the events app may not import this app."""

import time
from collections.abc import Iterator, Sequence

from django.db import connection

from apps.events import facade as events
from apps.kernel.db import sql

INTERVAL_SECONDS = 5.0
EVENTS_MAX = 200
"""Events that one pair of statements counts."""
PAUSE_FACTOR = 19
"""Counting takes at most one twentieth of the time."""

_supply_of_events = sql.load("apps.reservations", "supply_of_events")
_accessible_left = sql.load("apps.reservations", "accessible_left")


class SearchReporter:
    """Reports with pauses that grow with the time that counting takes."""

    def __init__(self) -> None:
        self._next_at = 0.0

    def report_if_due(self) -> int:
        if time.monotonic() < self._next_at:
            return 0
        begun = time.monotonic()
        count = report_stock()
        self._next_at = begun + max(INTERVAL_SECONDS, PAUSE_FACTOR * (time.monotonic() - begun))
        return count


def report_stock() -> int:
    """Report the stock of every event on sale, and of some whose stock has not been reported yet; return how many
    events have changed."""
    event_ids = list(dict.fromkeys([*events.selling_event_ids(), *events.events_without_reported_stock(EVENTS_MAX)]))
    return sum(_report(part) for part in _parts(event_ids))


def _parts(event_ids: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(event_ids), EVENTS_MAX):
        yield event_ids[start : start + EVENTS_MAX]


def _report(event_ids: Sequence[int]) -> int:
    with connection.cursor() as cursor:
        rows = _supply_of_events.rows(cursor, event_ids=list(event_ids))
        accessible = dict(_accessible_left.rows(cursor, event_ids=list(event_ids)))
    return events.report_stock(
        {event_id: events.Stock(max(available, 0), accessible.get(event_id, 0)) for event_id, available, _ in rows}
    )
