"""Mails to the recipients of tickets. They name the event and the ticket, never the order, its price or its buyer."""

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.template.loader import render_to_string
from django.urls import reverse

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.outbox.facade import Message
from apps.orders import mail, selectors
from apps.orders.absolute_urls import absolute_url
from apps.orders.models import Ticket, TicketTransfer
from apps.orders.terms.transfer_terms import transfer_view
from apps.orders.tickets import ticket_pdf
from apps.orders.transfers.transfer_links import transfer_link

_SUBJECTS = {
    "offer": "A ticket for {} is waiting for you",
    "ticket": "Your ticket for {}",
    "ended": "Your ticket for {} is no longer valid",
}


def send_transfer(message: Message) -> None:
    """Send the mail of this kind, unless the transfer has changed since. `notice` goes to the buyer, the other kinds go
    to the recipient."""
    kind = message.body["kind"]
    transfer = TicketTransfer.objects.select_related("ticket__order").get(pk=message.body["transfer"])
    order, state = transfer.ticket.order, transfer_view(transfer, clock.now()).state
    if kind == "notice":
        mail.send_transfer_notice(order.pk, transfer.email, transfer.ticket.label)
        return
    ticket = Ticket.objects.filter(transfer=transfer, voided_at=None).first()
    is_current = {"offer": state == "offered", "ticket": ticket is not None, "ended": ticket is None}[kind]
    if not is_current:
        return
    event = events.get_event_by_id(order.event_id)
    context = {
        "kind": kind,
        "event": event,
        "label": transfer.ticket.label,
        "expires_at": transfer.expires_at,
        "transfer_url": transfer_link(transfer.pk),
        "ticket_url": "" if ticket is None else absolute_url(reverse("orders:ticket", args=[ticket.code])),
        "code": "" if ticket is None else ticket.code,
        "site_url": settings.SITE_URL,
    }
    sent = EmailMultiAlternatives(
        subject=" ".join(_SUBJECTS[kind].format(event.name).split()),
        body=render_to_string("orders/email/transfer.txt", context),
        to=[transfer.email],
    )
    sent.attach_alternative(render_to_string("orders/email/transfer.html", context), "text/html")
    if ticket is not None and kind == "ticket":
        pdf = ticket_pdf.ticket_pdf(event, selectors.get_ticket(ticket.code))
        sent.attach(ticket_pdf.ticket_file_name(event), pdf, "application/pdf")
    if kind == "offer":  # Any buyer can send them to any address.
        mail.send_of_owner(transfer.email, "offers", order, order.event_id, sent.send)
    else:
        mail.send_within_cap(transfer.email, 1, sent.send)
