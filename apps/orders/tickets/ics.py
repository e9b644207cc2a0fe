"""An order as a calendar file (RFC 5545)."""

from datetime import timedelta
from urllib.parse import urlsplit

from django.conf import settings
from django.urls import reverse
from icalendar import Calendar, Event

from apps.kernel import clock
from apps.kernel.formatting import TIME, format_datetime
from apps.orders.absolute_urls import absolute_url
from apps.orders.selectors import OrderView

CONTENT_TYPE = "text/calendar; charset=utf-8; method=PUBLISH"
ASSUMED_DURATION = timedelta(hours=3)


def calendar_file(order: OrderView) -> bytes:
    """Return a calendar file with one entry for the order's event. Times are in UTC; calendars convert them.

    The entry's id is derived from the order, so a later file replaces the entry instead of adding another. Calendars
    are shared and synchronized, so the file has no link or code that grants access to the order or its tickets. An
    entry without an end would take no time or the whole day, so an event without an announced end lasts three hours.
    """
    event = order.event
    entry = Event()
    entry.add("uid", f"order-{order.number}@{urlsplit(settings.SITE_URL).hostname}")
    entry.add("dtstamp", clock.process_now().replace(microsecond=0))
    entry.add("dtstart", event.starts_at)
    entry.add("dtend", event.ends_at or event.starts_at + ASSUMED_DURATION)
    entry.add("summary", event.name)
    entry.add("location", event.address_line)
    labels = [ticket.label for ticket in order.valid_tickets]
    doors = []
    if event.doors_at is not None:
        doors = [f"Doors open at {format_datetime(event.doors_at, event.timezone, TIME, with_zone_name=True)}."]
    sent = f"Order {order.number}. Your tickets are in the email that we sent you."
    entry.add("description", "\n".join([*labels, "", *doors, sent]))
    entry.add("url", absolute_url(reverse("events:event", args=[event.slug])))
    calendar = Calendar()
    calendar.add("prodid", "-//Fairgate//Tickets//EN")
    calendar.add("version", "2.0")
    calendar.add("method", "PUBLISH")
    calendar.add_component(entry)
    return bytes(calendar.to_ical())
