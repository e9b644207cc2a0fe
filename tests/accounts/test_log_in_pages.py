"""Sign-up, log-in, log-out, and continuing as a guest."""

from typing import Any

import pytest
from django.test import Client

from apps.accounts.models import User
from apps.accounts.pages.views import form_is_stale

PASSWORD = "correct horse battery staple"
SIGN_UP, LOG_IN, LOG_OUT = "/accounts/sign-up", "/accounts/log-in", "/accounts/log-out"


@pytest.fixture
def ann(db: None) -> User:
    return User.objects.create_user("ann@example.org", password=PASSWORD)


def signed_in_id(browser: Client) -> str | None:
    return browser.session.get("_auth_user_id")


def test_sign_up_creates_an_account_and_logs_in(browser: Client) -> None:
    response = browser.post(SIGN_UP, {"username": " Ann@Example.ORG ", "password": PASSWORD, "next": "/tickets/"})
    assert (response.status_code, response.url) == (302, "/tickets/")
    user = User.objects.get()
    assert (user.username, user.email) == ("ann@example.org", "ann@example.org")
    assert signed_in_id(browser) == str(user.pk)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"username": "ann@example.org", "password": ""}, "password"),
        ({"username": "ann@example.org", "password": "short"}, "password"),
        ({"username": "ann@example.org", "password": "1234567890123"}, "password"),
        ({"username": "annabella@example.org", "password": "annabella@example.org"}, "password"),
        ({"username": "ann@example.org", "password": "nul\x00" + PASSWORD}, "password"),
        ({"username": "ann@example.org", "password": "x" * 1_001}, "password"),
        ({"username": "", "password": PASSWORD}, "username"),
        ({"username": "ann", "password": PASSWORD}, "username"),
        ({"username": "ann\x00@example.org", "password": PASSWORD}, "username"),
        ({"username": f"{'x' * 150}@example.org", "password": PASSWORD}, "username"),
    ],
)
def test_a_sign_up_error_is_shown_beside_its_field(browser: Client, fields: dict[str, str], field: str) -> None:
    response = browser.post(SIGN_UP, fields)
    assert response.status_code == 200
    assert list(response.context["form"].errors) == [{"username": "email", "password": "password1"}[field]]
    assert not User.objects.exists()


def test_an_email_address_has_one_account_regardless_of_case(browser: Client, ann: User) -> None:
    response = browser.post(SIGN_UP, {"username": "ANN@example.org", "password": PASSWORD})
    assert "Log in instead" in response.content.decode()
    assert User.objects.count() == 1


