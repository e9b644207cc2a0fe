"""Mails to buyers and staff. Outbox handlers send them, so that a failed mail is retried and a mail server outage
delays no sale."""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.db import connection
from django.db.models import Q
from django.template.loader import render_to_string
from django.urls import reverse

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.mail import domain_pauses, new_domains
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.facade import Message
from apps.kernel.rate_limits import mail_caps
from apps.orders import access, organizer_mails, topics
from apps.orders.absolute_urls import absolute_url
from apps.orders.locks import lock_order
from apps.orders.models import ERASED_DOMAIN, EventCancellation, Order, OrderHistoryEntry, ProviderMessage
from apps.orders.payments.providers.protocol import Kind
from apps.orders.selectors import OrderView, get_order, get_order_to_send
from apps.orders.tickets import ics, ticket_pdf

logger = logging.getLogger(__name__)

STAFF_MAX = 20
"""Maximum number of recipients of a dispute notice."""
CONFIRMATIONS_SHARE = 0.25
"""The cap of confirmation mails, as a part of the recipient's cap. They have one of their own: anyone with the order's
link can request them, and orders of strangers with the address do not delay them."""
FAILURES_SHARE = 0.25
"""The cap of notices of failed orders, as a part of the recipient's cap. They have one of their own: an order with any
address can fail."""
OWNER_SHARE = 0.25
"""The cap of mails that an order's owner can cause again and again, as a part of the recipient's cap. See
`send_of_owner`."""
FREE_SHARE = 0.5
"""The cap of the first mails of free orders, as a part of the recipient's cap. They have one of their own, and those of
paid orders one for each event."""
REFUNDS_SHARE = 0.5
"""The cap of notices of refunds, as a part of the recipient's cap. They have one of their own: payments for orders with
any address are refunded if they are late or over the limit."""
STAFF_SHARE = 0.5
"""The cap of mails that staff of one organizer cause, as a part of the recipient's cap, of which they use up nothing:
they delay no tickets of others, and orders of strangers with the recipient's address do not delay them."""
_Files = Sequence[tuple[str, bytes, str]]
_TICKETS = "tickets"
"""The template of the mail with the tickets."""
_CHANGED_SECONDS = 1.0
_order_is_unchanged = sql.load("apps.orders", "order_is_unchanged")
_record_mails = sql.load("apps.orders", "record_mails")


def send_tickets(message: Message) -> None:
    """Mail the tickets to the buyer, unless they were sent before. A message with `again` always sends them; with
    `by_owner` they were sent before, too."""
    order, is_sent = get_order_to_send(UUID(message.body["order"]))
    if not order.is_standing or not order.valid_tickets or (is_sent and not message.body.get("again")):
        return

    def draw_files() -> _Files:
        return [
            (ticket_pdf.tickets_file_name(order), ticket_pdf.tickets_pdf(order), "application/pdf"),
            (f"{order.event.slug}.ics", ics.calendar_file(order), ics.CONTENT_TYPE),
        ]

    subject = f"Your tickets for {order.event.name}"
    if message.body.get("by_owner"):
        _send(order, subject, _TICKETS, draw_files, is_of_owner=True)
    elif message.body.get("again"):
        _send(order, subject, _TICKETS, draw_files, is_of_staff=True)
    elif order.total_minor:
        # A stranger can pay for tickets with any address, and return them. That must not delay those of other events.
        _send(order, subject, _TICKETS, draw_files, sender=f"tickets of event {order.event.id}")
    else:
        _send(order, subject, _TICKETS, draw_files, share=FREE_SHARE, sender="free tickets")


def send_refund_notice(message: Message) -> None:
    """Mail the buyer what is refunded and why."""
    order = get_order(UUID(message.body["order"]))
    _send(order, f"Your order for {order.event.name} was refunded", "refund", share=REFUNDS_SHARE, sender="refund")


