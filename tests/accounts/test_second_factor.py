"""Two-factor authentication: codes, recovery codes and passkeys at log-in, at the token endpoint and for staff."""

import json
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from django.core.management import call_command
from django.test import Client

from apps.accounts.models import SecurityEvent, User
from apps.accounts.tokens.account_tokens import RefreshToken
from tests.support.accounts.credentials import LOG_IN, PASSWORD, AuthenticatorApp
from tests.support.api_client import Api, assert_problem
from tests.support.races import storm, values

CODE, SECOND_FACTOR = "/accounts/log-in/code", "/accounts/second-factor"
NO_SIGNATURE = json.dumps(
    {
        "id": "AA",
        "rawId": "AA",
        "type": "public-key",
        "response": {"clientDataJSON": "e30", "authenticatorData": "AA", "signature": "AA", "userHandle": "MQ"},
        "clientExtensionResults": {},
    }
)
AppOf = Callable[[User], AuthenticatorApp]
LogIn = Callable[[User], Client]


def account_of(browser: Client) -> str | None:
    return browser.session.get("_auth_user_id")


def began_log_in(user: User, next_page: str = "") -> Client:
    """A browser that has sent the right password."""
    browser = Client(headers={"sec-fetch-site": "same-origin"})
    response = browser.post(LOG_IN, {"username": user.username, "password": PASSWORD, "next": next_page})
    assert (response.status_code, response.url) == (302, CODE)
    assert account_of(browser) is None
    return browser


def change_password(owner: Client, user: User) -> None:
    new = "another horse battery staple"
    sent = owner.post("/accounts/password", {"oldpassword": PASSWORD, "password1": new, "password2": new})
    assert sent.status_code == 302


def log_out_everywhere(owner: Client, user: User) -> None:
    assert owner.post("/accounts/log-out-everywhere").status_code == 302


def reset_second_factor(owner: Client, user: User) -> None:
    """As an operator does; the owner adds a new app afterwards, with the old secret for this test."""
    apps = list(Authenticator.objects.filter(user=user))
    call_command("reset_mfa", user.username, stdout=StringIO())
    Authenticator.objects.bulk_create(apps)


def test_a_log_in_needs_the_code_of_the_app(ann: User, app_of: AppOf) -> None:
    app = app_of(ann)
    browser = began_log_in(ann, "/tickets/")
    assert "One more step" in browser.get(CODE).content.decode()
    wrong = browser.post(CODE, {"code": "000000"})
    assert (wrong.status_code, account_of(browser)) == (200, None)
    assert "incorrect" in wrong.content.decode()
    right = browser.post(CODE, {"code": app.next_code()})
    assert (right.status_code, right.url) == (302, "/tickets/")
    assert account_of(browser) == str(ann.pk)
    assert browser.cookies["signed_in"].value == "1"


@pytest.mark.parametrize("page", ["/accounts/", "/accounts/email", "/accounts/password", "/admin/", "/tickets/"])
def test_a_password_alone_opens_no_page_of_the_account(ann: User, app_of: AppOf, page: str) -> None:
    app_of(ann)
    browser = began_log_in(ann)
    browser.get(page)
    assert account_of(browser) is None
    assert browser.get("/api/me/header?shared=1").json()["account"] is None, "the header of shared pages shows none"


def test_a_code_is_accepted_once(ann: User, app_of: AppOf) -> None:
    code = app_of(ann).next_code()
    assert began_log_in(ann).post(CODE, {"code": code}).status_code == 302
    second = began_log_in(ann)
    assert second.post(CODE, {"code": code}).status_code == 200
    assert account_of(second) is None


def test_a_code_of_an_earlier_step_than_the_last_one_is_refused(ann: User, app_of: AppOf) -> None:
    app = app_of(ann)
    earlier, later = app.next_code(), app.next_code()
    assert began_log_in(ann).post(CODE, {"code": later}).status_code == 302
    assert began_log_in(ann).post(CODE, {"code": earlier}).status_code == 200


@pytest.mark.parametrize("end", [change_password, log_out_everywhere, reset_second_factor])
def test_a_log_in_that_waits_for_its_code_ends_with_the_sessions(
    ann: User, app_of: AppOf, log_in: LogIn, end: Callable[[Client, User], object]
) -> None:
    owner = log_in(ann)
    app = app_of(ann)
    browser = began_log_in(ann, "/tickets/")
    end(owner, ann)
    response = browser.post(CODE, {"code": app.next_code()})
    assert (response.status_code, account_of(browser)) == (302, None)
    assert browser.get(CODE).url == LOG_IN, "it begins with the password again"


