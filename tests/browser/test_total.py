"""The running total of the selected seats, including the order fee, in the list and on the map."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from apps.events.facade import PricePolicy
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.browser.test_whole_sale import DESKTOP, PHONE, choose_seat_by_keyboard, get_in
from tests.support.factories import make_event

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
OpenPage = Callable[..., "Page"]
# A seat is 50.00, fees and tax 20% on top: 52.50 with its own fee makes 63.00, and the order's fee 1.20 once.
FEES = PricePolicy(ticket_fee_minor=250, order_fee_minor=100, tax_rate=2_000, tax_included=False)


@pytest.mark.parametrize(("size", "dark"), [(DESKTOP, False), (PHONE, True)], ids=["desktop", "phone in the dark"])
def test_the_running_total_includes_the_order_fee_once(
    live_site: str, browser_page: OpenPage, size: tuple[int, int], dark: bool
) -> None:
    make_event(price_policy=FEES)
    page = browser_page(*size, dark=dark)
    get_in(page, live_site, "concert")
    page.goto(f"{live_site}/events/concert/choose?view=list")
    total = page.locator("[data-tray-total]")
    assert total.inner_text() == ""
    page.locator("input[name=seats][value=hall-A-4]").check(force=True)
    assert total.inner_text().split("\n") == ["$64.20", "incl. $1.20 order fee"]
    page.locator("input[name=seats][value=hall-A-5]").check(force=True)
    assert total.inner_text().split("\n")[0] == "$127.20"
    assert_nothing_sticks_out(page)
    page.goto(f"{live_site}/events/concert/choose?view=map")
    choose_seat_by_keyboard(page)
    assert "$64.20" in total.inner_text()
    assert "incl. $1.20 order fee" in total.inner_text()
    assert_nothing_sticks_out(page)


def test_free_seats_have_no_fee_in_the_running_total(live_site: str, browser_page: OpenPage) -> None:
    make_event(price_policy=FEES, price_minor=0)
    page = browser_page(*DESKTOP)
    get_in(page, live_site, "concert")
    page.goto(f"{live_site}/events/concert/choose?view=list")
    page.locator("input[name=seats][value=hall-A-4]").check(force=True)
    assert page.locator("[data-tray-total]").inner_text() == "$0.00"
