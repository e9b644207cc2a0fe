"""The report of a sale is readable on a phone and on a desk, in light and in dark colors."""

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from apps.orders.reports import publication
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.support.orders.reported_sale import make_finished_sale, publish

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

OpenPage = Callable[..., "Page"]


@pytest.mark.parametrize(("size", "dark"), [((1440, 900), False), ((360, 740), True)], ids=["desk", "phone"])
def test_the_report_fits_its_page_and_its_curves_have_names(
    live_site: str, browser_page: OpenPage, monkeypatch: pytest.MonkeyPatch, size: tuple[int, int], dark: bool
) -> None:
    monkeypatch.setattr(publication, "COMPLETE_AFTER", timedelta(0))
    publish(make_finished_sale())
    page = browser_page(*size, dark=dark)
    page.goto(f"{live_site}/events/concert/report")
    assert_nothing_sticks_out(page)
    curves = page.get_by_role("img")
    assert curves.count() == 2
    assert page.get_by_role("img", name="Held and sold tickets").count() == 1
    page.get_by_text("Figures of this curve").first.click()
    assert page.get_by_role("table").first.get_by_role("row").count() > 2
    assert_nothing_sticks_out(page)
    line, ground = page.evaluate(
        "() => [getComputedStyle(document.querySelector('.report__line')).stroke,"
        " getComputedStyle(document.body).backgroundColor]"
    )
    assert line != ground
