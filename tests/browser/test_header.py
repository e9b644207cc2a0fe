"""The header of every page, also of cached, shared ones, shows its visitor: the account, and reserved seats."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from django.db import transaction

from apps.accounts.models import User
from apps.events import urls as events_urls
from apps.events.models import Organizer
from apps.events.organizers import legal_pages
from apps.kernel import clock
from apps.orders import urls as orders_urls
from apps.queue import urls as queue_urls
from apps.reservations import urls as reservations_urls
from apps.reservations.models import Reservation
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.support.factories import join, make_event
from tests.support.orders.sale import SAME_ORIGIN
from tests.support.queue.rooms import make_room

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
    page.get_by_label("Email or username").fill(NAME)
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
    assert any(url.endswith("/header.js") for url in urls), "the script runs before the load event"
    assert not [url for url in urls if "/api/me/header" in url]


def reserve_seats(page: "Page", site: str, count: int = 2) -> Reservation:
    """Reserve seats from the list, in this browser."""
    page.goto(f"{site}/events/concert/")
    page.get_by_role("button", name="Get tickets").first.click()
    page.wait_for_url("**/events/concert/choose")
    page.goto(f"{site}/events/concert/choose?view=list")
    for number in range(1, count + 1):
        page.locator(f"input[name=seats][value=hall-A-{number}]").check(force=True)
    page.locator("#choose-form button[type=submit]").last.click()
    page.wait_for_url("**/reservations/*/")
    return Reservation.objects.get()


def holds_of(page: "Page") -> "Locator":
    return page.get_by_role("region", name="Your reserved tickets")


SHARED = {
    "events:catalog": "/",
    "events:recent_searches": "/searches/",
    "events:event": "/events/opera/",
    "events:announcements": "/events/concert/announcements/",
    "events:legal_page": "/organizers/fairgate/terms",
    "queue:fairness": "/events/lined/fairness",
    "queue:vip": "/events/lined/vip/damaged",
    "queue:wait": "/events/lined/wait",
    "reservations:held": "/reservations/",
    "orders:my_tickets": "/tickets/",
    "orders:find": "/orders/find",
}
"""A path for each page of the shop that shows the bar of reserved seats, by the name of its URL."""
OWN = {
    "orders:order": "its browser has paid for these seats, and sees the bar of others",
    "orders:confirm": "as the order",
    "orders:return": "as the order",
    "orders:ticket": "as the order",
    "orders:transfer_offer": "as the order",
    "orders:sandbox_pay": "the page of a bank",
    "orders:report": "after the sale",
    "orders:check_in": "for doorkeepers",
    "reservations:choose": "shows the clock itself while seats are changed",
    "reservations:reservation": "shows the clock itself",
    "orders:checkout": "shows the clock itself",
}
"""Pages without a path above, and why."""
NO_PAGES = {
    "events:plan", "events:poster", "events:search", "queue:join", "queue:leave", "reservations:status",
    "reservations:release", "orders:cancel", "orders:tickets_pdf", "orders:paper", "orders:calendar_file",
    "orders:reissue", "orders:transfer", "orders:withdraw", "orders:ticket_pdf", "orders:ticket_qr",
    "orders:report_pdf", "orders:report_keys", "orders:check_in_worker",
}  # fmt: skip
"""Files, data, and forms that lead to a page above."""


def test_the_list_of_pages_is_complete() -> None:
    patterns = (
        ("events", events_urls),
        ("queue", queue_urls),
        ("reservations", reservations_urls),
        ("orders", orders_urls),
    )
    names = {f"{space}:{pattern.name}" for space, urls in patterns for pattern in urls.page_urls}
    assert names == {*SHARED, *OWN, *NO_PAGES}


@pytest.mark.parametrize("size", [(1440, 900), (360, 740)], ids=["desktop", "phone"])
def test_reserved_seats_are_visible_on_every_page(
    live_site: str, browser_page: Callable[..., "Page"], size: tuple[int, int]
) -> None:
    make_event("concert")
    make_event("opera")
    lined = make_room("lined", active=1)
    join(lined)
    organizer = Organizer.objects.get()
    with transaction.atomic():
        legal_pages.publish_page(organizer, "terms", text="Be kind.", url="", who="test")
    page = browser_page(*size)
    reservation = reserve_seats(page, live_site)
    page.locator("[data-countdown-digits]").wait_for()
    assert holds_of(page).count() == 0, "the reservation's own page has a clock of its own"
    page.request.post(f"{live_site}/events/lined/join", headers=SAME_ORIGIN)
    terms = f"/organizers/{organizer.slug}/terms"
    paths = [terms if name == "events:legal_page" else path for name, path in SHARED.items()]
    paths.remove("/reservations/")  # One live hold: it leads to the reservation's page.
    for path in [*paths, "/events/concert/", "/accounts/log-in", "/accounts/sign-up", "/nothing/"]:
        page.goto(live_site + path)
        assert page.url == live_site + path
        holds_of(page).get_by_text("2 seats").wait_for()
        face = holds_of(page).get_by_role("timer")
        assert face.text_content() in {f"9:{second}" for second in range(10, 60)} | {"10:00"}
        assert_nothing_sticks_out(page)
    holds_of(page).locator(f"a[href='/reservations/{reservation.pk}/checkout']").click()
    page.wait_for_url(f"**/reservations/{reservation.pk}/checkout")


def test_without_scripts_every_page_links_to_the_reserved_seats(
    live_site: str, browser_page: Callable[..., "Page"]
) -> None:
    make_event("concert")
    page = browser_page(360, 740, javascript=False)
    reservation = reserve_seats(page, live_site)
    for path in ("/", "/events/concert/", "/tickets/", "/accounts/log-in", "/nothing/"):
        page.goto(live_site + path)
        page.locator("header a[href='/reservations/']").click()
        page.wait_for_url(f"**/reservations/{reservation.pk}/")
    response = page.request.get(f"{live_site}/reservations/", max_redirects=0)
    assert (response.status, "no-store" in response.headers["cache-control"]) == (302, True)


def test_a_guests_hold_made_by_the_api_is_visible_at_once(live_site: str, browser_page: Callable[..., "Page"]) -> None:
    """The page's script reserves seats, as an app in the browser does; no page of the reservation was opened."""
    make_event("concert")
    page = browser_page()
    page.request.post(f"{live_site}/events/concert/join", headers=SAME_ORIGIN)
    page.goto(f"{live_site}/")
    status = page.evaluate(
        """async () => (await fetch("/api/events/concert/reservations", {
            method: "POST",
            headers: { "Content-Type": "application/json", "Idempotency-Key": "one hold" },
            body: JSON.stringify({ seats: ["hall-A-1", "hall-A-2"] }),
        })).status"""
    )
    assert status == 201
    page.goto(f"{live_site}/events/concert/")
    holds_of(page).get_by_text("2 seats").wait_for()


def test_the_end_of_a_hold_is_announced_and_explained(live_site: str, browser_page: Callable[..., "Page"]) -> None:
    make_event("concert")
    page = browser_page()
    reservation = reserve_seats(page, live_site)
    page.clock.install()
    page.goto(f"{live_site}/")
    page.wait_for_load_state("networkidle")  # The response sets the page's clock.
    holds_of(page).get_by_text("2 seats").wait_for()
    left = int((reservation.expires_at - clock.now()).total_seconds())
    page.clock.run_for((left - 119) * 1_000)
    page.get_by_role("status").filter(has_text="left to pay for your 2 seats").wait_for(state="attached")
    page.locator(".hold-bar.is-soon").wait_for()
    page.clock.run_for(91_000)
    page.get_by_role("alert").filter(has_text="left to pay for your 2 seats").wait_for(state="attached")
    page.locator(".hold-bar.is-urgent").wait_for()
    page.clock.run_for(30_000)
    page.get_by_role("alert").filter(has_text="Time is up. Your 2 seats for Concert").wait_for(state="attached")
    holds_of(page).get_by_text("went back on sale. You were not charged.").wait_for()
    holds_of(page).get_by_role("button", name="Dismiss").click()
    holds_of(page).wait_for(state="hidden")
