"""Guests who log in during a sale: their orders are attached to their account, and to no other."""

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.orders.facade import attach_orders
from apps.orders.models import Order
from apps.reservations.models import PurchaseCap
from tests.support.api_client import Api, assert_problem
from tests.support.factories import assert_audit_clean, hold, join, make_event
from tests.support.orders.sale import SAME_ORIGIN, buy, deliver_outbox, joined_browser

pytestmark = pytest.mark.django_db(transaction=True)
PASSWORD = "correct horse battery staple"
SEAT, OTHER_SEAT = "hall-A-1", "hall-A-2"


@pytest.fixture
def browser() -> Client:
    """A guest's browser with a queue entry for the concert."""
    make_event("concert")
    return joined_browser("concert")


def held(browser: Client, seat: str = SEAT) -> str:
    response = browser.post(
        "/api/events/concert/reservations",
        {"seats": [seat]},
        content_type="application/json",
        headers=SAME_ORIGIN | {"idempotency-key": seat},
    )
    assert response.status_code == 201, response.content
    return response.json()["reservation_id"]


def checked_out(browser: Client, reservation: str) -> Order:
    form = {"email": "ann@example.org", "name": "Ann", "payment_method": "sandbox", "idempotency_key": reservation}
    response = browser.post(f"/reservations/{reservation}/checkout", form, headers=SAME_ORIGIN)
    assert response.status_code == 303, response.content
    deliver_outbox()
    return Order.objects.get(reservation=reservation)


def account(browser: Client, path: str, name: str = "ann@example.org") -> User:
    response = browser.post(f"/accounts/{path}", {"username": name, "password": PASSWORD}, headers=SAME_ORIGIN)
    assert response.status_code == 302, response.content
    return User.objects.get(username=name)


def elsewhere(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


@pytest.mark.parametrize("path", ["sign-up", "log-in"])
def test_a_buyer_who_logs_in_between_hold_and_checkout_finds_the_order(browser, path) -> None:
    if path == "log-in":
        User.objects.create_user("ann@example.org", password=PASSWORD)
    reservation = held(browser)
    user = account(browser, path)
    order = checked_out(browser, reservation)
    assert order.account_id == user.pk
    assert order.buyer.startswith("visitor:"), "purchase caps still count the guest"
    assert not PurchaseCap.objects.filter(buyer__startswith="account:").exists()
    other = elsewhere(user)
    assert str(order.pk) in other.get("/tickets/").content.decode()
    assert other.get(f"/orders/{order.pk}/").status_code == 200
    assert other.get(f"/orders/{order.pk}/tickets.pdf").status_code == 200
    assert_audit_clean()


@pytest.mark.parametrize("path", ["sign-up", "log-in"])
def test_a_guests_earlier_orders_are_attached_at_log_in(browser, path) -> None:
    if path == "log-in":
        User.objects.create_user("ann@example.org", password=PASSWORD)
    order = checked_out(browser, held(browser))
    user = account(browser, path)
    assert str(order.pk) in elsewhere(user).get("/tickets/").content.decode()
    assert browser.get(f"/orders/{order.pk}/").status_code == 200


def test_a_failed_log_in_attaches_nothing(browser) -> None:
    User.objects.create_user("ann@example.org", password=PASSWORD)
    order = checked_out(browser, held(browser))
    response = browser.post(
        "/accounts/log-in", {"username": "ann@example.org", "password": "wrong"}, headers=SAME_ORIGIN
    )
    assert response.status_code == 200
    order.refresh_from_db()
    assert order.account_id is None


def test_on_a_shared_computer_the_next_account_sees_no_order_of_the_first(browser) -> None:
    order = checked_out(browser, held(browser))
    ann = account(browser, "sign-up")
    browser.post("/accounts/log-out", headers=SAME_ORIGIN)
    bob = account(browser, "sign-up", "bob@example.org")
    order.refresh_from_db()
    assert order.account_id == ann.pk
    assert "No tickets yet" in browser.get("/tickets/").content.decode()
    assert browser.get(f"/orders/{order.pk}/").status_code == 403
    assert elsewhere(bob).get(f"/orders/{order.pk}/").status_code == 403


def test_orders_of_other_browsers_are_not_attached(browser) -> None:
    other = joined_browser("concert")
    others_order = checked_out(other, held(other, OTHER_SEAT))
    account(browser, "sign-up")
    others_order.refresh_from_db()
    assert others_order.account_id is None


def test_a_caller_without_a_cookie_attaches_nothing() -> None:
    order = buy(hold(make_event(), seats=[SEAT]))
    user = User.objects.create_user("ann@example.org")
    assert attach_orders("", user.pk) == 0
    order.refresh_from_db()
    assert order.account_id is None


def test_the_api_grants_access_to_the_orders_account(browser) -> None:
    reservation = held(browser)
    user = account(browser, "sign-up")
    order = checked_out(browser, reservation)
    api = Api()
    tokens = api.post("/auth/token", {"username": user.username, "password": PASSWORD}).json()
    (listed,) = api.get("/orders", token=tokens["access"]).json()["orders"]
    assert listed["order_id"] == str(order.pk)
    assert api.get(f"/orders/{order.pk}", token=tokens["access"]).json() == listed
    User.objects.create_user("bob@example.org", password=PASSWORD)
    others_token = api.post("/auth/token", {"username": "bob@example.org", "password": PASSWORD}).json()["access"]
    assert api.get("/orders", token=others_token).json()["orders"] == []
    assert_problem(api.get(f"/orders/{order.pk}", token=others_token), 403, "not-owner")


def test_the_account_can_retry_a_declined_payment_from_another_browser(browser) -> None:
    reservation = held(browser)
    form = {"email": "ann@example.org", "name": "Ann", "payment_method": "sandbox_decline", "idempotency_key": "one"}
    browser.post(f"/reservations/{reservation}/checkout", form, headers=SAME_ORIGIN)
    deliver_outbox()
    other = elsewhere(account(browser, "sign-up"))
    page = other.get(f"/reservations/{reservation}/checkout", follow=True)
    assert f'action="/reservations/{reservation}/checkout"' in page.content.decode()


def test_an_accounts_hold_becomes_its_order_with_any_token() -> None:
    event = make_event()
    user = User.objects.create_user("ann@example.org")
    assert buy(hold(event, join(event, account_id=user.pk), seats=[SEAT])).account_id == user.pk