def send_failure_notice(message: Message) -> None:
    """Notify the buyer by mail that the order failed, unless a late payment has confirmed it meanwhile."""
    order = get_order(UUID(message.body["order"]))
    if order.status == Order.Status.FAILED:
        subject = f"Your order for {order.event.name} was not paid"
        _send(order, subject, "failed", share=FAILURES_SHARE, sender="failure")


def send_return_notice(message: Message) -> None:
    """Mail the buyer which tickets are no longer valid and what is refunded."""
    order = get_order(UUID(message.body["order"]))
    returned = {name: message.body[name] for name in ("tickets", "back_minor", "kept_minor")}
    _send(order, f"Your order for {order.event.name} has changed", "returned", is_of_owner=True, returned=returned)


def send_cancellation_notice(message: Message) -> None:
    """Mail the buyer the organizer's text about the event's cancellation, and what is refunded."""
    order = get_order(UUID(message.body["order"]))
    words = EventCancellation.objects.get(event_id=order.event.id).words
    fees_back_minor = message.body.get("fees_back_minor", 0)
    _send(
        order,
        f"Canceled: {order.event.name}",
        "event_canceled",
        is_of_staff=True,
        words=words,
        fees_back_minor=fees_back_minor,
    )


def find_standing_order(order_id: UUID) -> OrderView | None:
    """Return the order that a mail about the event names: this one, or if it does not stand any more, the earliest
    other one of the event with the same address, of the same buyer or also free; None without any. Raises
    OrderNotFound."""
    order = get_order(order_id)
    if order.is_standing:
        return order
    others = Order.objects.filter(event=order.event.id, email=order.email, status__in=Order.STANDING)
    if order.total_minor:
        buyer = Order.objects.filter(pk=order_id).values("buyer")
        others = others.filter(total_minor__gt=0, buyer__in=buyer)
    else:
        others = others.filter(total_minor=0)
    other_id = others.order_by("placed_at", "pk").values_list("pk", flat=True).first()
    return None if other_id is None else get_order(other_id)


def send_reminder(order: OrderView, text: str) -> None:
    """Mail the buyer the organizer's reminder. Raises RetryLater, as `send_within_cap` does."""
    _send(order, f"Reminder: {order.event.name}", "reminder", is_of_staff=True, text=text)


def send_confirmation(message: Message) -> None:
    """Mail the link that confirms the order's mailbox, unless the request is too old by now."""
    if clock.now() - message.created_at < timedelta(minutes=access.CONFIRMATION_MINUTES):
        order = get_order(UUID(message.body["order"]))
        _send(
            order,
            f"Confirm your order {order.number}",
            "confirm",
            share=CONFIRMATIONS_SHARE,
            sender="confirmation",
            confirmation_url=access.confirmation_url(order.id, order.link_version),
            minutes=access.CONFIRMATION_MINUTES,
        )


def send_correction_notice(message: Message) -> None:
    """Mail the address that an order had before staff corrected it. The mail has no link and does not name the new
    address: the recipient may be a stranger whose address was typed by mistake."""
    entry = OrderHistoryEntry.objects.select_related("order__event").get(pk=message.body["entry"])
    address, event = entry.address, entry.order.event

    def send() -> None:
        mail = EmailMultiAlternatives(
            subject=f"Your address was removed from an order for {event.name}",
            body=render_to_string("orders/email/corrected.txt", {"order": entry.order, "event": event}),
            to=[address],
        )
        mail.send()
        record_mails([entry.order_id], str(mail.subject), address)

    send_of_staff(address, event.organizer_id, send)


def send_transfer_notice(order_id: UUID, email: str, label: str) -> None:
    """Mail the buyer that a ticket was offered to this address, so that an offer by anyone else does not go unseen."""
    order = get_order(order_id)
    _send(
        order,
        f"You offered a ticket for {order.event.name}",
        "transfer_notice",
        is_of_owner=True,
        recipient=email,
        label=label,
    )


