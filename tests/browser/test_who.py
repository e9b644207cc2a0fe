"""The site navigation of a cached, shared page shows who is logged in."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from apps.accounts.models import User
from tests.support.factories import make_event

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

NAME, PASSWORD = "ann@example.org", "of course not"
PAGES = ("/", "/events/concert/")


@pytest.fixture
def cached_page(live_site: str, browser_page: Callable[..., "Page"]) -> "Page":
    """A browser behind a cache that stored both pages as rendered for an anonymous visitor."""
    make_event("concert")
    User.objects.create_user(NAME, password=PASSWORD)
    page = browser_page()
    cached = {path: page.request.get(live_site + path) for path in PAGES}
    assert all(response.headers["cache-control"].startswith("public") for response in cached.values())

    def respond_from_cache(route: "Route") -> None:
        path = route.request.url.removeprefix(live_site).partition("?")[0]
        route.fulfill(response=cached[path])

    for path in PAGES:
        page.route(live_site + path, respond_from_cache)
    return page


def link(page: "Page", name: str) -> "Locator":
    return page.get_by_role("banner").get_by_role("link", name=name)


def log_out_button(page: "Page") -> "Locator":
    return page.get_by_role("banner").get_by_role("button", name="Log out")


def test_a_cached_page_shows_the_navigation_of_its_visitor(live_site: str, cached_page: "Page") -> None:
    page = cached_page
    for path in PAGES:
        page.goto(live_site + path)
        link(page, "Log in").wait_for()
        assert NAME not in (page.get_by_role("banner").text_content() or "")
    link(page, "Log in").click()
    page.get_by_label("Email address").fill(NAME)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("main").get_by_role("button", name="Log in", exact=True).click()
    for path in PAGES:
        page.goto(live_site + path)
        log_out_button(page).wait_for()
        assert NAME in (page.get_by_role("banner").text_content() or "")
        assert link(page, "Log in").count() == 0
    # A cached page cannot contain this form: its CSRF token was loaded with the user's navigation.
    log_out_button(page).click()
    for path in PAGES:
        page.goto(live_site + path)
        link(page, "Log in").wait_for()
        assert log_out_button(page).count() == 0


def test_an_anonymous_browser_sends_no_request_for_the_user(live_site: str, cached_page: "Page") -> None:
    urls: list[str] = []
    cached_page.on("request", lambda request: urls.append(request.url))
    for path in PAGES:
        cached_page.goto(live_site + path)
    assert any(url.endswith("/who.js") for url in urls), "the script runs before the load event"
    assert not [url for url in urls if url.endswith("/accounts/who")]
