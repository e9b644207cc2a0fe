"""The browser fixtures: a real Chromium on a served site; a script error fails the test."""

import pytest
from django.contrib.auth import get_user_model

pytestmark = pytest.mark.browser


def test_a_page_is_opened_in_the_requested_size_and_colors(live_site: str, browser_page) -> None:
    phone = browser_page(360, 740, dark=True)
    phone.goto(live_site)
    assert phone.evaluate("window.innerWidth") == 360
    assert phone.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    desktop = browser_page(1440, 900)
    desktop.goto(live_site)
    assert desktop.evaluate("window.innerWidth") == 1440
    assert not desktop.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")


def test_the_database_can_be_used_beside_an_open_browser(live_site: str, browser_page) -> None:
    page = browser_page(javascript=False)
    users = get_user_model().objects
    users.create_user("ada", password="ada's own")
    page.goto(f"{live_site}/healthz")
    assert "ok" in page.content()
    assert users.count() == 1


def test_cookies_of_one_page_are_not_seen_by_another(live_site: str, browser_page) -> None:
    first, second = browser_page(), browser_page()
    first.context.add_cookies([{"name": "visitor", "value": "1", "url": live_site}])
    assert first.context.cookies() != []
    assert second.context.cookies() == []


def test_a_script_error_is_recorded_to_fail_the_test(live_site: str, browser_page) -> None:
    page = browser_page()
    page.goto(f"{live_site}/healthz")
    with page.expect_event("pageerror"):
        page.evaluate("setTimeout(() => { throw new Error('broken') }, 0)")
    assert browser_page.errors == ["broken"]
    browser_page.errors.clear()
