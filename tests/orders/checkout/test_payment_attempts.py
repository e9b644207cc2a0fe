"""Three payment tries: calls without a response are retried automatically, declines by the buyer, and both count."""

from datetime import timedelta
from typing import Any

import pytest
from django.core import mail

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox.delivery import Delivery
from apps.kernel.outbox.models import OutboxMessage
from apps.kernel.rate_limits.buckets import Buckets
from apps.orders import selectors, topics
from apps.orders.cancellation import order_cancellation
from apps.orders.checkout.checkout import check_out
from apps.orders.models import Order, Payment, ProviderStanding, Refund, Ticket
from apps.orders.payments import circuit_breaker, settlement
from apps.orders.payments.providers import sandbox
from apps.orders.payments.providers.protocol import ProviderFault, RequestsLimited
from apps.orders.provider_sync import charges
from apps.reservations import facade as reservations
from tests.support.batches import wait_until
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.charge_lists import HeldCalls
from tests.support.orders.sale import (
    backdate_pay_deadline,
    buy,
    checkout_body,
    deliver_outbox,
    payment_of,
    place_order,
    receive_webhook,
)
from tests.support.orders.sandbox_rows import SandboxCharge

pytestmark = pytest.mark.django_db(transaction=True)
SECONDS_MAX = 20


def deliver_later(rounds: int = 1) -> None:
    """Make all retries due and deliver them, this many times."""
    for _ in range(rounds):
        OutboxMessage.objects.filter(done_at=None, dead_at=None).update(available_at=clock.now())
        deliver_outbox()


def status_of(order: Order) -> tuple[str, str]:
    order.refresh_from_db()
    return order.status, order.reason


