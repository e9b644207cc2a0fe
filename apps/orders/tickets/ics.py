"""An order as a calendar file (RFC 5545)."""

from urllib.parse import urlsplit

from django.conf import settings
from icalendar import Calendar, Event

from apps.kernel import clock
from apps.orders.access import order_link
from apps.orders.selectors import OrderView

CONTENT_TYPE = "text/calendar; charset=utf-8; method=PUBLISH"


def calendar_file(order: OrderView) -> bytes:
    """Return a calendar file with one entry for the order's event. Times are in UTC; calendars convert them.

    The entry's id is derived from the order, so a later file replaces the entry instead of adding another.
    """
    event = order.event
    entry = Event()
    entry.add("uid", f"order-{order.number}@{urlsplit(settings.SITE_URL).hostname}")
    entry.add("dtstamp", clock.process_now().replace(microsecond=0))
    entry.add("dtstart", event.starts_at)
    entry.add("summary", event.name)
    entry.add("location", ", ".join(part for part in (event.venue_name, event.city) if part))
    labels = [ticket.label for ticket in order.valid_tickets]
    entry.add("description", "\n".join([*labels, "", f"Order {order.number}. Your tickets:", order_link(order.id)]))
    entry.add("url", order_link(order.id))
    calendar = Calendar()
    calendar.add("prodid", "-//Fairgate//Tickets//EN")
    calendar.add("version", "2.0")
    calendar.add("method", "PUBLISH")
    calendar.add_component(entry)
    return bytes(calendar.to_ical())
