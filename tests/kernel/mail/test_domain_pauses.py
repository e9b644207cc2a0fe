"""Pauses of domains for which the mail server takes long."""

from collections.abc import Callable, Collection
from contextlib import ExitStack
from datetime import timedelta
from uuid import uuid4

import pytest
from django.core.mail import EmailMessage

from apps.kernel import clock
from apps.kernel.mail import accepted_domains, domain_pauses, new_domains, smtp_backend
from apps.kernel.mail.domain_pauses import PAUSE_SECONDS, SLOW_SECONDS, DomainPauses
from apps.kernel.mail.new_domains import STRANGERS_WAIT_SECONDS, WAIT_SECONDS, Sender
from apps.kernel.models import MailDomain
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import topics

SENDER = Sender()


class Stored:
    """Accepted domains of all processes."""

    def __init__(self) -> None:
        self.domains: set[str] = set()

    def load(self, domains: Collection[str]) -> Collection[str]:
        return [domain for domain in domains if domain in self.domains]

    def store(self, domains: Collection[str]) -> None:
        self.domains |= set(domains)

    def forget(self, domains: Collection[str]) -> None:
        self.domains -= set(domains)


class Mails:
    """Mails that take as long as the test says."""

    def __init__(self, stored: Stored | None = None) -> None:
        self.now = 1_000.0
        self.stored = stored or Stored()
        self.pauses = DomainPauses(lambda: self.now, self.stored)

    def send(self, *domains: str, seconds: float = 0.125, fails: bool = False, sender: Sender = SENDER) -> float:
        """Send a mail. Return the seconds for which it has to wait; 0 if it was tried."""
        try:
            with self.pauses.sending(domains, sender):
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
    with mails.pauses.sending(["slow.org"], SENDER):
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


def test_few_mails_to_new_domains_are_sent_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_domains, "OTHERS_MAX", 2)
    mails = Mails()
    mails.send("quick.org")
    with mails.pauses.sending(["a.org"], SENDER), mails.pauses.sending(["b.org"], SENDER):
        assert mails.send("c.org") == WAIT_SECONDS
        assert not mails.send("quick.org")
    assert not mails.send("c.org")


def test_mails_of_one_topic_to_new_domains_leave_turns_to_other_topics() -> None:
    mails, refund = Mails(), Sender(topics.SEND_REFUND_NOTICE)
    with ExitStack() as under_way:
        for number in range(new_domains.OTHERS_MAX):
            under_way.enter_context(mails.pauses.sending([f"new-{number}.org"], refund))
        assert mails.send("new.org", sender=refund) == WAIT_SECONDS
        assert not mails.send("new.org", sender=Sender(topics.SEND_TICKETS))


def test_names_below_a_domain_with_a_slow_one_count_as_new_however_quick_they_were() -> None:
    mails, lists = Mails(), Sender(topics.SEND_ORDER_LIST)
    for name in ("a.evil.org", "b.evil.org", "c.evil.org", "evil.org", "quick.org"):
        assert not mails.send(name)
    with mails.pauses.sending(["b.evil.org"], lists) as are_new:
        assert not are_new
        assert not mails.send("c.evil.org", sender=lists)
    mails.send("quick.org")
    mails.send("a.evil.org", seconds=SLOW_SECONDS)
    with mails.pauses.sending(["b.evil.org"], lists) as are_new:
        assert are_new
        assert mails.send("c.evil.org", sender=lists) == STRANGERS_WAIT_SECONDS
        with pytest.raises(outbox.RetryLater):
            mails.pauses.require_room(["c.evil.org"], lists)
        assert not mails.send("quick.org", sender=lists)
        assert not mails.send("evil.org", sender=lists), "judged by its own mails"
    with mails.pauses.sending(["b.evil.org"], lists) as are_new:
        assert are_new, "a quick mail does not end that"
    mails.now += domain_pauses.QUICK_SECONDS
    with mails.pauses.sending(["b.evil.org"], lists) as are_new:
        assert not are_new


def test_accepted_domains_are_known_to_all_processes_until_they_take_long() -> None:
    mails = Mails()
    mails.send("quick.org")
    mails.send("slow.org", seconds=SLOW_SECONDS)
    assert mails.stored.domains == {"quick.org"}
    other = Mails(mails.stored)
    assert other.pauses._load(["quick.org"])
    mails.send("turned.org")
    mails.now += domain_pauses.DAY_SECONDS
    mails.send("quick.org")
    mails.send("turned.org", seconds=SLOW_SECONDS, fails=True)
    assert mails.stored.domains == {"quick.org"}, "turned.org is new again"


def test_no_domain_is_forgotten_while_the_server_is_slow_for_all() -> None:
    mails = Mails(stored := Stored())
    mails.send("a.org", seconds=SLOW_SECONDS)
    mails.send("a.org", seconds=SLOW_SECONDS, fails=True)
    assert stored.domains == {"a.org"}


