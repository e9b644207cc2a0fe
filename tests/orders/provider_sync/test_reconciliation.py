"""Reconciliation of lost webhooks: inquiries, daily comparison, corrections, and differences for staff."""

import dataclasses
import uuid
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError
from django.test import Client

from apps.kernel import clock, maintenance
from apps.kernel.outbox.models import OutboxMessage
from apps.orders.cancellation import order_cancellation
from apps.orders.errors import DifferenceNotSettled, SignatureInvalid
from apps.orders.models import (
    ComparedDay,
    Order,
    Payment,
    PaymentDifference,
    ProviderMessage,
    Refund,
    Ticket,
)
from apps.orders.payments.providers import sandbox
from apps.orders.payments.providers.protocol import ProviderFault
from apps.orders.payments.providers.sandbox import books, rows
from apps.orders.provider_sync import charges, daily_comparison, discrepancies, event_storage, status_inquiries
from apps.reservations import facade as reservations
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.provider_days import (
    SEAT,
    compare,
    grow_old,
    listed,
    paid,
    run_inquiries,
    status_of,
    stray_charge,
)
from tests.support.orders.sale import (
    SAME_ORIGIN,
    backdate_pay_deadline,
    buy,
    deliver_outbox,
    late_webhook,
    payment_of,
    place_order,
    receive_webhook,
    refund_webhook,
)
from tests.support.orders.sandbox_rows import SandboxCharge, SandboxRefund, add_refund
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)


# --- inquiries ------------------------------------------------------------------------------------------------------


def test_a_payment_whose_webhook_was_lost_is_confirmed_by_an_inquiry() -> None:
    order = buy(hold(make_event(), seats=[SEAT]), sandbox.LATE)
    late_webhook(order, clock.now())
    assert status_inquiries.schedule_inquiries() == 0, "its own message inquires first"
    grow_old()
    assert run_inquiries() == 1
    assert status_of(order) == "confirmed"
    assert run_inquiries() == 0
    assert_audit_clean()


def test_a_webhook_after_the_inquiry_changes_nothing() -> None:
    order = buy(hold(make_event(), seats=[SEAT]), sandbox.LATE)
    raw = late_webhook(order, clock.now())
    grow_old()
    run_inquiries()
    receive_webhook(raw)
    assert (status_of(order), Ticket.objects.count()) == ("confirmed", 1)
    assert_audit_clean()


def test_a_delivery_refused_as_too_old_is_settled_by_an_inquiry() -> None:
    order = buy(hold(make_event(), seats=[SEAT]), sandbox.LATE)
    raw = late_webhook(order, clock.now())
    long_ago = int(clock.now().timestamp()) - 301
    with pytest.raises(SignatureInvalid):
        event_storage.receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw, long_ago)})
    assert status_of(order) == "paying"
    grow_old()
    run_inquiries()
    assert status_of(order) == "confirmed"
    assert_audit_clean()


def test_a_charge_whose_response_timed_out_is_found_by_an_inquiry(monkeypatch) -> None:
    order = place_order(hold(make_event(), seats=[SEAT]))
    real = sandbox.Sandbox.charge

    def charge_and_vanish(self: Any, request: Any) -> None:
        real(self, request)
        raise ProviderFault("timed out")

    monkeypatch.setattr(sandbox.Sandbox, "charge", charge_and_vanish)
    deliver_outbox()
    OutboxMessage.objects.filter(done_at=None).delete()
    assert status_of(order) == "paying"
    grow_old()
    run_inquiries()
    assert status_of(order) == "confirmed"
    assert SandboxCharge.objects.count() == 1
    assert_audit_clean()


def test_a_late_payment_is_found_by_an_inquiry_and_refunded() -> None:
    order = buy(hold(make_event(), seats=[SEAT]), sandbox.LATE)
    backdate_pay_deadline(order, seconds=200)
    order_cancellation.fail_expired_orders()
    reservations.sweep()
    late_webhook(order, clock.now())
    grow_old()
    run_inquiries()
    assert (status_of(order), order.reason) == ("refunded", Order.Reason.LATE)
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert_audit_clean()


def test_a_charge_that_can_no_longer_count_is_canceled_for_good() -> None:
    order = buy(hold(make_event(), seats=[SEAT]), sandbox.LATE)
    SandboxCharge.objects.update(method=sandbox.APPROVES)
    backdate_pay_deadline(order, seconds=30)
    order_cancellation.fail_expired_orders()
    OutboxMessage.objects.filter(done_at=None).delete()
    grow_old()
    run_inquiries()
    assert payment_of(order).status == Payment.Status.PENDING, "within the grace period it can still count"
    backdate_pay_deadline(order, seconds=200)
    grow_old()
    run_inquiries()
    assert payment_of(order).status == Payment.Status.ABANDONED
    assert SandboxCharge.objects.get().status == "canceled"
    assert_audit_clean()


