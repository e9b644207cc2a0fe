"""The circuit breaker: a failing provider is not called, charges wait, and one trial call tests it again."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from redis import Redis

from apps.kernel import clock
from apps.kernel.checks import reconciler
from apps.kernel.db import transactions
from apps.kernel.outbox.models import OutboxMessage
from apps.orders.cancellation import order_cancellation
from apps.orders.models import ComparedDay, Order, Payment, PaymentDifference, ProviderStanding, Refund
from apps.orders.payments import circuit_breaker
from apps.orders.payments.providers import sandbox, stripe
from apps.orders.payments.providers.protocol import ProviderFault, RequestFault, RequestsLimited
from apps.orders.provider_sync import daily_comparison, status_inquiries
from apps.queue import facade as queue
from tests.orders.checkout.test_payment_attempts import Provider, deliver_later, status_of
from tests.support.api_client import scraper
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import backdate_pay_deadline, buy, deliver_outbox, late_webhook, payment_of, place_order
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)
NAME = sandbox.NAME


@pytest.fixture
def provider(monkeypatch) -> Provider:
    return Provider(monkeypatch)


@pytest.fixture(autouse=True)
def _quick_to_rest(settings) -> None:
    settings.PAYMENT_FAULTS_MAX = 3


def enter() -> int:
    with transactions.write():
        return circuit_breaker.require_available(NAME)


def fail(times: int) -> None:
    for _ in range(times):
        circuit_breaker.record_fault(NAME, ProviderFault("no response"))


def test_the_refusal_of_one_request_is_a_response_and_no_fault() -> None:
    fail(2)
    circuit_breaker.record_fault(NAME, RequestFault("Stripe refuses the request: Invalid currency"))
    fail(2)
    assert enter() == 2
    with pytest.raises(RequestFault), circuit_breaker.guard_call(NAME):
        raise RequestFault("Stripe refuses the request")
    assert enter() == 0


def test_too_many_requests_are_no_fault_but_the_waiting_rooms_count_them(monkeypatch: pytest.MonkeyPatch) -> None:
    observed: list[int] = []
    monkeypatch.setattr(circuit_breaker.queue.payment_faults, "observe", observed.append)
    fail(2)
    circuit_breaker.record_fault(NAME, RequestsLimited("Stripe takes no more requests"))
    assert observed == [1, 1, 1]
    assert enter() == 0
    with pytest.raises(RequestsLimited), circuit_breaker.guard_call(NAME):
        raise RequestsLimited("Stripe takes no more inquiries")
    assert observed == [1, 1, 1], "only charges count"


def rested() -> None:
    """End the rest of all providers."""
    ProviderStanding.objects.update(rests_until=clock.now() - timedelta(seconds=1))


def test_a_provider_that_never_failed_has_no_row_and_a_success_writes_none(django_assert_num_queries) -> None:
    with django_assert_num_queries(0):
        circuit_breaker.record_success(NAME, 0)
    assert enter() == 0
    assert not ProviderStanding.objects.exists()


def test_consecutive_faults_cause_a_rest_and_a_success_between_them_prevents_it() -> None:
    fail(2)
    assert enter() == 2
    circuit_breaker.record_success(NAME, 2)
    fail(2)
    assert enter() == 2
    fail(1)
    with pytest.raises(circuit_breaker.ProviderUnavailable) as resting:
        enter()
    assert 0 < resting.value.seconds <= 5
    assert circuit_breaker.list_unavailable() == [NAME]


def test_faults_far_apart_are_not_consecutive() -> None:
    fail(2)
    ProviderStanding.objects.update(changed_at=clock.now() - timedelta(minutes=5))
    fail(1)
    assert enter() == 1


def test_calls_that_were_under_way_when_the_rest_began_do_not_prolong_it() -> None:
    fail(3)
    before = ProviderStanding.objects.get()
    fail(20)
    after = ProviderStanding.objects.get()
    assert (before.rests_until, before.faults_count) == (after.rests_until, after.faults_count)


def test_each_failed_trial_doubles_the_rest_up_to_its_limit(settings) -> None:
    settings.PAYMENT_REST_SECONDS_MAX = 15
    lengths = []
    fail(2)
    for _ in range(4):
        fail(1)
        standing = ProviderStanding.objects.get()
        assert standing.rests_until is not None
        lengths.append(round((standing.rests_until - standing.changed_at).total_seconds()))
        rested()
    assert lengths == [5, 10, 15, 15]


def test_after_the_rest_one_of_eight_callers_tries_and_the_others_wait() -> None:
    """All eight read that the rest is over. One conditional update claims the trial: the second waits for the
    first to commit, rereads the row, and finds the trial claimed."""
    fail(3)
    rested()

    def try_it(_: int) -> str:
        try:
            enter()
        except circuit_breaker.ProviderUnavailable:
            return "waits"
        return "tries"

    assert sorted(values(storm(8, try_it))) == ["tries", *["waits"] * 7]


def test_a_trial_whose_worker_died_passes_to_another_caller() -> None:
    fail(3)
    rested()
    enter()
    with pytest.raises(circuit_breaker.ProviderUnavailable):
        enter()
    ProviderStanding.objects.update(tried_until=clock.now() - timedelta(seconds=1))
    assert enter() == 3


def test_a_successful_trial_closes_the_circuit_for_all() -> None:
    fail(3)
    rested()
    circuit_breaker.record_success(NAME, enter())
    assert enter() == 0
    assert circuit_breaker.list_unavailable() == []


def test_while_a_provider_rests_charges_wait_and_use_no_tries(provider, settings) -> None:
    settings.PAYMENT_REST_SECONDS = 60
    event = make_event()
    orders = [place_order(hold(event, seats=[f"hall-A-{number}"])) for number in range(1, 6)]
    fail(3)
    deliver_outbox()
    assert provider.calls == []
    assert set(Payment.objects.values_list("faults_count", "started_at")) == {(0, None)}
    deliver_later(12)
    assert provider.calls == []
    assert not OutboxMessage.objects.filter(dead_at__isnull=False).exists()
    rested()
    deliver_later(2)
    assert {status_of(order)[0] for order in orders} == {"confirmed"}
    assert not circuit_breaker.is_unavailable(NAME)
    assert_audit_clean()


@pytest.mark.slow
def test_an_outage_opens_the_circuit_and_the_first_success_closes_it(provider, settings) -> None:
    settings.PAYMENT_FAULTS_MAX = 3
    event = make_event()
    orders = [place_order(hold(event, seats=[f"hall-A-{number}"])) for number in range(1, 7)]
    provider.stop()
    deliver_outbox()
    assert circuit_breaker.list_unavailable() == [NAME]
    assert provider.calls.count("charge") == 3
    provider.resume()
    rested()
    deliver_later(3)
    assert {status_of(order)[0] for order in orders} == {"confirmed"}
    assert_audit_clean()


def test_an_order_that_expires_while_the_provider_rests_fails_with_that_reason(provider) -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    fail(3)
    deliver_outbox()
    backdate_pay_deadline(order, seconds=-20)
    deliver_later()
    assert status_of(order) == (Order.Status.FAILED, Order.Reason.PROVIDER_AWAY)
    assert payment_of(order).status == Payment.Status.ABANDONED
    assert provider.calls == []
    assert_audit_clean()


def test_a_charge_is_postponed_at_most_until_its_latest_start(settings) -> None:
    settings.PAYMENT_REST_SECONDS = 60
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    fail(3)
    backdate_pay_deadline(order, seconds=-40)
    deliver_outbox()
    waits = OutboxMessage.objects.get(done_at=None).available_at - clock.now()
    assert waits < timedelta(seconds=11)


@pytest.fixture
def inquiries(monkeypatch) -> list[str]:
    """Record the reconciler's calls to the sandbox, each outside any transaction."""
    calls: list[str] = []
    for verb in ("find_charge", "find_refund", "cancel", "refund", "movements"):
        real = getattr(sandbox.Sandbox, verb)

        def call(self: sandbox.Sandbox, *args: Any, verb: str = verb, real: Any = real) -> Any:
            assert not connection.in_atomic_block
            calls.append(verb)
            return real(self, *args)

        monkeypatch.setattr(sandbox.Sandbox, verb, call)
    return calls


