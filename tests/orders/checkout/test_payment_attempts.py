"""Three tries: calls that bring no answer are asked again by themselves, declines are the buyer's, and both count."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox.delivery import Delivery
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import selectors, topics
from apps.orders.cancellation import order_cancellation
from apps.orders.checkout.checkout import check_out
from apps.orders.models import Order, Payment, ProviderStanding, Refund, SandboxCharge, Ticket
from apps.orders.payments import settlement
from apps.orders.payments.providers import sandbox
from apps.orders.payments.providers.protocol import ProviderFault
from apps.orders.provider_sync import charges
from apps.reservations import facade as reservations
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import (
    backdate_pay_deadline,
    buy,
    checkout_body,
    deliver_outbox,
    payment_of,
    place_order,
    receive_webhook,
)

pytestmark = pytest.mark.django_db(transaction=True)
SECONDS_MAX = 20


def deliver_later(rounds: int = 1) -> None:
    """Time passes: what was put back is due, so many times, and has been delivered."""
    for _ in range(rounds):
        OutboxMessage.objects.filter(done_at=None, dead_at=None).update(available_at=clock.now())
        deliver_outbox()


def told(order: Order) -> tuple[str, str]:
    order.refresh_from_db()
    return order.status, order.reason


class Provider:
    """The sandbox, whose calls are counted and fail while they are named in `away`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.away: set[str] = set()
        for verb in ("charge", "find_charge", "cancel", "refund"):
            self._watch(monkeypatch, verb, getattr(sandbox.Sandbox, verb))

    def _watch(self, monkeypatch: pytest.MonkeyPatch, verb: str, real: Any) -> None:
        def call(_: sandbox.Sandbox, *args: Any) -> Any:
            self.calls.append(verb)
            if verb in self.away:
                raise ProviderFault("no answer")
            return real(_, *args)

        monkeypatch.setattr(sandbox.Sandbox, verb, call)

    def go_away(self) -> None:
        self.away = {"charge", "find_charge", "cancel", "refund"}

    def return_(self) -> None:
        self.away = set()


@pytest.fixture
def provider(monkeypatch) -> Provider:
    return Provider(monkeypatch)


@pytest.fixture
def patient(settings) -> None:
    """The circuit breaker stays out of these."""
    settings.PAYMENT_FAULTS_MAX = 1_000


def test_who_was_charged_while_our_call_got_no_answer_has_tickets_without_anyone_s_help(provider) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.TIMES_OUT_CHARGED)
    assert told(order)[0] == "paying"
    assert selectors.get_order(order.pk).payment.attempt == 2
    deliver_later()
    assert told(order)[0] == "confirmed"
    assert provider.calls == ["charge", "find_charge"]
    assert SandboxCharge.objects.count() == Ticket.objects.count() == 1
    assert_audit_clean()


def test_a_call_that_was_never_heard_is_made_again_with_the_same_key(provider) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.TIMES_OUT)
    deliver_later()
    assert told(order)[0] == "confirmed"
    assert provider.calls == ["charge", "find_charge", "charge"]
    assert Payment.objects.count() == SandboxCharge.objects.count() == 1
    assert_audit_clean()


def test_three_tries_without_an_answer_and_one_to_make_sure_and_then_the_order_fails(provider, patient) -> None:
    event = make_event()
    order = place_order(hold(event, seats=["hall-A-1"]))
    provider.away = {"charge"}
    deliver_outbox()
    deliver_later(2)
    assert told(order)[0] == "paying"
    assert provider.calls.count("charge") == 3
    deliver_later()
    assert told(order) == (Order.Status.FAILED, Order.Reason.PROVIDER_AWAY)
    assert provider.calls[-1] == "cancel"
    assert payment_of(order).status == Payment.Status.ABANDONED
    hold(event, seats=["hall-A-1"])
    assert "did not go through" in mail.outbox[-1].subject
    assert "did not answer" in mail.outbox[-1].body
    assert_audit_clean()


