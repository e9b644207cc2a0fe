"""Every page of accounts in every state, on a desktop and on a phone, in both themes: axe finds nothing, no content
policy is violated, and no page scrolls sideways."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from django.core import mail
from django.test import Client

from apps.accounts.models import User
from apps.accounts.pages import mail as account_mail
from apps.kernel.http import problems
from tests.browser.accessibility import find_violations
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.support.accounts.credentials import PASSWORD, AuthenticatorApp
from tests.support.accounts.passkey import Passkey
from tests.support.factories import hold, join, make_event
from tests.support.orders.sale import buy, deliver_outbox

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.conftest import Pages

pytestmark = [pytest.mark.slow, pytest.mark.browser, pytest.mark.django_db(transaction=True)]
SIZES = {"desk": (1440, 900), "phone": (360, 740)}


class Visitor:
    """A person in a browser. `look` compares the present page with the rules of axe, and stores pictures of it."""

    def __init__(self, pages: "Pages", page: "Page", site: str, folder: Path) -> None:
        self.pages, self.page, self.site, self.folder = pages, page, site, folder
        self.found: list[str] = []

    def go(self, path: str, status: int = 200) -> None:
        answer = self.page.goto(f"{self.site}{path}")
        assert answer is not None
        assert answer.status == status, (path, answer.status)

    def log_in(self, user: User) -> None:
        client = Client()
        client.force_login(user)
        session = client.cookies["sessionid"].value
        self.page.context.add_cookies([{"name": "sessionid", "value": session, "url": self.site}])

    def send(self, **values: str) -> None:
        """Fill the fields of the page's first form with these names, and send it without the browser's own checks."""
        form = self.page.locator("main form").first
        form.evaluate("form => { form.noValidate = true }")
        for name, value in values.items():
            form.locator(f"[name={name}]").fill(value)
        form.locator("button[type=submit]").first.click()
        self.page.wait_for_load_state()

    def look(self, name: str, heading: str) -> None:
        self.page.get_by_role("heading", level=1, name=heading, exact=True).wait_for()
        assert self.page.title().endswith(" · Fairgate") or heading == "One moment"
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            self.page.screenshot(path=str(self.folder / f"{name}-{scheme}.png"), full_page=True)
        self.found += [f"{name}: {one}" for one in find_violations(self.pages, self.page)]
        try:
            assert_nothing_sticks_out(self.page)
        except AssertionError as error:
            self.found.append(f"{name}: {error}")

    def look_at_error(self, name: str, heading: str, text: str) -> None:
        """Expect this error at the first field that has one, which has the focus."""
        self.page.get_by_text("Please fix the errors below.").wait_for()
        self.page.locator(".field__error").first.get_by_text(text).wait_for()
        assert self.page.evaluate("document.activeElement.closest('.field--wrong') !== null"), f"{name}: no focus"
        self.look(name, heading)


@pytest.fixture(params=SIZES, ids=list(SIZES))
def visitor(
    request: pytest.FixtureRequest, live_site: str, browser_page: "Pages", settings: Any, tmp_path: Path
) -> Iterator[Visitor]:
    settings.REAUTHENTICATION_SECONDS = 0
    width, height = SIZES[request.param]
    visited = Visitor(browser_page, browser_page(width, height), live_site, tmp_path)
    yield visited
    assert not visited.found, f"{len(visited.found)} findings:\n" + "\n".join(visited.found)


@pytest.fixture
def ann(db: None) -> User:
    user = User.objects.create_user("ann@example.org", password=PASSWORD)
    EmailAddress.objects.create(user=user, email=user.email, verified=True, primary=True)
    return user


def link_in_mail(pattern: str) -> str:
    """Deliver the scheduled mails; return the path in the last one that matches."""
    deliver_outbox()
    found = re.search(rf"https?://[^/\s]+({pattern}\S*)", str(mail.outbox[-1].body))
    assert found is not None, mail.outbox[-1].body
    return found[1]


def test_pages_before_the_log_in(visitor: Visitor, ann: User, settings: Any) -> None:
    visitor.go("/accounts/log-in")
    visitor.look("log-in", "Log in")
    visitor.send(username="ann@example.org", password="wrong")
    visitor.page.get_by_text("Passwords are case-sensitive").wait_for()
    assert visitor.page.evaluate("document.activeElement.name") == "password"
    visitor.look("log-in-refused", "Log in")
    visitor.send(username="", password="")
    visitor.look_at_error("log-in-empty", "Log in", "Enter your email address or username.")
    visitor.go("/accounts/sign-up")
    visitor.look("sign-up", "Create your account")
    visitor.send(username="ann", password="1234")
    visitor.look_at_error("sign-up-errors", "Create your account", "Enter a valid email address.")
    visitor.send(username="ann@example.org", password=PASSWORD)
    visitor.look_at_error("sign-up-taken", "Create your account", "An account with this email address already exists.")
    visitor.go("/accounts/log-in")
    visitor.page.locator("#passkey_credential").evaluate("field => { field.value = '[1]'; field.form.submit() }")
    visitor.page.get_by_text("The passkey was not accepted.").wait_for()
    visitor.look("log-in-passkey-refused", "Log in")
    settings.PROOF_OF_WORK_LOG_IN = "on"
    visitor.go("/accounts/log-in")
    visitor.look("log-in-work", "Log in")
    settings.PROOF_OF_WORK_LOG_IN = "off"
    visitor.go("/accounts/log-in/inactive")
    visitor.look("inactive", "This account is closed")
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    visitor.go("/accounts/sign-up")
    visitor.send(username="bob@example.org", password=PASSWORD)
    visitor.look("verification-sent", "Check your email")
    link = link_in_mail("/accounts/email/confirm/")
    visitor.go(link)
    visitor.look("confirm", "Confirm your email address")
    signed_up = visitor.page.context.cookies()
    visitor.page.context.clear_cookies()
    visitor.go(link)
    visitor.look("confirm-password", "Confirm your email address")
    visitor.send(password="wrong")
    visitor.look_at_error("confirm-password-wrong", "Confirm your email address", "The password is incorrect.")
    visitor.page.get_by_role("button", name="This was not me").click()
    visitor.look("confirm-ended", "The request was ended")
    visitor.page.context.add_cookies(signed_up)  # type: ignore[arg-type]
    account_mail.schedule("email_confirmation", "bob@example.org", {"user": User.objects.latest("pk")}, "192.0.2.1")
    link = link_in_mail("/accounts/email/confirm/")
    visitor.go(link)
    visitor.page.get_by_role("button", name="Yes, confirm").click()
    visitor.look("log-in-confirmed", "Log in")
    visitor.go(link)
    visitor.look("confirm-used", "This link does not work any more")


def test_pages_of_a_password_reset(visitor: Visitor, ann: User) -> None:
    visitor.go("/accounts/password/reset")
    visitor.look("reset", "Forgot your password?")
    visitor.send(email="ann")
    visitor.look_at_error("reset-errors", "Forgot your password?", "Enter a valid email address.")
    visitor.send(email="ann@example.org")
    visitor.look("reset-sent", "Check your email")
    link = link_in_mail("/accounts/password/reset/")
    visitor.go(link)
    visitor.look("reset-form", "Choose a new password")
    visitor.send(password1="1234", password2="12345")
    visitor.look_at_error("reset-form-errors", "Choose a new password", "This password is too short.")
    visitor.send(password1="another of good length", password2="another of good length")
    visitor.look("reset-done", "Your password was changed")
    visitor.go(link)
    visitor.look("reset-invalid", "This link does not work any more")


def test_pages_of_an_account(visitor: Visitor, ann: User) -> None:
    visitor.log_in(ann)
    visitor.go("/accounts/")
    visitor.look("account", "Your account")
    visitor.page.get_by_role("button", name="Log out all other devices").click()
    visitor.page.get_by_text("All other devices were logged out.").wait_for()
    visitor.look("account-logged-out-others", "Your account")
    visitor.go("/accounts/password")
    visitor.look("password", "Change your password")
    visitor.send(oldpassword="wrong", password1="1234", password2="1234")
    visitor.look_at_error("password-errors", "Change your password", "The password is incorrect.")
    visitor.send(oldpassword=PASSWORD, password1="another of good length", password2="another of good length")
    visitor.page.get_by_text("Your password was changed.").wait_for()
    visitor.go("/accounts/email")
    visitor.look("email", "Change your email address")
    visitor.send(email="ann")
    visitor.look_at_error("email-errors", "Change your email address", "Enter a valid email address.")
    visitor.send(email="a.much.longer.address.of.ann.with.many.words@mail.example.org")
    visitor.look("account-pending", "Your account")
    link = link_in_mail("/accounts/email/confirm/")
    visitor.go(link)
    visitor.look("confirm-change", "Confirm your email address")
    logged_in = visitor.page.context.cookies()
    visitor.page.context.clear_cookies()
    visitor.go(link)
    visitor.page.get_by_role("link", name="Log in to confirm").wait_for()
    visitor.look("confirm-change-log-in", "Confirm your email address")
    visitor.page.context.add_cookies(logged_in)  # type: ignore[arg-type]
    visitor.go("/accounts/log-out")
    visitor.look("log-out", "Log out?")
    visitor.go("/accounts/confirm")
    visitor.look("confirm-password", "Confirm that it’s you")
    visitor.send(password="wrong")
    visitor.look_at_error("confirm-password-errors", "Confirm that it’s you", "The password is incorrect.")
    visitor.go("/accounts/erase")
    visitor.look("erase", "Erase my account")
    visitor.page.locator("main form button[type=submit]").last.evaluate("button => { button.form.noValidate = true }")
    visitor.page.get_by_role("button", name="Erase my account").click()
    visitor.look_at_error("erase-errors", "Erase my account", "Tick this to erase your account.")
    visitor.page.get_by_label("I know that this cannot be undone").check()
    visitor.page.get_by_role("button", name="Erase my account").click()
    visitor.look("erased", "Your account was erased")


def test_pages_of_an_account_that_is_new_or_still_needed(visitor: Visitor, db: None) -> None:
    bob = User.objects.create_user("bob@example.org", password=PASSWORD)
    event = make_event()
    buy(hold(event, join(event, account_id=bob.pk), seats=["hall-A-1"]), email=bob.email)
    deliver_outbox()
    visitor.log_in(bob)
    visitor.go("/accounts/")
    visitor.look("account-unconfirmed", "Your account")
    visitor.go("/accounts/second-factor/app")
    visitor.page.get_by_text("Confirm your email address first").wait_for()
    visitor.look("account-must-confirm", "Your account")
    visitor.go("/accounts/erase")
    visitor.look("erase-needed", "Erase my account")
    bob.set_unusable_password()
    bob.save()
    visitor.log_in(bob)
    visitor.go("/accounts/password/set")
    visitor.look("password-set", "Set a password")


def test_pages_of_second_factors(visitor: Visitor, ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    visitor.log_in(ann)
    visitor.go("/accounts/second-factor/app")
    visitor.look("app", "Add an authenticator app")
    visitor.send(code="000000")
    visitor.look_at_error("app-errors", "Add an authenticator app", "The code is incorrect")
    AuthenticatorApp(ann, monkeypatch)
    Passkey(ann).add()
    RecoveryCodes.activate(ann)
    key = Authenticator.objects.get(type=Authenticator.Type.WEBAUTHN).pk
    visitor.go("/accounts/")
    visitor.look("account-factors", "Your account")
    visitor.go("/accounts/second-factor/recovery-codes")
    visitor.look("codes", "Your recovery codes")
    visitor.go("/accounts/second-factor/recovery-codes/new")
    visitor.look("codes-new", "Create new recovery codes?")
    visitor.send()
    visitor.page.get_by_text("New recovery codes were created.").wait_for()
    visitor.look("codes-created", "Your recovery codes")
    codes = Authenticator.objects.get(user=ann, type=Authenticator.Type.RECOVERY_CODES).wrap()
    for code in codes.get_unused_codes():
        assert codes.validate_code(code)
    visitor.page.reload()
    visitor.look("codes-used", "Your recovery codes")
    visitor.go("/accounts/second-factor/passkeys/add")
    visitor.look("passkey-add", "Add a passkey")
    visitor.go(f"/accounts/second-factor/passkeys/{key}/rename")
    visitor.look("passkey-rename", "Rename the passkey")
    visitor.send(name="")
    visitor.look_at_error("passkey-rename-errors", "Rename the passkey", "Enter a name.")
    visitor.send(name="Ann’s phone")
    visitor.page.get_by_text("The passkey was renamed.").wait_for()
    visitor.page.get_by_text("Passkey “Ann’s phone”").wait_for()
    visitor.go(f"/accounts/second-factor/passkeys/{key}/remove")
    visitor.look("passkey-remove", "Remove this passkey?")
    visitor.go("/accounts/second-factor/app/remove")
    visitor.look("app-remove", "Remove the authenticator app?")
    for path, name in (("code", "confirm-code"), ("passkey", "confirm-passkey")):
        visitor.go(f"/accounts/confirm/{path}")
        visitor.look(name, "Confirm that it’s you")
    visitor.page.context.clear_cookies()
    visitor.go("/accounts/log-in")
    visitor.send(username="ann@example.org", password=PASSWORD)
    visitor.look("log-in-code", "One more step")
    visitor.send(code="000000")
    visitor.look_at_error("log-in-code-errors", "One more step", "The code is incorrect")


def test_pages_that_find_an_order(visitor: Visitor, db: None) -> None:
    visitor.go("/orders/find")
    visitor.look("find", "Find my order")
    visitor.send(email="ann")
    visitor.look_at_error("find-errors", "Find my order", "Enter a valid email address.")
    visitor.send(email="a.much.longer.address.of.ann.with.many.words@mail.example.org")
    visitor.look("find-sent", "Check your email")
    visitor.go("/tickets/")
    visitor.look("no-tickets", "My tickets")


def test_pages_that_refuse(visitor: Visitor, ann: User, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that was open before a log-in, and too many requests."""
    visitor.go("/accounts/sign-up")
    visitor.page.locator("[name=csrfmiddlewaretoken]").first.evaluate("field => { field.value = 'x'.repeat(64) }")
    visitor.send(username="bob@example.org", password=PASSWORD)
    visitor.look("stale", "This page has expired")

    def refuse(*args: object) -> None:
        raise problems.RateLimited(30)

    monkeypatch.setattr("apps.accounts.passwords.attempts.require_attempts_left", refuse)
    visitor.go("/accounts/log-in")
    visitor.send(username="ann@example.org", password="wrong")
    visitor.look("too-many-attempts", "Too many requests. Try again later.")
    monkeypatch.setattr("apps.kernel.rate_limits.check_request", lambda *args: 30.0)
    visitor.go("/accounts/log-in", 429)
    visitor.look("too-many-requests", "One moment")
