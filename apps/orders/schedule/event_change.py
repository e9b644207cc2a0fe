"""What a change of a published event means for its orders: mails and a return window for a new date."""

from collections.abc import Iterator
from datetime import timedelta

from django.db.models import Count

from apps.events import facade as events
from apps.kernel.formatting import format_datetime
from apps.orders.models import DoorLink, Order, Ticket
from apps.orders.schedule.notices import begin_notice

SHOWN_WITHIN = timedelta(seconds=10)
"""After this time all processes and caches show the change."""
_Kind = events.ChangeKind


class OrderChange:
    """The orders' part in a change. Orders keep their prices: those are in their lines."""

    def describe(self, proposal: events.Proposal) -> Iterator[str]:
        event_id = proposal.event.id
        tickets = Ticket.objects.filter(order__event_id=event_id, voided_at=None)
        figures = tickets.aggregate(tickets=Count("pk"), orders=Count("order", distinct=True))
        sold = f"{_count(figures['tickets'], 'ticket')} in {_count(figures['orders'], 'order')}"
        if proposal.kind == _Kind.FEES and figures["orders"]:
            yield f"{sold} {'is' if figures['tickets'] == 1 else 'are'} sold. Their orders and invoices stay unchanged."
        if proposal.kind == _Kind.LIMITS and "per_buyer_max" in proposal.changed and figures["orders"]:
            yield f"{sold} stay valid, also those of buyers with more than the new limit."
        if proposal.kind != _Kind.SCHEDULE:
            return
        buyers = Order.objects.filter(event_id=event_id, status__in=Order.STANDING).values("email").distinct().count()
        if figures["orders"]:
            yield f"{sold} {'stays' if figures['tickets'] == 1 else 'stay'} valid for the new times."
            mailed = f"{_count(buyers, 'buyer')} and the recipients of transferred tickets"
            yield f"{mailed} get an email with the new times."
        if proposal.return_until is not None:
            until = format_datetime(proposal.return_until, proposal.event.timezone, with_zone_name=True)
            yield f"Until {until}, buyers may return their tickets. Fees are refunded, too."
        inside = tickets.filter(checked_in_at__isnull=False).count()
        if inside:
            yield f"Warning: {_count(inside, 'ticket')} {'is' if inside == 1 else 'are'} checked in already."
        if proposal.moves_start:
            links = DoorLink.objects.filter(event_id=event_id, good_until__lt=proposal.after["starts_at"])
            if links.exists():
                yield f"{_count(links.count(), 'door link')} will have ended by then: make new ones."

    def apply(self, proposal: events.Proposal, change_id: int) -> None:
        if proposal.kind != _Kind.SCHEDULE or not proposal.changed & {"starts_at", "doors_at", "ends_at"}:
            return
        begin_notice(change_id, proposal.event.id, proposal.now, proposal.now + SHOWN_WITHIN, proposal.return_until)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
