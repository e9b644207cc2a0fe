"""An event's refund policy in one sentence, for pages that show it before a payment."""

from datetime import datetime

from apps.events import facade as events
from apps.kernel.formatting import DATE_TIME, format_datetime
from apps.orders import return_quotes


def describe_refund_policy(event: events.EventView, now: datetime, held_at: datetime) -> str:
    """Return until when tickets for seats that were held at this time may be returned, and what their buyer gets back
    then."""
    offer = return_quotes.get_return_terms(event, now).of_order(held_at)
    if offer is None or not offer.is_open:
        return "Tickets cannot be returned. You get your money back if the event is canceled."
    return describe_offer(offer, event.timezone)


def describe_offer(offer: return_quotes.ReturnOffer, timezone: str) -> str:
    """Return until when tickets may be returned under these terms, and what their buyer gets back then."""
    until = format_datetime(offer.until, timezone, DATE_TIME, with_zone_name=True)
    back = "the ticket price, without fees" if offer.keeps_fees else "the full price"
    return f"You can return tickets until {until} and get back {back}."
