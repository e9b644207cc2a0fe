"""The account's page shows the latest log-ins and changes, and mails notify of changes, so that the owner notices those
of another person, who cannot suppress the mails."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from apps.accounts import security_log
from apps.accounts.browser_names import browser_name
from apps.accounts.models import User
from apps.kernel import rate_limits
from tests.accounts.test_account_mail import NETWORK, NEW, SIGN_UP, delivered, link_in
from tests.support.accounts.credentials import LOG_IN, PASSWORD

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:131.0) Gecko/20100101 Firefox/131.0"
PHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 "
    "Mobile/15E148 Safari/604.1"
)
EDGE = "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0 Safari/537.36 Edg/130.0"
LogIn = Callable[[User], Client]


@pytest.fixture(autouse=True)
def _site_url(settings: Any) -> None:
    settings.SITE_URL = "http://localhost:8000"


@pytest.mark.parametrize(
    ("user_agent", "name"),
    [
        (FIREFOX, "Firefox on Linux"),
        (PHONE, "Safari on iPhone"),
        (EDGE, "Edge on Windows"),
        ("curl/8.5.0", "curl/8.5.0"),
        ("", ""),
        ("x" * 200, "x" * 40),
    ],
)
def test_a_browser_has_a_short_name(user_agent: str, name: str) -> None:
    assert browser_name(user_agent) == name


def test_the_owner_sees_log_ins_of_other_devices_and_changes(ann: User, log_in: LogIn) -> None:
    browser = log_in(ann)
    thief = Client(headers={"sec-fetch-site": "same-origin", "user-agent": PHONE})
    thief.post(LOG_IN, {"username": ann.username, "password": PASSWORD})
    browser.post("/accounts/log-out-everywhere")
    page = browser.get("/accounts/").content.decode()
    assert page.index("Logged out everywhere") < page.index("Safari on iPhone"), "newest first"
    assert "Mozilla" not in page


def test_it_shows_no_entries_of_others_and_few_of_the_own(ann: User, chief: User, log_in: LogIn) -> None:
    log_in(chief)
    for _ in range(2 * security_log.ACTIVITY_SHOWN_MAX):
        security_log.record(None, security_log.Kind.LOGGED_IN, ann)
    security_log.record(None, security_log.Kind.PERSONAL_DATA_READ, ann, detail="staff only")
    shown = security_log.list_own_activity(ann)
    assert len(shown) == security_log.ACTIVITY_SHOWN_MAX
    assert {each.account for each in shown} == {ann}
    assert {each.kind for each in shown} == {security_log.Kind.LOGGED_IN}


def test_a_name_of_a_browser_cannot_inject_markup(ann: User) -> None:
    browser = Client(headers={"sec-fetch-site": "same-origin", "user-agent": "<script>alert(1)</script>"})
    browser.post(LOG_IN, {"username": ann.username, "password": PASSWORD})
    page = browser.get("/accounts/").content.decode()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def change_password(browser: Client, address: str) -> None:
    fields = {"oldpassword": PASSWORD, "password1": NEW, "password2": NEW}
    assert browser.post("/accounts/password", fields, REMOTE_ADDR=address).status_code == 302


def use_up_downloads(browser: Client) -> list[Any]:
    """Download the data of the account until no more notices are sent; return the notices."""
    for number in range(20):
        rate_limits.forget_everything()
        assert browser.get("/accounts/data.json", REMOTE_ADDR=f"198.51.100.{number}").status_code == 200
    return delivered()


def test_a_thief_who_uses_up_an_address_suppresses_no_notice(ann: User, log_in: LogIn, browser: Client) -> None:
    thief = log_in(ann)
    while rate_limits.check_request("mail", NETWORK) is None:
        pass
    change_password(thief, NETWORK)
    (notice,) = delivered()
    assert notice.subject == "Your password was changed"


def test_a_thief_who_causes_harmless_notices_suppresses_no_other(ann: User, log_in: LogIn) -> None:
    thief = log_in(ann)
    assert {one.subject for one in use_up_downloads(thief)} == {"Your data was downloaded"}
    change_password(thief, NETWORK)
    thief.post("/accounts/email", {"email": "thief@example.com"})
    changed, link = delivered()
    assert changed.subject == "Your password was changed"
    thief.post(link_in(link))
    assert [one.subject for one in delivered() if one.to == [ann.email]] == ["Your email address was changed"]


@pytest.mark.parametrize("act", ["password", "address", "erasure"])
def test_a_stranger_who_signs_up_with_a_spelling_suppresses_no_notice(ann: User, log_in: LogIn, act: str) -> None:
    """The spelling is the same mailbox, and is not confirmed. Another account asks for the address itself."""
    strangers = [Client(headers={"sec-fetch-site": "same-origin"}) for _ in range(2)]
    for stranger, email in zip(strangers, ("ann+1@example.org", "bob@example.org"), strict=True):
        stranger.post(SIGN_UP, {"username": email, "password": PASSWORD})
    strangers[1].post("/accounts/email", {"email": ann.email})
    assert len([one for one in use_up_downloads(strangers[0]) if one.subject == "Your data was downloaded"]) == 15
    thief = log_in(ann)
    match act:
        case "password":
            change_password(thief, NETWORK)
        case "address":
            thief.post("/accounts/email", {"email": "thief@example.com"})
            thief.post(link_in(delivered()[0]))
        case _:
            thief.post("/accounts/erase", {"is_sure": "on"})
    (notice,) = (one for one in delivered() if one.to == [ann.email])
    assert "changed" in notice.subject or "erased" in notice.subject


def test_an_unconfirmed_accounts_notices_have_one_cap(browser: Client, db: None) -> None:
    """A stranger floods no mailbox with many kinds of notices of several accounts."""
    notices = []
    for number in range(3):
        stranger = Client(headers={"sec-fetch-site": "same-origin"})
        stranger.post(SIGN_UP, {"username": f"ann+{number}@example.org", "password": PASSWORD})
        delivered()
        notices += use_up_downloads(stranger)
        stranger.post("/accounts/erase", {"is_sure": "on"})
        notices += delivered()
    assert len(notices) == 15
