"""Disputes: Stripe's messages about them are listed and mailed to staff, in whatever order they arrive, and change
neither money nor tickets.

localstripe has no disputes, so the tests sign payloads in Stripe's recorded form with the SDK's scheme.
"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import stripe as sdk
from django.contrib.auth.models import Permission
from django.core import mail
from django.test import Client

from apps.accounts.models import User
from apps.events.models import Organizer, Role
from apps.kernel import clock
from apps.kernel.http import problems
from apps.orders.cancellation import order_cancellation
from apps.orders.models import Order, PaymentDifference, ProviderMessage, Ticket
from apps.orders.provider_sync import daily_comparison, discrepancies, event_storage, inbox
from tests.processes.orders import stripe_account
from tests.processes.orders.stripe_account import Account
from tests.support.factories import assert_audit_clean, hold, make_event, make_member, make_organizer
from tests.support.orders.sale import buy, deliver_outbox, payment_of
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)
DISPUTE = "du_1MtJUT2eZvKYlo2CNaw2HvEv"
CREATED, CLOSED, WITHDRAWN, REINSTATED = "created", "closed", "funds_withdrawn", "funds_reinstated"


@pytest.fixture(scope="module")
def server() -> Iterator[Account]:
    with stripe_account.serving() as account:
        yield account


@pytest.fixture(autouse=True)
def account(server: Account, settings: Any) -> Iterator[Account]:
    stripe_account.connect(server, settings)
    yield server
    assert_audit_clean()


@pytest.fixture
def order(account: Account) -> Order:
    """A paid order with tickets."""
    order = buy(hold(make_event(), seats=["hall-A-1"]), "card")
    payment = payment_of(order)
    assert payment.next_action is not None
    account.pay(payment.next_action["client_secret"])
    delivery = account.next_delivery("payment_intent.succeeded", payment.reference)
    event_storage.receive("stripe", delivery.raw, delivery.headers)
    deliver_outbox()
    order.refresh_from_db()
    assert order.status == Order.Status.CONFIRMED
    mail.outbox.clear()
    return order


@pytest.fixture
def settler() -> User:
    """Staff who may settle differences."""
    staff = User.objects.create_user("money", "money@example.org", is_staff=True)
    staff.user_permissions.add(Permission.objects.get(codename="change_paymentdifference"))
    User.objects.create_user("door", "door@example.org", is_staff=True)
    User.objects.create_user("buyer", "buyer@example.org")
    for number, role in enumerate((Role.FINANCE, Role.DOOR)):
        for organizer in (Organizer.objects.get(slug="default"), make_organizer(f"other-{number}")):
            make_member(organizer, role, f"{role}@{organizer.slug}.example")
    return staff


def webhook(order: Order, kind: str, number: int = 0, status: str = "needs_response", **dispute: Any) -> bytes:
    """Return Stripe's webhook body, created `number` seconds after the first."""
    at = int(payment_of(order).occurred_at.timestamp()) + 60 + number  # type: ignore[union-attr]
    about = {
        "id": DISPUTE,
        "object": "dispute",
        "amount": order.total_minor,
        "balance_transactions": [],
        "charge": "ch_1AZtxr2eZvKYlo2CJDX8whov",
        "created": at,
        "currency": "usd",
        "evidence_details": {"due_by": at + 604_800, "has_evidence": False, "past_due": False, "submission_count": 0},
        "is_charge_refundable": False,
        "metadata": {},
        "payment_intent": payment_of(order).reference,
        "reason": "fraudulent",
        "status": status,
        **dispute,
    }
    event = {
        "id": f"evt_{kind}_{number}",
        "object": "event",
        "type": f"charge.dispute.{kind}",
        "created": at,
        "data": {"object": about},
    }
    return json.dumps(event).encode()


def receive(raw: bytes) -> bool:
    header = sdk.WebhookSignature.generate_signature_header(raw.decode(), stripe_account.SIGNING)
    news = event_storage.receive("stripe", raw, {"Stripe-Signature": header})
    deliver_outbox()
    return news


def listed() -> list[str]:
    return sorted(PaymentDifference.objects.filter(settled_at=None).values_list("kind", flat=True))


def nothing_moved(order: Order) -> bool:
    order.refresh_from_db()
    payment = payment_of(order)
    valid = Ticket.objects.filter(order=order, voided_at=None).count()
    return (order.status, payment.captured_minor, payment.refunded_minor, valid) == ("confirmed", 5_000, 0, 1)


def test_a_dispute_is_listed_and_mailed_and_cancels_nothing(order, settler) -> None:
    assert receive(webhook(order, CREATED))
    assert listed() == ["dispute"]
    one = PaymentDifference.objects.get()
    assert (one.reference, one.order_id, one.ours_minor, one.theirs_minor) == (DISPUTE, order.pk, 5_000, 5_000)
    (note,) = mail.outbox
    assert note.to == ["money@example.org", "finance@default.example"]
    assert f"Order {order.number}: the buyer disputes the payment" in note.subject
    for words in (
        "$50.00, needs response, fraudulent",
        DISPUTE,
        "Respond in",
        f"/admin/orders/order/{order.pk}/money/",
    ):
        assert words in note.body
    assert nothing_moved(order)


