"""Event cancellation: every order is refunded, every hold ended, every buyer notified, once, despite crashes."""

from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.conf import settings
from django.core import mail
from django.core.management import CommandError, call_command

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.http import problems
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import facade, return_quotes, topics
from apps.orders.cancellation import event_cancellation, order_cancellation
from apps.orders.models import CancellationFailure, EventCancellation, Order, Payment, Refund, Ticket
from apps.orders.payments.providers import sandbox
from apps.orders.returns import returns
from apps.reservations import facade as reservations
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import (
    backdate_pay_deadline,
    buy,
    deliver_outbox,
    late_webhook,
    place_order,
    receive_webhook,
)
from tests.support.races import storm, values
from tests.support.reservations.buyers import get_general_admission

pytestmark = pytest.mark.django_db(transaction=True)
WORDS = "The singer has lost her voice.\nWe are sorry."


@pytest.fixture(autouse=True)
def _audit(monkeypatch) -> Any:
    # Only one test is about stale caches; the others do not wait for them.
    monkeypatch.setattr(event_cancellation, "STALE_CACHE_SECONDS", 0)
    yield
    assert_audit_clean()


@pytest.fixture
def event() -> events.EventView:
    return make_event(general_admission=100)


def sell(event: events.EventView, count: int) -> list[Order]:
    return [buy(hold(event, ga_section="floor", ga_quantity=2)) for _ in range(count)]


def finish(event: events.EventView) -> EventCancellation:
    deliver_outbox()
    return EventCancellation.objects.get(event_id=event.id)


def test_every_order_is_refunded_and_every_buyer_notified_once(event) -> None:
    paid, unpaid = sell(event, 3), place_order(hold(event, seats=["hall-A-1"]), sandbox.DECLINES)
    deliver_outbox()
    waiting = hold(event, seats=["hall-A-2"])
    mail.outbox.clear()
    event_cancellation.begin(event.id, WORDS, "staff:7")
    done = finish(event)
    assert (done.orders_done, done.orders_left, done.orders_failed, done.reservations_done) == (4, 0, 0, 1)
    assert done.finished_at is not None
    assert done.refunded_minor == sum(order.total_minor for order in paid)
    assert set(Order.objects.values_list("status", "reason")) == {
        ("refunded", "event_canceled"), ("canceled", "event_canceled"),
    }  # fmt: skip
    assert Order.objects.get(pk=unpaid.pk).status == Order.Status.CANCELED
    assert reservations.get_reservation(waiting.id).status == "canceled"
    assert not Ticket.objects.filter(voided_at=None).exists()
    assert set(Refund.objects.values_list("status", flat=True)) == {"succeeded"}
    assert get_general_admission().taken == 0
    assert len(mail.outbox) == 4
    assert all("lost her voice" in note.body for note in mail.outbox)
    sent = OutboxMessage.objects.filter(topic="orders.send_cancellation_notice")
    assert {message.body["origin"] for message in sent} == {f"organizer {event.organizer_id}/event {event.id}"}, (
        "another organizer's have other turns"
    )


def test_holds_and_checkouts_are_refused_after_it(event) -> None:
    held = hold(event, seats=["hall-A-1"])
    event_cancellation.begin(event.id, WORDS, "staff:7")
    with pytest.raises(reservations.ReservationExpired):
        place_order(held)
    with pytest.raises((problems.Problem, AssertionError)):
        hold(events.get_event("concert"), seats=["hall-A-2"])
    finish(event)


def test_a_second_start_changes_nothing_and_keeps_the_first_message(event) -> None:
    sell(event, 1)
    values(storm(4, lambda number: event_cancellation.begin(event.id, f"words {number}", "staff:7")))
    words = EventCancellation.objects.get().words
    assert OutboxMessage.objects.filter(topic="orders.cancel_event").count() == 1
    event_cancellation.begin(event.id, "other words", "staff:8")
    assert EventCancellation.objects.get().words == words
    finish(event)


def test_a_draft_and_an_empty_reason_are_refused(event) -> None:
    with pytest.raises(problems.Invalid):
        event_cancellation.begin(event.id, "  ", "staff:7")
    with pytest.raises(problems.Invalid):
        event_cancellation.begin(event.id + 1, WORDS, "staff:7")


def test_a_killed_cancellation_continues_and_repeats_nothing(event, monkeypatch) -> None:
    """The worker dies after two of five orders. Its message is delivered again after the claim expires, and finds
    three."""
    sell(event, 5)
    mail.outbox.clear()
    event_cancellation.begin(event.id, WORDS, "staff:7")

    class Killed(BaseException):
        pass

    done = []
    cancel_one = event_cancellation.cancel_event_order

    def die(order_id: Any, who: str) -> bool:
        if len(done) == 2:
            raise Killed
        done.append(order_id)
        return cancel_one(order_id, who)

    with monkeypatch.context() as patch:
        patch.setattr(event_cancellation, "cancel_event_order", die)
        with pytest.raises(Killed):
            event_cancellation.step(event.id)
    assert Order.objects.filter(status="refunded").count() == 2
    deliver_outbox()
    assert Order.objects.filter(status="refunded").count() == 5
    assert Refund.objects.count() == 5
    assert len(mail.outbox) == 5
    for payment in Payment.objects.all():
        assert payment.refunded_minor == payment.captured_minor


