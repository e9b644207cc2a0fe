"""A buyer reads and accepts an organizer's terms in a real browser, on a desktop and on a phone in dark mode."""

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from django.db import transaction

from apps.events.models import Organizer
from apps.events.organizers import legal_pages
from apps.orders.models import Order
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.browser.test_whole_sale import DESKTOP, PHONE, get_in
from tests.support.factories import make_event

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
OpenPage = Callable[..., "Page"]
TEXT = (
    "Tickets are personal.\n\nReturns: see https://example.org/a/long/address/without/any/place/to/break/returns.\n\n"
)


@pytest.mark.parametrize(
    ("size", "options"),
    [(DESKTOP, {}), (DESKTOP, {"dark": True}), (PHONE, {}), (PHONE, {"dark": True, "javascript": False})],
    ids=["desktop", "desktop in the dark", "phone", "phone in the dark, without scripts"],
)
def test_a_person_accepts_the_terms(
    live_site: str,
    browser_page: OpenPage,
    size: tuple[int, int],
    options: dict[str, bool],
    request: pytest.FixtureRequest,
) -> None:
    make_event()
    organizer = Organizer.objects.get()
    with transaction.atomic():
        legal_pages.publish_page(organizer, "terms", text=TEXT * 3, url="", who="test")
        legal_pages.publish_page(organizer, "privacy", text=TEXT, url="", who="test")
        legal_pages.publish_page(organizer, "imprint", text=TEXT, url="", who="test")
    page = browser_page(*size, **options)
    name = f"{size[0]}-{'dark' if options.get('dark') else 'light'}"
    get_in(page, live_site, "concert")
    page.goto(f"{live_site}/events/concert/choose?view=list")
    page.locator("input[name=seats][value=hall-A-4]").check(force=True)
    page.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).click()
    page.get_by_role("link", name=re.compile("checkout", re.IGNORECASE)).click()
    page.get_by_label("Email address").fill("buyer@example.org")
    page.get_by_label("Name", exact=True).fill("Ada Buyer")
    assert_nothing_sticks_out(page)
    page.get_by_role("button", name=re.compile(r"^pay \$", re.IGNORECASE)).click()
    page.get_by_text("Accept this to place the order.").wait_for()
    assert_nothing_sticks_out(page)
    _keep(page, f"checkout-{name}")
    assert not Order.objects.exists()
    page.get_by_label("I accept the").check(force=True)
    page.get_by_role("button", name=re.compile(r"^pay \$", re.IGNORECASE)).click()
    page.wait_for_url(re.compile("/orders/"))
    assert Order.objects.get().terms_version
    page.get_by_role("link", name="Terms").click()
    page.get_by_role("heading", name="Terms").wait_for()
    assert_nothing_sticks_out(page)
    _keep(page, f"terms-{name}")


def _keep(page: "Page", name: str) -> None:
    if folder := os.environ.get("SCREENSHOTS"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)