class Provider:
    """The sandbox with its calls recorded; those named in `away` fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.failing: set[str] = set()
        self.error: type[ProviderFault] = ProviderFault
        for verb in ("charge", "find_charge", "cancel", "refund"):
            self._watch(monkeypatch, verb, getattr(sandbox.Sandbox, verb))

    def _watch(self, monkeypatch: pytest.MonkeyPatch, verb: str, real: Any) -> None:
        def call(_: sandbox.Sandbox, *args: Any) -> Any:
            self.calls.append(verb)
            if verb in self.failing:
                raise self.error("no answer")
            return real(_, *args)

        monkeypatch.setattr(sandbox.Sandbox, verb, call)

    def stop(self) -> None:
        self.failing = {"charge", "find_charge", "cancel", "refund"}

    def resume(self) -> None:
        self.failing = set()


@pytest.fixture
def provider(monkeypatch) -> Provider:
    return Provider(monkeypatch)


@pytest.fixture
def without_breaker(settings) -> None:
    """Disable the circuit breaker."""
    settings.PAYMENT_FAULTS_MAX = 1_000


def test_a_charge_whose_response_was_lost_is_found_and_confirmed_automatically(provider) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.cards.TIMES_OUT_CHARGED)
    assert status_of(order)[0] == "paying"
    assert selectors.get_order(order.pk).payment.attempt == 2
    deliver_later()
    assert status_of(order)[0] == "confirmed"
    assert provider.calls == ["charge", "find_charge"]
    assert SandboxCharge.objects.count() == Ticket.objects.count() == 1
    assert_audit_clean()


def test_a_lost_request_is_retried_with_the_same_key(provider) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.cards.TIMES_OUT)
    deliver_later()
    assert status_of(order)[0] == "confirmed"
    assert provider.calls == ["charge", "find_charge", "charge"]
    assert Payment.objects.count() == SandboxCharge.objects.count() == 1
    assert_audit_clean()


def test_after_three_tries_without_a_response_and_a_cancellation_the_order_fails(provider, without_breaker) -> None:
    event = make_event()
    order = place_order(hold(event, seats=["hall-A-1"]))
    provider.failing = {"charge"}
    deliver_outbox()
    deliver_later(2)
    assert status_of(order)[0] == "paying"
    assert provider.calls.count("charge") == 3
    deliver_later()
    assert status_of(order) == (Order.Status.FAILED, Order.Reason.PROVIDER_AWAY)
    assert provider.calls[-1] == "cancel"
    assert payment_of(order).status == Payment.Status.ABANDONED
    hold(event, seats=["hall-A-1"])
    assert "was not paid" in mail.outbox[-1].subject
    assert "did not answer" in mail.outbox[-1].body
    assert_audit_clean()


def test_a_provider_that_takes_no_more_requests_uses_up_no_attempt_and_is_not_paused(provider) -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    provider.failing, provider.error = {"charge"}, RequestsLimited
    deliver_outbox()
    waiting = OutboxMessage.objects.get(topic=topics.CHARGE)
    wait_seconds = (waiting.available_at - waiting.claimed_at).total_seconds()
    assert 0 < wait_seconds <= circuit_breaker.LIMITED_PAUSE_SECONDS + 1
    deliver_later(5)
    assert provider.calls.count("charge") == 6
    assert payment_of(order).faults_count == 0
    assert circuit_breaker.list_unavailable() == []
    provider.resume()
    deliver_later()
    assert status_of(order)[0] == "confirmed"
    assert SandboxCharge.objects.count() == 1
    assert_audit_clean()


def test_a_refund_waits_while_the_provider_takes_no_more_requests(provider) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    order_cancellation.refund_order(order.pk, "staff:1")
    provider.failing, provider.error = {"refund"}, RequestsLimited
    deliver_outbox()
    waiting = OutboxMessage.objects.get(topic=topics.REFUND)
    assert (waiting.attempts, waiting.dead_at) == (0, None)
    provider.resume()
    deliver_later()
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED


def test_the_cancellation_finds_a_charge_whose_response_was_lost(provider, without_breaker) -> None:
    """The third call charges the card and its response is lost; the cancellation finds the charge."""
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    provider.failing = {"charge"}
    deliver_outbox()
    deliver_later()
    provider.resume()
    real = sandbox.Sandbox.charge

    def lose_answer(self: sandbox.Sandbox, request: Any) -> Any:
        real(self, request)
        raise ProviderFault("no answer")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sandbox.Sandbox, "charge", lose_answer)
        deliver_later()
    assert Payment.objects.get().tries == 4
    deliver_later()
    assert status_of(order)[0] == "confirmed"
    assert_audit_clean()


def test_a_charge_of_a_failed_order_is_refunded_once_the_provider_responds(provider, without_breaker) -> None:
    """The first call charges the card; all responses are lost, also the cancellation's. The seats are released. Later
    inquiries find the charge, which is refunded."""
    event = make_event()
    order = place_order(hold(event, seats=["hall-A-1"]), sandbox.cards.TIMES_OUT_CHARGED)
    deliver_outbox()
    provider.stop()
    deliver_later(3)
    assert status_of(order) == (Order.Status.FAILED, Order.Reason.PROVIDER_AWAY)
    hold(event, seats=["hall-A-1"])
    deliver_later(2)
    assert payment_of(order).status == Payment.Status.PENDING
    provider.resume()
    deliver_later()
    assert status_of(order)[0] == "refunded"
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert SandboxCharge.objects.count() == 1
    assert_audit_clean()


def test_calls_without_a_response_and_declines_count_together(provider) -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    order = place_order(reservation, sandbox.DECLINES)
    provider.failing = {"charge"}
    deliver_outbox()
    provider.resume()
    deliver_later()
    view = selectors.get_order(order.pk)
    assert view.can_try_again
    assert "once" in view.message
    assert view.contract()["payment"]["attempts_left"] == 1
    order = buy(reservation, sandbox.DECLINES)
    assert status_of(order) == (Order.Status.FAILED, Order.Reason.DECLINED)
    assert list(Payment.objects.order_by("attempt").values_list("attempt", flat=True)) == [1, 3]
    assert_audit_clean()


def test_a_second_charge_starts_only_after_the_declined_one_is_canceled(provider) -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    buy(reservation, sandbox.DECLINES)
    order = buy(reservation)
    assert status_of(order)[0] == "confirmed"
    assert provider.calls == ["charge", "cancel", "charge"]
    assert sorted(SandboxCharge.objects.statuses()) == ["canceled", "succeeded"]
    assert_audit_clean()


def test_a_declined_charge_that_succeeds_later_is_settled_instead_of_a_second(provider) -> None:
    """The first charge is declined. The buyer tries again; meanwhile the first charge succeeds after all,
    and we have no message about it when the second is about to start."""
    reservation = hold(make_event(), seats=["hall-A-1"])
    order = buy(reservation, sandbox.DECLINES)
    sandbox.settle(str(payment_of(order).pk), "succeeded", clock.now())
    order = buy(reservation)
    assert status_of(order)[0] == "confirmed"
    assert payment_of(order, 1).status == Payment.Status.SUCCEEDED
    deliver_later()
    assert payment_of(order, 2).status == Payment.Status.ABANDONED
    assert provider.calls.count("charge") == 1
    assert not Refund.objects.exists()
    assert_audit_clean()


def test_a_payment_without_a_webhook_is_found_by_an_inquiry(provider) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.cards.LOST)
    assert status_of(order)[0] == "paying"
    deliver_later()
    assert status_of(order)[0] == "confirmed"
    assert provider.calls == ["charge", "find_charge"]
    assert_audit_clean()


def test_inquiries_continue_until_the_provider_decides(provider) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.cards.CHALLENGES)
    deliver_later(15)
    assert status_of(order)[0] == "paying"
    assert provider.calls.count("find_charge") == 15
    message = OutboxMessage.objects.get(topic=topics.ASK)
    assert message.dead_at is None
    assert payment_of(order).faults_count == 0


def test_inquiries_become_rarer_and_are_then_left_to_the_reconciler(provider) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.cards.CHALLENGES)
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


def test_an_abandoned_challenge_is_canceled_at_the_provider_after_the_grace(provider) -> None:
    event = make_event()
    order = buy(hold(event, seats=["hall-A-1"]), sandbox.cards.CHALLENGES)
    backdate_pay_deadline(order)
    order_cancellation.fail_expired_orders()
    reservations.sweep()
    deliver_later()
    assert "cancel" not in provider.calls, "within the grace period it can still be paid"
    Payment.objects.update(counts_until=clock.now() - timedelta(seconds=1))
    deliver_later()
    assert provider.calls[-1] == "cancel"
    assert payment_of(order).status == Payment.Status.ABANDONED
    assert SandboxCharge.objects.get().status == "canceled"
    assert not OutboxMessage.objects.filter(done_at=None, dead_at=None).exists()
    assert_audit_clean()


def test_an_order_canceled_during_a_challenge_is_canceled_at_the_provider(provider) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.cards.CHALLENGES)
    order_cancellation.cancel_order(order.pk)
    deliver_later()
    assert payment_of(order).status == Payment.Status.ABANDONED
    assert SandboxCharge.objects.get().status == "canceled"
    assert len(mail.outbox) == 0, "the buyer canceled, so no mail is needed"
    assert_audit_clean()


def test_the_third_decline_is_mailed() -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    for _ in range(3):
        buy(reservation, sandbox.DECLINES)
    (sent,) = mail.outbox
    assert "was not paid" in sent.subject
    assert "declined" in sent.body
    html, _ = sent.alternatives[0]
    assert "declined" in html


def test_a_failure_notice_is_not_sent_after_a_late_confirmation() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    backdate_pay_deadline(order)
    order_cancellation.fail_expired_orders()
    raw = sandbox.settle(str(payment_of(order).pk), "succeeded", clock.now() - timedelta(seconds=5))
    OutboxMessage.objects.filter(topic=topics.SEND_FAILURE_NOTICE).update(available_at=clock.now() + timedelta(hours=1))
    receive_webhook(raw)
    assert status_of(order)[0] == "confirmed"
    deliver_later()
    assert [sent.subject for sent in mail.outbox] == [f"Your tickets for {selectors.get_order(order.pk).event.name}"]


def test_no_call_starts_with_less_than_its_timeout_left(provider, without_breaker) -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    provider.failing = {"charge"}
    deliver_outbox()
    backdate_pay_deadline(order, seconds=-20)
    deliver_later()
    assert status_of(order) == (Order.Status.FAILED, Order.Reason.PROVIDER_AWAY)
    assert provider.calls == ["charge", "find_charge", "cancel"]
    assert not ProviderStanding.objects.filter(rests_until__isnull=False).exists()
    assert_audit_clean()


def test_a_checkout_after_three_tries_is_refused(provider) -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    for _ in range(3):
        buy(reservation, sandbox.DECLINES)
    with pytest.raises(reservations.ReservationExpired):
        check_out(reservation, checkout_body(), "a fourth")


def test_inquiries_have_a_limit_and_wait_beyond_it(provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Orders that are never paid must not use up the requests that the provider allows."""
    monkeypatch.setattr(charges, "_inquiries", Buckets(1 / 3600, 2))
    event = make_event()
    orders = [buy(hold(event, seats=[f"hall-A-{seat}"]), sandbox.cards.LOST) for seat in (1, 2, 3)]
    deliver_later()
    assert provider.calls.count("find_charge") == 2
    assert sorted(status_of(order)[0] for order in orders) == ["confirmed", "confirmed", "paying"]
    (waiting,) = OutboxMessage.objects.filter(topic=topics.ASK, done_at=None)
    assert (waiting.attempts, waiting.dead_at) == (0, None), waiting.error
    monkeypatch.undo()
    deliver_later()
    assert {status_of(order)[0] for order in orders} == {"confirmed"}
    assert_audit_clean()


