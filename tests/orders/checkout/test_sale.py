"""A sale from checkout to tickets, one step at a time."""

import json
import uuid

import pytest
from django.core import mail
from django.db import connection

from apps.kernel import clock
from apps.kernel.http import problems
from apps.kernel.outbox.models import OutboxMessage
from apps.kernel.outbox.partitions import partition_of
from apps.orders import selectors, topics
from apps.orders.cancellation import order_cancellation
from apps.orders.checkout.checkout import check_out
from apps.orders.errors import OrderNotCancelable, PaymentTimeExpired
from apps.orders.models import Order, Payment, Refund, Ticket
from apps.orders.payments import large_orders
from apps.orders.payments.providers import sandbox
from apps.orders.provider_sync import event_storage
from apps.queue.models import QueueEntry
from apps.reservations import facade as reservations
from tests.support.factories import SEAT_PRICE_MINOR, assert_audit_clean, backdate_deadline, hold, join, make_event
from tests.support.orders.sale import (
    EMAIL,
    backdate_pay_deadline,
    buy,
    checkout_body,
    deliver_outbox,
    late_webhook,
    payment_of,
    place_order,
)
from tests.support.orders.sandbox_rows import SandboxCharge, SandboxRefund

pytestmark = pytest.mark.django_db(transaction=True)


def test_an_approved_payment_confirms_the_order_issues_tickets_and_mails_them() -> None:
    event = make_event(general_admission=10)
    reservation = hold(event, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=2)
    order = buy(reservation)
    assert order.status == Order.Status.CONFIRMED
    assert reservations.get_reservation(reservation.id).status == "confirmed"
    view = selectors.get_order(order.pk)
    assert [ticket.label for ticket in view.tickets] == [
        "Hall, row A, seat 1",
        "Hall, row A, seat 2",
        "Floor, 1 of 2",
        "Floor, 2 of 2",
    ]
    assert len({ticket.code for ticket in view.tickets}) == 4
    assert all(len(ticket.code) == 28 for ticket in view.tickets)
    payment = payment_of(order)
    assert (payment.captured_minor, payment.refunded_minor) == (order.total_minor, 0)
    (sent,) = mail.outbox
    assert sent.to == [EMAIL]
    text, (html, _) = sent.body, sent.alternatives[0]
    for ticket in view.tickets:
        assert ticket.code in text
        assert ticket.code in html
    assert QueueEntry.objects.get(pk=reservation.entry_id).status == QueueEntry.Status.COMPLETED
    assert_audit_clean()


def test_checkout_responds_at_once_and_leaves_the_charge_to_the_outbox() -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    answer = check_out(reservation, checkout_body(), "key")
    assert answer.status == 202
    body = json.loads(answer.body)
    assert body.pop("bill")["total_minor"] == SEAT_PRICE_MINOR
    assert body == {
        "order_id": body["order_id"],
        "status": "placed",
        "total_minor": SEAT_PRICE_MINOR,
        "currency": "USD",
        "payment": {
            "provider": "sandbox",
            "method": "sandbox",
            "state": "pending",
            "attempt": 1,
            "attempts_left": 2,
            "refunded_minor": 0,
            "next_action": None,
        },
    }
    assert reservations.get_reservation(reservation.id).status == "paying"
    assert not SandboxCharge.objects.exists()
    assert_audit_clean()


def test_the_same_key_and_body_get_the_same_response_whatever_happened_since() -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    first = check_out(reservation, checkout_body(), "key")
    deliver_outbox()
    assert check_out(reservation, checkout_body(), "key") == first
    assert Order.objects.count() == Payment.objects.count() == 1


def test_the_same_key_with_another_body_is_refused() -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    check_out(reservation, checkout_body(), "key")
    with pytest.raises(problems.IdempotencyMismatch):
        check_out(reservation, checkout_body(name="Another Name"), "key")
    assert Order.objects.get().name == "Ada Buyer"


def test_a_second_key_finds_the_existing_order() -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    first, second = place_order(reservation, key="one tab"), place_order(reservation, key="another tab")
    assert first.pk == second.pk
    deliver_outbox()
    assert Payment.objects.count() == SandboxCharge.objects.count() == 1


def test_a_refused_checkout_is_not_stored() -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    with pytest.raises(problems.Invalid):
        check_out(reservation, checkout_body(email="invalid"), "key")
    assert check_out(reservation, checkout_body(), "key").status == 202


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"email": "invalid"}, "email"),
        ({"email": "a\x00@example.org"}, "email"),
        ({"email": "a@example.org\nBcc: b@example.org"}, "email"),
        ({"email": f"{'a' * 250}@example.org"}, "email"),
        ({"email": 7}, "email"),
        ({"email": ["a@example.org"]}, "email"),
        ({"email": ""}, "email"),
        ({"name": "  "}, "name"),
        ({"name": "A\x00"}, "name"),
        ({"name": "\ud800"}, "name"),
        ({"name": "a" * 121}, "name"),
        ({"name": {}}, "name"),
        ({"payment_method": "gold"}, "payment_method"),
        ({"payment_method": ["sandbox"]}, "payment_method"),
    ],
)
def test_invalid_fields_are_refused_and_the_seats_stay_held(wrong, field) -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    with pytest.raises(problems.Invalid) as refused:
        check_out(reservation, checkout_body(**wrong), "key")
    assert list(refused.value.extra["errors"]) == [field]
    assert reservations.get_reservation(reservation.id).status == "pending_payment"
    assert not Order.objects.exists()