def test_a_refund_whose_response_was_lost_is_found_and_made_once(monkeypatch) -> None:
    order = paid()
    real = sandbox.Sandbox.refund

    def refund_and_vanish(self: Any, request: Any) -> None:
        real(self, request)
        raise ProviderFault("timed out")

    monkeypatch.setattr(sandbox.Sandbox, "refund", refund_and_vanish)
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    assert Refund.objects.get().status == Refund.Status.REQUESTED
    grow_old()
    assert run_inquiries() == 1
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert SandboxRefund.objects.count() == 1
    assert_audit_clean()


def test_a_refund_whose_message_is_dead_is_sent_by_the_reconciler() -> None:
    order = paid()
    order_cancellation.refund_order(order.pk, "staff:1")
    OutboxMessage.objects.filter(done_at=None).delete()
    grow_old()
    run_inquiries()
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert SandboxRefund.objects.count() == 1
    assert_audit_clean()


def test_concurrent_searches_schedule_one_inquiry() -> None:
    """All read the same payment as due. The first conditional update claims it; the others update no row."""
    order = buy(hold(make_event(), seats=[SEAT]), sandbox.LATE)
    late_webhook(order, clock.now())
    grow_old()
    assert sum(values(storm(6, lambda _: status_inquiries.schedule_inquiries()))) == 1
    assert OutboxMessage.objects.filter(topic="orders.reconcile_payment").count() == 1
    deliver_outbox()
    assert_audit_clean()


def test_reconciler_webhook_and_retry_settle_one_payment_once() -> None:
    """All have a message about the same success. Under the order's lock the first confirms; the others then
    read a payment that has succeeded."""
    order = buy(hold(make_event(), seats=[SEAT]), sandbox.LATE)
    raw = late_webhook(order, clock.now())
    payment_id = payment_of(order).pk
    message = OutboxMessage.objects.filter(topic="orders.charge").get()
    retry: Any = type("Message", (), {"body": message.body})()

    def settle(number: int) -> None:
        if number % 3 == 0:
            status_inquiries.reconcile_payment(payment_id)
        elif number % 3 == 1:
            event_storage.receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})
            deliver_outbox()
        else:
            charges.handle_charge(retry)

    values(storm(6, settle))
    deliver_outbox()
    assert status_of(order) == "confirmed"
    assert Ticket.objects.count() == 1
    assert not Refund.objects.exists()
    assert_audit_clean()


def test_the_reconciler_runs_periodically(settings) -> None:
    assert {"ask about unsettled money", "compare with providers"} <= set(maintenance.jobs())
    tasks = {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()}
    assert {"orders.ask_about_money", "orders.compare_days"} <= tasks


# --- comparison: the provider's movements ---------------------------------------------------------------------------


def by_hand(order: Order, amount_minor: int | None = None) -> rows.Refund:
    """Create a refund by hand at the provider."""
    return add_refund(
        SandboxCharge.objects.get(idempotency_key=str(payment_of(order).pk)),
        key=f"by hand {uuid.uuid4()}",
        amount_minor=amount_minor or order.total_minor,
        occurred_at=clock.now(),
    )


def test_books_that_agree_list_nothing_however_often_they_are_compared() -> None:
    order = paid()
    order_cancellation.refund_order(paid("other").pk, "staff:1")
    deliver_outbox()
    assert [compare(), compare()] == [(2, 1), (2, 1)]
    assert listed() == []
    day = ComparedDay.objects.get()
    assert (day.captures_count, day.refunds_count) == (2, 1)
    assert status_of(order) == "confirmed"
    assert_audit_clean()


def test_an_unknown_capture_is_listed_once_until_staff_settles_it() -> None:
    paid()
    stray_charge()
    compare()
    compare()
    assert listed() == ["unknown_capture"]
    one = PaymentDifference.objects.get()
    assert (one.theirs_minor, one.ours_minor, one.order_id) == (700, None, None)
    assert one.last_seen_at > one.first_seen_at
    with pytest.raises(DifferenceNotSettled):
        discrepancies.settle(one.pk, "staff:1", " \x00 ")
    discrepancies.settle(one.pk, "staff:1", "The bar's till uses the same account.")
    compare()
    assert listed() == []
    assert PaymentDifference.objects.get().note == "The bar's till uses the same account."
    assert_audit_clean()


