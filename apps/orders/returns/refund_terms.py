"""What an event's page says about returns and refunds."""

from datetime import datetime

from django.db import connection

from apps.kernel.db import sql
from apps.kernel.formatting import DATE_TIME, format_datetime, format_duration

_refund_terms = sql.load("apps.orders", "refund_terms")

CANCELED = "If the event is canceled, you get your money back automatically."


def describe_refunds(event_id: int, at: datetime, timezone: str) -> str:
    """Return the sentences for the event's page at this moment: from its return policy, and from the return window that
    a new date has opened."""
    with connection.cursor() as cursor:
        ((hours, keeps_fees, until),) = _refund_terms.rows(cursor, event_id=event_id, at=at)
    moved, tickets = "", "Tickets"
    if until is not None:
        shown = format_datetime(until, timezone, DATE_TIME, with_zone_name=True)
        moved = f"Tickets bought before the date changed can be returned until {shown} for the full price with fees. "
        tickets = "Other tickets"
    if hours is None:
        return f"{moved}{tickets} cannot be returned. {CANCELED}"
    deadline = f"until {format_duration(hours * 3_600)} before the start" if hours else "until the start"
    fees = "the price without fees" if keeps_fees else "the price with fees"
    return f"{moved}You can return {tickets.lower()} {deadline} and get {fees} back. {CANCELED}"
