"""Reissue tickets with new codes, for example after a code leaked. The old code is invalid from then on."""

from datetime import timedelta
from uuid import UUID

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.orders import organizer_mails, topics
from apps.orders.errors import ReissueRefused, TicketNotFound
from apps.orders.locks import lock_order
from apps.orders.models import Order, Ticket
from apps.orders.tickets import ticket_issuance
from apps.orders.webhooks import messages

BUYER = "buyer"
BUYER_PERIOD = timedelta(days=1)
BUYER_REISSUES_MAX = 5
"""Maximum number of new codes per order that the buyer may request within BUYER_PERIOD."""
TICKETS_MAX = 2_000
"""Of an order, with those whose codes were replaced, which pages and messages of the order read too. An order of 100
tickets can have all codes replaced 19 times."""


def reissue_ticket(order_id: UUID, code: str, who: str, network: str = "") -> None:
    """Give the ticket a new code and send it by mail. A second call with the same old code does nothing. `network` is a
    digest of the owner's network, the origin of the mail.

    Check-ins take the order's lock too: a concurrent check-in with the old code either commits first, so that the
    reissue is refused, or finds the code replaced. Raises OrderNotFound, TicketNotFound, ReissueRefused.
    """
    with transactions.write():
        order = lock_order(order_id)
        ticket = Ticket.objects.filter(order=order, code=code).first()
        if ticket is None or (who == BUYER and ticket.transfer_id is not None):
            raise TicketNotFound
        if ticket.successor_id is not None:
            return
        _require_reissuable(order, ticket)
        now = clock.now()
        if who == BUYER:
            latest = Ticket.objects.filter(order=order, replaced_by=BUYER, voided_at__gt=now - BUYER_PERIOD)
            if latest.count() >= BUYER_REISSUES_MAX:
                raise ReissueRefused(
                    f"You can request up to {BUYER_REISSUES_MAX} new codes within a day. "
                    "Try again tomorrow or contact the organizer."
                )
        ticket_issuance.replace(ticket, who, now, network=network)
        _publish_reissue(order, network, by_owner=who == BUYER)


def reissue_order(order_id: UUID, who: str) -> int:
    """Replace the codes of the order's valid tickets, except checked-in ones, and mail the tickets. Return how many
    codes were replaced. For staff. Raises OrderNotFound, and ReissueRefused if there is no such ticket."""
    with transactions.write():
        order = lock_order(order_id)
        found = list(Ticket.objects.filter(order=order, voided_at=None, checked_in_at=None).order_by("id"))
        if order.status not in Order.STANDING or not found:
            raise ReissueRefused("This order has no valid ticket that is not checked in.")
        require_room(order, len(found))
        now = clock.now()
        for ticket in found:
            ticket_issuance.replace(ticket, who, now)
        _publish_reissue(order, "")
        return len(found)


def require_room(order: Order, count: int) -> None:
    """Raise ReissueRefused if the order has had too many tickets for so many new codes. Under the order's lock."""
    if Ticket.objects.filter(order=order).count() + count > TICKETS_MAX:
        raise ReissueRefused("The codes of this order's tickets were replaced too often.")


def _require_reissuable(order: Order, ticket: Ticket) -> None:
    if ticket.voided_at is not None or order.status not in Order.STANDING:
        raise ReissueRefused("This ticket is no longer valid.")
    require_room(order, 1)
    if ticket.checked_in_at is not None:
        # A new code would admit a second person on the same ticket.
        raise ReissueRefused("This ticket is already checked in. If that is a mistake, ask the staff at the door.")


def _publish_reissue(order: Order, network: str, *, by_owner: bool = False) -> None:
    """Notify the buyer and the organizer of the new codes."""
    messages.publish_message(order, messages.Kind.TICKET_REISSUED)
    topic, body = topics.SEND_TICKETS_AGAIN, {"order": str(order.pk), "again": True}
    key = topics.tickets_key(order.pk, order.link_version, is_of_staff=not by_owner)
    if by_owner:
        outbox.publish(topic, key, {**body, "by_owner": True, outbox.ORIGIN_FIELD: network})
    else:
        organizer_mails.publish(topic, key, body, order)
