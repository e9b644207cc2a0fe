"""Transfers: the buyer offers a ticket to an email address, and its recipient accepts it and gets a new code.

Everything is decided under the order's lock, which returns, reissues, check-ins and cancellations also take. If one of
them competes with a transfer, the second reads the result of the first and is refused.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.http import problems
from apps.kernel.outbox import facade as outbox
from apps.orders import selectors, topics
from apps.orders.checkout.buyer_details import read_email, read_name
from apps.orders.errors import (
    TicketNotFound,
    TicketsCheckedIn,
    TicketsNotValid,
    TransferAccepted,
    TransferEnded,
    TransferNotFound,
    TransferPending,
    TransferRefused,
)
from apps.orders.locks import lock_order
from apps.orders.models import Order, Ticket, TicketTransfer
from apps.orders.terms.transfer_terms import TRANSFER, TransferTerms, get_transfer_terms
from apps.orders.tickets import ticket_issuance
from apps.orders.webhooks import messages
from apps.reservations import facade as reservations

OFFER_PERIOD = timedelta(hours=72)
"""An offer that is not accepted within this time, or before transfers close, expires."""
OFFERS_PERIOD = timedelta(days=1)
OFFERS_MAX = 20
"""Maximum number of offers of one sender per order within OFFERS_PERIOD: each sends a mail to any address."""


def offer_ticket(
    order_id: UUID, payload: Mapping[str, Any], *, given_by: UUID | None = None, network: str = ""
) -> TicketTransfer:
    """Offer the ticket with this code (`ticket`) to this address (`email`), mail the offer, and commit.

    A ticket that is already offered to that address keeps that offer, so the call may be repeated. `given_by` is the
    transfer by which its sender got the ticket; None: the sender is the buyer. `network` is a digest of the client's
    network, the origin of the mails. Raises Invalid, OrderNotFound, TicketNotFound, TicketsNotValid, TicketsCheckedIn,
    TransferRefused and TransferPending.
    """
    errors = {str(field)[:80]: "unknown field" for field in payload if field not in ("ticket", "email")}
    email = read_email(payload, errors)
    code = payload.get("ticket")
    if not isinstance(code, str) or not code:
        errors["ticket"] = "must be the code of a ticket"
    if errors:
        raise problems.Invalid(errors)
    with transactions.write():
        order = lock_order(order_id)
        ticket = _find_ticket(order, str(code), given_by)
        now = clock.now()
        terms = _require_transferable(order, ticket, now)
        if email == (order.email if given_by is None else TicketTransfer.objects.get(pk=given_by).email):
            raise problems.Invalid({"email": "is your own address"})
        pending = TicketTransfer.objects.filter(ticket=ticket, accepted_at=None, ended_at=None).first()
        if pending is not None and pending.expires_at > now:
            if pending.email == email:
                return pending
            raise TransferPending(transfer=str(pending.pk))
        if pending is not None:
            pending.ended_at = now
            pending.save(update_fields=["ended_at"])
        sequence = 1 if ticket.transfer is None else ticket.transfer.sequence + 1
        if sequence > terms.per_ticket_max:
            raise TransferRefused("This ticket was transferred as often as the organizer allows.")
        # The offers of a recipient do not count for the buyer: the recipient may be a stranger by now.
        own = TicketTransfer.objects.filter(ticket__order=order, ticket__transfer=given_by)
        if own.filter(offered_at__gt=now - OFFERS_PERIOD).count() >= OFFERS_MAX:
            raise TransferRefused(f"You can offer up to {OFFERS_MAX} tickets of an order within a day.")
        transfer = TicketTransfer.objects.create(
            ticket=ticket, sequence=sequence, email=email, offered_at=now,
            expires_at=min(now + OFFER_PERIOD, terms.until),
        )  # fmt: skip
        body = {"transfer": str(transfer.pk), outbox.ORIGIN_FIELD: network}
        if given_by is None:
            outbox.publish(topics.SEND_TRANSFER, str(order.pk), body | {"kind": "notice"})
        outbox.publish(topics.SEND_TRANSFER, str(transfer.pk), body | {"kind": "offer"})
        return transfer


def withdraw_offer(order_id: UUID, transfer_id: UUID, *, given_by: UUID | None = None) -> TicketTransfer:
    """End the offer, and commit; an ended one stays as it is. Raises OrderNotFound, TransferNotFound and
    TransferAccepted."""
    with transactions.write():
        order = lock_order(order_id)
        transfer = get_transfer(transfer_id)
        if transfer.ticket.order_id != order.pk or transfer.ticket.transfer_id != given_by:
            raise TransferNotFound
        if transfer.accepted_at is not None:
            raise TransferAccepted
        if transfer.ended_at is None:
            transfer.ended_at = clock.now()
            transfer.save(update_fields=["ended_at"])
        return transfer


def accept_offer(transfer_id: UUID, name: object, *, network: str = "") -> None:
    """Give the recipient, with this name, a ticket with a new code, and commit. The old code is dead at the doors from
    the commit on. A repetition changes nothing. The mail has the turn of this network (`access.network_of`).

    Raises Invalid, TransferNotFound, TransferEnded, TicketsCheckedIn and TransferRefused.
    """
    holder = read_name({"name": name})
    found = get_transfer(transfer_id)
    event = events.get_event_by_id(found.ticket.order.event_id)
    # The cap row must exist before the transaction that locks it (docs/locking.md, rule 14).
    reservations.prepare_email_cap(event.id, found.email)
    with transactions.write():
        order = lock_order(found.ticket.order_id)
        transfer = get_transfer(transfer_id)
        ticket = transfer.ticket
        if transfer.accepted_at is not None:
            return
        now = clock.now()
        if transfer.ended_at is not None or transfer.expires_at <= now:
            raise TransferEnded
        try:
            terms = _require_transferable(order, ticket, now)
        except TicketsNotValid as ended:
            raise TransferEnded from ended
        _require_room(event, transfer.email, terms)
        transfer.accepted_at = now
        transfer.save(update_fields=["accepted_at"])
        ticket_issuance.replace(ticket, TRANSFER, now, transfer=transfer, holder=holder, network=network)
        messages.publish_message(order, messages.Kind.TICKET_REISSUED)


def _find_ticket(order: Order, code: str, given_by: UUID | None) -> Ticket:
    """Return the ticket, if the sender has it. Raises TicketNotFound."""
    if not (code.isascii() and code.isprintable()):
        raise TicketNotFound
    ticket = Ticket.objects.select_related("transfer").filter(order=order, code=code, transfer=given_by).first()
    if ticket is None:
        raise TicketNotFound
    return ticket


def get_transfer(transfer_id: UUID) -> TicketTransfer:
    """Return the transfer, with its offered ticket and that ticket's order. Raises TransferNotFound."""
    rows = TicketTransfer.objects.select_related("ticket__order")
    transfer = rows.filter(pk=transfer_id).first()
    if transfer is None:
        raise TransferNotFound
    return transfer


