"""Reminders before a draw: each person who signed up more than a day before ticket sales open gets one mail that day.

A maintenance job schedules them, in the transaction that records it, so that each is scheduled once. The opening of an
event with a draw never moves: the published commitment names it.
"""

from datetime import timedelta
from urllib.parse import urljoin

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.db.models import F
from django.template.loader import render_to_string
from django.urls import reverse

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.facade import Message
from apps.kernel.rate_limits import mail_caps
from apps.queue.lobby.sign_up_mail import new_message
from apps.queue.models import QueueEntry, SignUp

SEND_REMINDER = "queue.send_sign_up_reminder"
"""The outbox topic. Its key is the sign-up's id: a delayed mail to one person delays none to another."""
REMIND_BEFORE = timedelta(hours=24)
BATCH_MAX = 5_000
SENDING_MAX = 3
"""Mails that one process sends at once."""


def schedule_reminders() -> int:
    """Schedule up to BATCH_MAX reminders of draws within the next day, and commit. Return how many."""
    now = clock.now()
    due = SignUp.objects.filter(
        reminded_at=None,
        event__on_sale__opens_at__gt=now,
        event__on_sale__opens_at__lte=now + REMIND_BEFORE,
        signed_up_at__lt=F("event__on_sale__opens_at") - REMIND_BEFORE,
    )
    with transactions.write():
        # Without waiting: another process that has locked some of them schedules these.
        locked = due.order_by("pk").select_for_update(skip_locked=True, no_key=True, of=("self",))
        origins = dict(locked.values_list("pk", "origin")[:BATCH_MAX])
        if origins:
            SignUp.objects.filter(pk__in=origins.keys()).update(reminded_at=now)
            outbox.publish_all([new_message(SEND_REMINDER, pk, origin) for pk, origin in origins.items()])
    return len(origins)


def send(message: Message) -> None:
    """Send the reminder, unless sales have opened or the event is canceled, or the account is not active any more or
    has no confirmed address. Raises RetryLater while the address has received its cap of mails."""
    row = SignUp.objects.filter(pk=message.body["sign_up"]).first()
    if row is None or row.account_id is None:
        return
    event = events.get_event_by_id(row.event_id)
    address = accounts.confirmed_address(row.account_id)
    now = clock.now()
    if not address or event.selling_state(now) != "upcoming":
        return
    entries = QueueEntry.objects.filter(event=event.id, account=row.account_id, status__in=QueueEntry.LIVE)
    is_in_lobby = entries.exists()
    page = "queue:wait" if is_in_lobby else "events:event"
    context = {
        "event": event,
        "opens_at": event.policy.opens_at,
        "is_in_lobby": is_in_lobby,
        "presale": event.presale_at(now),
        "page_url": urljoin(settings.SITE_URL, reverse(page, args=[event.slug])),
        "site_url": settings.SITE_URL,
    }
    mail = EmailMultiAlternatives(
        subject=" ".join(f"The draw for {event.name} is soon".split()),
        body=render_to_string("queue/email/reminder.txt", context),
        to=[address],
    )
    mail.attach_alternative(render_to_string("queue/email/reminder.html", context), "text/html")
    mail_caps.send_within_cap(address, 1, mail.send)
