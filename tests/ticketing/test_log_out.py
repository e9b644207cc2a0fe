"""After a log-out, the next user of the same browser has no right of the last one."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client, RequestFactory

from apps.accounts.models import User
from apps.events.facade import EventView
from apps.kernel import clock
from apps.orders import access
from apps.orders.checkin import door_links
from apps.orders.models import Order
from apps.queue.identity.caller import PLACE_COOKIE, VISITOR_COOKIE, caller_from_place_cookie
from apps.queue.models import WaitingRoom
from tests.support.factories import hold, make_event
from tests.support.orders.sale import SAME_ORIGIN, buy
from tests.support.queue.rooms import make_room

pytestmark = pytest.mark.django_db(transaction=True)

PASSWORD = "correct horse battery staple"
LOG_OUTS = ["/accounts/log-out", "/admin/logout/"]


def log_in(browser: Client, name: str, **more: Any) -> User:
    user = User.objects.create_user(name, password=PASSWORD, **more)
    response = browser.post("/accounts/log-in", {"username": name, "password": PASSWORD}, headers=SAME_ORIGIN)
    assert response.status_code == 302
    return user


def log_out(browser: Client, path: str = LOG_OUTS[0]) -> None:
    assert browser.post(path, headers=SAME_ORIGIN).status_code in (200, 302)


def open_door(browser: Client, event: EventView) -> str:
    now = clock.now()
    link = door_links.make_link(
        event.id, name="North", door="", good_from=now, good_until=now + timedelta(hours=1), who="staff"
    )
    browser.get(door_links.link_url(link, event.slug).removeprefix("http://testserver"))
    return f"/check-in/{event.slug}/"


@pytest.mark.parametrize("path", LOG_OUTS)
def test_the_next_account_cannot_open_an_order_that_the_last_one_opened_by_its_link(browser: Client, path: str) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    log_in(browser, "ann@example.org", is_staff=True)
    page = f"/orders/{order.pk}/"
    browser.get(f"{page}?key={access.link_key(order.pk)}")
    assert browser.get(page).status_code == 200
    log_out(browser, path)
    assert browser.cookies[access.COOKIE].value == ""
    assert browser.cookies[access.CONFIRMED_COOKIE].value == ""
    assert browser.get(page).status_code in (401, 403)
    log_in(browser, "bob@example.org")
    assert browser.get(page).status_code == 403


@pytest.mark.parametrize("path", LOG_OUTS)
def test_the_door_of_the_last_user_is_closed(browser: Client, path: str) -> None:
    events = [make_event("first"), make_event("second")]
    pages = [open_door(browser, event) for event in events]
    log_in(browser, "ann@example.org", is_staff=True)
    assert [browser.get(page).status_code for page in pages] == [200, 200]
    log_out(browser, path)
    assert [browser.cookies[f"door-{event.id}"].value for event in events] == ["", ""]
    assert [browser.get(page).status_code for page in pages] == [302, 302], "the check-in page asks for a log-in"


def test_the_place_cookie_is_deleted_and_a_copy_of_it_is_refused(browser: Client) -> None:
    event = make_room()
    WaitingRoom.objects.update(state="paused")
    log_in(browser, "ann@example.org")
    browser.post(f"/events/{event.slug}/join", headers=SAME_ORIGIN)
    place = browser.cookies[PLACE_COOKIE].value
    assert place
    log_out(browser)
    assert browser.cookies[PLACE_COOKIE].value == ""
    assert browser.cookies[PLACE_COOKIE]["path"] == f"/api/events/{event.slug}/queue"
    request = RequestFactory(headers=SAME_ORIGIN).get("/")
    request.COOKIES = {name: morsel.value for name, morsel in browser.cookies.items()} | {PLACE_COOKIE: place}
    assert caller_from_place_cookie(request, event.slug) is None


def test_a_guests_order_that_belongs_to_an_account_now_needs_that_account(browser: Client) -> None:
    """The guest buys, logs in and out. The browser keeps its visitor cookie, which was the buyer's once."""
    make_event("concert")
    browser.post("/events/concert/join", follow=True, headers=SAME_ORIGIN)
    held = browser.post(
        "/api/events/concert/reservations",
        {"seats": ["hall-A-1"]},
        content_type="application/json",
        headers=SAME_ORIGIN | {"idempotency-key": "one"},
    ).json()["reservation_id"]
    form = {"email": "ann@example.org", "name": "Ann", "payment_method": "sandbox", "idempotency_key": "two"}
    browser.post(f"/reservations/{held}/checkout", form, headers=SAME_ORIGIN)
    order = Order.objects.get(reservation=held)
    page = f"/orders/{order.pk}/"
    assert browser.get(page).status_code == 200
    ann = log_in(browser, "ann@example.org")
    order.refresh_from_db()
    assert order.account_id == ann.pk
    assert browser.get(page).status_code == 200
    log_out(browser)
    assert browser.cookies[VISITOR_COOKIE].value
    assert browser.get(page).status_code in (401, 403)


def test_a_log_out_without_a_log_in_deletes_the_cookies_too(browser: Client) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    browser.get(f"/orders/{order.pk}/?key={access.link_key(order.pk)}")
    log_out(browser)
    assert browser.cookies[access.COOKIE].value == ""
    assert browser.get(f"/orders/{order.pk}/").status_code in (401, 403)
