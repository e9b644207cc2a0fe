"""New codes for tickets that somebody else may have seen. The old code opens no door from then on."""

from datetime import timedelta
from uuid import UUID

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.errors import ReissueRefused, TicketNotFound
from apps.orders.locks import lock_order
from apps.orders.models import Order, Ticket
from apps.orders.tickets import ticket_issuance
from apps.orders.webhooks import messages

BUYER = "buyer"
BUYER_PERIOD = timedelta(days=1)
BUYER_REISSUES_MAX = 5
"""New codes that the buyer of one order may ask for within BUYER_PERIOD; staff may any time."""


def reissue_ticket(order_id: UUID, code: str, who: str) -> None:
    """The ticket has a new code, and mail with it is on its way; asked again for the same old code nothing happens.

    Decided under the order's lock, as a check-in is: whoever gets in with the old code at the same moment is either in
    before, and the reissue is refused, or finds it replaced. Raises OrderNotFound, TicketNotFound, ReissueRefused.
    """
    with transactions.write():
        order = lock_order(order_id)
        ticket = Ticket.objects.filter(order=order, code=code).first()
        if ticket is None:
            raise TicketNotFound
        if ticket.successor_id is not None:
            return
        _require_reissuable(order, ticket)
        now = clock.now()
        if who == BUYER:
            latest = Ticket.objects.filter(order=order, replaced_by=BUYER, voided_at__gt=now - BUYER_PERIOD)
            if latest.count() >= BUYER_REISSUES_MAX:
                raise ReissueRefused(
                    f"This order's tickets were given {BUYER_REISSUES_MAX} new codes within a day. "
                    "Ask the organizer, or come back tomorrow."
                )
        ticket_issuance.replace(ticket, who, now)
        _publish_reissue(order)


def reissue_order(order_id: UUID, who: str) -> int:
    """Every valid ticket of the order that is not in has a new code, and mail with all of them is on its way; how many.
    For staff. Raises OrderNotFound, ReissueRefused when there is none."""
    with transactions.write():
        order = lock_order(order_id)
        found = list(Ticket.objects.filter(order=order, voided_at=None, checked_in_at=None).order_by("id"))
        if order.status not in Order.STANDING or not found:
            raise ReissueRefused("None of its tickets is valid and not yet in.")
        now = clock.now()
        for ticket in found:
            ticket_issuance.replace(ticket, who, now)
        _publish_reissue(order)
        return len(found)


def _require_reissuable(order: Order, ticket: Ticket) -> None:
    if ticket.voided_at is not None or order.status not in Order.STANDING:
        raise ReissueRefused("It was given back, and opens no door.")
    if ticket.checked_in_at is not None:
        # A new code would let a second person in for the same place.
        raise ReissueRefused("Somebody is in with it. If that is a mistake, the people at the door can take it back.")


def _publish_reissue(order: Order) -> None:
    """Buyer and organizer hear of the new codes."""
    messages.publish_message(order, messages.Kind.TICKET_REISSUED)
    outbox.publish(topics.SEND_TICKETS, str(order.pk), {"order": str(order.pk), "again": True})
