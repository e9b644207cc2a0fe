"""Mails about a changed date: one to each buyer and each recipient of a ticket, in batches, through the outbox.

A batch locks the notice, and writes the mails' rows and their messages in one transaction. A buyer whose address has a
row gets no other one, so a batch that is delivered twice, or a worker that is killed, adds no mail. Orders whose seats
were reserved before the change may be paid after it, so the batches go on until none of them is open.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.db import connection
from django.template.loader import render_to_string
from django.urls import reverse

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.facade import Message
from apps.orders import access, mail, topics
from apps.orders.absolute_urls import absolute_url
from apps.orders.models import ScheduleMail, ScheduleNotice, Ticket
from apps.orders.selectors import OrderView, get_ticket
from apps.orders.tickets import ics, ticket_pdf
from apps.reservations import facade as reservations

BATCH_MAX = 250
SENDING_MAX = 3
"""Mails of notices that a process sends at once. By default it is one less than what mails share (`claim_limits`):
thousands of them leave a thread to other kinds."""
PDF_TYPE = "application/pdf"
AGAIN_AFTER = timedelta(seconds=60)
"""The pause while orders from before the change are still open."""

_orders_to_notify = sql.load("apps.orders", "orders_to_notify")
_transfers_to_notify = sql.load("apps.orders", "transfers_to_notify")


def begin_notice(
    change_id: int, event_id: int, at: datetime, held_until: datetime, return_until: datetime | None
) -> None:
    """Write the notice of a change and schedule its mails, for orders whose seats were held until `held_until`. Joins
    the transaction of the change."""
    ScheduleNotice.objects.create(
        change_id=change_id, event_id=event_id, at=at, held_until=held_until, return_until=return_until
    )
    _publish_continuation(change_id)


def continue_notice(message: Message) -> None:
    """Outbox handler: schedule the mails of one batch, and a message for the next. Safe to run twice."""
    change_id: int = message.body["change"]
    with transactions.write(), connection.cursor() as cursor:
        # The lock serializes batches: two of them would otherwise find the same addresses.
        notice = ScheduleNotice.objects.select_for_update(no_key=True, of=("self",)).get(pk=change_id)
        if notice.finished_at is not None:
            return
        if events.get_event_by_id(notice.event_id).status != "published":
            # Buyers of a canceled event get the notice of its cancellation instead.
            _finish(notice)
            return
        which = {
            "event_id": notice.event_id,
            "notice_id": notice.pk,
            "held_until": notice.held_until,
            "limit": BATCH_MAX,
        }
        orders = [row[0] for row in _orders_to_notify.rows(cursor, **which)]
        transfers = [row[0] for row in _transfers_to_notify.rows(cursor, **which)]
        _schedule_mails(notice, orders, transfers)
        if len(orders) == BATCH_MAX or len(transfers) == BATCH_MAX:
            _publish_continuation(change_id)
        elif _may_grow(notice):
            _publish_continuation(change_id, AGAIN_AFTER)
        else:
            _finish(notice)


def _finish(notice: ScheduleNotice) -> None:
    notice.finished_at = clock.now()
    notice.save(update_fields=["finished_at"])


def _may_grow(notice: ScheduleNotice) -> bool:
    """Return whether an order for seats from before the change may still be placed or paid."""
    return clock.now() <= notice.held_until or reservations.has_live(notice.event_id, notice.held_until)


def _schedule_mails(notice: ScheduleNotice, orders: Sequence[UUID], transfers: Sequence[UUID]) -> None:
    rows = ScheduleMail.objects.bulk_create(
        [
            *(ScheduleMail(notice=notice, order_id=order_id) for order_id in orders),
            *(ScheduleMail(notice=notice, transfer_id=transfer_id) for transfer_id in transfers),
        ]
    )
    # The key of a buyer's mail is the order's id: it comes after the mail with the tickets.
    origin = {outbox.ORIGIN_FIELD: topics.origin_of_event(notice.event_id)}
    outbox.publish_all(
        [
            outbox.NewMessage(
                topics.SEND_SCHEDULE_NOTICE, str(row.order_id or row.transfer_id), {"mail": row.pk} | origin
            )
            for row in rows
        ]
    )


def _publish_continuation(change_id: int, delay: timedelta = timedelta()) -> None:
    outbox.publish(topics.NOTIFY_OF_SCHEDULE, f"change:{change_id}", {"change": change_id}, delay=delay)


def send_notice(message: Message) -> None:
    """Outbox handler: mail the new date, once, unless all tickets have been returned or the event was canceled."""
    row = ScheduleMail.objects.select_related("notice__change").filter(pk=message.body["mail"]).first()
    if row is None or row.sent_at is not None:
        return
    event = events.get_event_by_id(row.notice.event_id)
    order = mail.find_standing_order(row.order_id) if row.order_id is not None else None
    address = _address(row, order)
    if address and event.status == "published":
        is_paid = order is None or order.total_minor > 0
        mail.send_of_staff(address, event.organizer_id, lambda: _send(row, event, order, address), is_paid=is_paid)
    ScheduleMail.objects.filter(pk=row.pk).update(sent_at=clock.now())


def _address(row: ScheduleMail, order: OrderView | None) -> str:
    """Return the present address of the buyer or recipient; empty without a valid ticket."""
    transfer = row.transfer
    if transfer is None:
        return order.email if order is not None else ""
    return transfer.email if Ticket.objects.filter(transfer=transfer, voided_at=None).exists() else ""


def _send(row: ScheduleMail, event: events.EventView, order: OrderView | None, address: str) -> None:
    drawn = _draw(row, event, order, address)
    if order is not None:
        mail.require_unchanged(order)
    drawn.send()


def _draw(row: ScheduleMail, event: events.EventView, order: OrderView | None, address: str) -> EmailMultiAlternatives:
    change = row.notice.change
    offer = order.returns if order is not None and order.may_return and row.notice.return_until is not None else None
    files = _files(row, event, order)
    context: dict[str, Any] = {
        "event": event,
        **_times(change),
        "message": change.message,
        "order": order,
        "order_url": access.order_link(order.id, order.link_version) if order is not None else "",
        "return_until": None if offer is None else offer.until,
        "return_url": access.return_link(order.id, offer.until, order.link_version)
        if order is not None and offer is not None
        else "",
        "keeps_fees": offer is not None and offer.keeps_fees,
        "has_pdf": any(content_type == PDF_TYPE for _, _, content_type in files),
        "event_url": absolute_url(reverse("events:event", args=[event.slug])),
        "find_url": absolute_url(reverse("orders:find")),
        "site_url": settings.SITE_URL,
    }
    subject = f"New date: {event.name}" if context["is_moved"] else f"New times: {event.name}"
    drawn = EmailMultiAlternatives(
        subject=" ".join(subject.split()),
        body=render_to_string("orders/email/schedule_changed.txt", context),
        to=[address],
        # The same for each delivery: a mail that is sent twice after a crash is shown once.
        headers={"Message-ID": f"<schedule-{row.pk}@{urlsplit(settings.SITE_URL).hostname}>"},
    )
    drawn.attach_alternative(render_to_string("orders/email/schedule_changed.html", context), "text/html")
    for name, content, content_type in files:
        drawn.attach(name, content, content_type)
    return drawn


def _files(row: ScheduleMail, event: events.EventView, order: OrderView | None) -> list[tuple[str, bytes, str]]:
    """Return the attachments: tickets with the new date, if the recipient has any, and the buyer's calendar file."""
    if order is None:
        codes = Ticket.objects.filter(transfer=row.transfer, voided_at=None).values_list("code", flat=True)
        return [
            (ticket_pdf.ticket_file_name(event), ticket_pdf.ticket_pdf(event, get_ticket(code)), PDF_TYPE)
            for code in codes
        ]
    files = []
    if order.valid_tickets:
        files.append((ticket_pdf.tickets_file_name(order), ticket_pdf.tickets_pdf(order), PDF_TYPE))
    return [*files, (f"{event.slug}.ics", ics.calendar_file(order), ics.CONTENT_TYPE)]


def _times(change: Any) -> dict[str, Any]:
    """Return the times that the change has set, before and after it."""
    read = {
        when: {name: value and datetime.fromisoformat(value) for name, value in values.items()}
        for when, values in (("before", change.before), ("after", change.after))
    }
    return {**read, "is_moved": read["before"]["starts_at"] != read["after"]["starts_at"]}
