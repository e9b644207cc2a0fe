"""Every test card of the sandbox, from checkout to what its buyer ends with."""

import re

import pytest
from django.test import Client

from apps.orders import absolute_urls, selectors
from apps.orders.models import Order, Payment, ProviderMessage, Refund, SandboxCharge, Ticket
from apps.orders.payments.providers import sandbox
from apps.reservations import facade as reservations
from tests.support.factories import SEAT_PRICE_MINOR, assert_audit_clean, hold, make_event
from tests.support.orders.sale import SAME_ORIGIN, buy, deliver_outbox, place_order

pytestmark = pytest.mark.django_db(transaction=True)


def outcomes() -> list[str]:
    """What each stored message of the provider came to, in order of arrival."""
    return list(ProviderMessage.objects.order_by("pk").values_list("outcome", flat=True))


def page_of(order: Order) -> str:
    """Where the order's buyer must confirm, as a path of this site."""
    action = selectors.get_order(order.pk).payment.next_action
    assert action is not None
    assert action["type"] == "redirect"
    return absolute_urls.strip_site_origin(action["url"])


def challenged() -> Order:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.CHALLENGES)
    assert order.status == Order.Status.PAYING
    return order


@pytest.mark.parametrize(
    ("method", "told"),
    [
        (sandbox.DELAYED, ["waits for the provider", "confirmed"]),
        (sandbox.DUPLICATED, ["waits for the provider", "confirmed"]),
        (sandbox.REORDERED, ["waits for the provider", "confirmed"]),
        (sandbox.DECLINED_FIRST, ["waits for the provider", "declined; the buyer may try again", "confirmed"]),
    ],
)
def test_whatever_befalls_the_word_of_a_payment_its_buyer_gets_tickets_once(method, told) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), method)
    assert order.status == Order.Status.CONFIRMED
    assert outcomes() == told
    assert Ticket.objects.count() == SandboxCharge.objects.count() == 1
    assert_audit_clean()


def test_a_wrong_amount_goes_back_whole() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.WRONG_AMOUNT)
    assert (order.status, order.reason) == (Order.Status.REFUNDED, Order.Reason.WRONG_AMOUNT)
    assert Refund.objects.get().amount_minor == SEAT_PRICE_MINOR + 1
    assert reservations.get_reservation(order.reservation_id).status == "canceled"
    assert_audit_clean()


def test_a_payment_that_nobody_tells_of_is_known_to_whoever_asks() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LOST)
    assert order.status == Order.Status.PAYING
    found = sandbox.Sandbox().find_charge(Payment.objects.get().pk)
    assert found is not None
    assert found.kind == "payment.succeeded"


def test_a_call_that_was_never_heard_leaves_nothing_to_be_found() -> None:
    place_order(hold(make_event(), seats=["hall-A-1"]), sandbox.TIMES_OUT)
    deliver_outbox()
    assert sandbox.Sandbox().find_charge(Payment.objects.get().pk) is None


def test_the_challenge_is_told_in_the_contract_and_approved_on_the_sandbox_s_own_page() -> None:
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


def test_a_challenge_that_is_declined_goes_back_to_its_buyer_and_no_second_answer_counts() -> None:
    order = challenged()
    path = page_of(order)
    Client().post(path, {"decision": "decline"}, headers=SAME_ORIGIN)
    Client().post(path, {"decision": "approve"}, headers=SAME_ORIGIN)
    deliver_outbox()
    assert selectors.get_order(order.pk).can_try_again
    assert "declined" in Client().get(path).content.decode()
    assert_audit_clean()


def test_a_challenge_that_nobody_answers_stays_open_and_the_order_honest() -> None:
    order = challenged()
    Client().post(page_of(order), {"decision": "sit on the fence"}, headers=SAME_ORIGIN)
    deliver_outbox()
    assert SandboxCharge.objects.get().status == "pending"
    assert selectors.get_order(order.pk).status == Order.Status.PAYING


@pytest.mark.parametrize("token", ["1", "1.abc", "x.y", "", "%00.1"])
def test_a_page_of_the_sandbox_opens_to_nobody_who_guesses(token) -> None:
    challenged()
    assert Client().get(f"/sandbox/pay/{token}").status_code == 404


def test_the_sandbox_takes_no_payment_where_another_provider_was_chosen(settings) -> None:
    order = challenged()
    path = page_of(order)
    settings.PAYMENT_PROVIDER = "another"
    assert Client().get(path).status_code == 404
    assert Client().post(path, {"decision": "approve"}, headers=SAME_ORIGIN).status_code == 404
    assert SandboxCharge.objects.get().status == "pending"
    raw = sandbox.charge_event(SandboxCharge.objects.get()).raw
    header = {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)}
    told = Client().post("/api/webhooks/payments/sandbox", raw, content_type="application/json", headers=header)
    assert told.status_code == 404
    Payment.objects.update(started_at=None)
    deliver_outbox()
    assert SandboxCharge.objects.count() == 1


def test_every_card_is_offered_and_the_two_common_ones_come_first() -> None:
    assert list(sandbox.METHODS) == list(sandbox.CARDS)
    assert list(sandbox.METHODS)[:2] == [sandbox.APPROVES, sandbox.DECLINES]
    assert all(re.fullmatch(r"[a-z_]{1,40}", method) for method in sandbox.METHODS)
