"""Disputes: what Stripe says of them is listed for a person and told to staff, in whatever order it comes, and changes
neither money nor tickets.

localstripe knows no disputes, so payloads in Stripe's recorded shape are signed by the SDK's own scheme.
"""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest
import stripe as sdk
from django.contrib.auth.models import Permission, User
from django.core import mail
from django.test import Client

from apps.kernel import clock
from apps.kernel.http import problems
from apps.orders.cancellation import order_cancellation
from apps.orders.models import Order, PaymentDifference, ProviderMessage, Ticket
from apps.orders.provider_sync import daily_comparison, discrepancies, inbox
from tests.processes.orders import stripe_account
from tests.processes.orders.stripe_account import Account
from tests.support.factories import assert_audit_clean, hold, make_event
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
    """Paid, and its tickets issued."""
    order = buy(hold(make_event(), seats=["hall-A-1"]), "card")
    payment = payment_of(order)
    assert payment.next_action is not None
    account.pay(payment.next_action["client_secret"])
    delivery = account.next_delivery("payment_intent.succeeded", payment.reference)
    inbox.receive("stripe", delivery.raw, delivery.headers)
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
    return staff


def said(order: Order, what: str, number: int = 0, status: str = "needs_response", **dispute: Any) -> bytes:
    """What Stripe posts, `number` seconds after the first."""
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
        "id": f"evt_{what}_{number}",
        "object": "event",
        "type": f"charge.dispute.{what}",
        "created": at,
        "data": {"object": about},
    }
    return json.dumps(event).encode()


def arrive(raw: bytes) -> bool:
    header = sdk.WebhookSignature.generate_signature_header(raw.decode(), stripe_account.SIGNING)
    news = inbox.receive("stripe", raw, {"Stripe-Signature": header})
    deliver_outbox()
    return news


def listed() -> list[str]:
    return sorted(PaymentDifference.objects.filter(settled_at=None).values_list("kind", flat=True))


def nothing_moved(order: Order) -> bool:
    order.refresh_from_db()
    payment = payment_of(order)
    valid = Ticket.objects.filter(order=order, voided_at=None).count()
    return (order.status, payment.captured_minor, payment.refunded_minor, valid) == ("confirmed", 5_000, 0, 1)


def test_a_dispute_is_listed_and_staff_told_and_nothing_is_canceled(order, settler) -> None:
    assert arrive(said(order, CREATED))
    assert listed() == ["dispute"]
    one = PaymentDifference.objects.get()
    assert (one.reference, one.order_id, one.ours_minor, one.theirs_minor) == (DISPUTE, order.pk, 5_000, 5_000)
    (note,) = mail.outbox
    assert note.to == ["money@example.org"]
    assert f"Order {order.number}: the buyer disputes the payment" in note.subject
    for words in ("$50.00, needs response, fraudulent", DISPUTE, "Answer it", f"/admin/orders/order/{order.pk}/money/"):
        assert words in note.body
    assert nothing_moved(order)


def test_money_that_is_withdrawn_and_comes_back_is_listed_as_long_as_it_is_away(order) -> None:
    arrive(said(order, CREATED))
    arrive(said(order, WITHDRAWN, 1))
    assert listed() == ["dispute", "disputed_money"]
    arrive(said(order, CLOSED, 2, status="won"))
    arrive(said(order, REINSTATED, 3, status="won"))
    assert listed() == []
    notes = set(PaymentDifference.objects.values_list("settled_by", "note"))
    assert notes == {
        ("system", "the bank has decided the dispute: won, fraudulent."),
        ("system", "the disputed money is back: won, fraudulent."),
    }
    assert nothing_moved(order)


