"""What the waiting rooms are told of the stock: reported down to them, so that the arrows hold."""

from apps.queue import facade as queue
from apps.reservations.availability import availability
from ticketing.kernel import clock


def report_supply() -> int:
    """Every room that lets people in, or may again, knows what is available and what is held; how many were told."""
    event_ids = queue.rooms_in_use()
    for event_id in event_ids:
        read_at = clock.now()
        sections = availability(event_id).values()
        queue.report_supply(
            event_id,
            available=sum(section.available for section in sections),
            held=sum(section.held for section in sections),
            read_at=read_at,
        )
    return len(event_ids)