def make_unsettled(slug: str) -> Order:
    """Return an order with a payment that succeeded and a refund that was requested, both without a message."""
    waiting = buy(hold(make_event(slug), seats=["hall-A-1"]), sandbox.LATE)
    late_webhook(waiting, clock.now())
    back = buy(hold(make_event(f"{slug}-back"), seats=["hall-A-1"]))
    order_cancellation.refund_order(back.pk, "staff:1")
    OutboxMessage.objects.filter(done_at=None).delete()
    moment = clock.now() - timedelta(hours=1)
    Payment.objects.update(started_at=moment)
    Refund.objects.update(requested_at=moment)
    if moment.date() != clock.now().date():
        # In the first hour of a day the payment began on the day before, which would be compared too.
        done_at = clock.now() + timedelta(days=1)
        ComparedDay.objects.create(provider="sandbox", day=moment.date(), asked_at=done_at, compared_at=done_at)
    return waiting


@pytest.mark.slow
def test_the_reconciler_inquires_only_after_the_providers_rest(inquiries, settings) -> None:
    settings.PAYMENT_REST_SECONDS = 60
    waiting = make_unsettled("concert")
    inquiries.clear()
    fail(3)
    assert (status_inquiries.schedule_inquiries(), daily_comparison.schedule_comparisons()) == (2, 1)
    deliver_outbox()
    waits = OutboxMessage.objects.filter(done_at=None).values_list("topic", "attempts", "last_error").order_by("topic")
    assert [(topic, attempts) for topic, attempts, _ in waits] == [
        ("orders.compare_day", 0),
        ("orders.reconcile_payment", 0),
        ("orders.reconcile_refund", 0),
    ]
    assert all("is unavailable; retry in" in why for *_, why in waits)
    assert inquiries == []
    rested()
    deliver_later(3)
    assert sorted(set(inquiries)) == ["find_charge", "find_refund", "movements", "refund"]
    assert status_of(waiting)[0] == "confirmed"
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert ComparedDay.objects.get(day=clock.now().date()).compared_at is not None
    assert not PaymentDifference.objects.exists()
    assert_audit_clean()