def test_a_dispute_that_is_lost_leaves_its_money_to_a_person(order, settler) -> None:
    for number, what in enumerate((CREATED, WITHDRAWN, CLOSED)):
        arrive(said(order, what, number, status="lost" if what == CLOSED else "needs_response"))
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
def test_in_whatever_order_and_however_often_it_comes_it_ends_the_same(order, sequence) -> None:
    number = {CREATED: 0, WITHDRAWN: 0, CLOSED: 5, REINSTATED: 5}
    for what in (*sequence, *sequence):
        arrive(said(order, what, number[what], status="won" if number[what] else "needs_response"))
    assert listed() == []
    assert PaymentDifference.objects.count() == 2
    assert ProviderMessage.objects.exclude(dispute_reference="").count() == 4
    assert nothing_moved(order)


def test_what_is_said_at_once_is_listed_once(order) -> None:
    """Two words of one dispute, each delivered twice, processed at once: they meet at the order's lock."""
    raws = [said(order, CREATED), said(order, WITHDRAWN, 1)] * 2
    values(storm(4, lambda number: arrive(raws[number])))
    deliver_outbox()
    assert listed() == ["dispute", "disputed_money"]


def test_money_that_is_withdrawn_again_is_listed_again(order) -> None:
    for number, what in enumerate((WITHDRAWN, REINSTATED, WITHDRAWN)):
        arrive(said(order, what, number))
    assert listed() == ["disputed_money"]


def test_what_a_person_has_settled_stays_settled(order) -> None:
    arrive(said(order, CREATED))
    discrepancies.settle(PaymentDifference.objects.get().pk, "staff:1", "Answered.")
    arrive(said(order, CREATED, 1))
    arrive(said(order, CLOSED, 2, status="lost"))
    assert PaymentDifference.objects.get().note == "Answered."


def test_comparing_the_day_agrees_on_disputed_money_and_leaves_the_dispute_listed(order) -> None:
    """The charge stays captured in Stripe's list, and refunds have none of it: what the bank took is no movement."""
    for number, what in enumerate((CREATED, WITHDRAWN, CLOSED)):
        arrive(said(order, what, number, status="lost"))
    assert daily_comparison.compare_day("stripe", clock.now().date()) == (1, 0)
    assert listed() == ["disputed_money"]
    discrepancies.settle_agreed("stripe", [DISPUTE])
    assert listed() == ["disputed_money"]


def test_an_order_in_dispute_is_given_back_by_staff_as_any_other(order) -> None:
    arrive(said(order, CREATED))
    order_cancellation.refund_order(order.pk, "staff:1")
    deliver_outbox()
    assert payment_of(order).refunded_minor == 5_000
    assert listed() == ["dispute"]


def test_a_dispute_of_somebody_else_s_charge_is_kept_and_lists_nothing(order) -> None:
    arrive(said(order, CREATED, payment_intent="pi_elsewhere"))
    assert listed() == []
    assert ProviderMessage.objects.get(kind="dispute.opened").outcome == inbox.UNKNOWN_PAYMENT
    assert arrive(said(order, CREATED, 1, payment_intent=None)) is False


@pytest.mark.parametrize("wrong", [{"amount": -1}, {"currency": 7}, {"id": ""}, {"payment_intent": 7}])
def test_a_dispute_that_cannot_be_read_is_refused(order, wrong) -> None:
    with pytest.raises(problems.MalformedBody):
        arrive(said(order, CREATED, **wrong))


def test_staff_sees_it_on_the_first_page_and_at_the_order_s_money(order, admin_client: Client) -> None:
    assert "wait for a person" not in admin_client.get("/admin/").content.decode()
    arrive(said(order, CREATED))
    arrive(said(order, WITHDRAWN, 1))
    first = admin_client.get("/admin/").content.decode()
    assert "2 differences with payment providers wait for a person, 1 of them a dispute" in first
    desk = admin_client.get(f"/admin/orders/order/{order.pk}/money/").content.decode()
    assert "Disputed by the buyer: answer it at the provider" in desk
    found = admin_client.get(f"/admin/orders/paymentdifference/?q={DISPUTE}")
    assert found.content.decode().count(DISPUTE) >= 2