def test_a_second_charge_with_the_key_of_a_paid_payment_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    order = paid()
    own = next(sandbox.Sandbox().movements(clock.now().date()))
    assert own.reference == payment_of(order).reference
    second = dataclasses.replace(own, reference="sc_another", charge_reference="sc_another")
    monkeypatch.setattr(sandbox.Sandbox, "movements", lambda self, day: iter([own, second]))
    compare()
    compare()
    assert listed() == ["unknown_capture"]
    one = PaymentDifference.objects.get()
    assert (one.reference, one.theirs_minor, one.order_id) == ("sc_another", order.total_minor, order.pk)
    assert_audit_clean()


def test_a_capture_without_a_message_is_settled_by_the_comparison() -> None:
    order = buy(hold(make_event(), seats=[SEAT]), sandbox.LATE)
    late_webhook(order, clock.now())
    compare()
    assert (status_of(order), listed()) == ("confirmed", [])
    assert_audit_clean()


def test_a_capture_of_another_amount_is_listed_until_the_books_agree() -> None:
    order = paid()
    SandboxCharge.objects.update(amount_minor=1)
    compare()
    assert listed() == ["capture_amount"]
    SandboxCharge.objects.update(amount_minor=order.total_minor)
    compare()
    assert listed() == []
    assert PaymentDifference.objects.get().settled_by == discrepancies.SYSTEM_ACTOR


@pytest.mark.parametrize("way", ["webhook", "comparison", "both"])
def test_a_full_refund_by_hand_refunds_the_order(way: str) -> None:
    event = make_event()
    order = buy(hold(event, seats=[SEAT]))
    refund = by_hand(order)
    if way != "comparison":
        receive_webhook(refund_webhook(refund))
    if way != "webhook":
        compare()
        compare()
    recorded = Refund.objects.get()
    assert (status_of(order), recorded.status) == ("refunded", Refund.Status.SUCCEEDED)
    assert (recorded.reference, recorded.amount_minor) == (f"sr_{refund.pk}", order.total_minor)
    assert not Ticket.objects.filter(voided_at=None).exists()
    assert SandboxRefund.objects.count() == 1, "the money is refunded already"
    assert listed() == []
    hold(event, seats=[SEAT])
    assert_audit_clean()


def test_a_partial_refund_by_hand_is_listed_and_changes_nothing() -> None:
    order = paid()
    refund = by_hand(order, 1)
    receive_webhook(refund_webhook(refund))
    compare()
    assert (status_of(order), listed()) == ("confirmed", ["unknown_refund"])
    one = PaymentDifference.objects.get()
    assert (one.reference, one.theirs_minor, one.order_id) == (f"sr_{refund.pk}", 1, order.pk)
    assert not Refund.objects.exists()
    assert_audit_clean()


def test_a_refund_of_an_unknown_charge_is_listed() -> None:
    paid()
    add_refund(stray_charge(), key="x", amount_minor=700, occurred_at=clock.now())
    compare()
    assert listed() == ["unknown_capture", "unknown_refund"]
    assert_audit_clean()


def test_a_refund_without_a_message_is_settled_by_the_comparison(monkeypatch) -> None:
    order = paid()
    monkeypatch.setattr(books, "NEW_REFUND_STATUS", "pending")
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    assert Refund.objects.get().status == Refund.Status.PENDING
    SandboxRefund.objects.update(status="succeeded")
    compare()
    assert (Refund.objects.get().status, listed()) == (Refund.Status.SUCCEEDED, [])


def test_a_failed_refund_is_listed_until_it_is_made_by_hand() -> None:
    order = paid()
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    SandboxRefund.objects.update(status="failed", failure="account closed")
    receive_webhook(refund_webhook(SandboxRefund.objects.get()))
    assert [discrepancies.record_failed_refunds(), discrepancies.record_failed_refunds()] == [1, 0]
    assert listed() == ["failed_refund"]
    compare()
    assert listed() == ["failed_refund"]
    receive_webhook(refund_webhook(by_hand(order)))
    assert (listed(), Refund.objects.get().status) == ([], Refund.Status.SUCCEEDED)
    assert_audit_clean()


# --- comparison: our movements --------------------------------------------------------------------------------------


