"""The call behind the header of every page: the caller's own holds, account, messages and links, and nothing else."""

import json
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.events.facade import EventView
from apps.kernel import clock
from apps.reservations import facade
from apps.reservations.models import Reservation
from apps.reservations.page_header import held_tickets
from tests.support.api_client import Api
from tests.support.factories import make_event
from tests.support.orders.sale import joined_browser

pytestmark = pytest.mark.django_db


def header(client: Client, query: str = "") -> dict[str, Any]:
    response = client.get(f"/api/me/header{query}")
    assert (response.status_code, response.headers["Cache-Control"]) == (200, "private, no-store")
    return dict(response.json())


def reserve(client: Client, slug: str = "concert", *seats: str) -> Reservation:
    assert client.post(f"/events/{slug}/join").status_code == 303
    form = {"seats": seats or ("hall-A-1", "hall-A-2"), "idempotency_key": f"of {slug} {seats}"}
    response = client.post(f"/events/{slug}/choose", form)
    assert response.status_code == 303
    return Reservation.objects.get(pk=response.headers["Location"].strip("/").rpartition("/")[2])


def let_expire(reservation: Reservation, ago: timedelta = timedelta(seconds=1)) -> None:
    Reservation.objects.filter(pk=reservation.pk).update(expires_at=clock.now() - ago)


def test_a_guest_sees_the_hold_of_this_browser(concert: EventView, shopper: Client) -> None:
    reservation = reserve(shopper)
    (hold,) = header(shopper)["holds"]
    assert hold == {
        "reservation_id": str(reservation.pk),
        "event": "concert",
        "event_name": concert.name,
        "status": "pending_payment",
        "count": 2,
        "noun": "seats",
        "deadline": clock.iso(reservation.expires_at),
        "url": f"/reservations/{reservation.pk}/",
        "checkout_url": f"/reservations/{reservation.pk}/checkout",
    }


def test_a_guests_browser_sees_a_hold_that_its_script_made_by_the_api(api: Api, concert: EventView) -> None:
    api.client = joined_browser("concert")
    body, path = {"seats": ["hall-A-1"]}, "/events/concert/reservations"
    held = api.post(path, body, key="one hold", sec_fetch_site="same-origin")
    assert held.status_code == 201, held.content
    assert [hold["reservation_id"] for hold in header(api.client)["holds"]] == [held.json()["reservation_id"]]


def test_a_client_without_a_browsers_cookie_gets_none(api: Api, concert: EventView) -> None:
    body, path = {"seats": ["hall-A-1"]}, "/events/concert/reservations"
    held = api.post(path, body, key="one hold", token=api.admission("concert"))
    assert held.status_code == 201, held.content
    assert not held.cookies


def test_another_browser_that_names_the_reservation_does_not_see_it(concert: EventView, shopper: Client) -> None:
    reserve(shopper)
    browser = Client(headers={"Sec-Fetch-Site": "same-origin"})
    browser.cookies[held_tickets.COOKIE] = shopper.cookies[held_tickets.COOKIE].value
    assert header(browser)["holds"] == []
    browser.post("/events/concert/join")  # Now with a visitor cookie of its own.
    browser.cookies[held_tickets.COOKIE] = shopper.cookies[held_tickets.COOKIE].value
    assert header(browser)["holds"] == []
    assert browser.cookies[held_tickets.COOKIE].value == "", "a cookie that names nothing of its own is deleted"
    browser.force_login(User.objects.create_user("eve@example.org"))
    browser.cookies[held_tickets.COOKIE] = shopper.cookies[held_tickets.COOKIE].value
    assert header(browser)["holds"] == []


def test_a_user_sees_holds_of_other_devices(concert: EventView, shopper: Client) -> None:
    user = User.objects.create_user("ann@example.org")
    shopper.force_login(user)
    reservation = reserve(shopper)
    phone = Client()
    phone.force_login(user)
    assert [hold["reservation_id"] for hold in header(phone)["holds"]] == [str(reservation.pk)]


def test_an_expired_hold_is_shown_for_some_minutes_even_before_the_sweep(concert: EventView, shopper: Client) -> None:
    reservation = reserve(shopper)
    let_expire(reservation)
    assert [hold["status"] for hold in header(shopper)["holds"]] == ["expired"]
    facade.sweep_all()
    assert [hold["status"] for hold in header(shopper)["holds"]] == ["expired"]
    let_expire(reservation, timedelta(minutes=held_tickets.ENDED_MINUTES_MAX))
    assert header(shopper)["holds"] == []
    assert shopper.cookies[held_tickets.COOKIE].value == ""


def test_a_released_hold_is_not_shown(concert: EventView, shopper: Client) -> None:
    reservation = reserve(shopper)
    shopper.post(f"/reservations/{reservation.pk}/release")
    assert header(shopper)["holds"] == []


def test_only_the_newest_hold_of_an_event_is_shown(concert: EventView, shopper: Client) -> None:
    first = reserve(shopper)
    let_expire(first)
    facade.sweep_all()
    second = reserve(shopper, "concert", "hall-B-1")
    assert [hold["reservation_id"] for hold in header(shopper)["holds"]] == [str(second.pk)]