def test_an_email_address_is_normalized() -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]), email="  Buyer@Example.ORG ")
    assert order.email == EMAIL


def test_an_expired_reservation_cannot_be_paid() -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    backdate_deadline(reservation.id)
    with pytest.raises(reservations.ReservationExpired):
        check_out(reservation, checkout_body(), "key")
    assert not Order.objects.exists()


def test_the_purchase_cap_of_an_address_refuses_the_checkout_and_keeps_the_hold() -> None:
    event = make_event(per_buyer_max=2)
    buy(hold(event, seats=["hall-A-1", "hall-A-2"]))
    reservation = hold(event, seats=["hall-B-1"])
    with pytest.raises(reservations.PurchaseCapReached):
        check_out(reservation, checkout_body(), "key")
    assert Order.objects.count() == 1
    assert reservations.get_reservation(reservation.id).status == "pending_payment"
    assert check_out(reservation, checkout_body(email="other@example.org"), "key").status == 202
    assert_audit_clean()


def test_a_strangers_unpaid_order_does_not_block_the_addresss_owner_and_is_refunded_if_it_is_paid() -> None:
    event = make_event(per_buyer_max=2)
    stranger = place_order(hold(event, seats=["hall-A-1", "hall-A-2"]), sandbox.cards.CHALLENGES)
    deliver_outbox()
    owner = buy(hold(event, seats=["hall-B-1", "hall-B-2"]))
    assert owner.status == Order.Status.CONFIRMED
    raw = late_webhook(stranger, clock.now())
    event_storage.receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})
    deliver_outbox()
    stranger.refresh_from_db()
    assert (stranger.status, stranger.reason) == (Order.Status.REFUNDED, Order.Reason.OVER_LIMIT)
    assert Refund.objects.get(payment__order=stranger).status == "succeeded"
    assert reservations.get_reservation(stranger.reservation_id).status == "canceled"
    assert_audit_clean()


def test_a_declined_payment_can_be_retried_and_then_succeeds() -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    order = buy(reservation, sandbox.DECLINES)
    view = selectors.get_order(order.pk)
    assert order.status == Order.Status.PLACED
    assert view.can_try_again
    assert "twice" in view.message
    assert reservations.get_reservation(reservation.id).status == "paying"
    order = buy(reservation)
    assert order.status == Order.Status.CONFIRMED
    assert [payment.status for payment in Payment.objects.order_by("attempt")] == ["declined", "succeeded"]
    assert_audit_clean()


def test_the_third_decline_ends_the_order_and_releases_the_seats() -> None:
    event = make_event()
    reservation = hold(event, seats=["hall-A-1"])
    for _ in range(3):
        order = buy(reservation, sandbox.DECLINES)
    assert (order.status, order.reason) == (Order.Status.FAILED, Order.Reason.DECLINED)
    assert reservations.get_reservation(reservation.id).status == "canceled"
    with pytest.raises(reservations.ReservationExpired):
        check_out(reservation, checkout_body(), "a fourth")
    assert Payment.objects.count() == 3
    hold(event, seats=["hall-A-1"])
    assert_audit_clean()


def test_a_retry_of_an_old_key_after_a_decline_starts_no_new_attempt() -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    place_order(reservation, sandbox.DECLINES, key="one tab")
    place_order(reservation, key="another tab")
    deliver_outbox()
    place_order(reservation, key="another tab")
    assert Payment.objects.count() == 1


def test_a_retry_cannot_change_the_address() -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    buy(reservation, sandbox.DECLINES)
    with pytest.raises(problems.Invalid) as refused:
        check_out(reservation, checkout_body(email="other@example.org"), "key")
    assert "email" in refused.value.extra["errors"]
    assert check_out(reservation, {"name": "Ada Buyer"}, "key", email=EMAIL).status == 202


def test_no_try_starts_with_less_than_the_providers_timeout_left() -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    order = buy(reservation, sandbox.DECLINES)
    backdate_pay_deadline(order, seconds=-20)
    assert not selectors.get_order(order.pk).can_try_again
    with pytest.raises(PaymentTimeExpired):
        place_order(reservation)
    assert Payment.objects.count() == 1


def test_a_charge_delivered_too_late_is_not_sent_and_the_order_fails() -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    order = place_order(reservation)
    backdate_pay_deadline(order, seconds=-20)
    deliver_outbox()
    order.refresh_from_db()
    assert (order.status, order.reason) == (Order.Status.FAILED, Order.Reason.OUT_OF_TIME)
    assert payment_of(order).status == Payment.Status.ABANDONED
    assert not SandboxCharge.objects.exists()
    assert reservations.get_reservation(reservation.id).status == "canceled"
    assert_audit_clean()


