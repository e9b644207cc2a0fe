"""Mails that an organizer's staff cause with one action for many orders delay no single mail of another organizer."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import facade as orders
from apps.orders import organizer_mails, topics
from apps.orders.cancellation import order_cancellation
from apps.orders.mail import resend_tickets
from apps.orders.models import Order
from apps.orders.organizer_mails import AT_ONCE_MAX
from apps.orders.staff.buyer_correction import correct_buyer
from apps.orders.tickets import reissue
from tests.support.factories import assert_audit_clean, hold, make_event, make_organizer
from tests.support.orders.sale import SAME_ORIGIN, buy, deliver_outbox

pytestmark = pytest.mark.django_db(transaction=True)
ORDERS = 100
"""Of one action: the page of the list."""
ACTIONS: dict[str, tuple[str, Callable[[Order], object]]] = {
    "resend": (topics.SEND_TICKETS_AGAIN, lambda order: resend_tickets(order.pk, who="staff:1")),
    "reissue": (topics.SEND_TICKETS_AGAIN, lambda order: reissue.reissue_order(order.pk, "staff:1")),
    "refund": (topics.SEND_REFUND_NOTICE, lambda order: order_cancellation.refund_order(order.pk, "staff:1")),
}


@pytest.fixture(autouse=True)
def _no_caps(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The interval is long, so that none passes while a test runs."""
    settings.MAIL_PER_HOUR_MAX = settings.MAIL_PER_DAY_MAX = 0
    monkeypatch.setattr(organizer_mails, "INTERVAL", timedelta(minutes=1))


@pytest.fixture
def concert(db: None) -> events.EventView:
    return make_event(rows=10)


@pytest.fixture
def others_order(db: None) -> Order:
    other = make_event("another", venue="B", organizer=make_organizer().slug)
    return buy(hold(other, seats=["hall-A-1"]))


def buy_orders(event: events.EventView, count: int) -> list[Order]:
    return [buy(hold(event, seats=[f"hall-{'ABCDEFGHIJ'[n // 10]}-{n % 10 + 1}"])) for n in range(count)]


def due_times(topic: str) -> list[datetime]:
    """Return the due times of the topic's undelivered messages, in the order in which they were written."""
    waiting = OutboxMessage.objects.filter(topic=topic, done_at=None).order_by("pk")
    return list(waiting.values_list("available_at", flat=True))


@pytest.mark.parametrize("act", ACTIONS)
def test_a_single_act_of_another_organizer_is_due_before_the_rest_of_a_large_action(
    concert: events.EventView, others_order: Order, act: str
) -> None:
    topic, run = ACTIONS[act]
    for order in buy_orders(concert, 12):
        run(order)
    run(others_order)
    *times, others_time = due_times(topic)
    assert len(times) == 12
    assert max(times[:AT_ONCE_MAX]) <= others_time <= clock.now()
    assert all(time > others_time for time in times[AT_ONCE_MAX:])
    gaps = [later - earlier for earlier, later in zip(times[AT_ONCE_MAX - 1 :], times[AT_ONCE_MAX:], strict=False)]
    assert min(gaps) >= organizer_mails.INTERVAL
    OutboxMessage.objects.exclude(topic=topic).update(done_at=clock.now())
    claimed = [outbox.claim(1)[0].body["order"] for _ in range(AT_ONCE_MAX + 1)]
    assert str(others_order.pk) in claimed
    assert outbox.claim(1) == []
    let_pass(hours=1)
    deliver_outbox()
    assert len(due_times(topic)) == AT_ONCE_MAX + 1, "those that were claimed above"


@pytest.mark.parametrize("topic", [topics.SEND_CORRECTION_NOTICE, topics.SEND_TICKETS_AGAIN])
def test_mails_about_corrected_buyers_are_due_one_after_the_other(
    concert: events.EventView, others_order: Order, topic: str
) -> None:
    for number, order in enumerate([*buy_orders(concert, 8), others_order]):
        correct_buyer(order.pk, email=f"new-{number}@example.org", name=order.name, why="a typo", who="staff:1")
    *times, others_time = due_times(topic)
    assert len(times) == 8
    assert max(times[:AT_ONCE_MAX]) <= others_time <= clock.now()
    assert all(time > others_time for time in times[AT_ONCE_MAX:])
    assert outbox._topics[topic].together_max == orders.BULK_THREADS


@pytest.mark.slow
def test_a_hundred_mails_of_one_organizer_do_not_delay_one_of_another(
    concert: events.EventView, others_order: Order, admin_client: Any
) -> None:
    orders = buy_orders(concert, ORDERS)
    form = {"action": "resend_tickets", "_selected_action": [str(order.pk) for order in orders]}
    done = admin_client.post("/admin/orders/order/", form, headers=SAME_ORIGIN, follow=True).content.decode()
    assert (
        "Resending the tickets of 100 orders. Emails go out one after the other: the last one in about 1 hour" in done
    )
    form["_selected_action"] = [str(others_order.pk)]
    done = admin_client.post("/admin/orders/order/", form, headers=SAME_ORIGIN, follow=True).content.decode()
    assert "Resending the tickets of 1 order." in done
    assert "one after the other" not in done
    *times, others_time = due_times(topics.SEND_TICKETS_AGAIN)
    assert len(times) == ORDERS
    assert others_time <= clock.now()
    assert sum(time <= others_time for time in times) == AT_ONCE_MAX
    deliver_outbox()
    sent = OutboxMessage.objects.filter(topic=topics.SEND_TICKETS_AGAIN).exclude(done_at=None)
    assert str(others_order.pk) in {message.body["order"] for message in sent}
    assert_audit_clean()


def test_repeated_actions_wait_behind_earlier_ones_and_a_single_act_does_not_wait(concert: events.EventView) -> None:
    first, second = (orders := buy_orders(concert, 16))[:8], orders[8:]
    for order in first:
        resend_tickets(order.pk, who="staff:1")
    for order in first:
        resend_tickets(order.pk, who="staff:1")
    assert len(due_times(topics.SEND_TICKETS_AGAIN)) == 8, "tickets that are about to be sent are not sent twice"
    for order in second:
        resend_tickets(order.pk, who="staff:2")
    times = due_times(topics.SEND_TICKETS_AGAIN)
    assert times == sorted(times)
    assert len(times) == 16
    assert min(times[8:]) >= max(times[:8]) + organizer_mails.INTERVAL
    let_pass(hours=1)
    deliver_outbox()
    assert due_times(topics.SEND_TICKETS_AGAIN) == []
    resend_tickets(first[0].pk, who="staff:1")
    (time,) = due_times(topics.SEND_TICKETS_AGAIN)
    assert time <= clock.now()


def test_mails_that_are_repeated_later_delay_no_others_of_their_organizer(concert: events.EventView) -> None:
    *orders, last = buy_orders(concert, 8)
    for order in orders:
        resend_tickets(order.pk, who="staff:1")
    later = clock.now() + timedelta(hours=1)
    OutboxMessage.objects.filter(done_at=None).update(available_at=later, last_error="delayed: the cap")
    resend_tickets(last.pk, who="staff:1")
    assert due_times(topics.SEND_TICKETS_AGAIN)[-1] <= clock.now()


def let_pass(hours: int) -> None:
    for message in OutboxMessage.objects.filter(done_at=None):
        message.available_at -= timedelta(hours=hours)
        message.save(update_fields=["available_at"])
