"""Transfers of tickets for tests."""

from django.test import Client

from apps.events import facade as events
from apps.orders.models import Order, Ticket, TicketTransfer, TransferPolicy
from apps.orders.transfers import transfers
from tests.support.factories import hold, make_event
from tests.support.orders.sale import SAME_ORIGIN, buy

FRIEND = "friend@example.org"


def allow_transfers(event: events.EventView, **limits: int) -> TransferPolicy:
    return TransferPolicy.objects.create(event_id=event.id, **limits)


def sold_order(**event: object) -> Order:
    """Return a confirmed order of the seats A-1 and A-2 of an event that allows transfers."""
    view = make_event(**event)
    allow_transfers(view)
    return buy(hold(view, seats=["hall-A-1", "hall-A-2"]))


def first_ticket(order: Order) -> Ticket:
    return order.tickets.order_by("id").first()


def offer(order: Order, ticket: Ticket | None = None, email: str = FRIEND) -> TicketTransfer:
    """Offer the ticket, by default the order's first, to this address."""
    return transfers.offer_ticket(order.pk, {"ticket": (ticket or first_ticket(order)).code, "email": email})


def accepted(order: Order, ticket: Ticket | None = None, email: str = FRIEND) -> Ticket:
    """Return the recipient's ticket."""
    transfer = offer(order, ticket, email)
    transfers.accept_offer(transfer.pk, "Grace Friend")
    return Ticket.objects.get(transfer=transfer, voided_at=None)


def post(client: Client, path: str, **form: str) -> object:
    return client.post(path, form, headers=SAME_ORIGIN)