def test_three_concurrent_runs_refund_each_order_once(event) -> None:
    """All three read the same list and wait for each order's lock; the second finds the order refunded."""
    sell(event, 6)
    event_cancellation.begin(event.id, WORDS, "staff:7")
    values(storm(3, lambda _: event_cancellation.step(event.id)))
    done = finish(event)
    assert (done.orders_done, Refund.objects.count()) == (6, 6)


def test_a_failed_order_is_recorded_blocks_no_other_and_is_retried_by_resume(event, monkeypatch, admin_client) -> None:
    orders = sell(event, 3)
    event_cancellation.begin(event.id, WORDS, "staff:7")
    cancel_one = event_cancellation.cancel_event_order

    def fail(order_id: Any, who: str) -> bool:
        if order_id == orders[1].pk:
            raise RuntimeError("its books are wrong")
        return cancel_one(order_id, who)

    with monkeypatch.context() as patch:
        patch.setattr(event_cancellation, "cancel_event_order", fail)
        done = finish(event)
    assert (done.orders_done, done.orders_left, done.orders_failed) == (2, 0, 1)
    assert "its books are wrong" in CancellationFailure.objects.get().error
    page = admin_client.get(f"/admin/orders/eventcancellation/{event.id}/change/").content.decode()
    assert orders[1].number in page
    event_cancellation.resume(event.id)
    done = finish(event)
    assert (done.orders_done, done.orders_failed) == (3, 0)


def test_a_payment_that_succeeds_after_it_is_refunded(event) -> None:
    """One order is canceled while its charge is under way, one had failed before: both are paid in time."""
    reservation = hold(event, seats=["hall-A-1"])
    under_way = place_order(reservation, sandbox.LATE)
    failed = place_order(hold(event, seats=["hall-A-2"]), sandbox.LATE)
    deliver_outbox()
    backdate_pay_deadline(failed)
    Order.objects.filter(pk=failed.pk).update(status="failed", reason="out_of_time", ended_at=clock.now())
    event_cancellation.begin(event.id, WORDS, "staff:7")
    finish(event)
    for order in (under_way, failed):
        receive_webhook(late_webhook(order, clock.now() - timedelta(seconds=5)))
        order.refresh_from_db()
        assert (order.status, order.reason) == ("refunded", "event_canceled")
    assert Refund.objects.filter(status="succeeded").count() == 2


def test_a_partly_returned_order_is_fully_refunded(event) -> None:
    (order,) = sell(event, 1)
    returns.give_goodwill(order.pk, 500, who="staff:7", why="the toilets")
    code = Ticket.objects.filter(order=order).values_list("code", flat=True)[0]
    returns.return_by_staff(order.pk, [code], (), who="staff:7", why="")
    event_cancellation.begin(event.id, WORDS, "staff:7")
    finish(event)
    payment = Payment.objects.get()
    assert payment.refunded_minor == payment.captured_minor


FEES = events.PricePolicy(ticket_fee_minor=150, order_fee_minor=100)


def bought_with_fees(event: events.EventView) -> Order:
    return buy(hold(event, ga_section="floor", ga_quantity=2))


def return_all(order: Order, fees_back: bool = False, count: int = 2) -> None:
    codes = list(Ticket.objects.filter(order=order).values_list("code", flat=True))[:count]
    returns.return_by_staff(order.pk, codes, codes if fees_back else (), who="staff:7", why="")


def test_fees_kept_of_returns_are_refunded_with_the_event() -> None:
    """Four buyers returned one of two tickets, both, both with the fees, and none: all are fully refunded."""
    event = make_event(general_admission=100, price_policy=FEES)
    some, whole, with_fees, _ = (bought_with_fees(event) for _ in range(4))
    return_all(some, count=1)
    return_all(whole)
    return_all(with_fees, fees_back=True)
    deliver_outbox()
    assert return_quotes.owed_minor(whole) == 2 * 150 + 100
    mail.outbox.clear()
    event_cancellation.begin(event.id, WORDS, "staff:7")
    done = finish(event)
    assert (done.orders_done, done.orders_left, done.orders_failed) == (3, 0, 0)
    assert done.refunded_minor == 3 * (2 * 2_500 + 2 * 150 + 100)
    for payment in Payment.objects.all():
        assert payment.refunded_minor == payment.captured_minor
    assert set(Order.objects.values_list("status", "reason")) == {
        ("refunded", "event_canceled"), ("refunded", "canceled_by_staff"),
    }  # fmt: skip
    assert Order.objects.get(pk=with_fees.pk).reason == "canceled_by_staff"
    assert len(mail.outbox) == 3
    (note,) = [note for note in mail.outbox if whole.number in note.body]
    assert "lost her voice" in note.body
    assert "The $4.00 that was kept is now refunded" in note.body
    event_cancellation.resume(event.id)
    deliver_outbox()
    assert len(mail.outbox) == 3


