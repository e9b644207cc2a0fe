"""Provider messages in any order and at any time: stored once, applied once, decided by when they occurred."""

import json
from datetime import timedelta
from types import SimpleNamespace

import pytest
from django.core import mail
from django.test import Client

from apps.kernel import clock
from apps.kernel.http import problems
from apps.kernel.outbox.models import OutboxMessage
from apps.orders.access import order_link
from apps.orders.cancellation import order_cancellation
from apps.orders.errors import ProviderNotFound, SignatureInvalid
from apps.orders.models import Order, Payment, ProviderMessage, Refund, Ticket
from apps.orders.payments import settlement
from apps.orders.payments.providers import sandbox
from apps.orders.payments.providers.protocol import Kind, ProviderFault
from apps.orders.provider_sync import event_storage, inbox, status_inquiries
from apps.reservations import facade as reservations
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import (
    backdate_pay_deadline,
    buy,
    deliver_outbox,
    late_webhook,
    payment_of,
    place_order,
    receive_webhook,
)
from tests.support.orders.sandbox_rows import SandboxCharge, SandboxRefund

pytestmark = pytest.mark.django_db(transaction=True)


def status_of(order: Order) -> str:
    order.refresh_from_db()
    return str(order.status)


def test_a_late_payments_webhook_arrives_after_the_deadline() -> None:
    """The sandbox's late webhook waits in the outbox until deadline and grace are over, without a sleeping worker."""
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    assert status_of(order) == "paying"
    (waiting,) = OutboxMessage.objects.filter(topic=sandbox.WEBHOOK_TOPIC)
    assert waiting.available_at >= payment_of(order).counts_until
    OutboxMessage.objects.filter(pk=waiting.pk).update(available_at=clock.now())
    backdate_pay_deadline(order, seconds=200)
    order_cancellation.fail_expired_orders()
    reservations.sweep()
    deliver_outbox()
    assert status_of(order) == "refunded"
    assert order.reason == Order.Reason.LATE
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert SandboxRefund.objects.count() == 1
    failed, notice = mail.outbox
    assert "was not paid" in failed.subject
    assert "too late" in notice.body
    assert "/events/concert/choose" in notice.body, "a new hold is offered"
    page = Client().get(order_link(order.pk), follow=True).content.decode()
    assert "/events/concert/choose" in page
    assert not Ticket.objects.exists()
    assert_audit_clean()


def test_a_list_of_webhooks_is_delivered_in_one_transaction_or_not_at_all() -> None:
    event = make_event()
    orders = [buy(hold(event, seats=[seat]), sandbox.LATE) for seat in ("hall-A-1", "hall-A-2", "hall-A-3")]
    waiting = list(OutboxMessage.objects.filter(topic=sandbox.WEBHOOK_TOPIC).order_by("id"))
    unknown = SimpleNamespace(body={**waiting[0].body, "key": "unknown"})
    with pytest.raises(LookupError):
        inbox.deliver_sandbox_webhooks([*waiting, unknown])
    assert ProviderMessage.objects.filter(kind=Kind.SUCCEEDED).count() == 0
    for _ in range(2):
        assert inbox.deliver_sandbox_webhooks(waiting) == set(), "each is stored once"
    assert ProviderMessage.objects.filter(kind=Kind.SUCCEEDED).count() == len(orders)
    deliver_outbox()
    assert [status_of(order) for order in orders] == ["refunded"] * 3, "the payments are late"
    assert_audit_clean()


def test_a_late_message_about_a_payment_in_time_confirms() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    assert receive_webhook(late_webhook(order, clock.now()))
    assert status_of(order) == "confirmed"
    assert_audit_clean()