def send_dispute_notice(message: Message) -> None:
    """Mail the staff who settle differences a notice that a buyer disputes a payment, or that the bank has decided."""
    dispute = ProviderMessage.objects.select_related("payment__order__event").get(pk=message.body["message"])
    assert dispute.payment is not None
    order = dispute.payment.order
    recipients = _dispute_recipients(order.event.organizer_id)
    description = Kind(dispute.kind).description
    if not recipients:
        logger.warning("order %s: %s, but no staff member has an email address", order.number, description)
        return
    context = {
        "order": order,
        "dispute": dispute,
        "description": description,
        "is_open": dispute.kind == Kind.DISPUTED,
        "order_url": absolute_url(reverse("admin:orders_refund_desk", args=[order.pk])),
    }
    EmailMultiAlternatives(
        subject=f"Order {order.number}: {description}",
        body=render_to_string("orders/email/disputed.txt", context),
        to=recipients,
    ).send()


def _dispute_recipients(organizer_id: int) -> list[str]:
    """Return the addresses of site-wide staff and of the organizer's members with the permission to settle it."""
    permission = "orders.change_paymentdifference"
    staff = accounts.User.objects.with_perm(permission, backend=accounts.PASSWORD_BACKEND).values("pk")
    found = accounts.User.objects.filter(
        Q(pk__in=staff) | Q(pk__in=events.list_permitted_members(organizer_id, permission)), is_staff=True
    )
    return list(found.exclude(email="").order_by("pk").values_list("email", flat=True)[:STAFF_MAX])


def _send(
    order: OrderView, subject: str, template: str, draw_files: Callable[[], _Files] = tuple, *, share: float = 1,
    sender: str = "", is_of_staff: bool = False, is_of_owner: bool = False, **more: Any,
) -> None:  # fmt: skip
    """Send the mail to the order's address. See `send_within_cap`, `send_of_staff` and `send_of_owner`."""

    def send() -> None:
        _send_counted(order, subject, template, draw_files(), more)

    if is_of_staff:
        send_of_staff(order.email, order.event.organizer_id, send, is_paid=order.total_minor > 0)
    elif is_of_owner:
        send_of_owner(order.email, "owner", order, order.event.id, send)
    else:
        send_within_cap(order.email, share, send, sender=sender)


def send_of_staff(address: str, organizer_id: int, send: Callable[[], object], *, is_paid: bool = True) -> None:
    """`send_within_cap` for a mail that the organizer's staff cause. It counts for a cap of the organizer, of which
    mails about free orders may use half: strangers can place any number of them with the address."""
    share = STAFF_SHARE if is_paid else STAFF_SHARE / 2
    send_within_cap(address, share, send, sender=f"organizer {organizer_id}")


def send_of_owner(address: str, kind: str, order: OrderView | Order, event_id: int, send: Callable[[], object]) -> None:
    """`send_within_cap` for a mail of this kind that the owner of an order for this event can cause again and again,
    perhaps a stranger to the recipient.

    Mails about a paid order count for a cap of the order, so that one other order delays none of them, and for one of
    the event, so that an address gets a limited number however many orders a stranger pays for. Those about free
    orders, of which strangers can place any number, have one cap together.
    """
    if order.total_minor == 0:
        send_within_cap(address, OWNER_SHARE, send, sender=f"{kind} of free orders")
        return

    def send_of_event() -> None:
        mail_caps.send_within_cap(address, 1, send, sender=f"{kind} of event {event_id}")

    send_within_cap(address, OWNER_SHARE, send_of_event, sender=f"{kind} of order {order.id}")


