"""Mails to the people who signed up for a draw: once all entries have their numbers, each gets one mail.

A maintenance job schedules the mails in the order of the line, in the transaction that records it, so that each is
scheduled once. It needs PostgreSQL only. Outbox handlers send the mails.
"""

from urllib.parse import urljoin

from django.conf import settings
from django.core.mail import EmailMultiAlternatives
from django.db.models import OuterRef, Subquery
from django.template.loader import render_to_string
from django.urls import reverse

from apps.accounts import facade as accounts
from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.facade import Message
from apps.kernel.rate_limits import mail_caps
from apps.queue.models import Draw, QueueEntry, SignUp

SEND_MAIL = "queue.send_sign_up_mail"
"""The outbox topic. Its key is the sign-up's id: a delayed mail to one person delays none to another."""
BATCH_MAX = 5_000
SENDING_MAX = 3
"""Mails that one process sends at once, so that a draw with many sign-ups leaves a thread to other mails."""

_OVER = (QueueEntry.Status.COMPLETED, QueueEntry.Status.LEFT)


def schedule_mails() -> int:
    """Schedule up to BATCH_MAX mails of draws that have ended, lowest numbers first, and commit. Return how many."""
    drawn = Draw.objects.filter(numbered_at__isnull=False).values("event")
    own = QueueEntry.objects.filter(event=OuterRef("event"), account=OuterRef("account"), in_lobby=True)
    with transactions.write():
        due = SignUp.objects.filter(mail_at=None, event__in=drawn)
        ordered = due.annotate(number=Subquery(own.order_by("number").values("number")[:1])).order_by("number", "pk")
        # Without waiting: another process that has locked some of them schedules these.
        locked = ordered.select_for_update(skip_locked=True, no_key=True)
        origins = dict(locked.values_list("pk", "origin")[:BATCH_MAX])
        if origins:
            SignUp.objects.filter(pk__in=origins.keys()).update(mail_at=clock.now(), origin="")
            outbox.publish_all([new_message(SEND_MAIL, pk, origin) for pk, origin in origins.items()])
    return len(origins)


def new_message(topic: str, sign_up_id: int, origin: str) -> outbox.NewMessage:
    """Return the message whose handler sends a mail about this sign-up, in the turn of its origin: mails to the many
    addresses of one person do not delay those to others."""
    return outbox.NewMessage(topic, str(sign_up_id), {"sign_up": sign_up_id, outbox.ORIGIN_FIELD: origin})


def send(message: Message) -> None:
    """Send the mail, unless sales are over, the person has bought or left, or the account is not active any more or has
    no confirmed address."""
    row = SignUp.objects.filter(pk=message.body["sign_up"]).first()
    if row is None or row.account_id is None:
        return
    event = events.get_event_by_id(row.event_id)
    address = accounts.confirmed_address(row.account_id)
    drawn = QueueEntry.objects.filter(event=event.id, account=row.account_id, in_lobby=True, number__isnull=False)
    entry = drawn.exclude(status__in=_OVER).order_by("number").first()
    now = clock.now()
    if not address or entry is None or event.selling_state(now) != "on_sale":
        return
    context = {
        "event": event,
        "number": entry.number,
        "presale": event.presale_at(now),
        "wait_url": urljoin(settings.SITE_URL, reverse("queue:wait", args=[event.slug])),
        "proof_url": urljoin(settings.SITE_URL, reverse("queue:fairness", args=[event.slug])),
        "site_url": settings.SITE_URL,
    }
    mail = EmailMultiAlternatives(
        subject=" ".join(f"Your place in line for {event.name}".split()),
        body=render_to_string("queue/email/drawn.txt", context),
        to=[address],
    )
    mail.attach_alternative(render_to_string("queue/email/drawn.html", context), "text/html")
    mail_caps.send_within_cap(address, 1, mail.send)
