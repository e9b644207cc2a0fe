"""What a provider says, in every order and at every time: stored once, processed once, decided by when it occurred."""

import json
from datetime import timedelta

import pytest
from django.core import mail
from django.test import Client

from apps.kernel import clock
from apps.kernel.http import problems
from apps.kernel.outbox.models import OutboxMessage
from apps.orders.access import order_link
from apps.orders.cancellation import order_cancellation
from apps.orders.errors import ProviderNotFound, SignatureInvalid
from apps.orders.models import Order, Payment, ProviderMessage, Refund, SandboxCharge, Ticket
from apps.orders.payments.providers import sandbox
from apps.orders.payments.providers.protocol import ProviderFault
from apps.orders.provider_sync import inbox
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

pytestmark = pytest.mark.django_db(transaction=True)


def told(order: Order) -> str:
    order.refresh_from_db()
    return str(order.status)


def test_a_late_payment_waits_beyond_the_deadline_and_its_word_comes_by_itself() -> None:
    """The sandbox's late word lies in the outbox until deadline and grace are over: no sleeping worker."""
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    assert told(order) == "paying"
    (waiting,) = OutboxMessage.objects.filter(topic=sandbox.WEBHOOK_TOPIC)
    assert waiting.available_at >= payment_of(order).counts_until
    OutboxMessage.objects.filter(pk=waiting.pk).update(available_at=clock.now())
    backdate_pay_deadline(order, seconds=200)
    order_cancellation.fail_expired_orders()
    reservations.sweep()
    deliver_outbox()
    assert told(order) == "refunded"
    assert order.reason == Order.Reason.LATE
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert SandboxCharge.objects.get().refunds.count() == 1
    failed, notice = mail.outbox
    assert "did not go through" in failed.subject
    assert "too late" in notice.body
    assert "/events/concert/choose" in notice.body, "a new hold is offered"
    page = Client().get(order_link(order.pk), follow=True).content.decode()
    assert "/events/concert/choose" in page
    assert not Ticket.objects.exists()
    assert_audit_clean()


def test_word_that_comes_late_of_money_in_time_confirms() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    assert receive_webhook(late_webhook(order, clock.now()))
    assert told(order) == "confirmed"
    assert_audit_clean()


def test_money_within_the_grace_takes_its_seats_again_after_the_sweep() -> None:
    reservation = hold(make_event(general_admission=5), seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    order = buy(reservation, sandbox.LATE)
    backdate_pay_deadline(order, seconds=100)
    order_cancellation.fail_expired_orders()
    reservations.sweep()
    assert told(order) == "failed"
    receive_webhook(late_webhook(order, clock.now() - timedelta(seconds=60)))
    assert told(order) == "confirmed"
    assert order.reason == ""
    assert reservations.get_reservation(reservation.id).status == "confirmed"
    assert Ticket.objects.count() == 3
    assert_audit_clean()


def test_money_within_the_grace_goes_back_when_somebody_else_has_the_seat() -> None:
    event = make_event()
    order = buy(hold(event, seats=["hall-A-1"]), sandbox.LATE)
    backdate_pay_deadline(order, seconds=30)
    order_cancellation.fail_expired_orders()
    reservations.sweep()
    other = buy(hold(event, seats=["hall-A-1"]), email="other@example.org")
    assert other.status == Order.Status.CONFIRMED
    receive_webhook(late_webhook(order, clock.now() - timedelta(seconds=20)))
    assert told(order) == "refunded"
    assert Ticket.objects.get().order_id == other.pk
    assert_audit_clean()


def test_money_after_the_grace_goes_back_even_if_the_seat_is_free() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    backdate_pay_deadline(order, seconds=100)
    receive_webhook(late_webhook(order, clock.now() - timedelta(seconds=30)))
    assert told(order) == "refunded"
    assert reservations.get_reservation(order.reservation_id).status == "canceled"
    assert_audit_clean()


def test_money_for_a_canceled_order_goes_back() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    order_cancellation.cancel_order(order.pk)
    receive_webhook(late_webhook(order, clock.now()))
    assert told(order) == "refunded"
    assert order.reason == Order.Reason.CANCELED_BY_BUYER
    assert_audit_clean()


def test_a_duplicate_is_stored_once_and_changes_nothing() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    raw = late_webhook(order, clock.now())
    assert [receive_webhook(raw), receive_webhook(raw), receive_webhook(raw)] == [True, False, False]
    assert told(order) == "confirmed"
    assert Ticket.objects.count() == 1
    assert ProviderMessage.objects.filter(kind="payment.succeeded").count() == 1
    assert_audit_clean()


def test_a_webhook_that_repeats_the_direct_answer_changes_nothing() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    assert receive_webhook(sandbox.charge_event(SandboxCharge.objects.get()).raw) is False
    assert told(order) == "confirmed"
    assert Ticket.objects.count() == 1


def test_a_webhook_that_overtakes_the_direct_answer_settles_and_the_answer_finds_it_done(monkeypatch) -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    real = sandbox.Sandbox.charge

    def overtaken(self, request):
        answer = real(self, request)
        inbox.receive(sandbox.NAME, answer.raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(answer.raw)})
        return answer

    monkeypatch.setattr(sandbox.Sandbox, "charge", overtaken)
    deliver_outbox()
    assert told(order) == "confirmed"
    assert ProviderMessage.objects.get().outcome == "confirmed"
    assert Ticket.objects.count() == 1
    assert_audit_clean()


def say(order: Order, kind: str, message_id: str, **charge) -> bytes:
    """A message of the sandbox about the order's first payment, as the provider might send it."""
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


