"""Lookup of orders by their email address: a mail to this address lists them.

The request only schedules the mail. Whether the address has orders is read when the mail is sent, and an address
without orders gets a mail that says so: neither the response nor its duration reveals anything.
"""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.http import HttpRequest
from django.template.loader import render_to_string
from django.urls import reverse

from apps.events import facade as events
from apps.kernel import clock, rate_limits
from apps.kernel.db import transactions
from apps.kernel.http import client_address, problems
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.facade import Message
from apps.orders import access, selectors, topics
from apps.orders.absolute_urls import absolute_url
from apps.orders.checkout.buyer_details import read_email
from apps.orders.mail import record_mails, send_within_cap
from apps.orders.models import Ticket
from apps.orders.transfers.transfer_links import transfer_link

ORDERS_MAX = 30
TICKETS_MAX = 30
SHARE = 0.25
"""The part of a recipient's cap that these mails may use: anyone can request them for any address."""


def request_order_list(request: HttpRequest, payload: Mapping[str, Any]) -> str:
    """Schedule the mail to the address in the payload, unless one is about to be sent, and return the address. Raises
    Invalid and, for too many requests of one client, RateLimited."""
    errors = {str(field)[:80]: "unknown field" for field in payload if field != "email"}
    email = read_email(payload, errors)
    if errors:
        raise problems.Invalid(errors)
    # Per client only. The recipient's cap delays the mail when it is sent: no client can have others refused.
    wait = rate_limits.check_request("mail", client_address.address_from_environ(request.META))
    if wait is not None:
        raise problems.RateLimited(wait)
    with transactions.write():
        if not outbox.is_waiting(topics.SEND_ORDER_LIST, email):
            outbox.publish(topics.SEND_ORDER_LIST, email, {"email": email})
    return email


def send_order_list(message: Message) -> None:
    """Mail the address its orders, and the tickets that other buyers passed on to it. Raises RetryLater while the
    address has received its cap of mails."""
    email = message.body["email"]
    send_within_cap(email, SHARE, lambda: _send(email))


def _send(email: str) -> None:
    found = selectors.list_orders_of_address(email, clock.now(), ORDERS_MAX + 1)
    orders, received = found[:ORDERS_MAX], _list_received_tickets(email)
    context = {
        "email": email,
        "orders": [{"order": order, "url": access.confirming_link(order.id)} for order in orders],
        "has_more": len(found) > ORDERS_MAX,
        "received": received,
        "minutes": access.CONFIRMATION_MINUTES,
        "find_url": absolute_url(reverse("orders:find")),
        "site_url": settings.SITE_URL,
    }
    subject = "Your orders" if orders or received else "No orders with this email address"
    sent = EmailMultiAlternatives(
        subject=subject, body=render_to_string("orders/email/order_list.txt", context), to=[email]
    )
    sent.attach_alternative(render_to_string("orders/email/order_list.html", context), "text/html")
    sent.send()
    record_mails([order.id for order in orders], subject, email)


def _list_received_tickets(email: str) -> list[dict[str, Any]]:
    tickets = Ticket.objects.select_related("order").filter(transfer__email=email, voided_at=None)
    return [
        {
            "event": events.get_event_by_id(ticket.order.event_id),
            "label": ticket.label,
            "url": transfer_link(ticket.transfer_id),
        }
        for ticket in tickets.order_by("-pk")[:TICKETS_MAX]
        if ticket.transfer_id is not None
    ]
