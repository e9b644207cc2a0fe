"""`manage.py reconcile` for money: which differences it finds, repairs, and leaves to staff."""

from datetime import timedelta

import pytest
from django.core.management import CommandError, call_command

from apps.kernel import clock
from apps.kernel.checks import reconciler
from apps.kernel.outbox.models import OutboxMessage
from apps.orders.cancellation import order_cancellation
from apps.orders.models import (
    Order,
    OrderAdjustment,
    Payment,
    ProviderMessage,
    Refund,
    Ticket,
)
from apps.orders.payments import refunds
from apps.orders.payments.providers import sandbox
from apps.reservations import facade as reservations
from apps.reservations.models import Reservation
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.provider_days import SEAT, compare, listed, paid, status_of, stray_charge
from tests.support.orders.sale import backdate_pay_deadline, buy, deliver_outbox, late_webhook
from tests.support.orders.sandbox_rows import SandboxCharge, SandboxRefund

pytestmark = pytest.mark.django_db(transaction=True)


def kinds_found() -> list[str]:
    return sorted(outcome.difference.kind for finding in reconciler.run() for outcome in finding.outcomes)


def states_after_repair() -> dict[str, str]:
    findings = reconciler.run(repair_by="tests")
    assert [finding.failure for finding in findings if finding.failure] == []
    return {outcome.difference.kind: outcome.state for finding in findings for outcome in finding.outcomes}


def test_a_consistent_sale_has_no_difference() -> None:
    paid()
    buy(hold(make_event("late"), seats=[SEAT]), sandbox.LATE)
    assert kinds_found() == []


def test_long_unsettled_payments_and_refunds_are_reported_and_queried() -> None:
    order = buy(hold(make_event(), seats=[SEAT]), sandbox.LATE)
    late_webhook(order, clock.now())
    order_cancellation.refund_order(paid("other").pk, "staff:1")
    OutboxMessage.objects.filter(done_at=None).delete()
    backdate_pay_deadline(order, seconds=2_000)
    Refund.objects.update(requested_at=clock.now() - timedelta(hours=1))
    order_cancellation.fail_expired_orders()
    reservations.sweep()
    assert kinds_found() == ["unsettled_payment", "unsettled_refund"]
    assert states_after_repair() == {"unsettled_payment": "repaired", "unsettled_refund": "repaired"}
    deliver_outbox()
    assert status_of(order) == "refunded"
    assert kinds_found() == []
    assert_audit_clean()


def test_fees_that_a_refunded_order_keeps_stay_when_the_rest_is_refunded() -> None:
    order = paid()
    order_cancellation.refund_order(order.pk, "staff:1")
    OrderAdjustment.objects.create(
        order=order,
        line=order.lines.get(),
        kind=OrderAdjustment.Kind.KEPT_FEE,
        amount_minor=150,
        who="test",
        why="test",
        at=clock.now(),
    )
    deliver_outbox()
    assert kinds_found() == ["order_money"], "it keeps less than it may: staff decide, and nothing is refunded"
    Refund.objects.all().delete()
    SandboxRefund.objects.all().delete()
    Payment.objects.update(refunded_minor=0)
    assert kinds_found() == ["order_keeps_money"]
    assert states_after_repair() == {"order_keeps_money": "repaired"}
    deliver_outbox()
    payment = Payment.objects.get()
    assert payment.captured_minor - payment.refunded_minor == 150
    assert kinds_found() == []


def test_money_of_an_ended_order_is_refunded() -> None:
    order = paid()
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    Refund.objects.all().delete()
    SandboxRefund.objects.all().delete()
    Payment.objects.update(refunded_minor=0)
    assert kinds_found() == ["order_keeps_money"]
    assert states_after_repair() == {"order_keeps_money": "repaired"}
    deliver_outbox()
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert kinds_found() == []
    assert_audit_clean()


def test_a_standing_order_without_money_is_canceled_after_an_inquiry() -> None:
    event = make_event()
    order = buy(hold(event, seats=[SEAT]))
    SandboxCharge.objects.all().delete()
    ProviderMessage.objects.all().delete()
    Payment.objects.update(status="abandoned", captured_minor=0)
    assert kinds_found() == ["order_without_money"]
    assert states_after_repair() == {"order_without_money": "repaired"}
    assert status_of(order) == "refunded"
    assert not Ticket.objects.filter(voided_at=None).exists()
    hold(event, seats=[SEAT])
    assert kinds_found() == []
    assert_audit_clean()


def test_seats_that_an_ended_order_left_sold_are_released() -> None:
    event = make_event()
    order = buy(hold(event, seats=[SEAT]))
    before = Reservation.objects.values("status", "confirmed_at", "ended_at").get()
    Order.objects.update(status="failed", reason="declined", confirmed_at=None, ended_at=clock.now())
    assert before["status"] == "confirmed"
    assert set(kinds_found()) == {"order_keeps_money", "reservation_without_order"}
    assert states_after_repair() == {"order_keeps_money": "repaired", "reservation_without_order": "repaired"}
    deliver_outbox()
    assert reservations.get_reservation(order.reservation_id).status == "canceled"
    assert kinds_found() == []


def test_the_command_reports_listed_differences_and_leaves_them_to_staff(capsys) -> None:
    paid()
    stray_charge()
    compare()
    with pytest.raises((SystemExit, CommandError)):
        call_command("reconcile", "--repair")
    assert "unknown_capture" in capsys.readouterr().out or listed() == ["unknown_capture"]
    assert states_after_repair() == {"unknown_capture": "needs manual repair"}


def test_a_refund_that_the_provider_refuses_has_failed(monkeypatch) -> None:
    order = paid()
    monkeypatch.setattr(
        sandbox.Sandbox,
        "refund",
        lambda *_: refunds.RefundAnswer("", refunds.RefundState.FAILED, "charge disputed"),
    )
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    assert (Refund.objects.get().status, Refund.objects.get().failure) == (Refund.Status.FAILED, "charge disputed")