def test_a_payment_within_the_grace_takes_its_seats_again_after_the_sweep() -> None:
    reservation = hold(make_event(general_admission=5), seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    order = buy(reservation, sandbox.LATE)
    backdate_pay_deadline(order, seconds=100)
    order_cancellation.fail_expired_orders()
    reservations.sweep()
    assert status_of(order) == "failed"
    receive_webhook(late_webhook(order, clock.now() - timedelta(seconds=60)))
    assert status_of(order) == "confirmed"
    assert order.reason == ""
    assert reservations.get_reservation(reservation.id).status == "confirmed"
    assert Ticket.objects.count() == 3
    assert_audit_clean()


def test_a_payment_within_the_grace_is_refunded_if_another_buyer_has_the_seat() -> None:
    event = make_event()
    order = buy(hold(event, seats=["hall-A-1"]), sandbox.LATE)
    backdate_pay_deadline(order, seconds=30)
    order_cancellation.fail_expired_orders()
    reservations.sweep()
    other = buy(hold(event, seats=["hall-A-1"]), email="other@example.org")
    assert other.status == Order.Status.CONFIRMED
    receive_webhook(late_webhook(order, clock.now() - timedelta(seconds=20)))
    assert status_of(order) == "refunded"
    assert Ticket.objects.get().order_id == other.pk
    assert_audit_clean()


def test_a_payment_after_the_grace_is_refunded_even_if_the_seat_is_free() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    backdate_pay_deadline(order, seconds=100)
    receive_webhook(late_webhook(order, clock.now() - timedelta(seconds=30)))
    assert status_of(order) == "refunded"
    assert reservations.get_reservation(order.reservation_id).status == "canceled"
    assert_audit_clean()


def test_a_payment_of_a_canceled_order_is_refunded() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    order_cancellation.cancel_order(order.pk)
    receive_webhook(late_webhook(order, clock.now()))
    assert status_of(order) == "refunded"
    assert order.reason == Order.Reason.CANCELED_BY_BUYER
    assert_audit_clean()


def test_a_duplicate_is_stored_once_and_changes_nothing() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    raw = late_webhook(order, clock.now())
    assert [receive_webhook(raw), receive_webhook(raw), receive_webhook(raw)] == [True, False, False]
    assert status_of(order) == "confirmed"
    assert Ticket.objects.count() == 1
    assert ProviderMessage.objects.filter(kind="payment.succeeded").count() == 1
    assert_audit_clean()


def test_a_webhook_that_repeats_the_response_changes_nothing() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    assert receive_webhook(sandbox.messages.charge_event(SandboxCharge.objects.get()).raw) is False
    assert status_of(order) == "confirmed"
    assert Ticket.objects.count() == 1


def test_a_webhook_that_overtakes_the_response_settles_the_payment(monkeypatch) -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    real = sandbox.Sandbox.charge

    def overtaken(self, request):
        answer = real(self, request)
        event_storage.receive(sandbox.NAME, answer.raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(answer.raw)})
        return answer

    monkeypatch.setattr(sandbox.Sandbox, "charge", overtaken)
    deliver_outbox()
    assert status_of(order) == "confirmed"
    assert ProviderMessage.objects.get().outcome == "confirmed"
    assert Ticket.objects.count() == 1
    assert_audit_clean()


def message_about(order: Order, kind: str, message_id: str, **charge) -> bytes:
    """Return a sandbox message about the order's first payment."""
    payment = payment_of(order)
    return json.dumps(
        {
            "id": message_id,
            "type": kind,
            "occurred_at": clock.now().isoformat(),
            "charge": {
                "id": f"sc_{payment.attempt}",
                "idempotency_key": str(payment.pk),
                "amount_minor": payment.amount_minor,
                "currency": payment.currency,
                **charge,
            },
        }
    ).encode()


def test_a_decline_after_the_success_changes_nothing() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    receive_webhook(message_about(order, "payment.declined", "late-decline"))
    assert status_of(order) == "confirmed"
    assert_audit_clean()


def test_a_success_after_its_decline_confirms_while_the_seats_are_still_held() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.DECLINES)
    SandboxCharge.objects.update(status="succeeded")
    receive_webhook(message_about(order, "payment.succeeded", "changed-its-mind", id=payment_of(order).reference))
    assert status_of(order) == "confirmed"
    assert_audit_clean()