def test_the_last_try_was_charged_without_an_answer_and_making_sure_finds_it(provider, patient) -> None:
    """The provider takes the money at the third call and its answer is lost; canceling finds the money."""
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    provider.away = {"charge"}
    deliver_outbox()
    deliver_later()
    provider.return_()
    real = sandbox.Sandbox.charge

    def lose_answer(self: sandbox.Sandbox, request: Any) -> Any:
        real(self, request)
        raise ProviderFault("no answer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox.Sandbox, "charge", lose_answer)
        deliver_later()
    assert Payment.objects.get().tries == 4
    deliver_later()
    assert told(order)[0] == "confirmed"
    assert_audit_clean()


def test_an_order_that_failed_while_its_money_was_taken_gives_it_back_once_the_provider_answers(
    provider, patient
) -> None:
    """Charged at the first call; every answer is lost, that of the making sure too. The places go back on sale; the
    asking goes on, and finds money that nobody wants any more."""
    event = make_event()
    order = place_order(hold(event, seats=["hall-A-1"]), sandbox.TIMES_OUT_CHARGED)
    deliver_outbox()
    provider.go_away()
    deliver_later(3)
    assert told(order) == (Order.Status.FAILED, Order.Reason.PROVIDER_AWAY)
    hold(event, seats=["hall-A-1"])
    deliver_later(2)
    assert payment_of(order).status == Payment.Status.PENDING
    provider.return_()
    deliver_later()
    assert told(order)[0] == "refunded"
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert SandboxCharge.objects.count() == 1
    assert_audit_clean()


def test_calls_without_an_answer_and_declines_count_together(provider) -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    order = place_order(reservation, sandbox.DECLINES)
    provider.away = {"charge"}
    deliver_outbox()
    provider.return_()
    deliver_later()
    view = selectors.get_order(order.pk)
    assert view.can_try_again
    assert "once" in view.message
    assert view.contract()["payment"]["attempts_left"] == 1
    order = buy(reservation, sandbox.DECLINES)
    assert told(order) == (Order.Status.FAILED, Order.Reason.DECLINED)
    assert list(Payment.objects.order_by("attempt").values_list("attempt", flat=True)) == [1, 3]
    assert_audit_clean()


def test_a_second_charge_begins_only_when_the_declined_one_can_no_longer_happen(provider) -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    buy(reservation, sandbox.DECLINES)
    order = buy(reservation)
    assert told(order)[0] == "confirmed"
    assert provider.calls == ["charge", "cancel", "charge"]
    assert sorted(SandboxCharge.objects.values_list("status", flat=True)) == ["canceled", "succeeded"]
    assert_audit_clean()


def test_what_was_declined_and_then_paid_after_all_is_settled_in_place_of_a_second_charge(provider) -> None:
    """The first charge is declined. The buyer tries again; meanwhile the provider changes its mind about the first,
    and no word of that has reached us when the second is about to begin."""
    reservation = hold(make_event(), seats=["hall-A-1"])
    order = buy(reservation, sandbox.DECLINES)
    sandbox.settle(str(payment_of(order).pk), "succeeded", clock.now())
    order = buy(reservation)
    assert told(order)[0] == "confirmed"
    assert payment_of(order, 1).status == Payment.Status.SUCCEEDED
    deliver_later()
    assert payment_of(order, 2).status == Payment.Status.ABANDONED
    assert provider.calls.count("charge") == 1
    assert not Refund.objects.exists()
    assert_audit_clean()


def test_a_payment_that_nobody_tells_of_is_found_by_asking(provider) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LOST)
    assert told(order)[0] == "paying"
    deliver_later()
    assert told(order)[0] == "confirmed"
    assert provider.calls == ["charge", "find_charge"]
    assert_audit_clean()


def test_asking_goes_on_without_failing_while_the_provider_has_not_decided(provider) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.CHALLENGES)
    deliver_later(15)
    assert told(order)[0] == "paying"
    assert provider.calls.count("find_charge") == 15
    message = OutboxMessage.objects.get(topic=topics.ASK)
    assert message.dead_at is None
    assert payment_of(order).faults_count == 0


def test_a_charge_is_asked_about_ever_less_often_and_then_left_to_the_reconciler(provider) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.CHALLENGES)
    payment = payment_of(order)
    pauses = []
    for age_seconds in (0, 20, 30):
        now = clock.now()
        payment.started_at = now - timedelta(seconds=age_seconds)
        pauses.append(charges._pause_seconds(payment, now))
    assert pauses == [3, 10, 0]
    Payment.objects.update(started_at=clock.now() - timedelta(seconds=31))
    deliver_later()
    assert not OutboxMessage.objects.filter(done_at=None, topic=topics.ASK).exists()
    assert payment_of(order).status == Payment.Status.PENDING


