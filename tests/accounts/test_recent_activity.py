"""The account's page shows the latest log-ins and changes, so that the owner notices those of another person."""

from collections.abc import Callable

import pytest
from django.test import Client

from apps.accounts import security_log
from apps.accounts.browser_names import browser_name
from apps.accounts.models import User
from tests.support.accounts.credentials import LOG_IN, PASSWORD

FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:131.0) Gecko/20100101 Firefox/131.0"
PHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/17.5 "
    "Mobile/15E148 Safari/604.1"
)
EDGE = "Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/130.0 Safari/537.36 Edg/130.0"
LogIn = Callable[[User], Client]


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
