"""Groups of topics: mail is delivered by processes of its own, and nothing else waits for it."""

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import transaction

from apps.kernel import clock
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.delivery import Delivery
from apps.kernel.outbox.facade import Message
from apps.kernel.outbox.models import OutboxMessage
from apps.kernel.outbox.topic_groups import ALL_GROUPS, TopicGroup
from apps.queue.room import health
from tests.support.batches import wait_until

pytestmark = pytest.mark.django_db(transaction=True)
SECONDS_MAX = 20
THREADS = 2
MAILS = 20


class SlowMails:
    """Handlers of a payment and of mails; each mail waits until `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.sending = threading.Semaphore(0)
        self.settled = threading.Event()

    def settle(self, message: Message) -> None:
        self.settled.set()

    def send(self, message: Message) -> None:
        self.sending.release()
        assert self.go_on.wait(SECONDS_MAX)


@pytest.fixture
def mails(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowMails]:
    """Register a topic of each group, and publish a burst of mails."""
    monkeypatch.setattr(outbox, "_topics", {})
    monkeypatch.setattr(outbox, "_wake", [])
    handlers = SlowMails()
    outbox.register_handler("payment", handlers.settle)
    outbox.register_handler("mail", handlers.send, group=TopicGroup.MAIL)
    publish("mail", *(f"key-{number}" for number in range(MAILS)))
    yield handlers
    handlers.go_on.set()


def publish(topic: str, *keys: str) -> None:
    with transaction.atomic():
        outbox.publish_all([outbox.NewMessage(topic, key, {}) for key in keys])


def test_a_burst_of_slow_mails_delays_no_payment(mails: SlowMails) -> None:
    sales, mailer = Delivery(THREADS, groups=[TopicGroup.SALES]), Delivery(THREADS, groups=[TopicGroup.MAIL])
    for delivery in (sales, mailer):
        delivery.wake()
    for _ in range(THREADS):
        assert mails.sending.acquire(timeout=SECONDS_MAX)
    publish("payment", "key-0")
    sales.wake()
    assert mails.settled.wait(SECONDS_MAX)
    assert sales.wait(SECONDS_MAX)
    assert OutboxMessage.objects.filter(topic="mail", done_at=None).count() == MAILS
    mails.go_on.set()
    assert mailer.wait(SECONDS_MAX)
    assert not OutboxMessage.objects.filter(done_at=None).exists(), "mail catches up"
    assert sales.close(SECONDS_MAX)
    assert mailer.close(SECONDS_MAX)


def test_control_in_one_process_the_payment_waits_for_the_mails(mails: SlowMails) -> None:
    both = Delivery(THREADS, groups=ALL_GROUPS)
    both.wake()
    for _ in range(THREADS):
        assert mails.sending.acquire(timeout=SECONDS_MAX)
    publish("payment", "key-0")
    both.wake()
    assert not mails.settled.wait(0.5)
    mails.go_on.set()
    assert mails.settled.wait(SECONDS_MAX)
    assert both.close(SECONDS_MAX)


def test_mail_that_is_behind_slows_no_waiting_room_and_is_shown(mails: SlowMails) -> None:
    OutboxMessage.objects.update(available_at=clock.now() - timedelta(minutes=10))
    publish("payment", "key-0")
    assert health.read(health.limits()).worker_lag_seconds < 60
    status = outbox.get_status()
    assert (status.pending, status.mail_pending) == (MAILS + 1, MAILS)
    assert status.lag_seconds < 60 < 600 <= status.mail_lag_seconds


def test_messages_of_other_groups_are_neither_claimed_nor_put_aside(mails: SlowMails, settings) -> None:
    settings.MAIL_DELIVERERS = 2 * MAILS + 2  # Mails may use half.
    publish("mail", "key-0")
    (first,) = [message for message in outbox.claim(MAILS, groups=[TopicGroup.MAIL]) if message.key == "key-0"]
    assert outbox.claim(MAILS, groups=[TopicGroup.SALES]) == []
    assert not OutboxMessage.objects.filter(is_behind=True).exists()
    assert outbox.claim(MAILS, groups=[TopicGroup.MAIL]) == []
    assert OutboxMessage.objects.get(is_behind=True).id > first.id


def test_a_commit_of_mail_alone_wakes_a_worker_only_if_it_sends_mail(mails: SlowMails, settings) -> None:
    woken: list[bool] = []
    outbox.register_wake(lambda: woken.append(True))
    publish("mail", "a")
    assert not woken
    publish("payment", "a")
    wait_until(lambda: len(woken) == 1, "a worker is woken")
    settings.MAIL_IN_WORKER = True
    publish("mail", "b")
    assert len(woken) == 2


def test_mails_that_take_long_leave_half_of_the_threads_to_preferred_ones(mails: SlowMails, settings) -> None:
    """Two topics, each with a limit of its own, could take all four threads. The preferred mail is the last."""
    settings.MAIL_DELIVERERS = 4
    preferred = threading.Event()
    outbox.register_handler("mail", mails.send, group=TopicGroup.MAIL, together_max=3)
    outbox.register_handler("other", mails.send, group=TopicGroup.MAIL, together_max=3)
    outbox.register_handler(
        "preferred", lambda message: preferred.set(), group=TopicGroup.MAIL, together_max=3, is_preferred=True
    )
    publish("other", "a", "b", "c")
    publish("preferred", "a")
    mailer = Delivery(4, groups=[TopicGroup.MAIL])
    mailer.wake()
    for _ in range(2):
        assert mails.sending.acquire(timeout=SECONDS_MAX)
    assert preferred.wait(SECONDS_MAX)
    assert OutboxMessage.objects.exclude(topic="preferred").filter(attempts=1).count() == 2
    mails.go_on.set()
    assert mailer.wait(SECONDS_MAX)
    assert not OutboxMessage.objects.filter(done_at=None).exists()
    assert mailer.close(SECONDS_MAX)


def test_topics_that_share_threads_take_turns(mails: SlowMails, settings) -> None:
    """The mails of two long backlogs are older than the third topic's mail, which gets the next free thread."""
    settings.MAIL_DELIVERERS = 8
    for topic in ("bulk", "other"):
        outbox.register_handler(topic, mails.send, group=TopicGroup.MAIL)
    publish("bulk", "a", "b", "c", "d", "e")
    publish("other", "a")

    def claim(**under_way: int) -> list[tuple[str, str]]:
        claimed = outbox.claim(8, under_way, groups=[TopicGroup.MAIL])
        return [(message.topic, message.key) for message in claimed]

    assert claim(mail=2, bulk=2) == []
    assert claim(mail=2, bulk=1) == [("other", "a")]
    assert claim(mail=1, bulk=2) == [("mail", "key-0")]
    assert claim(payment=7, mail=0, bulk=0) == [
        ("mail", "key-1"),
        ("mail", "key-2"),
        ("bulk", "a"),
        ("bulk", "b"),
    ]


def test_a_single_thread_sends_all_mails(mails: SlowMails, settings) -> None:
    settings.MAIL_DELIVERERS = 1
    assert len(outbox.claim(1, groups=[TopicGroup.MAIL])) == 1