def test_a_challenge_that_its_buyer_walked_away_from_is_canceled_at_the_provider_after_the_grace(provider) -> None:
    event = make_event()
    order = buy(hold(event, seats=["hall-A-1"]), sandbox.CHALLENGES)
    backdate_pay_deadline(order)
    order_cancellation.fail_expired_orders()
    reservations.sweep()
    deliver_later()
    assert "cancel" not in provider.calls, "within the grace it may still be paid"
    Payment.objects.update(counts_until=clock.now() - timedelta(seconds=1))
    deliver_later()
    assert provider.calls[-1] == "cancel"
    assert payment_of(order).status == Payment.Status.ABANDONED
    assert SandboxCharge.objects.get().status == "canceled"
    assert not OutboxMessage.objects.filter(done_at=None, dead_at=None).exists()
    assert_audit_clean()


def test_what_its_buyer_gives_up_while_the_bank_asks_is_canceled_there_too(provider) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.CHALLENGES)
    order_cancellation.cancel_order(order.pk)
    deliver_later()
    assert payment_of(order).status == Payment.Status.ABANDONED
    assert SandboxCharge.objects.get().status == "canceled"
    assert len(mail.outbox) == 0, "who cancels knows"
    assert_audit_clean()


def test_the_third_decline_is_told_by_mail() -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    for _ in range(3):
        buy(reservation, sandbox.DECLINES)
    (sent,) = mail.outbox
    assert "did not go through" in sent.subject
    assert "declined" in sent.body
    html, _ = sent.alternatives[0]
    assert "declined" in html


def test_a_note_of_failure_that_comes_after_the_money_is_not_sent() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    backdate_pay_deadline(order)
    order_cancellation.fail_expired_orders()
    raw = sandbox.settle_late_charge(str(payment_of(order).pk), clock.now() - timedelta(seconds=5))
    OutboxMessage.objects.filter(topic=topics.SEND_FAILURE_NOTICE).update(available_at=clock.now() + timedelta(hours=1))
    receive_webhook(raw)
    assert told(order)[0] == "confirmed"
    deliver_later()
    assert [sent.subject for sent in mail.outbox] == [f"Your tickets for {selectors.get_order(order.pk).event.name}"]


def test_no_call_is_made_with_less_than_its_time_left_though_tries_are_left(provider, patient) -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    provider.away = {"charge"}
    deliver_outbox()
    backdate_pay_deadline(order, seconds=-20)
    deliver_later()
    assert told(order) == (Order.Status.FAILED, Order.Reason.PROVIDER_AWAY)
    assert provider.calls == ["charge", "find_charge", "cancel"]
    assert not ProviderStanding.objects.filter(rests_until__isnull=False).exists()
    assert_audit_clean()


def test_a_checkout_after_three_tries_is_refused(provider) -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    for _ in range(3):
        buy(reservation, sandbox.DECLINES)
    with pytest.raises(reservations.ReservationExpired):
        check_out(reservation, checkout_body(), "a fourth")


def test_asking_about_what_is_settled_asks_nobody(provider) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    calls = len(provider.calls)
    with transactions.write():
        settlement.schedule_inquiry(payment_of(order).pk, timedelta())
    deliver_outbox()
    assert len(provider.calls) == calls
    assert told(order)[0] == "confirmed"


def test_one_stuck_charge_delays_nobody_and_charges_begin_in_the_order_of_arrival(monkeypatch) -> None:
    """The first charge's call to the provider does not return. The others, which came after it, are begun in their
    order by whoever is free, and their buyers have tickets before it is let go."""
    event = make_event()
    orders = [place_order(hold(event, seats=[f"hall-A-{number}"])) for number in range(1, 5)]
    go_on, begun, confirmed = threading.Event(), [], threading.Semaphore(0)
    real, real_note = sandbox.Sandbox.charge, charges.record_provider_answer

    def call(self: sandbox.Sandbox, request: Any) -> Any:
        begun.append(request.key)
        if request.key == payment_of(orders[0]).pk:
            assert go_on.wait(SECONDS_MAX)
        return real(self, request)

    def note(*args: Any) -> None:
        real_note(*args)
        confirmed.release()

    monkeypatch.setattr(sandbox.Sandbox, "charge", call)
    monkeypatch.setattr(charges, "record_provider_answer", note)
    crew = Delivery(2)
    try:
        crew.wake()
        for _ in orders[1:]:
            assert confirmed.acquire(timeout=SECONDS_MAX)
        assert [told(order)[0] for order in orders] == ["paying", "confirmed", "confirmed", "confirmed"]
        # The stuck one and the second were begun at the same time, by two.
        stuck, *others = (payment_of(order).pk for order in orders)
        assert [key for key in begun if key != stuck] == others
    finally:
        go_on.set()
        assert crew.close(SECONDS_MAX)
    deliver_outbox()
    assert told(orders[0])[0] == "confirmed"
    assert_audit_clean()