def test_inquiries_without_a_response_count_as_faults_until_one_succeeds(monkeypatch) -> None:
    waiting = make_unsettled("concert")

    def find_charge(*_: Any) -> None:
        raise ProviderFault("no answer")

    with monkeypatch.context() as outage:
        outage.setattr(sandbox.Sandbox, "find_charge", find_charge)
        for _ in range(3):
            with pytest.raises(ProviderFault):
                status_inquiries.recheck_payment(payment_of(waiting).pk)
        with pytest.raises(circuit_breaker.ProviderUnavailable):
            status_inquiries.recheck_payment(payment_of(waiting).pk)
    rested()
    status_inquiries.recheck_payment(payment_of(waiting).pk)
    assert circuit_breaker.list_unavailable() == []
    assert status_of(waiting)[0] == "confirmed"


def test_the_reconciliation_leaves_differences_of_a_resting_provider_open(inquiries, settings) -> None:
    settings.PAYMENT_REST_SECONDS = 60
    waiting = make_unsettled("concert")
    backdate_pay_deadline(waiting, seconds=2_000)
    inquiries.clear()
    fail(3)
    (finding,) = [one for one in reconciler.run(repair_by="test") if one.name == "unsettled money"]
    found = finding.outcomes
    assert {one.difference.kind: one.state for one in found} == {
        "unsettled_payment": reconciler.NEEDS_MANUAL_REPAIR,
        "unsettled_refund": reconciler.NEEDS_MANUAL_REPAIR,
    }
    assert all("is unavailable" in one.reason and "retried automatically" in one.reason for one in found)
    assert inquiries == []


def test_the_circuit_survives_a_loss_of_redis(provider, redis_client: Redis, settings) -> None:
    settings.PAYMENT_REST_SECONDS = 60
    fail(3)
    redis_client.flushall()
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    deliver_outbox()
    assert provider.calls == []
    assert status_of(order)[0] == "placed"


def test_failed_and_postponed_charges_are_reported_to_the_waiting_rooms(provider, monkeypatch) -> None:
    seen: list[float] = []
    monkeypatch.setattr(queue.payment_faults, "observe", seen.append)
    place_order(hold(make_event(), seats=["hall-A-1"]))
    deliver_outbox()
    fail(3)
    place_order(hold(make_event("second"), seats=["hall-A-1"]))
    deliver_outbox()
    assert seen == [0, 1, 1, 1, 1]


def test_readiness_and_metrics_report_a_resting_provider(settings) -> None:
    settings.PAYMENT_REST_SECONDS = 60
    operator = scraper()
    assert operator.get("/readyz").json()["payments"] == "ok"
    fail(3)
    ready = operator.get("/readyz")
    assert ready.status_code == 200
    assert ready.json()["payments"] == "resting: sandbox"
    figures = operator.get("/metrics").content.decode()
    assert 'fairgate_payment_provider_resting{provider="sandbox"} 1.0' in figures
    assert 'fairgate_payment_provider_faults_count{provider="sandbox"} 3.0' in figures


def test_stripes_429_is_no_fault() -> None:
    with pytest.raises(RequestsLimited), stripe._translate_errors():
        raise stripe.sdk.RateLimitError("Too many requests", http_status=429)
