"""Outbox handlers of the mails that scheduled tasks send."""

import logging
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string
from django.urls import reverse

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.kernel.outbox.facade import Message
from apps.orders import mail
from apps.orders.absolute_urls import absolute_url
from apps.orders.dashboard import figures

logger = logging.getLogger(__name__)

MAY_SEE_FIGURES = "orders.view_order"


def send_reminder(message: Message) -> None:
    """Mail the buyer the organizer's reminder, unless all tickets were returned meanwhile."""
    order = mail.find_standing_order(UUID(message.body["order"]))
    if order is not None and order.valid_tickets:
        mail.send_reminder(order, message.body["text"])


def send_figures(message: Message) -> None:
    """Mail the figures of the sale to the member of staff who scheduled it, if the account may still see them."""
    event = events.get_staff_event(message.body["event"])
    account_id = message.body.get("account")
    # A task from before an account was stored with it has the name only.
    who = {"username": message.body["who"]} if account_id is None else {"pk": account_id}
    user = accounts.User.objects.filter(**who, is_active=True).exclude(email="").first()
    if event is None or user is None or not events.is_permitted(user, MAY_SEE_FIGURES, event):
        logger.warning("the figures of event %s are not sent: no recipient may see them", message.body["event"])
        return
    context = {
        "event": event,
        "figures": figures.read_figures(event.id),
        "dashboard_url": absolute_url(reverse("admin:event_dashboard", args=[event.id])),
    }
    EmailMultiAlternatives(
        subject=" ".join(f"Sales of {event.name}".split()),
        body=render_to_string("orders/email/figures.txt", context),
        to=[user.email],
        headers={"Message-ID": f"<figures-{message.body['run']}@{urlsplit(settings.SITE_URL).hostname}>"},
    ).send()
