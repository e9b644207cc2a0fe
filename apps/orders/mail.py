"""What a buyer is told by mail. Each is sent from the outbox, so a mail that fails is tried again and a mail server
that is away delays no sale."""

import logging
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth import get_user_model
from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string
from django.urls import reverse

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.facade import Message
from apps.orders import topics
from apps.orders.absolute_urls import absolute_url
from apps.orders.access import order_link
from apps.orders.locks import lock_order
from apps.orders.models import EventCancellation, Order, ProviderMessage
from apps.orders.payments.providers.protocol import Kind
from apps.orders.selectors import OrderView, get_order, get_order_to_send
from apps.orders.tickets import ics, ticket_pdf

logger = logging.getLogger(__name__)

STAFF_MAX = 20
"""So many of the staff hear of a dispute at most."""


def send_tickets(message: Message) -> None:
    """The buyer has mail with the tickets. A second delivery finds that they were sent, unless staff asked for it."""
    order, is_sent = get_order_to_send(UUID(message.body["order"]))
    if not order.is_standing or (is_sent and not message.body.get("again")):
        return
    files = [
        (f"tickets-{order.number}.pdf", ticket_pdf.tickets_pdf(order), "application/pdf"),
        (f"{order.event.slug}.ics", ics.calendar_file(order), ics.CONTENT_TYPE),
    ]
    _send(order, f"Your tickets for {order.event.name}", "tickets", files)
    Order.objects.filter(pk=order.id).update(tickets_sent_at=clock.now())


def send_refund_notice(message: Message) -> None:
    """The buyer has mail that says what comes back, and why."""
    order = get_order(UUID(message.body["order"]))
    _send(order, f"Your order for {order.event.name} was refunded", "refund")


def send_failure_notice(message: Message) -> None:
    """The buyer has mail that says that nothing came of the order, unless something has come of it meanwhile."""
    order = get_order(UUID(message.body["order"]))
    if order.status == Order.Status.FAILED:
        _send(order, f"Your order for {order.event.name} did not go through", "failed")


def send_return_notice(message: Message) -> None:
    """The buyer has mail that says which tickets are no longer valid, and what comes back."""
    order = get_order(UUID(message.body["order"]))
    said = {name: message.body[name] for name in ("tickets", "back_minor", "kept_minor")}
    _send(order, f"Your order for {order.event.name} has changed", "returned", returned=said)


def send_cancellation_notice(message: Message) -> None:
    """The buyer has mail that says that the event is canceled, in the organizer's words, and what comes back."""
    order = get_order(UUID(message.body["order"]))
    words = EventCancellation.objects.get(event_id=order.event.id).words
    fees_back_minor = message.body.get("fees_back_minor", 0)
    _send(order, f"Canceled: {order.event.name}", "event_canceled", words=words, fees_back_minor=fees_back_minor)


def send_dispute_notice(message: Message) -> None:
    """Staff who settles differences has mail that a buyer disputes a payment, or what the bank has decided."""
    said = ProviderMessage.objects.select_related("payment__order__event").get(pk=message.body["message"])
    assert said.payment is not None
    order, to = said.payment.order, _dispute_recipients()
    if not to:
        logger.warning("order %s: %s, and no staff has an e-mail address", order.number, Kind(said.kind).description)
        return
    context = {
        "order": order,
        "said": said,
        "words": Kind(said.kind).description,
        "is_open": said.kind == Kind.DISPUTED,
        "order_url": absolute_url(reverse("admin:orders_refund_desk", args=[order.pk])),
    }
    EmailMultiAlternatives(
        subject=f"Order {order.number}: {Kind(said.kind).description}",
        body=render_to_string("orders/email/disputed.txt", context),
        to=to,
    ).send()


def _dispute_recipients() -> list[str]:
    staff = get_user_model()._default_manager.with_perm(
        "orders.change_paymentdifference", backend="django.contrib.auth.backends.ModelBackend"
    )
    return list(
        staff.filter(is_staff=True).exclude(email="").order_by("pk").values_list("email", flat=True)[:STAFF_MAX]
    )


def _send(
    order: OrderView, subject: str, template: str, files: Sequence[tuple[str, bytes, str]] = (), **more: Any
) -> None:
    context = {
        **more,
        "order": {
            "number": order.number,
            "event": order.event,
            "email": order.email,
            "name": order.name,
            "total_minor": order.total_minor,
            "bill_rows": order.bill.parts,
            "tax_rows": order.bill.taxes_within,
            "currency": order.currency,
            "refunded_minor": order.payment.refunded_minor,
            # Written a moment after the money was asked back, of what had an invoice.
            "has_credit_note": bool(order.papers) and order.payment.refunded_minor > 0,
            "message": order.message,
            "tickets": [
                {
                    "code": ticket.code,
                    "label": ticket.label,
                    "url": absolute_url(ticket.url),
                    "qr_url": absolute_url(ticket.qr_url),
                }
                for ticket in order.tickets
                if ticket.valid
            ],
        },
        "order_url": order_link(order.id),
        "site_url": settings.SITE_URL,
        "choose_url": _new_hold_url(order),
    }
    mail = EmailMultiAlternatives(
        subject=" ".join(subject.split()),
        body=render_to_string(f"orders/email/{template}.txt", context),
        to=[order.email],
    )
    mail.attach_alternative(render_to_string(f"orders/email/{template}.html", context), "text/html")
    for name, content, content_type in files:
        mail.attach(name, content, content_type)
    mail.send()


def _new_hold_url(order: OrderView) -> str:
    """Where a buyer whose money came too late, or was not what was owed, may hold anew."""
    if order.reason not in (Order.Reason.LATE, Order.Reason.WRONG_AMOUNT):
        return ""
    return absolute_url(reverse("reservations:choose", args=[order.event.slug]))


def resend_tickets(order_id: UUID) -> None:
    """Another mail with the tickets is on its way, whether or not there was one before. Raises OrderNotFound."""
    with transactions.write():
        order = lock_order(order_id)
        outbox.publish(topics.SEND_TICKETS, str(order.pk), {"order": str(order.pk), "again": True})
