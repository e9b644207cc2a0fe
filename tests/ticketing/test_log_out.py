"""After a log-out, the next user of the same browser has no right of the last one."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client, RequestFactory

from apps.accounts.models import User
from apps.events.facade import EventView
from apps.kernel import clock
from apps.orders import access
from apps.orders.checkin import door_links
from apps.orders.models import Order, ReturnPolicy, Ticket
from apps.queue.identity.caller import PLACE_COOKIE, VISITOR_COOKIE, caller_from_place_cookie
from apps.queue.models import QueueEntry, WaitingRoom
from tests.support.factories import hold, make_event
from tests.support.orders.sale import SAME_ORIGIN, buy, deliver_outbox
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


def test_after_the_log_out_the_browser_lists_no_order_of_the_account(browser: Client) -> None:
    """The guest holds, logs in and checks out; the order is the account's, its buyer the browser's guest."""
    make_event("concert")
    browser.post("/events/concert/join", follow=True, headers=SAME_ORIGIN)
    held = _hold(browser)
    ann = log_in(browser, "ann@example.org")
    _check_out(browser, held)
    order = Order.objects.get(reservation=held)
    assert order.account_id == ann.pk
    assert str(order.pk) in browser.get("/tickets/").text
    log_out(browser)
    assert browser.cookies[VISITOR_COOKIE].value
    assert str(order.pk) not in browser.get("/tickets/").text
    assert browser.get("/api/orders").json()["orders"] == []


@pytest.mark.parametrize("when", ["before the hold", "after the hold"])
def test_a_guests_token_opens_nothing_of_the_account_into_which_its_entry_was_merged(
    browser: Client, when: str
) -> None:
    """A token has no account version if a guest got it. Another user of the browser may have kept it."""
    event = make_event("concert")
    ReturnPolicy.objects.create(event_id=event.id, until_hours=24)
    secret = "a-secret-of-this-browser"
    joined = browser.post(
        "/api/events/concert/queue", {"visitor_id": secret}, content_type="application/json", headers=SAME_ORIGIN
    ).json()
    held = _hold(browser) if when == "after the hold" else ""
    ann = log_in(browser, "ann@example.org")
    browser.post("/api/events/concert/queue", {}, content_type="application/json", headers=SAME_ORIGIN)
    held = held or _hold(browser)
    _check_out(browser, held)
    order = Order.objects.get(reservation=held)
    assert (order.account_id, QueueEntry.objects.get().account_id) == (ann.pk, ann.pk)

    def ask(method: str, path: str, body: dict[str, Any] | None = None) -> int:
        token = {"authorization": f"Bearer {joined['admission_token']}", "idempotency-key": f"{method} {path}"}
        return Client().generic(method, path, json.dumps(body or {}), "application/json", headers=token).status_code

    assert ask("GET", f"/api/orders/{order.pk}") == 403
    assert ask("POST", f"/api/orders/{order.pk}/refunds", {"tickets": [Ticket.objects.get().code]}) == 403
    assert ask("GET", f"/api/reservations/{held}") == 403
    assert ask("POST", f"/api/reservations/{held}/checkout", {"email": "x@example.org", "name": "X"}) == 403
    assert ask("POST", "/api/events/concert/reservations", {"seats": ["hall-A-2"]}) == 429
    assert ask("POST", "/api/events/concert/queue") == 401
    assert ask("GET", "/api/events/concert/queue/status") in (401, 403, 404)
    listed = Client().get("/api/orders", headers={"authorization": f"Bearer {joined['admission_token']}"})
    assert listed.json()["orders"] == []
    assert browser.get(f"/api/orders/{order.pk}").status_code == 200


def _hold(browser: Client) -> str:
    held: str = browser.post(
        "/api/events/concert/reservations",
        {"seats": ["hall-A-1"]},
        content_type="application/json",
        headers=SAME_ORIGIN | {"idempotency-key": "one"},
    ).json()["reservation_id"]
    return held


def _check_out(browser: Client, held: str) -> None:
    form = {"email": "ann@example.org", "name": "Ann", "payment_method": "sandbox", "idempotency_key": held}
    response = browser.post(f"/reservations/{held}/checkout", form, headers=SAME_ORIGIN)
    assert response.status_code == 303, response.text
    deliver_outbox()


def test_a_log_out_without_a_log_in_deletes_the_cookies_too(browser: Client) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    browser.get(f"/orders/{order.pk}/?key={access.link_key(order.pk)}")
    log_out(browser)
    assert browser.cookies[access.COOKIE].value == ""
    assert browser.get(f"/orders/{order.pk}/").status_code in (401, 403)