def test_goodwill_refunds_of_kept_fees_are_not_refunded_twice() -> None:
    event = make_event(general_admission=100, price_policy=FEES)
    order = bought_with_fees(event)
    return_all(order)
    returns.give_goodwill(order.pk, 120, who="staff:7", why="")
    event_cancellation.begin(event.id, WORDS, "staff:7")
    finish(event)
    assert Payment.objects.get().refunded_minor == Payment.objects.get().captured_minor == 5_400
    assert sorted(Refund.objects.values_list("amount_minor", flat=True)) == [120, 280, 5_000]


def test_three_concurrent_runs_refund_kept_fees_once() -> None:
    """All three read that the order keeps fees and wait for its lock; the second finds that it keeps nothing."""
    event = make_event(general_admission=100, price_policy=FEES)
    order = bought_with_fees(event)
    return_all(order)
    event_cancellation.begin(event.id, WORDS, "staff:7")
    outcomes = values(storm(3, lambda _: event_cancellation.cancel_event_order(order.pk, "staff:7")))
    assert sorted(outcomes) == [False, False, True]
    finish(event)
    assert Payment.objects.get().refunded_minor == 5_400


def test_kept_fees_whose_refund_fails_are_recorded_and_retried_by_resume(monkeypatch) -> None:
    event = make_event(general_admission=100, price_policy=FEES)
    order = bought_with_fees(event)
    return_all(order)

    def fail(*_: Any) -> int:
        raise RuntimeError("its books are wrong")

    with monkeypatch.context() as patch:
        patch.setattr(order_cancellation, "refund_kept_fees", fail)
        event_cancellation.begin(event.id, WORDS, "staff:7")
        done = finish(event)
    assert (done.orders_done, done.orders_left, done.orders_failed) == (0, 0, 1)
    assert done.finished_at is not None
    event_cancellation.resume(event.id)
    done = finish(event)
    assert (done.orders_done, done.orders_failed) == (1, 0)


def test_it_waits_until_caches_cannot_admit_checkouts(event, monkeypatch) -> None:
    monkeypatch.setattr(event_cancellation, "STALE_CACHE_SECONDS", 3_600)
    event_cancellation.begin(event.id, WORDS, "staff:7")
    assert event_cancellation.step(event.id) == (True, event_cancellation.RECHECK_INTERVAL)
    assert EventCancellation.objects.get().finished_at is None
    EventCancellation.objects.update(started_at=clock.now() - timedelta(hours=2))
    assert event_cancellation.step(event.id)[0] is False
    assert EventCancellation.objects.get().finished_at is not None


def test_beside_a_live_sale_every_order_ends(event) -> None:
    """Buyers check out while the event is being canceled: each checkout is refused, or placed and then refunded."""
    held = [hold(event, ga_section="floor", ga_quantity=1) for _ in range(4)]

    def act(number: int) -> object:
        if number == 4:
            return event_cancellation.begin(event.id, WORDS, "staff:7")
        return buy(held[number])

    for outcome in storm(5, act):
        assert outcome.error is None or isinstance(outcome.error, problems.Problem), outcome.error
    done = finish(event)
    event_cancellation.step(event.id)
    assert done.orders_failed == 0
    assert not Order.objects.filter(status__in=["placed", "paying", "confirmed"]).exists()
    assert get_general_admission().taken == 0


def test_the_command_cancels_reports_progress_and_resumes(event) -> None:
    sell(event, 2)
    out = StringIO()
    with pytest.raises(CommandError, match="was not started"):
        call_command("cancel_event", "concert", "--resume")
    with pytest.raises(CommandError, match="no published event"):
        call_command("cancel_event", "nothing", "--resume")
    call_command("cancel_event", "concert", "--reason", WORDS, stdout=out)
    assert "concert: 2 of 2 orders processed, $100.00 refunded; 0 failed, 0 holds ended" in out.getvalue()
    call_command("cancel_event", "concert", "--resume", stdout=out)
    assert out.getvalue().endswith("concert: done\n")
    deliver_outbox()


def test_few_cancellations_are_carried_out_at_once() -> None:
    """Each works for many seconds: those of one organizer must not occupy all threads."""
    (options,) = [handler.options for handler in facade.handlers() if handler.topic == topics.CANCEL_EVENT]
    assert 2 * options["together_max"] <= settings.OUTBOX_DELIVERERS