def send_within_cap(address: str, share: float, send: Callable[[], object], *, sender: str = "") -> None:
    """Send a mail to this address, unless it was erased. Raises RetryLater while the address has received its cap of
    mails, of which mails of this kind may use this share, and while mails to its domain have to wait. Mails of a named
    sender have a cap of their own."""
    if address.endswith(ERASED_DOMAIN):
        return
    message = outbox.handled_message()
    if message is not None:  # Asked before the mail is made: it may have a PDF.
        domain_pauses.pauses.require_room([domain_pauses.domain_of(address)], new_domains.sender_of(message))
    mail_caps.send_within_cap(address, share, send, sender=sender)


def _send_counted(order: OrderView, subject: str, template: str, files: _Files, more: dict[str, Any]) -> None:
    choose_url = absolute_url(reverse("reservations:choose", args=[order.event.slug]))
    context = {
        **more,
        "order": order,
        # If the order has an invoice, its credit note is written shortly after the refund is requested.
        "has_credit_note": bool(order.papers) and order.payment.refunded_minor > 0,
        "tickets": [
            {"code": ticket.code, "label": ticket.label, "url": absolute_url(ticket.url)}
            for ticket in order.valid_tickets
        ],
        "order_url": access.order_link(order.id, order.link_version),
        "site_url": settings.SITE_URL,
        "choose_url": choose_url if order.may_choose_again else "",
    }
    mail = EmailMultiAlternatives(
        subject=" ".join(subject.split()),
        body=render_to_string(f"orders/email/{template}.txt", context),
        to=[order.email],
    )
    mail.attach_alternative(render_to_string(f"orders/email/{template}.html", context), "text/html")
    for name, content, content_type in files:
        mail.attach(name, content, content_type)
    require_unchanged(order)
    mail.send()
    record_mails([order.id], str(mail.subject), order.email, has_tickets=template == _TICKETS)


def require_unchanged(order: OrderView) -> None:
    """Raise RetryLater if the order's address was corrected or its tickets got new codes since it was read. A mail to
    the former address could have codes and links of the corrected order; and one with dead codes could arrive after the
    mail with the new ones, since messages of different keys are delivered together."""
    with connection.cursor() as cursor:
        ((is_unchanged,),) = _order_is_unchanged.rows(
            cursor,
            order_id=order.id,
            link_version=order.link_version,
            codes=[ticket.code for ticket in order.valid_tickets],
        )
    if not is_unchanged:
        raise outbox.RetryLater(_CHANGED_SECONDS, "delayed: the order was changed meanwhile")


def record_mails(order_ids: Sequence[UUID], subject: str, address: str, *, has_tickets: bool = False) -> None:
    """Record in the history of these orders that this mail was sent. `has_tickets`: as the mail with their tickets."""
    with connection.cursor() as cursor:
        _record_mails.count(
            cursor, order_ids=list(order_ids), subject=subject[:300], address=address, has_tickets=has_tickets
        )


def request_confirmation(order_id: UUID, network: str = "") -> None:
    """Schedule a mail with the link that confirms the order's mailbox, unless one is about to be sent. `network` is a
    digest of the client's network, the origin of the mail. Raises OrderNotFound."""
    with transactions.write():
        key = str(lock_order(order_id).pk)
        if not outbox.is_waiting(topics.SEND_CONFIRMATION, key):
            outbox.publish(topics.SEND_CONFIRMATION, key, {"order": key, outbox.ORIGIN_FIELD: network})


def resend_tickets(order_id: UUID, who: str = "") -> None:
    """Schedule another mail with the tickets, even if they were sent before, unless staff's latest one is still to be
    sent. Raises OrderNotFound."""
    with transactions.write():
        order = lock_order(order_id)
        if who:
            OrderHistoryEntry.objects.create(
                order=order, kind=OrderHistoryEntry.Kind.RESENT, who=who, text="", address=order.email, at=clock.now()
            )
        key = topics.tickets_key(order.pk, order.link_version, is_of_staff=True)
        if not outbox.is_waiting(topics.SEND_TICKETS_AGAIN, key):
            body = {"order": str(order.pk), "again": True}
            organizer_mails.publish(topics.SEND_TICKETS_AGAIN, key, body, order)
