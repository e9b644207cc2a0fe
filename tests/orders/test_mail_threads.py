"""Mails to domains that were quick once and then take long leave threads of `mailer` to tickets of paid orders."""

import threading
from typing import Any

import pytest
from django.core.mail import EmailMessage
from django.db import transaction

from apps.kernel.mail import domain_pauses, new_domains, smtp_backend
from apps.kernel.mail.new_domains import Sender
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.delivery import Delivery
from apps.kernel.outbox.facade import Message
from apps.kernel.outbox.topic_groups import TopicGroup
from apps.orders import facade as orders
from apps.orders import topics

pytestmark = pytest.mark.django_db(transaction=True)
SECONDS_MAX = 20


class SlowServer:
    """Takes a mail to a name below evil.org, once it is slow, and does not answer until `answers` is set."""

    def __init__(self) -> None:
        self.is_slow = False
        self.answers = threading.Event()
        self.waiting = threading.Semaphore(0)
        self.tickets_sent = threading.Event()

    def take(self, mails: list[EmailMessage], recipient_seconds: float | None) -> int:
        (address,) = mails[0].to
        if self.is_slow and address.endswith(".evil.org"):
            self.waiting.release()
            assert self.answers.wait(2 * SECONDS_MAX)
        elif address == "ann@good.org":
            self.tickets_sent.set()
        return len(mails)


def send(message: Message) -> None:
    EmailMessage("Tickets", "", to=[message.body["to"]]).send()


def test_tickets_of_paid_orders_are_sent_while_a_domain_that_was_quick_takes_long(
    monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    """Strangers cause mails of each kind to names below one domain, all of which the mail server has accepted before.
    The mail with the tickets is written after them."""
    settings.EMAIL_BACKEND = "apps.kernel.mail.smtp_backend.EmailBackend"
    server, pauses = SlowServer(), domain_pauses.DomainPauses()
    monkeypatch.setattr(domain_pauses, "pauses", pauses)
    monkeypatch.setattr(smtp_backend.EmailBackend, "_send_over_kept", lambda self, *given: server.take(*given))
    monkeypatch.setattr(outbox, "_topics", {})
    for each in orders.handlers():
        if each.options.get("group") is TopicGroup.MAIL:
            outbox.register_handler(each.topic, send, each.visibility, **each.options)
    kinds = [topics.SEND_FREE_TICKETS, topics.SEND_TICKETS_AGAIN, topics.SEND_ORDER_LIST, topics.SEND_RETURN_NOTICE]
    slow = [(kinds[number % len(kinds)], f"eve@n{number}.evil.org") for number in range(4 * settings.MAIL_DELIVERERS)]
    for address in ("ann@good.org", *(address for _, address in slow)):
        with pauses.sending([domain_pauses.domain_of(address)], Sender()):
            pass
    server.is_slow = True
    with transaction.atomic():
        for topic, address in (*slow, (topics.SEND_TICKETS, "ann@good.org")):
            outbox.publish(topic, address, {"to": address})
    mailer = Delivery(settings.MAIL_DELIVERERS, groups=[TopicGroup.MAIL])
    try:
        mailer.wake()
        assert server.waiting.acquire(timeout=SECONDS_MAX)
        assert server.tickets_sent.wait(SECONDS_MAX)
    finally:
        server.answers.set()
        assert mailer.wait(SECONDS_MAX)
        assert mailer.close(SECONDS_MAX)


def test_each_topic_that_strangers_can_cause_has_a_thread_besides_that_for_new_domains() -> None:
    """Of these topics one mail to a new domain is sent at a time. A single thread would make all others wait for it."""
    assert new_domains._stranger_topics
    assert [name for name in new_domains._stranger_topics if outbox._topics[name].together_max == 1] == []
