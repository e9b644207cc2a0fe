"""People find a lost order, replace a lost password and confirm an address, each by the link of an email, in a real
browser."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from allauth.account.models import EmailAddress
from django.core import mail

from apps.accounts.models import User
from apps.orders.models import ReturnPolicy
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.browser.test_whole_sale import DESKTOP, PHONE
from tests.support.accounts.credentials import PASSWORD
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import buy, deliver_outbox

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
OpenPage = Callable[..., "Page"]
ANN, NEW = "ann@example.org", "another of good length"
devices = pytest.mark.parametrize(
    ("size", "options"),
    [(DESKTOP, {}), (PHONE, {"dark": True, "javascript": False})],
    ids=["desktop", "phone in the dark, without scripts"],
)


def path_in_mail(pattern: str) -> str:
    """Deliver the scheduled mails; return the path in the last one that matches."""
    mail.outbox.clear()
    deliver_outbox()
    (message,) = mail.outbox
    assert message.to == [ANN]
    found = re.search(rf"https?://[^/\s]+({pattern}\S*)", str(message.body))
    assert found is not None, message.body
    return found[1]


def log_in(page: "Page", password: str) -> None:
    page.get_by_label("Email or username").fill(ANN)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in", exact=True).click()


@devices
def test_a_guest_finds_a_lost_order_by_email(
    live_site: str, browser_page: OpenPage, size: tuple[int, int], options: dict[str, bool]
) -> None:
    event = make_event()
    ReturnPolicy.objects.create(event_id=event.id, until_hours=24)
    order = buy(hold(event, seats=["hall-A-4"]), email=ANN)
    deliver_outbox()
    page = browser_page(*size, **options)
    page.goto(f"{live_site}/orders/{order.pk}/")
    page.get_by_role("heading", name="You don’t have access to this page").wait_for()
    page.get_by_role("main").get_by_role("link", name="Find my order").click()
    page.get_by_label("Email address").fill(ANN)
    page.get_by_role("button", name="Email my orders").click()
    page.get_by_role("heading", name="Check your email").wait_for()
    assert_nothing_sticks_out(page)
    page.goto(live_site + path_in_mail(f"/orders/{order.pk}"))
    page.get_by_text(order.number).first.wait_for()
    assert page.url == f"{live_site}/orders/{order.pk}/", "the keys are not in the address bar"
    page.get_by_role("link", name="Return tickets").click()
    page.get_by_role("button", name="See refund").wait_for()
    assert_audit_clean()


@devices
def test_a_lost_password_is_replaced_from_the_log_in_page(
    live_site: str, browser_page: OpenPage, size: tuple[int, int], options: dict[str, bool]
) -> None:
    user = User.objects.create_user(ANN, password=PASSWORD)
    EmailAddress.objects.create(user=user, email=ANN, verified=True, primary=True)
    page = browser_page(*size, **options)
    page.goto(f"{live_site}/accounts/log-in?next=/accounts/")
    log_in(page, "forgotten")
    page.get_by_text("The email address or password is incorrect.").wait_for()
    page.get_by_role("link", name="Forgot your password?").click()
    page.get_by_label("Email address").fill(ANN)
    page.get_by_role("button", name="Email me a link").click()
    page.get_by_role("heading", name="Check your email").wait_for()
    page.goto(live_site + path_in_mail("/accounts/password/reset/"))
    page.get_by_label("New password", exact=True).fill(NEW)
    page.get_by_label("New password again").fill(NEW)
    page.get_by_role("button", name="Save password").click()
    page.get_by_role("heading", name="Your password was changed").wait_for()
    page.get_by_role("main").get_by_role("link", name="Log in").click()
    log_in(page, NEW)
    page.goto(f"{live_site}/accounts/")
    page.get_by_role("heading", name="Your account").wait_for()
    page.get_by_role("main").get_by_text(ANN).wait_for()


@devices
def test_a_new_account_is_used_once_its_address_is_confirmed(
    live_site: str, browser_page: OpenPage, settings: Any, size: tuple[int, int], options: dict[str, bool]
) -> None:
    settings.ACCOUNT_EMAIL_VERIFICATION = "mandatory"
    page = browser_page(*size, **options)
    page.goto(f"{live_site}/accounts/log-in")
    page.get_by_role("main").get_by_role("link", name="Create your account").click()
    page.get_by_label("Email address").fill(ANN)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Create account").click()
    page.get_by_role("heading", name="Check your email").wait_for()
    link = path_in_mail("/accounts/email/confirm/")
    page.goto(f"{live_site}/accounts/log-in?next=/accounts/")
    log_in(page, PASSWORD)
    page.get_by_text("the address is not confirmed yet").wait_for()
    page.goto(live_site + link)
    page.get_by_role("button", name="Yes, confirm").click()
    page.get_by_text(f"{ANN} is confirmed.").wait_for()
    page.goto(f"{live_site}/accounts/log-in?next=/accounts/")
    log_in(page, PASSWORD)
    page.get_by_role("heading", name="Your account").wait_for()
    page.get_by_text("Confirmed", exact=True).wait_for()


def test_a_person_adds_a_passkey_and_logs_in_with_it(live_site: str, browser_page: OpenPage) -> None:
    user = User.objects.create_user(ANN, password=PASSWORD)
    EmailAddress.objects.create(user=user, email=ANN, verified=True, primary=True)
    page = browser_page(*DESKTOP)
    device = page.context.new_cdp_session(page)
    device.send("WebAuthn.enable")
    options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
    options |= {"isUserVerified": True, "automaticPresenceSimulation": True}
    device.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    page.goto(f"{live_site}/accounts/log-in?next=/accounts/")
    log_in(page, PASSWORD)
    page.get_by_role("link", name="Add a passkey").click()
    page.get_by_label("Name of the passkey").fill("Ann’s phone")
    page.get_by_role("button", name="Add passkey").click()
    page.get_by_role("heading", name="Your recovery codes").wait_for()
    page.get_by_role("link", name="Your account").click()
    page.get_by_text("Passkey “Ann’s phone”").wait_for()
    page.get_by_role("button", name=re.compile("this device$")).click()
    page.goto(f"{live_site}/accounts/log-in?next=/accounts/")
    page.get_by_role("button", name="Log in with a passkey").click()
    page.get_by_role("heading", name="Your account").wait_for()