def test_an_inquiry_that_the_provider_does_not_take_is_no_failed_charge_and_becomes_rarer(
    provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.cards.CHALLENGES)
    observed: list[int] = []
    monkeypatch.setattr(circuit_breaker.queue.payment_faults, "observe", observed.append)
    provider.failing, provider.error = {"find_charge"}, RequestsLimited
    Payment.objects.update(started_at=clock.now() - timedelta(seconds=20))
    deliver_later()
    message = OutboxMessage.objects.get(topic=topics.ASK)
    assert 9 < (message.available_at - clock.now()).total_seconds() < 11
    assert (observed, payment_of(order).faults_count) == ([], 0)
    Payment.objects.update(started_at=clock.now() - timedelta(seconds=40))
    deliver_later()
    message.refresh_from_db()
    assert message.done_at is not None, "the reconciler inquires from now on"
    assert_audit_clean()


def test_an_inquiry_about_a_settled_payment_makes_no_call(provider) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    calls = len(provider.calls)
    with transactions.write():
        settlement.schedule_inquiry(payment_of(order).pk, timedelta())
    deliver_outbox()
    assert len(provider.calls) == calls
    assert status_of(order)[0] == "confirmed"


def test_one_stuck_charge_delays_no_other_and_charges_start_in_order(monkeypatch) -> None:
    """The first charge's call to the provider is not answered. The later charges have started in order, and their
    buyers have tickets before it is."""
    event = make_event()
    orders = [place_order(hold(event, seats=[f"hall-A-{number}"])) for number in range(1, 5)]
    calls, crew = HeldCalls(monkeypatch, orders[0]), Delivery(2)
    try:
        crew.wake()
        expected = ["paying", "confirmed", "confirmed", "confirmed"]
        wait_until(lambda: [status_of(order)[0] for order in orders] == expected, "the others are confirmed")
        assert calls.begun == [payment_of(order).pk for order in orders]
        calls.answer(orders[0])
    finally:
        assert crew.close(SECONDS_MAX)
    assert status_of(orders[0])[0] == "confirmed"
    assert_audit_clean()
