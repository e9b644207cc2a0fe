"""One entry per browser, also for two first tabs: the id that all of its tabs share is sent with the form."""

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.events import facade as events
from apps.queue.identity.caller import PLACE_COOKIE, VISITOR_COOKIE, visitor_id_of_secret
from apps.queue.models import QueueEntry
from tests.support.factories import assert_audit_clean
from tests.support.races import storm, values

JOIN, QUEUE = "/events/concert/join", "/api/events/concert/queue"
OWN = {"sec-fetch-site": "same-origin"}
ID = "an-id-of-this-browser"


def test_an_id_from_the_script_needs_no_redirect_and_is_the_browsers_from_then_on(
    browser: Client, concert: events.EventView
) -> None:
    first = browser.post(JOIN, {"visitor_id": ID})
    assert (first.status_code, first.url) == (303, "/events/concert/choose")
    assert first.cookies[VISITOR_COOKIE]["httponly"]
    assert QueueEntry.objects.get().visitor_id == visitor_id_of_secret(ID)
    assert browser.post(JOIN).status_code == 303, "without the script it is the same visitor"
    assert QueueEntry.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_two_first_tabs_that_join_concurrently_get_one_entry(concert: events.EventView) -> None:
    """Neither has a cookie yet; both send the id that they share."""

    def first_tab(number: int) -> int:
        return Client(headers=OWN).post(JOIN, {"visitor_id": ID}).status_code

    assert values(storm(4, first_tab)) == [303] * 4
    assert QueueEntry.objects.count() == 1
    assert_audit_clean()


def test_script_and_api_agree_on_the_browsers_identity(browser: Client, concert: events.EventView) -> None:
    response = browser.post(QUEUE, {"visitor_id": ID}, content_type="application/json")
    assert response.status_code == 201
    assert VISITOR_COOKIE in response.cookies
    browser.post(JOIN)
    Client(headers=OWN).post(JOIN, {"visitor_id": ID})
    assert QueueEntry.objects.count() == 1


def test_the_cookie_and_the_account_take_precedence_over_the_scripts_id(
    browser: Client, concert: events.EventView
) -> None:
    browser.post(JOIN, {"visitor_id": ID})
    browser.post(JOIN, {"visitor_id": "another-id-somehow"})
    assert QueueEntry.objects.get().visitor_id == visitor_id_of_secret(ID)
    browser.force_login(User.objects.create_user("ann@example.org"))
    browser.post(JOIN, {"visitor_id": "another-id-somehow"})
    assert QueueEntry.objects.count() == 1, "and the guest's entry has become the account's"


@pytest.mark.parametrize("sent", ["", "short", "x" * 65, "with a space", "nul\x00byte", "ünïcodé-id"])
def test_an_invalid_id_is_ignored(browser: Client, concert: events.EventView, sent: str) -> None:
    response = browser.post(JOIN, {"visitor_id": sent})
    assert response.status_code == 307, "the cookie identifies the browser"
    assert browser.post(response.url, {"visitor_id": sent}).status_code == 303
    assert QueueEntry.objects.count() == 1


def test_another_site_cannot_give_a_browser_an_identity(concert: events.EventView) -> None:
    """Otherwise its visitor would wait with an entry whose id an attacker knows."""
    foreign = Client(headers={"sec-fetch-site": "cross-site", "origin": "https://evil.example"})
    assert foreign.post(JOIN, {"visitor_id": ID}).status_code == 403
    response = foreign.post(QUEUE, {"visitor_id": ID}, content_type="application/json")
    assert not response.cookies


def test_an_api_client_gets_no_cookies(client: Client, concert: events.EventView) -> None:
    """Its next write would send them, and be refused for its missing origin."""
    for _ in range(2):
        response = client.post(QUEUE, {"visitor_id": ID}, content_type="application/json")
        assert response.status_code == 201
        assert not response.cookies
    token = response.json()["queue_token"]
    status = client.get(f"{QUEUE}/status", headers={"authorization": f"Bearer {token}", **OWN})
    assert status.status_code == 200
    assert PLACE_COOKIE not in status.cookies, "a client with a token needs no cookie"
