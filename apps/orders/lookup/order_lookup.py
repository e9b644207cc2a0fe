"""Lookup of orders by their email address: a mail to this address lists them.

The request only schedules the mail. Whether the address has orders is read when the mail is sent, and an address
without orders gets a mail that says so: neither the response nor its duration reveals anything.

Anyone can request a mail to any address. So the mails that one network requests are capped, those to one recipient, and
those of the whole site. Of the site's cap, mails that list nothing may use half, and those that list nothing paid three
quarters: a flood of requests for invented addresses, or for those of free or unpaid orders, delays no mail to a person
who has paid.
"""

import logging
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
from apps.kernel.rate_limits import mail_caps
from apps.orders import access, selectors, topics
from apps.orders.absolute_urls import absolute_url
from apps.orders.checkout.buyer_details import read_email
from apps.orders.mail import record_mails, send_within_cap
from apps.orders.models import Ticket
from apps.orders.transfers.transfer_links import transfer_link

logger = logging.getLogger(__name__)

ORDERS_MAX = 30
TICKETS_MAX = 30
SHARE = 0.25
"""The cap of these mails, as a part of the recipient's cap. They have one of their own: anyone can request them for any
address, and orders of strangers with the address do not delay them."""
EMPTY_SHARE = 0.5
"""The part of the site's cap that mails without orders and tickets may use."""
UNPAID_SHARE = 0.75
"""The part of the site's cap that mails without a valid order or ticket that was paid for may use."""
NETWORK_PER_HOUR_MAX, NETWORK_PER_DAY_MAX = 100, 400
_KIND = "order list"


def request_order_list(request: HttpRequest, payload: Mapping[str, Any]) -> str:
    """Schedule the mail to the address in the payload, unless one is about to be sent, and return the address. Raises
    Invalid and, for too many requests of one client, RateLimited."""
    errors = {str(field)[:80]: "unknown field" for field in payload if field != "email"}
    email = read_email(payload, errors)
    if errors:
        raise problems.Invalid(errors)
    # Per client only. The other caps delay the mail when it is sent: no client can have others refused.
    address = client_address.address_from_environ(request.META)
    wait = rate_limits.check_request("mail", address)
    if wait is not None:
        raise problems.RateLimited(wait)
    with transactions.write():
        # Counted also if a mail is about to be sent, which is no business of this client.
        wait = mail_caps.count_mail_of_network(_KIND, address, NETWORK_PER_HOUR_MAX, NETWORK_PER_DAY_MAX)
        if wait:
            raise problems.RateLimited(wait)
        if not outbox.is_waiting(topics.SEND_ORDER_LIST, email):
            outbox.publish(
                topics.SEND_ORDER_LIST,
                email,
                {"email": email, outbox.ORIGIN_FIELD: mail_caps.origin_of(address)},
            )
    return email


def send_order_list(message: Message) -> None:
    """Mail the address its orders, and the tickets that other buyers passed on to it. Raises RetryLater while the
    address has received its cap of mails, or all addresses together have; then a mail that would list nothing is
    dropped, so that no flood waits here."""
    email = message.body["email"]
    found = selectors.list_orders_of_address(email, clock.now(), ORDERS_MAX + 1)
    received = _list_received_tickets(email)
    is_empty = not (found or received)
    is_paid = any(order.is_standing and order.total_minor for order in found) or any(one["is_paid"] for one in received)
    share = EMPTY_SHARE if is_empty else 1 if is_paid else UNPAID_SHARE
    wait = mail_caps.count_mail_of_site(_KIND, settings.ORDER_LISTS_PER_HOUR_MAX, share)
    if wait and is_empty:
        logger.warning("a list of orders without orders was dropped: the cap of the site is reached")
        return
    if wait:
        raise outbox.RetryLater(wait, "delayed: the site has sent its cap of lists of orders")
    try:
        send_within_cap(email, SHARE, lambda: _send(email, found, received), sender=_KIND)
    except Exception:
        mail_caps.uncount_mail_of_site(_KIND)
        raise


def _send(email: str, found: list[selectors.OrderView], received: list[dict[str, Any]]) -> None:
    orders = found[:ORDERS_MAX]
    context = {
        "email": email,
        "orders": [{"order": order, "url": access.confirming_link(order.id, order.link_version)} for order in orders],
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
            "is_paid": ticket.order.total_minor > 0,
        }
        for ticket in tickets.order_by("-pk")[:TICKETS_MAX]
        if ticket.transfer_id is not None
    ]
