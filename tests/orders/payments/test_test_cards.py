"""Every test card of the sandbox, from checkout to the order's final state."""

import re

import pytest
from django.test import Client

from apps.orders import absolute_urls, selectors
from apps.orders.models import Order, Payment, ProviderMessage, Refund, Ticket
from apps.orders.payments.providers import sandbox
from apps.reservations import facade as reservations
from tests.support.factories import SEAT_PRICE_MINOR, assert_audit_clean, hold, make_event
from tests.support.orders.sale import SAME_ORIGIN, buy, deliver_outbox, place_order
from tests.support.orders.sandbox_rows import SandboxCharge

pytestmark = pytest.mark.django_db(transaction=True)


def outcomes() -> list[str]:
    """Return the outcome of each stored provider message, in order of arrival."""
    return list(ProviderMessage.objects.order_by("pk").values_list("outcome", flat=True))


def page_of(order: Order) -> str:
    """Return the path of the page where the order's buyer must confirm."""
    action = selectors.get_order(order.pk).payment.next_action
    assert action is not None
    assert action["type"] == "redirect"
    return absolute_urls.strip_site_origin(action["url"])


def challenged() -> Order:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.cards.CHALLENGES)
    assert order.status == Order.Status.PAYING
    return order


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        (sandbox.cards.DELAYED, ["waits for the provider", "confirmed"]),
        (sandbox.cards.DUPLICATED, ["waits for the provider", "confirmed"]),
        (sandbox.cards.REORDERED, ["waits for the provider", "confirmed"]),
        (sandbox.cards.DECLINED_FIRST, ["waits for the provider", "declined; the buyer may try again", "confirmed"]),
    ],
)
def test_however_webhooks_arrive_the_buyer_gets_tickets_once(method, expected) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), method)
    assert order.status == Order.Status.CONFIRMED
    assert outcomes() == expected
    assert Ticket.objects.count() == SandboxCharge.objects.count() == 1
    assert_audit_clean()


def test_a_wrong_amount_is_fully_refunded() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.cards.WRONG_AMOUNT)
    assert (order.status, order.reason) == (Order.Status.REFUNDED, Order.Reason.WRONG_AMOUNT)
    assert Refund.objects.get().amount_minor == SEAT_PRICE_MINOR + 1
    assert reservations.get_reservation(order.reservation_id).status == "canceled"
    assert_audit_clean()


def test_a_payment_without_a_webhook_is_found_by_an_inquiry() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.cards.LOST)
    assert order.status == Order.Status.PAYING
    found = sandbox.Sandbox().find_charge(Payment.objects.get().pk)
    assert found is not None
    assert found.kind == "payment.succeeded"


def test_a_lost_request_leaves_no_charge() -> None:
    place_order(hold(make_event(), seats=["hall-A-1"]), sandbox.cards.TIMES_OUT)
    deliver_outbox()
    assert sandbox.Sandbox().find_charge(Payment.objects.get().pk) is None


def test_the_challenge_is_in_the_api_and_is_approved_on_the_sandboxs_page() -> None:
    order = challenged()
    assert selectors.get_order(order.pk).contract()["payment"]["next_action"]["url"].endswith(page_of(order))
    page = Client().get(page_of(order)).content.decode()
    assert "Approve" in page
    assert "Decline" in page
    answer = Client().post(page_of(order), {"decision": "approve"}, headers=SAME_ORIGIN)
    assert (answer.status_code, answer.url) == (303, f"/orders/{order.pk}/")
    deliver_outbox()
    order.refresh_from_db()
    assert order.status == Order.Status.CONFIRMED
    assert selectors.get_order(order.pk).payment.next_action is None
    assert_audit_clean()


def test_a_declined_challenge_can_be_retried_and_a_second_decision_is_ignored() -> None:
    order = challenged()
    path = page_of(order)
    Client().post(path, {"decision": "decline"}, headers=SAME_ORIGIN)
    Client().post(path, {"decision": "approve"}, headers=SAME_ORIGIN)
    deliver_outbox()
    assert selectors.get_order(order.pk).can_try_again
    assert "declined" in Client().get(path).content.decode()
    assert_audit_clean()


def test_an_unanswered_challenge_stays_open() -> None:
    order = challenged()
    Client().post(page_of(order), {"decision": "sit on the fence"}, headers=SAME_ORIGIN)
    deliver_outbox()
    assert SandboxCharge.objects.get().status == "pending"
    assert selectors.get_order(order.pk).status == Order.Status.PAYING


@pytest.mark.parametrize("token", ["1", "1.abc", "x.y", "", "%00.1"])
def test_a_guessed_sandbox_page_is_not_found(token) -> None:
    challenged()
    assert Client().get(f"/sandbox/pay/{token}").status_code == 404


def test_the_sandbox_takes_payments_only_as_the_configured_provider(settings) -> None:
    order = challenged()
    path = page_of(order)
    settings.PAYMENT_PROVIDER = "another"
    assert Client().get(path).status_code == 404
    assert Client().post(path, {"decision": "approve"}, headers=SAME_ORIGIN).status_code == 404
    assert SandboxCharge.objects.get().status == "pending"
    raw = sandbox.messages.charge_event(SandboxCharge.objects.get()).raw
    header = {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)}
    response = Client().post("/api/webhooks/payments/sandbox", raw, content_type="application/json", headers=header)
    assert response.status_code == 404
    Payment.objects.update(started_at=None)
    deliver_outbox()
    assert SandboxCharge.objects.count() == 1


def test_every_card_is_offered_and_the_two_common_ones_come_first() -> None:
    assert list(sandbox.cards.METHODS) == list(sandbox.cards.CARDS)
    assert list(sandbox.cards.METHODS)[:2] == [sandbox.APPROVES, sandbox.DECLINES]
    assert all(re.fullmatch(r"[a-z_]{1,40}", method) for method in sandbox.cards.METHODS)