def test_a_free_order_is_confirmed_without_a_provider() -> None:
    event = make_event(price_minor=0)
    answer = check_out(hold(event, seats=["hall-A-1"]), checkout_body(), "key")
    assert json.loads(answer.body)["status"] == "confirmed"
    deliver_outbox()
    assert not Payment.objects.exists()
    assert Ticket.objects.count() == 1
    assert len(mail.outbox) == 1
    assert_audit_clean()


def test_mails_with_tickets_have_the_network_or_the_organizer_as_origin_and_those_of_large_orders_a_topic_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    free, paid = make_event("free", price_minor=0), make_event("paid", venue="B")
    for row in "AB":
        check_out(hold(free, seats=[f"hall-{row}-1"]), checkout_body(), row, origin="a network")
    place_order(hold(paid, seats=["hall-A-1"]))
    monkeypatch.setattr(large_orders, "TICKETS_MAX", 1)
    check_out(hold(free, seats=["hall-C-1", "hall-C-2"]), checkout_body(), "large", origin="a network")
    place_order(hold(paid, seats=["hall-B-1", "hall-B-2"]))
    deliver_outbox()
    found = OutboxMessage.objects.filter(topic__startswith="orders.send_").order_by("pk")
    organizer = f"organizer {paid.organizer_id}/event {paid.id}"
    assert sorted((message.topic, message.body["origin"]) for message in found) == [
        (topics.SEND_FREE_TICKETS, "a network"),
        (topics.SEND_FREE_TICKETS, "a network"),
        (topics.SEND_TICKETS, organizer),
        (topics.SEND_TICKETS_LARGE, "a network"),
        (topics.SEND_TICKETS_LARGE, organizer),
    ]
    assert all(message.partition == partition_of(message.body) for message in found)
    assert len(mail.outbox) == 5
    assert_audit_clean()


def test_the_buyer_cancels_an_unpaid_order_and_a_repeat_changes_nothing() -> None:
    event = make_event()
    reservation = hold(event, seats=["hall-A-1"])
    order = buy(reservation, sandbox.DECLINES)
    for _ in range(2):
        view = order_cancellation.cancel_order(order.pk)
        assert (view.status, view.reason) == ("canceled", "canceled_by_buyer")
    assert reservations.get_reservation(reservation.id).status == "canceled"
    hold(event, seats=["hall-A-1"])
    assert_audit_clean()


def test_an_order_canceled_before_its_charge_is_never_charged() -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    order_cancellation.cancel_order(order.pk)
    deliver_outbox()
    assert not SandboxCharge.objects.exists()
    assert payment_of(order).status == Payment.Status.ABANDONED
    assert_audit_clean()


def test_a_buyer_cannot_cancel_a_paid_order_but_staff_refunds_it_once() -> None:
    event = make_event()
    reservation = hold(event, seats=["hall-A-1"])
    order = buy(reservation)
    with pytest.raises(OrderNotCancelable):
        order_cancellation.cancel_order(order.pk)
    for _ in range(2):
        order_cancellation.refund_order(order.pk, "staff:1")
        deliver_outbox()
    order.refresh_from_db()
    assert (order.status, order.reason) == (Order.Status.REFUNDED, Order.Reason.CANCELED_BY_STAFF)
    refund = Refund.objects.get()
    assert (refund.status, refund.amount_minor) == (Refund.Status.SUCCEEDED, SEAT_PRICE_MINOR)
    assert SandboxRefund.objects.count() == 1
    assert Ticket.objects.get().voided_at is not None
    assert "refunded" in mail.outbox[-1].subject
    again = buy(hold(event, join(event), seats=["hall-A-1"]), key=uuid.uuid4().hex)
    assert again.status == Order.Status.CONFIRMED
    assert_audit_clean()


def test_the_provider_is_called_outside_a_transaction(monkeypatch) -> None:
    seen: list[tuple[str, bool]] = []
    for verb in ("charge", "refund", "find_charge"):
        real = getattr(sandbox.Sandbox, verb)

        def recorded(self, request, *, real=real, verb=verb):
            seen.append((verb, connection.in_atomic_block))
            return real(self, request)

        monkeypatch.setattr(sandbox.Sandbox, verb, recorded)
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    assert seen == [("charge", False), ("refund", False)]


def test_an_open_order_fails_at_its_deadline_and_not_before() -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    order = buy(reservation, sandbox.LATE)
    assert order.status == Order.Status.PAYING
    assert order_cancellation.fail_expired_orders() == 0
    backdate_pay_deadline(order)
    assert order_cancellation.fail_expired_orders() == 1
    assert order_cancellation.fail_expired_orders() == 0
    order.refresh_from_db()
    assert (order.status, order.reason) == (Order.Status.FAILED, Order.Reason.OUT_OF_TIME)
    reservations.sweep()
    assert reservations.get_reservation(reservation.id).status == "expired"
    assert_audit_clean()