def test_of_two_attempts_that_both_succeed_one_is_refunded() -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    order = buy(reservation, sandbox.DECLINES)
    order = buy(reservation)
    assert status_of(order) == "confirmed"
    SandboxCharge.objects.update(status="succeeded")
    receive_webhook(message_about(order, "payment.succeeded", "changed-its-mind", id=payment_of(order).reference))
    assert status_of(order) == "confirmed"
    first = payment_of(order)
    assert first.captured_minor == first.refunded_minor == order.total_minor
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert_audit_clean()


@pytest.mark.parametrize("kind", ["payment.succeeded", "payment.declined", "payment.canceled"])
def test_a_message_about_another_charge_with_the_payments_key_changes_nothing(kind: str) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    before = payment_of(order)
    assert before.reference
    assert receive_webhook(message_about(order, kind, "foreign", id="sc_another"))
    assert ProviderMessage.objects.get(message_id="foreign").outcome == settlement.OTHER_CHARGE
    after = payment_of(order)
    assert (after.status, after.reference, status_of(order)) == ("pending", before.reference, "paying")
    assert_audit_clean()
    receive_webhook(late_webhook(order, clock.now()))
    assert status_of(order) == "confirmed", "its own charge still counts"
    assert receive_webhook(message_about(order, kind, "foreign again", id="sc_another"))
    assert (status_of(order), Refund.objects.count()) == ("confirmed", 0)
    assert_audit_clean()


def test_a_webhook_that_is_older_than_its_payment_changes_nothing_and_an_inquiry_settles_the_charge() -> None:
    """A message with an earlier time would turn a late payment into one in time."""
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    payment, key = payment_of(order), {"id": payment_of(order).reference}
    early = json.loads(message_about(order, "payment.succeeded", "early", **key))
    early["occurred_at"] = (payment.created_at - timedelta(days=1)).isoformat()
    assert receive_webhook(json.dumps(early).encode())
    assert ProviderMessage.objects.get(message_id="early").outcome == settlement.TOO_EARLY
    assert (payment_of(order).status, status_of(order)) == ("pending", "paying")
    assert_audit_clean()
    SandboxCharge.objects.update(status="succeeded", occurred_at=payment.created_at - timedelta(days=1))
    status_inquiries.reconcile_payment(payment.pk)
    assert status_of(order) == "confirmed", "an answer to a call is believed"
    assert_audit_clean()


def test_a_webhook_may_be_older_than_its_payment_by_the_difference_of_the_clocks() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    receive_webhook(late_webhook(order, payment_of(order).created_at - settlement.CLOCK_DIFFERENCE_MAX))
    assert status_of(order) == "confirmed"
    assert_audit_clean()


def test_a_wrong_amount_is_refunded_and_the_seats_are_released() -> None:
    event = make_event()
    order = buy(hold(event, seats=["hall-A-1"]), sandbox.LATE)
    SandboxCharge.objects.update(status="succeeded", amount_minor=1)
    receive_webhook(message_about(order, "payment.succeeded", "short", amount_minor=1, id=payment_of(order).reference))
    assert status_of(order) == "refunded"
    assert order.reason == Order.Reason.WRONG_AMOUNT
    hold(event, seats=["hall-A-1"])
    assert_audit_clean()


def test_a_message_about_an_unknown_payment_is_stored_and_changes_nothing() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    for number, key in enumerate(("another system's", "7b3f8a52-6a2c-4a0e-9d63-5a1df7f8f001")):
        receive_webhook(message_about(order, "payment.succeeded", f"stray-{number}", idempotency_key=key))
    assert status_of(order) == "paying"
    assert set(ProviderMessage.objects.filter(payment=None).values_list("outcome", flat=True)) == {
        inbox.UNKNOWN_PAYMENT
    }


