"""A log-in with a passkey: its challenge is in a cookie, is answered once, and stores no session before the log-in."""

from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.http import SimpleCookie
from django.test import Client

from apps.accounts.models import User
from apps.accounts.second_factor import passkey_log_in
from tests.support.accounts.passkey import Passkey

PASSKEY = "/accounts/log-in/passkey"
JSON = {"accept": "application/json"}


def guest() -> Client:
    return Client(headers={"sec-fetch-site": "same-origin"})


def options_of(browser: Client) -> Any:
    response = browser.get(PASSKEY, headers=JSON)
    assert response.status_code == 200
    return response.json()["request_options"]


def account_of(browser: Client) -> str | None:
    return browser.session.get("_auth_user_id")


def test_a_passkey_logs_in(ann: User) -> None:
    browser, passkey = guest(), Passkey(ann)
    response = browser.post(PASSKEY, {"credential": passkey.answer(options_of(browser))})
    assert (response.status_code, account_of(browser)) == (302, str(ann.pk))
    assert browser.cookies[passkey_log_in.COOKIE].value == ""


def test_anonymous_requests_store_no_session(ann: User) -> None:
    for path in (PASSKEY, "/accounts/log-in", "/accounts/sign-up", "/accounts/password/reset", "/api/me/header", "/"):
        for headers in (JSON, {"accept": "text/html"}):
            guest().get(path, headers=headers)
    browser = guest()
    options_of(browser)
    assert browser.post(PASSKEY, {"credential": "{}"}).status_code == 302
    assert Session.objects.count() == 0
    cookie = browser.get(PASSKEY, headers=JSON).cookies[passkey_log_in.COOKIE]
    assert (cookie["httponly"], cookie["samesite"], cookie["path"]) == (True, "Strict", "/accounts/log-in")
    assert cookie["max-age"] == 300


def test_a_challenge_is_answered_once(ann: User) -> None:
    """Also if its cookie is sent again."""
    browser, passkey = guest(), Passkey(ann)
    credential = passkey.answer(options_of(browser))
    thief = guest()
    thief.cookies = SimpleCookie({passkey_log_in.COOKIE: browser.cookies[passkey_log_in.COOKIE].value})
    browser.post(PASSKEY, {"credential": credential})
    thief.post(PASSKEY, {"credential": credential})
    assert (account_of(browser), account_of(thief)) == (str(ann.pk), None)
    again = guest()
    again.post(PASSKEY, {"credential": passkey.answer(options_of(again))})
    assert account_of(again) == str(ann.pk)


@pytest.mark.parametrize("cookie", ["", "x", "x:y:z", "other browser", "expired"])
def test_a_challenge_needs_its_valid_cookie(ann: User, cookie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, other, passkey = guest(), guest(), Passkey(ann)
    credential = passkey.answer(options_of(browser))
    options_of(other)
    match cookie:
        case "other browser":
            browser.cookies[passkey_log_in.COOKIE] = other.cookies[passkey_log_in.COOKIE].value
        case "expired":
            monkeypatch.setattr(passkey_log_in, "CHALLENGE_SECONDS", -1)
        case _:
            browser.cookies[passkey_log_in.COOKIE] = cookie
    assert browser.post(PASSKEY, {"credential": credential}).status_code == 302
    assert account_of(browser) is None


@pytest.mark.parametrize(
    ("credential", "why"),
    [("", "Passkeys need JavaScript"), ('{"id": 1}', "not accepted"), ("[" * 9_000, "not accepted")],
)
def test_a_refused_passkey_is_explained_on_the_log_in_page(db: None, credential: str, why: str) -> None:
    page = guest().post(PASSKEY, {"credential": credential, "next": "/tickets/"}, follow=True)
    assert page.redirect_chain == [("/accounts/log-in?next=%2Ftickets%2F", 302)]
    assert why in page.content.decode()