def _require_transferable(order: Order, ticket: Ticket, now: Any) -> TransferTerms:
    """Return the event's terms. Both were read under the order's lock."""
    if order.status not in Order.STANDING or ticket.voided_at is not None:
        raise TicketsNotValid(tickets=[ticket.code])
    if ticket.checked_in_at is not None:
        raise TicketsCheckedIn(tickets=[ticket.code])
    terms = get_transfer_terms(events.get_event_by_id(order.event_id), now)
    if terms is None:
        raise TransferRefused("The organizer does not allow transfers for this event.")
    if not terms.is_open:
        raise TransferRefused("Transfers for this event are closed.", until=clock.iso(terms.until))
    return terms


def _require_room(event: events.EventView, email: str, terms: TransferTerms) -> None:
    """Refuse if the address would have more tickets than the policy or the event's limit per buyer allows. The
    address's cap row, which checkouts lock too, is locked until the commit."""
    bought = reservations.count_email_seats(event.id, email)
    with connection.cursor() as cursor:
        (received,) = selectors.count_received_tickets(cursor, [(event.id, email)])
    per_buyer_max = event.policy.per_buyer_max
    if received >= terms.per_recipient_max or (per_buyer_max is not None and bought + received >= per_buyer_max):
        raise TransferRefused("You have as many tickets for this event as one person may have.")