@pytest.mark.django_db(transaction=True)
def test_stored_domains_are_digests_and_end_after_a_month() -> None:
    accepted_domains.store(["b.org", "a.org"])
    accepted_domains.store(["a.org"])
    assert sorted(accepted_domains.load(["a.org", "b.org", "c.org"])) == ["a.org", "b.org"]
    assert "org" not in str(list(MailDomain.objects.values_list("digest", flat=True)))
    accepted_domains.forget(["b.org"])
    MailDomain.objects.update(accepted_at=clock.now() - timedelta(days=accepted_domains.KEPT_DAYS))
    assert accepted_domains.load(["a.org", "b.org"]) == []
    assert (accepted_domains.delete_old(clock.now()), MailDomain.objects.count()) == (1, 0)


def test_mails_that_strangers_cause_to_new_domains_use_one_thread_of_each_topic_and_few_in_all() -> None:
    mails = Mails()
    lists, free, failed, transfer = (
        Sender(topic)
        for topic in (
            topics.SEND_ORDER_LIST,
            topics.SEND_FREE_TICKETS,
            topics.SEND_FAILURE_NOTICE,
            topics.SEND_TRANSFER,
        )
    )
    assert not mails.send("known.org")
    with mails.pauses.sending(["a.org"], lists):
        assert mails.send("b.org", sender=lists) == STRANGERS_WAIT_SECONDS
        assert not mails.send("known.org", sender=lists)
        assert not mails.send("c.org", sender=Sender(topics.SEND_TICKETS))
        with mails.pauses.sending(["d.org"], free), mails.pauses.sending(["e.org"], failed):
            with pytest.raises(outbox.RetryLater):
                mails.pauses.require_room(["f.org"], transfer)
            mails.pauses.require_room(["known.org"], transfer)
            mails.pauses.require_room(["f.org"], Sender(topics.SEND_TICKETS))
    assert not mails.send("b.org", sender=lists)


def test_one_client_delays_the_mails_of_others_to_new_domains_by_one_mail_only() -> None:
    """The first client's mails, to many domains, ask all the time; the second client's asks once meanwhile."""
    mails, topic = Mails(), topics.SEND_ORDER_LIST
    many, one = Sender(topic, "many"), Sender(topic, "one")
    with mails.pauses.sending(["dead-0.org"], many):
        assert mails.send("dead-1.org", sender=many) == mails.send("new.org", sender=one) == STRANGERS_WAIT_SECONDS
    assert mails.send("dead-1.org", sender=many) == STRANGERS_WAIT_SECONDS, "it is the turn of the other one"
    assert not mails.send("new.org", sender=one)
    assert not mails.send("dead-1.org", sender=many)


def test_mails_of_one_organizer_or_event_delay_those_of_others_by_one_mail_only() -> None:
    """The first sends many, for two events."""
    first, second, other = (Sender("tickets", f"organizer {of}") for of in ("1/event 1", "1/event 2", "2/event 3"))
    turns = new_domains.Turns()
    for now in range(new_domains.OTHERS_MAX):
        turns.begin(first, now)
    for waiting in (first, second, other):
        with pytest.raises(outbox.RetryLater):
            turns.require(waiting, 10.0)
    turns.end(first)
    for waiting in (first, second):
        with pytest.raises(outbox.RetryLater):
            turns.require(waiting, 11.0)
    turns.require(other, 11.0)
    turns.begin(other, 11.0)
    turns.end(other)
    with pytest.raises(outbox.RetryLater):
        turns.require(first, 12.0)
    turns.require(second, 12.0)


def test_topics_of_strangers_have_turns_among_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new_domains, "STRANGERS_MAX", 1)
    lists, free, failed = (
        Sender(topic) for topic in (topics.SEND_ORDER_LIST, topics.SEND_FREE_TICKETS, topics.SEND_FAILURE_NOTICE)
    )
    turns = new_domains.Turns()

    def ask(sender: Sender, now: float) -> bool:
        try:
            turns.require(sender, now)
        except outbox.RetryLater:
            return False
        turns.begin(sender, now)
        return True

    assert ask(lists, 0.0)
    assert not ask(free, 1.0)
    turns.end(lists)
    assert not ask(lists, 2.0), "it is the turn of the other topic"
    assert ask(free, 3.0)
    assert not ask(failed, 4.0)
    turns.end(free)
    assert not ask(lists, 5.0)
    assert not ask(free, 5.0)
    assert ask(failed, 6.0)
    turns.end(failed)
    assert ask(lists, 7.0)
    turns.end(lists)
    assert ask(failed, 7.0 + new_domains.WAITING_SECONDS_MAX), "the others ask no more"


def test_first_attempts_go_before_repeats() -> None:
    mails, topic = Mails(), topics.SEND_ORDER_LIST
    first, repeat = Sender(topic, "many"), Sender(topic, "other", is_repeat=True)
    with mails.pauses.sending(["dead-0.org"], first):
        assert mails.send("dead-1.org", sender=first) == mails.send("dead-2.org", sender=repeat) > 0
    assert mails.send("dead-2.org", sender=repeat) > 0
    mails.now += new_domains.WAITING_SECONDS_MAX
    assert not mails.send("dead-2.org", sender=repeat), "the first attempt waits no longer"


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
    monkeypatch.setattr(
        smtp_backend.EmailBackend, "_send_over_kept", lambda self, given, seconds: tried.append(given[0].to[0])
    )

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
    (waiting,) = OutboxMessage.objects.filter(done_at=None)
    assert (waiting.topic, waiting.attempts, waiting.dead_at) == (slow, 0, None)