def test_a_decline_that_comes_after_the_success_changes_nothing() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    receive_webhook(say(order, "payment.declined", "late-decline"))
    assert told(order) == "confirmed"
    assert_audit_clean()


def test_a_success_after_its_decline_confirms_while_the_seats_are_still_held() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.DECLINES)
    SandboxCharge.objects.update(status="succeeded")
    receive_webhook(say(order, "payment.succeeded", "changed-its-mind", id=payment_of(order).reference))
    assert told(order) == "confirmed"
    assert_audit_clean()


def test_two_attempts_that_both_succeed_are_charged_once_in_the_end() -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    order = buy(reservation, sandbox.DECLINES)
    order = buy(reservation)
    assert told(order) == "confirmed"
    SandboxCharge.objects.update(status="succeeded")
    receive_webhook(say(order, "payment.succeeded", "changed-its-mind", id=payment_of(order).reference))
    assert told(order) == "confirmed"
    first = payment_of(order)
    assert first.captured_minor == first.refunded_minor == order.total_minor
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert_audit_clean()


def test_a_wrong_amount_goes_back_and_the_seats_are_free() -> None:
    event = make_event()
    order = buy(hold(event, seats=["hall-A-1"]), sandbox.LATE)
    SandboxCharge.objects.update(status="succeeded", amount_minor=1)
    receive_webhook(say(order, "payment.succeeded", "short", amount_minor=1, id=payment_of(order).reference))
    assert told(order) == "refunded"
    assert order.reason == Order.Reason.WRONG_AMOUNT
    hold(event, seats=["hall-A-1"])
    assert_audit_clean()


def test_a_message_about_nothing_of_ours_is_kept_and_touches_nothing() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    for number, key in enumerate(("somebody else's", "7b3f8a52-6a2c-4a0e-9d63-5a1df7f8f001")):
        receive_webhook(say(order, "payment.succeeded", f"stray-{number}", idempotency_key=key))
    assert told(order) == "paying"
    assert set(ProviderMessage.objects.filter(payment=None).values_list("outcome", flat=True)) == {
        inbox.UNKNOWN_PAYMENT
    }


@pytest.mark.parametrize(
    "header",
    ["", "nonsense", "t=1,v1=00", "t=,v1=", "t=99999999999999999999,v1=aa", "t=abc,v1=ü", "v1=00", "t=٣,v1=00"],
)
def test_bytes_that_were_not_signed_are_not_stored(header) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    stored = ProviderMessage.objects.count()
    with pytest.raises(SignatureInvalid):
        inbox.receive(sandbox.NAME, late_webhook(order, clock.now()), {sandbox.SIGNATURE_HEADER: header})
    assert ProviderMessage.objects.count() == stored


def test_an_old_signature_is_a_replay_but_old_news_is_news() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    raw = late_webhook(order, clock.now() - timedelta(hours=1))
    long_ago = int(clock.now().timestamp()) - 301
    with pytest.raises(SignatureInvalid):
        inbox.receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw, long_ago)})
    assert receive_webhook(raw)
    assert told(order) == "confirmed"


def test_a_signature_does_not_fit_changed_bytes() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    raw = late_webhook(order, clock.now())
    with pytest.raises(SignatureInvalid):
        inbox.receive(sandbox.NAME, raw + b" ", {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})


def nonsense(**wrong) -> bytes:
    """A message that is right but for this."""
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
        nonsense(id=1),
        nonsense(id="i" * 121),
        nonsense(type="payment.unheard"),
        nonsense(occurred_at="2026-01-01T00:00:00"),
        nonsense(occurred_at=7),
        # PostgreSQL keeps these moments, and no page that lists them could read them back.
        nonsense(occurred_at="0001-01-01T00:00:00+14:00"),
        nonsense(occurred_at="0001-01-02T00:00:00+00:00"),
        nonsense(occurred_at="9999-12-31T23:59:59-14:00"),
        nonsense(occurred_at="1999-12-31T23:59:59+00:00"),
        nonsense(occurred_at="2099-12-31T23:59:59-01:00"),
        nonsense(charge={}),
        nonsense(charge=[1]),
        nonsense(amount_minor=-1),
        nonsense(amount_minor=True),
        nonsense(amount_minor=2**63),
        nonsense(currency=None),
        nonsense(currency="EURO"),
        nonsense(currency=""),
        nonsense(id=""),
        b"[" * 3_000,
        b'{"id":' * 100_000,
        b"1" * 5_000,
        nonsense(amount_minor="1" * 5_000),
        nonsense(amount_minor=1.5),
    ],
)
def test_signed_nonsense_is_refused_and_not_stored(raw) -> None:
    with pytest.raises(problems.MalformedBody):
        inbox.receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})
    assert not ProviderMessage.objects.exists()


def test_an_unknown_provider_is_not_found() -> None:
    with pytest.raises(ProviderNotFound):
        inbox.receive("bank", b"{}", {})


def test_a_provider_that_is_down_is_asked_again_and_nothing_is_lost(monkeypatch) -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    real = sandbox.Sandbox.charge

    def down(self, request):
        raise ProviderFault("500")

    monkeypatch.setattr(sandbox.Sandbox, "charge", down)
    deliver_outbox()
    assert told(order) == "paying"
    assert payment_of(order).status == Payment.Status.PENDING
    (waiting,) = OutboxMessage.objects.filter(done_at=None, dead_at=None)
    assert "ProviderFault" in waiting.last_error
    monkeypatch.setattr(sandbox.Sandbox, "charge", real)
    OutboxMessage.objects.filter(pk=waiting.pk).update(available_at=clock.now())
    deliver_outbox()
    assert told(order) == "confirmed"
    assert_audit_clean()