def test_a_capture_that_the_provider_does_not_know_is_listed() -> None:
    order = paid()
    order_cancellation.refund_order(paid("other").pk, "staff:1")
    deliver_outbox()
    SandboxRefund.objects.all().delete()
    SandboxCharge.objects.filter(idempotency_key=str(payment_of(order).pk)).delete()
    compare()
    compare()
    assert listed() == ["missing_capture", "missing_refund"]


def test_near_midnight_the_two_clocks_may_disagree_about_the_day() -> None:
    order = paid()
    order_cancellation.refund_order(paid("other").pk, "staff:1")
    deliver_outbox()
    yesterday = clock.now() - timedelta(days=1)
    Payment.objects.update(occurred_at=yesterday)
    Refund.objects.update(settled_at=yesterday)
    assert [compare(1), compare(0)] == [(0, 0), (2, 1)]
    assert listed() == []
    assert status_of(order) == "confirmed"


def test_a_comparison_that_failed_midway_starts_again_later(monkeypatch) -> None:
    paid()
    stray_charge()
    stray_charge()
    monkeypatch.setattr(daily_comparison, "BATCH_MAX", 1)
    real = sandbox.Sandbox.movements

    def broken(self: Any, day: Any) -> Iterator[Any]:
        for number, move in enumerate(real(self, day)):
            if number == 2:
                raise ProviderFault("away")
            yield move

    monkeypatch.setattr(sandbox.Sandbox, "movements", broken)
    with pytest.raises(ProviderFault):
        compare()
    assert (listed(), ComparedDay.objects.count()) == (["unknown_capture"], 0)
    monkeypatch.setattr(sandbox.Sandbox, "movements", real)
    assert compare() == (3, 0)
    assert listed() == ["unknown_capture", "unknown_capture"]
    assert_audit_clean()


def test_due_days_are_compared_once_by_concurrent_schedulers(monkeypatch) -> None:
    paid()
    two_days_ago = clock.now() - timedelta(days=2)
    Payment.objects.update(started_at=two_days_ago, occurred_at=two_days_ago)
    ProviderMessage.objects.update(occurred_at=two_days_ago)
    SandboxCharge.objects.update(occurred_at=two_days_ago)
    assert sum(values(storm(4, lambda _: daily_comparison.schedule_comparisons()))) == 3
    deliver_outbox()
    assert ComparedDay.objects.exclude(compared_at=None).count() == 3
    assert daily_comparison.schedule_comparisons() == 0
    ComparedDay.objects.update(asked_at=clock.now() - timedelta(hours=2))
    assert daily_comparison.schedule_comparisons() >= 1, "today is compared again"
    assert ComparedDay.objects.filter(asked_at__lt=clock.now() - timedelta(hours=1)).count() >= 1, "a past day is not"
    deliver_outbox()
    assert_audit_clean()


def test_days_are_compared_even_if_all_messages_were_lost() -> None:
    """The first charge was declined and succeeded later, without a message: none of our payments is captured."""
    order = buy(hold(make_event(), seats=[SEAT]), sandbox.DECLINES)
    sandbox.settle(str(payment_of(order).pk), "succeeded", clock.now())
    assert daily_comparison.schedule_comparisons() == 1
    deliver_outbox()
    assert status_of(order) == "confirmed"
    assert_audit_clean()


def test_a_comparison_that_another_worker_took_over_stops(monkeypatch) -> None:
    paid()
    monkeypatch.setattr(daily_comparison.outbox, "prolong", lambda message: False)
    daily_comparison.schedule_comparisons()
    deliver_outbox()
    assert not ComparedDay.objects.exclude(compared_at=None).exists()


def test_a_settled_difference_has_a_note() -> None:
    stray_charge()
    paid()
    compare()
    with pytest.raises(IntegrityError, match="payment_difference_settled_with_note"):
        PaymentDifference.objects.update(settled_at=clock.now())


def test_staff_settles_differences_with_a_note(admin_client: Client) -> None:
    paid()
    stray_charge()
    compare()
    one = PaymentDifference.objects.get()
    form = {"action": "settle", "_selected_action": [one.pk], "why": ""}
    path = "/admin/orders/paymentdifference/"
    page = admin_client.post(path, form, headers=SAME_ORIGIN, follow=True)
    assert "Enter the cause and the solution." in page.content.decode()
    assert listed() == ["unknown_capture"]
    admin_client.post(path, form | {"why": "Paid back by hand."}, headers=SAME_ORIGIN, follow=True)
    one.refresh_from_db()
    assert (listed(), one.note) == ([], "Paid back by hand.")
    assert one.settled_by.startswith("staff:")
    assert "Paid back by hand." in admin_client.get(path).content.decode()
