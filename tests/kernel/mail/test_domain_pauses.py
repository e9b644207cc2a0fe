"""Pauses of domains for which the mail server takes long."""

from collections.abc import Callable
from datetime import timedelta
from uuid import uuid4

import pytest
from django.core.mail import EmailMessage

from apps.kernel.mail import domain_pauses, smtp_backend
from apps.kernel.mail.domain_pauses import PAUSE_SECONDS, SLOW_SECONDS, DomainPauses
from apps.kernel.outbox import facade as outbox
from apps.orders import topics


class Mails:
    """Mails that take as long as the test says."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.pauses = DomainPauses(lambda: self.now)

    def send(self, *domains: str, seconds: float = 0.125, fails: bool = False, topic: str = "") -> float:
        """Send a mail. Return the seconds for which it has to wait; 0 if it was tried."""
        try:
            with self.pauses.sending(domains, topic):
                self.now += seconds
                if fails:
                    raise TimeoutError
        except outbox.RetryLater as later:
            return later.seconds
        except TimeoutError:
            assert fails
        return 0.0


@pytest.mark.parametrize("fails", [True, False])
def test_a_domain_that_takes_long_pauses_and_then_one_mail_is_tried(fails: bool) -> None:
    mails = Mails()
    assert not mails.send("quick.org")
    assert not mails.send("slow.org", seconds=SLOW_SECONDS, fails=fails)
    assert mails.send("slow.org") == PAUSE_SECONDS
    assert mails.send("other.org", "slow.org") == PAUSE_SECONDS
    assert not mails.send("quick.org")
    mails.now += PAUSE_SECONDS
    with mails.pauses.sending(["slow.org"]):
        assert mails.send("slow.org") == PAUSE_SECONDS, "the others wait for the result of this one"
    assert not mails.send("slow.org"), "it was quick again"


def test_no_domain_pauses_while_the_server_is_slow_for_all() -> None:
    mails = Mails()
    assert not mails.send("slow.org", seconds=SLOW_SECONDS, fails=True)
    assert not mails.send("slow.org", seconds=SLOW_SECONDS, fails=True)
    assert not mails.send("quick.org")
    mails.now += PAUSE_SECONDS
    assert not mails.send("slow.org", seconds=SLOW_SECONDS, fails=True)
    assert not mails.send("slow.org")


def test_a_quick_refusal_ends_a_pause_and_begins_none() -> None:
    mails = Mails()
    mails.send("quick.org")
    mails.send("slow.org", seconds=SLOW_SECONDS, fails=True)
    mails.now += PAUSE_SECONDS
    assert not mails.send("slow.org", fails=True)
    assert not mails.send("slow.org")


def test_names_below_a_domain_pause_with_it_unless_one_of_them_is_quick() -> None:
    mails = Mails()
    mails.send("quick.org")
    mails.send("a.slow.org", seconds=SLOW_SECONDS, fails=True)
    assert mails.send("b.slow.org") == PAUSE_SECONDS
    mails.send("a.slow.co.uk", seconds=SLOW_SECONDS, fails=True)
    assert mails.send("b.slow.co.uk") == PAUSE_SECONDS
    assert not mails.send("shop.co.uk"), "co.uk has many owners"
    mails.send("a.host.org")
    mails.send("slow.host.org", seconds=SLOW_SECONDS, fails=True)
    assert mails.send("slow.host.org") == PAUSE_SECONDS
    assert not mails.send("b.host.org")


def test_a_mail_to_several_domains_lets_none_pause() -> None:
    mails = Mails()
    mails.send("quick.org")
    mails.send("one.org", "slow.org", seconds=SLOW_SECONDS, fails=True)
    assert not mails.send("one.org")


def test_few_mails_to_domains_that_are_not_known_are_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_pauses, "UNKNOWN_MAX", 2)
    mails = Mails()
    mails.send("quick.org")
    with mails.pauses.sending(["a.org"]), mails.pauses.sending(["b.org"]):
        assert mails.send("c.org") == domain_pauses.UNKNOWN_WAIT_SECONDS
        assert not mails.send("quick.org")
    assert not mails.send("c.org")
    mails.now += domain_pauses.KNOWN_SECONDS
    with mails.pauses.sending(["a.org"]), mails.pauses.sending(["b.org"]):
        assert mails.send("quick.org") == domain_pauses.UNKNOWN_WAIT_SECONDS


def test_mails_that_strangers_cause_to_unknown_domains_use_one_thread_of_each_topic_and_few_in_all() -> None:
    mails = Mails()
    lists, free, failed = topics.SEND_ORDER_LIST, topics.SEND_FREE_TICKETS, topics.SEND_FAILURE_NOTICE
    assert not mails.send("known.org")
    with mails.pauses.sending(["a.org"], lists):
        assert mails.send("b.org", topic=lists) == domain_pauses.STRANGERS_UNKNOWN_WAIT_SECONDS
        assert not mails.send("known.org", topic=lists)
        assert not mails.send("c.org", topic=topics.SEND_TICKETS)
        with mails.pauses.sending(["d.org"], free), mails.pauses.sending(["e.org"], failed):
            with pytest.raises(outbox.RetryLater):
                mails.pauses.require_room(["f.org"], topics.SEND_TRANSFER)
            mails.pauses.require_room(["known.org"], topics.SEND_TRANSFER)
            mails.pauses.require_room(["f.org"], topics.SEND_TICKETS)
    assert not mails.send("b.org", topic=lists)


def test_few_domains_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(domain_pauses, "DOMAINS_MAX", 2)
    mails = Mails()
    for name in "abcd":
        mails.send("quick.org")
        mails.send(f"slow-{name}.org", seconds=SLOW_SECONDS)
    assert [mails.send(f"slow-{name}.org") > 0 for name in "abcd"] == [False, False, True, True]


def test_the_domains_of_a_mail_are_those_of_all_recipients() -> None:
    mail = EmailMessage("Tickets", "", to=["ann@One.example", "Bob <bob@two.example>"], bcc=["c@three.example"])
    assert domain_pauses.domains_of(mail) == {"one.example", "two.example", "three.example"}


@pytest.mark.django_db(transaction=True)
def test_a_mail_to_a_paused_domain_waits_in_the_outbox_without_a_failure(
    monkeypatch: pytest.MonkeyPatch, settings: object
) -> None:
    settings.EMAIL_BACKEND = "apps.kernel.mail.smtp_backend.EmailBackend"  # type: ignore[attr-defined]
    mails, tried = Mails(), list[str]()
    mails.send("quick.org")
    mails.send("slow.org", seconds=SLOW_SECONDS)
    monkeypatch.setattr(domain_pauses, "pauses", mails.pauses)
    monkeypatch.setattr(smtp_backend.EmailBackend, "_send_over_kept", lambda self, given: tried.append(given[0].to[0]))

    def send_to(address: str) -> Callable[[outbox.Message], None]:
        return lambda message: EmailMessage("Tickets", "", to=[address]).send() and None

    monkeypatch.setattr(outbox, "_topics", {})
    slow, quick = (f"test.{uuid4()}" for _ in range(2))
    outbox.register_handler(slow, send_to("ann@slow.org"), backoff=lambda attempts: timedelta())
    outbox.register_handler(quick, send_to("ann@quick.org"), backoff=lambda attempts: timedelta())
    with outbox.transactions.write():
        outbox.publish(slow, "one", {})
        outbox.publish(quick, "one", {})
    outbox.deliver(), outbox.deliver()
    assert tried == ["ann@quick.org"]
    (waiting,) = outbox.OutboxMessage.objects.filter(done_at=None)
    assert (waiting.topic, waiting.attempts, waiting.dead_at) == (slow, 0, None)
