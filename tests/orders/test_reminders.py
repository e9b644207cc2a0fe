"""Reminders to the buyers of an event: batches of messages, each buyer once."""

import uuid

import pytest
from django.core import mail
from django.db import connection

from apps.events import facade as events
from apps.events.models import Event, Organizer
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import topics
from apps.orders.cancellation import order_cancellation
from apps.orders.models import Order, Reminder
from apps.orders.scheduled_tasks import reminders
from tests.support.factories import assert_audit_clean, hold, join, make_event
from tests.support.orders.sale import buy, deliver_outbox
from tests.support.races import rival_at, storm, values

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]

RUN = 7


@pytest.fixture
def event(monkeypatch: pytest.MonkeyPatch) -> events.EventView:
    """An event with three buyers, one of them with two orders, and a reminder in batches of two that has begun."""
    event = make_event()
    for number, name in enumerate("abca", start=1):
        entry = join(event, visitor_id=f"visitor-{name}")
        buy(hold(event, entry, seats=[f"hall-A-{number}"]), email=f"{name}@example.org")
    mail.outbox.clear()
    monkeypatch.setattr(reminders, "BATCH_MAX", 2)
    with transactions.write():
        assert reminders.begin_reminder(RUN, event.id, "Bring your ticket.") == 3
    return event


def batch(number: int) -> outbox.Message:
    now = clock.now()
    return outbox.Message(1, "", "", {"run": RUN, "batch": number}, uuid.uuid4(), 1, now, now)


def written() -> int:
    return OutboxMessage.objects.filter(topic=topics.SEND_REMINDER).count()


@pytest.mark.usefixtures("event")
def test_each_address_gets_one_mail_however_often_a_batch_is_delivered() -> None:
    for number, expected in ((0, 2), (0, 2), (1, 3), (1, 3), (0, 3)):
        reminders.continue_reminder(batch(number))
        assert written() == expected
    assert Reminder.objects.get().finished_at is not None
    deliver_outbox()
    assert sorted(sent.to[0] for sent in mail.outbox) == [f"{name}@example.org" for name in "abc"]
    assert_audit_clean()


def test_an_address_with_orders_of_several_buyers_gets_a_mail_for_each() -> None:
    """A stranger can order with any address, and return the ticket again."""
    event = make_event()
    for number in (1, 2):
        buy(hold(event, seats=[f"hall-A-{number}"]))
    with transactions.write():
        assert reminders.begin_reminder(RUN, event.id, "Bring your ticket.") == 2
    reminders.continue_reminder(batch(0))
    assert written() == 2
    origins = {message.body["origin"] for message in OutboxMessage.objects.filter(topic=topics.SEND_REMINDER)}
    assert origins == {f"organizer {event.organizer_id}/event {event.id}"}, (
        "those of another organizer have turns of their own"
    )


@pytest.mark.usefixtures("event")
def test_a_buyer_who_has_returned_one_of_two_orders_is_reminded_of_the_other() -> None:
    reminders.continue_reminder(batch(0))
    reminders.continue_reminder(batch(1))
    first, second = Order.objects.filter(email="a@example.org").order_by("placed_at")
    order_cancellation.refund_order(first.pk, "staff:1")
    deliver_outbox()
    (sent,) = [sent for sent in mail.outbox if sent.to == [second.email] and sent.subject.startswith("Reminder")]
    assert second.number in sent.body
    assert first.number not in sent.body


def naive_batch(event: events.EventView) -> None:
    """Find the orders and write their messages, without the lock of the reminder."""
    with transactions.write(), connection.cursor() as cursor:
        found = reminders._orders_to_remind.rows(cursor, event_id=event.id, after="", limit=2)
        outbox.publish_all([outbox.NewMessage(topics.SEND_REMINDER, str(row[0]), {}) for row in found])


def test_control_batches_without_the_lock_of_the_reminder_write_the_same_messages(event: events.EventView) -> None:
    """A: finds two orders
    B: finds them too, writes their messages; COMMIT
    A: writes them again
    """
    with rival_at("orders_to_remind", "after", lambda: naive_batch(event)):
        naive_batch(event)
    assert written() == 4


@pytest.mark.usefixtures("event")
def test_deliveries_of_one_batch_at_once_write_it_once() -> None:
    values(storm(6, lambda _: reminders.continue_reminder(batch(0))))
    assert written() == 2


@pytest.mark.usefixtures("event")
def test_a_batch_waits_while_mails_of_earlier_ones_are_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reminders, "DUE_MAX", 2)
    reminders.continue_reminder(batch(0))
    with pytest.raises(outbox.RetryLater):
        reminders.continue_reminder(batch(1))
    OutboxMessage.objects.filter(topic=topics.SEND_REMINDER).update(done_at=clock.now())
    reminders.continue_reminder(batch(1))
    assert written() == 3


@pytest.mark.usefixtures("event")
def test_a_batch_does_not_wait_for_mails_of_another_organizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its buyers may have addresses at domains that do not answer."""
    monkeypatch.setattr(reminders, "DUE_MAX", 2)
    reminders.continue_reminder(batch(0))
    other = make_event("other")
    events_of = Organizer.objects.create(slug="other", name="Other")
    Event.objects.filter(pk=other.id).update(organizer=events_of)
    buy(hold(other, seats=["hall-A-1"]), email="d@example.org")
    with transactions.write():
        reminders.begin_reminder(RUN + 1, other.id, "Bring your ticket.")
    body = {"run": RUN + 1, "batch": 0}
    reminders.continue_reminder(outbox.Message(2, "", "", body, uuid.uuid4(), 1, clock.now(), clock.now()))
    assert written() == 3


def test_no_further_mail_is_written_once_the_event_is_canceled(event: events.EventView) -> None:
    reminders.continue_reminder(batch(0))
    with transactions.write():
        events.cancel_event(event.id)
    reminders.continue_reminder(batch(1))
    assert (written(), Reminder.objects.get().finished_at is not None) == (2, True)