def test_holds_of_two_events_are_shown_newest_first(concert: EventView, shopper: Client) -> None:
    make_event("opera", general_admission=5)
    first = reserve(shopper)
    shopper.post("/events/opera/join")
    form = {"ga_section": "floor", "ga_quantity": "1", "view": "quantity", "idempotency_key": "k"}
    assert shopper.post("/events/opera/choose", form).status_code == 303
    shown = header(shopper)["holds"]
    assert [(hold["event"], hold["count"], hold["noun"]) for hold in shown] == [
        ("opera", 1, "tickets"),
        ("concert", 2, "seats"),
    ]
    assert shown[1]["reservation_id"] == str(first.pk)


@pytest.mark.parametrize(
    "cookie", ["", "x", "..", "%00", "é" * 50, "0" * 5_000, f"{'f' * 32}.{'f' * 32}", "{}", "1.2.3.4.5"]
)
def test_a_hostile_cookie_is_ignored(cookie: str, browser: Client, db: None) -> None:
    browser.post("/events/concert/join")
    for name in ("holds", "visitor", "sessionid", "signed_in", "messages"):
        client = Client()
        client.cookies[name] = cookie
        assert header(client, "?shared=1")["holds"] == []


PATHS = ["/", "events/x", "//", "/events/%00/", "\x00", "/admin/"]


@pytest.mark.parametrize("path", PATHS)
def test_any_path_is_accepted(path: str, browser: Client, db: None) -> None:
    browser.force_login(User.objects.create_superuser("root@example.org"))
    links = browser.get("/api/me/header", {"path": path}).json()["staff_links"]
    assert [link["label"] for link in links] == ["Dashboard", "Create event"]


@pytest.mark.parametrize("query", ["path=", f"path={'a' * 201}", "shared=", "shared=0", "shared=yes&path="])
def test_a_wrong_parameter_is_refused(query: str, browser: Client, db: None) -> None:
    response = browser.get(f"/api/me/header?{query}")
    assert (response.status_code, response.json()["type"]) == (422, "invalid")


def test_staff_get_links_to_what_they_manage(concert: EventView, browser: Client) -> None:
    browser.force_login(User.objects.create_superuser("root@example.org"))
    assert header(browser, "?path=/events/concert/")["staff_links"] == [
        {"label": "Event dashboard", "url": f"/admin/events/event/{concert.id}/dashboard/"},
        {"label": "Edit event", "url": f"/admin/events/event/{concert.id}/change/"},
        {"label": "Check in", "url": "/check-in/concert/"},
        {"label": "Dashboard", "url": "/admin/"},
    ]
    browser.force_login(User.objects.create_user("ann@example.org"))
    assert header(browser, "?path=/events/concert/")["staff_links"] == []


def test_account_and_messages_are_for_shared_pages_only(concert: EventView, shopper: Client) -> None:
    shopper.force_login(User.objects.create_user("ann@example.org"))
    reserve(shopper)
    shopper.get("/events/concert/choose")  # Leaves a message.
    own = header(shopper)
    assert (own["account"], own["messages"]) == (None, [])
    shared = header(shopper, "?shared=1")
    assert shared["account"]["name"] == "ann@example.org"
    assert [message["level"] for message in shared["messages"]] == ["info"]
    assert header(shopper, "?shared=1")["messages"] == [], "shown once"
    log_out = shopper.post("/accounts/log-out", {"csrfmiddlewaretoken": shared["account"]["csrf_token"]})
    assert log_out.status_code == 302


def test_the_call_needs_few_queries(concert: EventView, shopper: Client, django_assert_max_num_queries: Any) -> None:
    with django_assert_max_num_queries(0):
        header(Client())
    reserve(shopper)
    with django_assert_max_num_queries(2):
        header(shopper)


def test_without_scripts_a_page_leads_to_the_hold(concert: EventView, shopper: Client) -> None:
    assert "No seats reserved" in shopper.get("/reservations/").content.decode()
    reservation = reserve(shopper)
    response = shopper.get("/reservations/")
    assert (response.status_code, response.headers["Location"]) == (302, f"/reservations/{reservation.pk}/")
    let_expire(reservation)
    page = shopper.get("/reservations/")
    assert "Time is up: 2 seats went back on sale" in page.content.decode()
    assert "no-store" in page.headers["Cache-Control"]
    for shared in ("/", "/events/concert/"):
        assert '<noscript><a href="/reservations/">Your seats</a></noscript>' in shopper.get(shared).content.decode()


def test_the_cookie_names_the_newest_reservations_only(shopper: Client) -> None:
    slugs = [f"event-{number}" for number in range(held_tickets.NAMED_MAX + 1)]
    for slug in slugs:
        make_event(slug)
    made = [reserve(shopper, slug) for slug in slugs]
    named = shopper.cookies[held_tickets.COOKIE].value.split(".")
    assert named == [one.pk.hex for one in reversed(made[1:])]
    assert json.dumps(header(shopper)).count("reservation_id") == held_tickets.NAMED_MAX
