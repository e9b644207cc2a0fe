"""A log-in with a passkey: its challenge is in a cookie, is answered once, and stores no session before the log-in. A
passkey works on pages of the site's own origin, and alone only if it was added for that."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from django.contrib.sessions.models import Session
from django.http import SimpleCookie
from django.test import Client

from apps.accounts.models import User
from apps.accounts.second_factor import forms, passkey_log_in
from tests.support.accounts.credentials import LOG_IN, PASSWORD
from tests.support.accounts.passkey import ORIGIN, Passkey

PASSKEY, CODE = "/accounts/log-in/passkey", "/accounts/log-in/code"
ADD = "/accounts/second-factor/passkeys/add"
JSON = {"accept": "application/json"}


def guest() -> Client:
    return Client(headers={"sec-fetch-site": "same-origin"})


def options_of(browser: Client) -> Any:
    response = browser.get(PASSKEY, headers=JSON)
    assert response.status_code == 200
    return response.json()["request_options"]


def post(browser: Client, credential: str) -> Any:
    return browser.post(PASSKEY, {"credential": credential}, secure=True)


def account_of(browser: Client) -> str | None:
    return browser.session.get("_auth_user_id")


def test_a_passkey_logs_in(ann: User) -> None:
    browser, passkey = guest(), Passkey(ann).add()
    response = post(browser, passkey.answer(options_of(browser)))
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
    browser, passkey = guest(), Passkey(ann).add()
    credential = passkey.answer(options_of(browser))
    thief = guest()
    thief.cookies = SimpleCookie({passkey_log_in.COOKIE: browser.cookies[passkey_log_in.COOKIE].value})
    post(browser, credential)
    post(thief, credential)
    assert (account_of(browser), account_of(thief)) == (str(ann.pk), None)
    again = guest()
    post(again, passkey.answer(options_of(again)))
    assert account_of(again) == str(ann.pk)


@pytest.mark.parametrize(
    "origin", ["https://evil.testserver", "https://testserver:8443", "https://testserver.evil.example", ""]
)
def test_an_answer_of_a_page_of_another_origin_is_refused(ann: User, origin: str) -> None:
    """Also of a subdomain, which another person may run: the browser itself lets it use the site's passkeys."""
    browser, passkey = guest(), Passkey(ann).add()
    assert post(browser, passkey.answer(options_of(browser), origin)).status_code == 302
    assert account_of(browser) is None
    assert post(browser, passkey.answer(options_of(browser))).status_code == 302
    assert account_of(browser) == str(ann.pk)


def test_a_passkey_for_the_second_step_does_not_log_in_alone(ann: User) -> None:
    browser, passkey = guest(), Passkey(ann).add(is_passwordless=False)
    refused = browser.post(PASSKEY, {"credential": passkey.answer(options_of(browser))}, secure=True, follow=True)
    assert "Log in with your password first" in refused.content.decode()
    assert account_of(browser) is None
    browser.post(LOG_IN, {"username": ann.username, "password": PASSWORD}, secure=True)
    options = browser.get(CODE, secure=True).context["js_data"]["request_options"]
    assert browser.post(CODE, {"credential": passkey.answer(options)}, secure=True).status_code == 302
    assert account_of(browser) == str(ann.pk)


@pytest.mark.parametrize(("ticked", "is_logged_in"), [({"passwordless": "on"}, True), ({}, False)])
def test_a_passkey_is_added_for_what_was_ticked_and_from_the_own_origin_only(
    ann: User, log_in: Callable[[User], Client], ticked: dict[str, str], is_logged_in: bool
) -> None:
    """The client's own words about the credential change nothing."""
    browser, passkey = log_in(ann), Passkey(ann)
    for origin in ("https://evil.testserver", ORIGIN):
        options = browser.get(ADD, secure=True).context["js_data"]["creation_options"]
        credential = json.dumps({**json.loads(passkey.create(options, origin)), "passwordless": True})
        assert not Authenticator.objects.exists()
        browser.post(ADD, {"name": "Phone", "credential": credential, **ticked}, secure=True)
    page = browser.get("/accounts/").content.decode()
    assert "Passkey “Phone”" in page
    assert ("after the password" in page) is not is_logged_in
    another = guest()
    post(another, passkey.answer(options_of(another)))
    assert account_of(another) == (str(ann.pk) if is_logged_in else None)


def add_passkey(browser: Client, passkey: Passkey, **more: Any) -> Any:
    options = browser.get(ADD, secure=True).context["js_data"]["creation_options"]
    credential = {**json.loads(passkey.create(options)), **more}
    return browser.post(ADD, {"name": "Phone", "credential": json.dumps(credential)}, secure=True)


def test_only_what_is_used_of_a_credential_is_stored(ann: User, log_in: Callable[[User], Client]) -> None:
    browser, passkey = log_in(ann), Passkey(ann)
    results = {"credProps": {"rk": True, "more": "x"}, "pad": "x" * 1_000}
    assert add_passkey(browser, passkey, clientExtensionResults=results, pad="x" * 1_000).status_code == 302
    stored = Authenticator.objects.get(type=Authenticator.Type.WEBAUTHN).data["credential"]
    assert stored.keys() == {"id", "rawId", "type", "response", "clientExtensionResults", "passwordless"}
    assert stored["clientExtensionResults"] == {"credProps": {"rk": True}}
    assert len(json.dumps(stored)) < 1_000


def test_an_account_has_a_few_passkeys_at_most(ann: User, log_in: Callable[[User], Client]) -> None:
    browser, passkey = log_in(ann), Passkey(ann)
    assert add_passkey(browser, passkey).status_code == 302
    for _ in range(forms.PASSKEYS_MAX - 2):
        passkey.add()
    assert add_passkey(browser, passkey).status_code == 302
    assert "Remove one before you add another" in add_passkey(browser, passkey).content.decode()
    assert Authenticator.objects.filter(type=Authenticator.Type.WEBAUTHN).count() == forms.PASSKEYS_MAX


@pytest.mark.parametrize("cookie", ["", "x", "x:y:z", "other browser", "expired"])
def test_a_challenge_needs_its_valid_cookie(ann: User, cookie: str, monkeypatch: pytest.MonkeyPatch) -> None:
    browser, other, passkey = guest(), guest(), Passkey(ann).add()
    credential = passkey.answer(options_of(browser))
    options_of(other)
    match cookie:
        case "other browser":
            browser.cookies[passkey_log_in.COOKIE] = other.cookies[passkey_log_in.COOKIE].value
        case "expired":
            monkeypatch.setattr(passkey_log_in, "CHALLENGE_SECONDS", -1)
        case _:
            browser.cookies[passkey_log_in.COOKIE] = cookie
    assert post(browser, credential).status_code == 302
    assert account_of(browser) is None


@pytest.mark.parametrize(
    ("credential", "why"),
    [("", "Passkeys need JavaScript"), ('{"id": 1}', "not accepted"), ("[" * 9_000, "not accepted")],
)
def test_a_refused_passkey_is_explained_on_the_log_in_page(db: None, credential: str, why: str) -> None:
    page = guest().post(PASSKEY, {"credential": credential, "next": "/tickets/"}, follow=True)
    assert page.redirect_chain == [("/accounts/log-in?next=%2Ftickets%2F", 302)]
    assert why in page.content.decode()