@pytest.mark.parametrize(
    "header",
    ["", "malformed", "t=1,v1=00", "t=,v1=", "t=99999999999999999999,v1=aa", "t=abc,v1=ü", "v1=00", "t=٣,v1=00"],
)
def test_unsigned_bytes_are_not_stored(header) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    stored = ProviderMessage.objects.count()
    with pytest.raises(SignatureInvalid):
        event_storage.receive(sandbox.NAME, late_webhook(order, clock.now()), {sandbox.SIGNATURE_HEADER: header})
    assert ProviderMessage.objects.count() == stored


def test_an_old_signature_is_refused_but_an_old_event_is_accepted() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    Payment.objects.filter(order=order).update(created_at=clock.now() - timedelta(hours=1))
    raw = late_webhook(order, clock.now() - timedelta(hours=1))
    long_ago = int(clock.now().timestamp()) - 301
    with pytest.raises(SignatureInvalid):
        event_storage.receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw, long_ago)})
    assert receive_webhook(raw)
    assert status_of(order) == "confirmed"


def test_a_signature_does_not_match_changed_bytes() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    raw = late_webhook(order, clock.now())
    with pytest.raises(SignatureInvalid):
        event_storage.receive(sandbox.NAME, raw + b" ", {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})


def malformed(**wrong) -> bytes:
    """Return a valid message with these changes."""
    charge = {"id": "sc_1", "idempotency_key": "key", "amount_minor": 1, "currency": "USD"}
    message = {"id": "1", "type": "payment.succeeded", "occurred_at": "2026-01-01T00:00:00+00:00", "charge": charge}
    for name, value in wrong.items():
        (charge if name in ("amount_minor", "currency") else message)[name] = value
    return json.dumps(message).encode()


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b'{"id":"a\\u0000","type":"payment.succeeded","occurred_at":"2026-01-01T00:00:00Z","charge":{}}',
        malformed(id=1),
        malformed(id="i" * 121),
        malformed(type="payment.unheard"),
        malformed(occurred_at="2026-01-01T00:00:00"),
        malformed(occurred_at=7),
        # PostgreSQL can store these timestamps, but Python cannot read them back.
        malformed(occurred_at="0001-01-01T00:00:00+14:00"),
        malformed(occurred_at="0001-01-02T00:00:00+00:00"),
        malformed(occurred_at="9999-12-31T23:59:59-14:00"),
        malformed(occurred_at="1999-12-31T23:59:59+00:00"),
        malformed(occurred_at="2099-12-31T23:59:59-01:00"),
        malformed(charge={}),
        malformed(charge=[1]),
        malformed(amount_minor=-1),
        malformed(amount_minor=True),
        malformed(amount_minor=2**63),
        malformed(currency=None),
        malformed(currency="EURO"),
        malformed(currency=""),
        malformed(id=""),
        b"[" * 3_000,
        b'{"id":' * 100_000,
        b"1" * 5_000,
        malformed(amount_minor="1" * 5_000),
        malformed(amount_minor=1.5),
    ],
)
def test_signed_malformed_bytes_are_refused_and_not_stored(raw) -> None:
    with pytest.raises(problems.MalformedBody):
        event_storage.receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})
    assert not ProviderMessage.objects.exists()


def test_an_unknown_provider_is_not_found() -> None:
    with pytest.raises(ProviderNotFound):
        event_storage.receive("bank", b"{}", {})


def test_a_charge_is_retried_after_a_provider_outage(monkeypatch) -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    real = sandbox.Sandbox.charge

    def unavailable(self, request):
        raise ProviderFault("500")

    monkeypatch.setattr(sandbox.Sandbox, "charge", unavailable)
    deliver_outbox()
    assert status_of(order) == "paying"
    assert payment_of(order).status == Payment.Status.PENDING
    (waiting,) = OutboxMessage.objects.filter(done_at=None, dead_at=None)
    assert "ProviderFault" in waiting.last_error
    monkeypatch.setattr(sandbox.Sandbox, "charge", real)
    OutboxMessage.objects.filter(pk=waiting.pk).update(available_at=clock.now())
    deliver_outbox()
    assert status_of(order) == "confirmed"
    assert_audit_clean()