@pytest.mark.django_db(transaction=True)
def test_of_concurrent_log_ins_with_one_code_one_succeeds(ann: User, app_of: AppOf) -> None:
    code = app_of(ann).next_code()
    browsers = [began_log_in(ann) for _ in range(6)]
    values(storm(6, lambda number: browsers[number].post(CODE, {"code": code}).status_code))
    assert [account_of(browser) for browser in browsers].count(str(ann.pk)) == 1


def test_codes_work_while_redis_is_unavailable(own_redis: Any, ann: User, app_of: AppOf) -> None:
    app = app_of(ann)
    own_redis.kill()
    code = app.next_code()
    assert began_log_in(ann).post(CODE, {"code": code}).status_code == 302
    assert began_log_in(ann).post(CODE, {"code": code}).status_code == 200


def test_codes_cannot_be_guessed(ann: User, app_of: AppOf) -> None:
    app = app_of(ann)
    browser = began_log_in(ann)
    statuses = [browser.post(CODE, {"code": f"{number:06}"}).status_code for number in range(20)]
    assert statuses[:10] == [200] * 10
    assert set(statuses[10:]) == {429}
    assert browser.post(CODE, {"code": app.next_code()}).status_code == 429
    assert SecurityEvent.objects.filter(kind="code_wrong", account=ann).count() == 10


def test_a_recovery_code_works_once(ann: User, app_of: AppOf) -> None:
    app_of(ann)
    code = RecoveryCodes.activate(ann).get_unused_codes()[0]
    assert began_log_in(ann).post(CODE, {"code": f" {code[:4]} {code[4:]} "}).status_code == 302
    assert began_log_in(ann).post(CODE, {"code": code}).status_code == 200


@pytest.mark.parametrize("code", ["", " ", "12345", "x" * 500, "\x00", "١٢٣٤٥٦", "🎫🎫🎫🎫🎫🎫"])
def test_a_malformed_code_is_an_error_of_the_form(ann: User, app_of: AppOf, code: str) -> None:
    app_of(ann)
    browser = began_log_in(ann)
    assert browser.post(CODE, {"code": code}).status_code == 200
    assert account_of(browser) is None


def test_secrets_are_encrypted_in_the_database(ann: User, app_of: AppOf, settings: Any) -> None:
    app = app_of(ann)
    row = Authenticator.objects.get(user=ann)
    assert app.secret not in json.dumps(row.data)
    old = settings.SECRET_KEY
    settings.SECRET_KEY = "another-key-of-this-deployment-with-32-bytes"
    settings.SECRET_KEY_FALLBACKS = [old]
    assert began_log_in(ann).post(CODE, {"code": app.next_code()}).status_code == 302
    settings.SECRET_KEY_FALLBACKS = []
    refused = began_log_in(ann).post(CODE, {"code": app.next_code()})
    assert refused.status_code == 409
    assert "secret key has changed" in refused.content.decode()


