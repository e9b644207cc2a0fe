"""When the doors of an event admit: a scan long before they open, or long after the end, gets a warning.

All limits are durations, so a change of the clocks in the venue's zone moves none of them.
"""

from datetime import datetime, timedelta

from apps.events import facade as events
from apps.orders.models import TicketScan

EARLY_BEFORE_DOORS = timedelta(hours=2)
EARLY_BEFORE_START = timedelta(hours=4)
"""For an event without a time for its doors."""
LATE_AFTER_END = timedelta(hours=6)
LATE_AFTER_START = timedelta(hours=24)
"""For an event without an end."""

WARNINGS = (TicketScan.Outcome.TOO_EARLY, TicketScan.Outcome.TOO_LATE)
"""Outcomes after which staff may let the ticket in anyway, by another scan that confirms it."""


def find_warning(event: events.EventView, at: datetime) -> TicketScan.Outcome | None:
    """Return the warning that a valid ticket gets at this time, or None if it is admitted without one."""
    if at < admits_from(event):
        return TicketScan.Outcome.TOO_EARLY
    return TicketScan.Outcome.TOO_LATE if at >= admits_until(event) else None


def admits_from(event: events.EventView) -> datetime:
    """Return the time from which tickets are admitted without a warning."""
    if event.doors_at is None:
        return event.starts_at - EARLY_BEFORE_START
    return event.doors_at - EARLY_BEFORE_DOORS


def admits_until(event: events.EventView) -> datetime:
    """Return the time from which tickets get the warning that the event is over."""
    return event.starts_at + LATE_AFTER_START if event.ends_at is None else event.ends_at + LATE_AFTER_END
