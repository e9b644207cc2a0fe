"""From the event's page into the queue: one entry per browser."""

from datetime import timedelta

from django.test import Client

from apps.accounts.models import User
from apps.events import facade as events
from apps.kernel import clock
from apps.queue.identity.caller import VISITOR_COOKIE
from apps.queue.models import QueueEntry
from tests.support import factories

JOIN = "/events/concert/join"


def test_a_browser_gets_its_cookie_before_its_entry(browser: Client, concert: events.EventView) -> None:
    first = browser.post(JOIN)
    assert first.status_code == 307, "the browser repeats the POST, with the cookie"
    cookie = first.cookies[VISITOR_COOKIE]
    assert (cookie["httponly"], cookie["samesite"]) == (True, "Lax")
    assert not QueueEntry.objects.exists()
    second = browser.post(first.url)
    assert (second.status_code, second.url) == (303, "/events/concert/choose")
    assert QueueEntry.objects.get().status == "ready"


def test_two_concurrent_first_clicks_create_one_entry(concert: events.EventView) -> None:
    """Both tabs post without a cookie; both responses set one, the later one stays; both browsers repeat the POST with
    it."""
    browser = Client(headers={"sec-fetch-site": "same-origin"})
    answers = [Client(headers={"sec-fetch-site": "same-origin"}).post(JOIN) for _ in range(2)]
    for answer in answers:
        browser.cookies.update(answer.cookies)
    for answer in answers:
        assert browser.post(answer.url).status_code == 303
    assert QueueEntry.objects.count() == 1


def test_joining_again_returns_the_same_entry(shopper: Client) -> None:
    assert shopper.post(JOIN).status_code == 303
    assert QueueEntry.objects.count() == 1


def test_a_browser_that_keeps_no_cookie_gets_an_explanation(browser: Client, concert: events.EventView) -> None:
    again = browser.post(JOIN).url
    browser.cookies.clear()
    refused = browser.post(again)
    assert refused.status_code == 400
    assert "cookie" in refused.content.decode()
    assert not QueueEntry.objects.exists()


def test_an_account_needs_no_browser_cookie(browser: Client, concert: events.EventView) -> None:
    user = User.objects.create_user("ann@example.org")
    browser.force_login(user)
    assert browser.post(JOIN).status_code == 303
    assert QueueEntry.objects.get().account_id == user.pk


def test_joining_an_event_that_is_not_on_sale_redirects_to_its_page(browser: Client, db: None) -> None:
    factories.make_event("later", opens_at=clock.now() + timedelta(hours=1))
    browser.post("/events/concert/join")
    answer = browser.post("/events/later/join", follow=True)
    assert answer.redirect_chain[-1][0] == "/events/later/"
    assert not QueueEntry.objects.exists()


def test_a_get_request_of_the_join_address_joins_no_visitor(browser: Client, concert: events.EventView) -> None:
    assert browser.get(JOIN).url == "/events/concert/"
    assert not QueueEntry.objects.exists()


def test_an_unknown_event_has_its_own_error_page(browser: Client, db: None) -> None:
    response = browser.post("/events/nowhere/join")
    assert response.status_code == 404
    assert "Page not found" in response.content.decode()
