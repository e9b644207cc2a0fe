"""The sandbox's implementation of the provider protocol: cancel, find refunds, list a day's movements."""

from datetime import timedelta
from uuid import uuid4

import pytest

from apps.kernel import clock
from apps.orders.cancellation import order_cancellation
from apps.orders.models import Order, Payment, Refund
from apps.orders.payments.providers import sandbox
from apps.orders.payments.providers.protocol import ChargeRequest, Kind, MovementKind, RefundRequest, RefundState
from apps.orders.payments.providers.sandbox import books
from apps.orders.provider_sync import event_storage
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import buy, deliver_outbox, payment_of, place_order, receive_webhook, refund_webhook
from tests.support.orders.sandbox_rows import SandboxCharge, SandboxRefund
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)


def request_of(payment: Payment) -> ChargeRequest:
    return ChargeRequest(
        key=payment.pk,
        method=payment.method,
        amount_minor=payment.amount_minor,
        currency=payment.currency,
        description="",
        counts_until=payment.counts_until,
    )


def refunded_order() -> Order:
    """Return an order whose payment the sandbox has refunded."""
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    return order


def test_a_charge_canceled_before_the_provider_knew_it_never_succeeds() -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    canceled = sandbox.Sandbox().cancel(request_of(payment_of(order)))
    assert canceled.kind == Kind.CANCELED
    deliver_outbox()
    order.refresh_from_db()
    assert (order.status, payment_of(order).status) == (Order.Status.FAILED, Payment.Status.ABANDONED)
    assert SandboxCharge.objects.get().status == "canceled"
    assert_audit_clean()


@pytest.mark.parametrize(
    ("method", "kind"),
    [(sandbox.APPROVES, Kind.SUCCEEDED), (sandbox.DECLINES, Kind.CANCELED), (sandbox.LATE, Kind.PENDING)],
)
def test_cancel_returns_the_state_of_an_existing_charge(method, kind) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), method)
    request = request_of(payment_of(order))
    assert [sandbox.Sandbox().cancel(request).kind for _ in range(2)] == [kind, kind]


def test_a_refund_is_found_by_its_key() -> None:
    order = refunded_order()
    reference = payment_of(order).reference
    found = sandbox.Sandbox().find_refund(Refund.objects.get().pk, reference)
    assert found is not None
    assert (found.state, found.reference) == (RefundState.SUCCEEDED, Refund.objects.get().reference)
    assert sandbox.Sandbox().find_refund(order.pk, reference) is None


def test_two_concurrent_refunds_never_exceed_the_charge() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    payment = payment_of(order)
    keys = [uuid4() for _ in range(4)]

    def refund(number: int) -> str:
        request = RefundRequest(keys[number], payment.reference, 2_000, payment.currency)
        return str(sandbox.Sandbox().refund(request).state)

    assert payment.captured_minor == 5_000
    assert sorted(values(storm(4, refund))) == ["failed", "failed", "succeeded", "succeeded"]
    refunded = [key for key in keys if sandbox.Sandbox().find_refund(key, payment.reference) is not None]
    assert [refund(keys.index(key)) for key in refunded] == ["succeeded", "succeeded"], (
        "the same key is the same refund"
    )
    assert SandboxRefund.objects.count() == 2


def test_a_utc_day_lists_its_captures_and_refunds() -> None:
    order = refunded_order()
    buy(hold(make_event("other"), seats=["hall-A-1"]), sandbox.DECLINES)
    today = clock.now().date()
    captured, refunded = sandbox.Sandbox().movements(today)
    payment = payment_of(order)
    assert (captured.kind, captured.key, captured.reference) == (
        MovementKind.CAPTURE,
        str(payment.pk),
        payment.reference,
    )
    assert (refunded.kind, refunded.key) == (MovementKind.REFUND, str(Refund.objects.get().pk))
    assert captured.charge_reference == refunded.charge_reference == payment.reference
    assert captured.amount_minor == refunded.amount_minor == order.total_minor
    assert list(sandbox.Sandbox().movements(today - timedelta(days=1))) == []


def test_a_refund_that_the_provider_settles_later_is_settled_by_its_webhook(monkeypatch) -> None:
    monkeypatch.setattr(books, "NEW_REFUND_STATUS", "pending")
    refunded_order()
    assert Refund.objects.get().status == Refund.Status.PENDING
    SandboxRefund.objects.update(status="succeeded")
    raw = refund_webhook(SandboxRefund.objects.get())
    assert [receive_webhook(raw), receive_webhook(raw)] == [True, False]
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert_audit_clean()


def test_a_refund_returned_days_later_has_failed_with_a_reason() -> None:
    refunded_order()
    SandboxRefund.objects.update(status="failed", failure="account closed")
    receive_webhook(refund_webhook(SandboxRefund.objects.get()))
    refund = Refund.objects.get()
    assert (refund.status, refund.failure) == (Refund.Status.FAILED, "account closed")
    SandboxRefund.objects.update(status="succeeded")
    receive_webhook(refund_webhook(SandboxRefund.objects.get()))
    assert Refund.objects.get().status == Refund.Status.FAILED, "the failure is final, whichever message comes first"


def test_an_ignored_event_type_is_accepted_and_not_stored(monkeypatch) -> None:
    monkeypatch.setattr(event_storage, "read_webhook", lambda *_: None)
    assert event_storage.receive(sandbox.NAME, b"{}", {}) is False
