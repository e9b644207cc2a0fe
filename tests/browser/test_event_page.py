"""The event page in real browsers: data for programs, address and times for people, and counts that do not alarm."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from apps.events.models import Event, Venue
from apps.kernel import clock
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.support.factories import make_event

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
OpenPage = Callable[..., "Page"]


@pytest.fixture
def concert() -> None:
    """An event that starts in Chicago at 20:00 in winter, 02:00 UTC."""
    make_event("concert")
    starts_at = datetime(clock.now().year + 1, 1, 9, 2, tzinfo=UTC)
    Event.objects.update(
        starts_at=starts_at, doors_at=starts_at - timedelta(hours=1), ends_at=starts_at + timedelta(hours=3)
    )
    Venue.objects.update(timezone="America/Chicago", address="1 Breakwater Drive", city="Chicago")


@pytest.mark.usefixtures("concert")
@pytest.mark.parametrize("size", [(360, 740), (768, 1024), (1440, 900)])
def test_the_page_shows_where_and_when_in_both_zones(
    live_site: str, browser_page: OpenPage, size: tuple[int, int]
) -> None:
    page = browser_page(*size, zone="Asia/Tokyo")
    page.goto(f"{live_site}/events/concert/")
    page.get_by_text("Doors open 19:00").wait_for()
    page.get_by_text("Ends about 23:00").wait_for()
    local = page.locator(".local-time").text_content() or ""
    assert local.endswith("11:00 your time"), local
    link = page.get_by_role("link", name="View on a map")
    assert (
        link.get_attribute("href") == "https://www.openstreetmap.org/search?query=1%20Breakwater%20Drive%2C%20Chicago"
    )
    assert_nothing_sticks_out(page)


@pytest.mark.usefixtures("concert")
def test_a_visitor_in_the_venues_zone_sees_one_time(live_site: str, browser_page: OpenPage) -> None:
    page = browser_page(zone="America/Chicago")
    page.goto(f"{live_site}/events/concert/")
    page.get_by_text("Doors open 19:00").wait_for()
    page.wait_for_load_state("networkidle")
    assert page.locator(".local-time").count() == 0


@pytest.mark.usefixtures("concert")
def test_the_data_for_search_engines_is_valid_and_no_policy_blocks_it(live_site: str, browser_page: OpenPage) -> None:
    page = browser_page()
    page.goto(f"{live_site}/events/concert/")
    data = json.loads(page.locator('script[type="application/ld+json"]').text_content() or "")
    assert (data["@type"], data["startDate"][11:]) == ("Event", "20:00-06:00")
    assert data["location"]["address"]["streetAddress"] == "1 Breakwater Drive"
    assert page.locator('meta[property="og:image"]').count() == 1
    for path in ("/favicon.ico", "/robots.txt", "/sitemap.xml"):
        assert page.request.get(live_site + path).ok


@pytest.mark.usefixtures("concert")
def test_an_unsold_small_event_is_not_called_nearly_sold_out(live_site: str, browser_page: OpenPage) -> None:
    page = browser_page(360, 740)
    with page.expect_response("**/api/events/concert/sections"):
        page.goto(f"{live_site}/events/concert/")
    page.wait_for_load_state("networkidle")
    assert page.locator("[data-left]").text_content() == "50 tickets left"