def test_two_concurrent_sign_ups_create_one_account(
    browser: Client, ann: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form found no account; the other sign-up commits; ours violates the unique name."""
    monkeypatch.setattr("apps.accounts.pages.forms.SignUpForm.validate_unique_email", lambda form, email: email)
    response = browser.post(SIGN_UP, {"username": "ann@example.org", "password": PASSWORD})
    assert (response.status_code, list(response.context["form"].errors)) == (200, ["email"])
    assert User.objects.count() == 1
    assert signed_in_id(browser) is None


def test_log_in_and_log_out(browser: Client, ann: User) -> None:
    response = browser.post(LOG_IN, {"username": "Ann@Example.org", "password": PASSWORD})
    assert (response.status_code, response.url) == (302, "/")
    assert signed_in_id(browser) == str(ann.pk)
    assert browser.cookies["signed_in"].value == "1"
    assert browser.get("/api/me/header?shared=1").json()["account"]["name"] == str(ann)
    assert "Log out?" in browser.get(LOG_OUT).content.decode()
    assert signed_in_id(browser) == str(ann.pk), "a link on another page must not log anyone out"
    assert browser.post(LOG_OUT).status_code == 302
    assert signed_in_id(browser) is None
    assert browser.cookies["signed_in"].value == ""
    assert browser.get(LOG_OUT).url == "/"


def test_a_staff_name_that_is_not_an_email_address_can_log_in(browser: Client, db: None) -> None:
    User.objects.create_superuser("Admin", password=PASSWORD)
    assert browser.post(LOG_IN, {"username": "Admin", "password": PASSWORD}).status_code == 302


@pytest.mark.parametrize(
    "fields",
    [
        {"username": "ann@example.org", "password": "wrong"},
        {"username": "bob@example.org", "password": PASSWORD},
        {"username": "ann@example.org\x00", "password": PASSWORD},
        {"username": "", "password": ""},
        {},
    ],
)
def test_a_failed_log_in_shows_the_form_again(browser: Client, ann: User, fields: dict[str, str]) -> None:
    response = browser.post(LOG_IN, fields)
    assert response.status_code == 200
    assert response.context["form"].errors
    assert signed_in_id(browser) is None


@pytest.mark.parametrize(
    "target",
    ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)", "http:evil.example",
     "\x00//evil.example", "https://testserver.evil.example/", " //evil.example"],
)  # fmt: skip
@pytest.mark.parametrize("path", [LOG_IN, SIGN_UP])
def test_the_next_page_is_always_on_this_site(browser: Client, ann: User, path: str, target: str) -> None:
    page = browser.get(path, {"next": target}).content.decode()
    assert "evil.example" not in page
    assert "javascript:" not in page
    name = "ann@example.org" if path == LOG_IN else "bob@example.org"
    response = browser.post(path, {"username": name, "password": PASSWORD, "next": target})
    assert (response.status_code, response.url) == (302, "/")


@pytest.mark.parametrize("path", [LOG_IN, SIGN_UP])
def test_a_guest_can_continue_on_the_previous_page(browser: Client, db: None, path: str) -> None:
    page = browser.get(path, {"next": "/events/concert/choose"}).content.decode()
    assert 'href="/events/concert/choose">Continue as guest' in page
    assert 'href="/">Continue as guest' in browser.get(path).content.decode()


@pytest.mark.parametrize("path", [LOG_IN, SIGN_UP, LOG_OUT])
def test_account_forms_need_a_csrf_token(db: None, path: str) -> None:
    strict = Client(enforce_csrf_checks=True, headers={"sec-fetch-site": "same-origin"})
    response: Any = strict.post(path, {"username": "ann@example.org", "password": PASSWORD})
    assert response.status_code == 403
    assert not User.objects.exists()


@pytest.fixture
def strict(db: None) -> Client:
    """A browser whose CSRF tokens are checked."""
    return Client(enforce_csrf_checks=True, headers={"sec-fetch-site": "same-origin"})


@pytest.mark.parametrize("path", [LOG_IN, SIGN_UP, LOG_OUT])
def test_an_expired_form_explains_itself_and_links_back(strict: Client, path: str) -> None:
    came_from = "http://testserver/accounts/log-in?next=/tickets/"
    response: Any = strict.post(path, {"username": "ann@example.org"}, headers={"referer": came_from})
    page = response.content.decode()
    assert response.status_code == 403
    assert "This page has expired" in page
    assert 'class="site-header"' in page
    assert f'href="{came_from}">Refresh' in page
    assert "no-store" in response.headers["Cache-Control"]


def test_the_link_back_is_always_on_this_site(strict: Client) -> None:
    response: Any = strict.post(LOG_IN, {}, headers={"referer": "http://evil.example/"})
    assert "evil.example" not in response.content.decode()
    assert 'href="/">See all events' in response.content.decode()


@pytest.mark.parametrize("path", [LOG_IN, SIGN_UP])
@pytest.mark.parametrize(("target", "redirect"), [("/tickets/", "/tickets/"), ("//evil.example/", "/"), ("", "/")])
def test_a_user_who_logged_in_elsewhere_is_redirected_from_an_expired_form(
    strict: Client, ann: User, path: str, target: str, redirect: str
) -> None:
    """The log-in page is open in one tab; the user logs in in another tab and then submits the first one."""
    strict.force_login(ann)
    response: Any = strict.post(path, {"username": "x", "password": "y", "next": target})
    assert (response.status_code, response.url) == (302, redirect)


def test_an_expired_token_is_a_problem_document_for_the_api(rf: Any) -> None:
    response = form_is_stale(rf.post("/api/events"))
    assert response.status_code == 403
    assert response.headers["Content-Type"] == "application/problem+json"