def test_withdrawn_money_is_listed_until_it_is_reinstated(order) -> None:
    receive(webhook(order, CREATED))
    receive(webhook(order, WITHDRAWN, 1))
    assert listed() == ["dispute", "disputed_money"]
    receive(webhook(order, CLOSED, 2, status="won"))
    receive(webhook(order, REINSTATED, 3, status="won"))
    assert listed() == []
    notes = set(PaymentDifference.objects.values_list("settled_by", "note"))
    assert notes == {
        ("system", "the bank has decided the dispute: won, fraudulent."),
        ("system", "the disputed money is back: won, fraudulent."),
    }
    assert nothing_moved(order)


def test_a_lost_dispute_leaves_its_money_listed_for_staff(order, settler) -> None:
    for number, kind in enumerate((CREATED, WITHDRAWN, CLOSED)):
        receive(webhook(order, kind, number, status="lost" if kind == CLOSED else "needs_response"))
    assert listed() == ["disputed_money"]
    assert [note.subject.partition(": ")[2] for note in mail.outbox] == [
        "the buyer disputes the payment",
        "the bank has decided the dispute",
    ]
    assert "lost, fraudulent" in mail.outbox[1].body
    discrepancies.settle(PaymentDifference.objects.get(settled_at=None).pk, "staff:1", "Written off.")
    assert listed() == []
    assert nothing_moved(order)


@pytest.mark.parametrize("sequence", list(itertools.permutations((CREATED, WITHDRAWN, CLOSED, REINSTATED))))
def test_any_order_and_repetition_of_messages_ends_in_the_same_state(order, sequence) -> None:
    number = {CREATED: 0, WITHDRAWN: 0, CLOSED: 5, REINSTATED: 5}
    for kind in (*sequence, *sequence):
        receive(webhook(order, kind, number[kind], status="won" if number[kind] else "needs_response"))
    assert listed() == []
    assert PaymentDifference.objects.count() == 2
    assert ProviderMessage.objects.exclude(dispute_reference="").count() == 4
    assert nothing_moved(order)


def test_concurrent_messages_are_listed_once(order) -> None:
    """Two messages about one dispute, each delivered twice, are processed concurrently under the order's lock."""
    raws = [webhook(order, CREATED), webhook(order, WITHDRAWN, 1)] * 2
    values(storm(4, lambda number: receive(raws[number])))
    deliver_outbox()
    assert listed() == ["dispute", "disputed_money"]


def test_money_withdrawn_again_is_listed_again(order) -> None:
    for number, kind in enumerate((WITHDRAWN, REINSTATED, WITHDRAWN)):
        receive(webhook(order, kind, number))
    assert listed() == ["disputed_money"]


def test_a_difference_settled_by_staff_stays_settled(order) -> None:
    receive(webhook(order, CREATED))
    discrepancies.settle(PaymentDifference.objects.get().pk, "staff:1", "Answered.")
    receive(webhook(order, CREATED, 1))
    receive(webhook(order, CLOSED, 2, status="lost"))
    assert PaymentDifference.objects.get().note == "Answered."


def test_comparing_the_day_agrees_on_disputed_money_and_leaves_the_dispute_listed(order) -> None:
    """The charge stays captured in Stripe's list and has no refund: a withdrawal by the bank is not a movement."""
    for number, kind in enumerate((CREATED, WITHDRAWN, CLOSED)):
        receive(webhook(order, kind, number, status="lost"))
    assert daily_comparison.compare_day("stripe", clock.now().date()) == (1, 0)
    assert listed() == ["disputed_money"]
    discrepancies.settle_agreed("stripe", [DISPUTE])
    assert listed() == ["disputed_money"]


def test_staff_can_refund_a_disputed_order(order) -> None:
    receive(webhook(order, CREATED))
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    assert payment_of(order).refunded_minor == 5_000
    assert listed() == ["dispute"]


def test_a_dispute_of_an_unknown_charge_is_stored_and_not_listed(order) -> None:
    receive(webhook(order, CREATED, payment_intent="pi_elsewhere"))
    assert listed() == []
    assert ProviderMessage.objects.get(kind="dispute.opened").outcome == inbox.UNKNOWN_PAYMENT
    assert receive(webhook(order, CREATED, 1, payment_intent=None)) is False


@pytest.mark.parametrize("wrong", [{"amount": -1}, {"currency": 7}, {"id": ""}, {"payment_intent": 7}])
def test_a_malformed_dispute_is_refused(order, wrong) -> None:
    with pytest.raises(problems.MalformedBody):
        receive(webhook(order, CREATED, **wrong))


def test_staff_sees_it_on_the_admin_index_and_the_orders_refund_page(order, admin_client: Client) -> None:
    assert "need to be settled" not in admin_client.get("/admin/").content.decode()
    receive(webhook(order, CREATED))
    receive(webhook(order, WITHDRAWN, 1))
    first = admin_client.get("/admin/").content.decode()
    assert "2 differences with payment providers need to be settled by staff, including 1 dispute" in first
    desk = admin_client.get(f"/admin/orders/order/{order.pk}/money/").content.decode()
    assert "Disputed by the buyer: respond at the provider" in desk
    found = admin_client.get(f"/admin/orders/paymentdifference/?q={DISPUTE}")
    assert found.content.decode().count(DISPUTE) >= 2