def test_the_code_that_activated_the_app_does_not_log_in(
    ann: User, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A person who saw it could use it again within its ninety seconds."""
    from allauth.mfa.totp.internal import auth as totp

    monkeypatch.setattr(totp, "yield_hotp_counters_from_time", lambda: iter((1_000, 1_001, 1_002)))
    browser = log_in(ann)
    secret = browser.get(f"{SECOND_FACTOR}/app").context["form"].secret

    def code(step: int) -> str:
        return totp.format_hotp_value(totp.hotp_value(secret, step))

    used = f"{code(1_001)[:3]} {code(1_001)[3:]}"
    assert browser.post(f"{SECOND_FACTOR}/app", {"code": used}).status_code == 302
    second = began_log_in(ann)
    for replayed in (code(1_001), code(1_000)):
        assert second.post(CODE, {"code": replayed}).status_code == 200
    assert account_of(second) is None
    assert second.post(CODE, {"code": code(1_002)}).status_code == 302


@pytest.mark.django_db(transaction=True)
def test_the_app_is_added_and_removed_on_the_accounts_page(ann: User, log_in: LogIn) -> None:
    from allauth.mfa.totp.internal import auth as totp

    browser, elsewhere, token = log_in(ann), log_in(ann), RefreshToken.for_user(ann)
    page = browser.get(f"{SECOND_FACTOR}/app")
    secret = page.context["form"].secret
    assert secret in page.content.decode()
    code = totp.format_hotp_value(totp.hotp_value(secret, next(totp.yield_hotp_counters_from_time())))
    added = browser.post(f"{SECOND_FACTOR}/app", {"code": code}, follow=True)
    assert added.redirect_chain == [(f"{SECOND_FACTOR}/recovery-codes", 302)]
    assert elsewhere.get("/accounts/").status_code == 302, "a session that began without the second factor has ended"
    assert token.account() is None
    codes = RecoveryCodes(Authenticator.objects.get(user=ann, type="recovery_codes")).get_unused_codes()
    assert all(one in added.content.decode() for one in codes)
    assert browser.get(f"{SECOND_FACTOR}/recovery-codes/download").content.decode().split() == codes
    browser.post(f"{SECOND_FACTOR}/recovery-codes/new")
    assert codes[0] not in browser.get(f"{SECOND_FACTOR}/recovery-codes").content.decode()
    assert browser.post(f"{SECOND_FACTOR}/app/remove").status_code == 302
    assert not Authenticator.objects.filter(user=ann).exists()
    kinds = list(SecurityEvent.objects.filter(account=ann).order_by("pk").values_list("kind", flat=True))
    assert {"second_factor_added", "second_factor_removed"} <= set(kinds)
    assert "recovery_codes_created" in kinds


def test_an_unconfirmed_address_may_add_no_second_factor(db: None, log_in: LogIn) -> None:
    """Otherwise a stranger could sign up with another person's address and lock the owner out for good."""
    stranger = User.objects.create_user("victim@example.org", password=PASSWORD)
    browser = log_in(stranger)
    for path in (f"{SECOND_FACTOR}/app", f"{SECOND_FACTOR}/passkeys/add"):
        assert browser.get(path).url == "/accounts/"
        assert browser.post(path, {"code": "123456"}).url == "/accounts/"
    assert "Confirm your email address first" in browser.get("/accounts/").content.decode()


@pytest.mark.parametrize(
    "credential",
    ["", "x", "{}", "[]", "7", "null", '"text"', '{"id": 1}', '{"response": {"userHandle": "AAAA"}}',
     '{"response": []}', '{"id":"a","rawId":"a","type":"public-key","response":{"userHandle":"////"}}',
     NO_SIGNATURE, "[" * 5_000, "1" * 5_000],
)  # fmt: skip
def test_a_malformed_passkey_is_refused(ann: User, log_in: LogIn, app_of: AppOf, credential: str) -> None:
    guest = Client(headers={"sec-fetch-site": "same-origin"})
    assert guest.get("/accounts/log-in/passkey", headers={"accept": "application/json"}).status_code == 200
    assert guest.post("/accounts/log-in/passkey", {"credential": credential}).status_code == 302
    assert account_of(guest) is None
    browser = log_in(ann)
    assert browser.get(f"{SECOND_FACTOR}/passkeys/add").status_code == 200
    assert browser.post(f"{SECOND_FACTOR}/passkeys/add", {"credential": credential}).status_code == 200
    assert not Authenticator.objects.filter(user=ann).exists()
    app_of(ann)
    second = began_log_in(ann)
    second.get(CODE)
    assert second.post(CODE, {"credential": credential}).status_code == 200
    assert account_of(second) is None


def test_the_token_endpoint_wants_the_code(api: Api, ann: User, app_of: AppOf) -> None:
    app = app_of(ann)
    credentials = {"username": ann.username, "password": PASSWORD}
    assert_problem(api.post("/auth/token", credentials), 401, "code-required")
    assert_problem(api.post("/auth/token", {**credentials, "otp": "000000"}), 401, "code-wrong")
    code = app.next_code()
    assert api.post("/auth/token", {**credentials, "otp": code}).status_code == 200
    assert_problem(api.post("/auth/token", {**credentials, "otp": code}), 401, "code-wrong")
    guessed = {"username": ann.username, "password": "guessed", "otp": app.next_code()}
    assert_problem(api.post("/auth/token", guessed), 401, "credentials-wrong")


def test_staff_without_a_second_factor_get_no_tokens_where_it_is_required(
    api: Api, chief: User, ann: User, settings: Any
) -> None:
    settings.STAFF_MFA_REQUIRED = True
    credentials = {"username": "chief", "password": PASSWORD}
    assert_problem(api.post("/auth/token", credentials), 403, "second-factor-required")
    assert api.post("/auth/token", {"username": ann.username, "password": PASSWORD}).status_code == 200
