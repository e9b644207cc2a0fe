"""A buyer returns a ticket in a real browser: with a mouse on a desktop, without scripts on a phone in dark mode."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from apps.orders.models import Refund, ReturnPolicy, Ticket
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.browser.test_whole_sale import DESKTOP, PHONE, deliver_everything, get_in, pay
from tests.support.factories import assert_audit_clean, make_event

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
OpenPage = Callable[..., "Page"]


@pytest.mark.parametrize(
    ("size", "options"),
    [(DESKTOP, {}), (PHONE, {"dark": True, "javascript": False})],
    ids=["desktop", "phone in the dark, without scripts"],
)
def test_a_person_returns_one_of_two_tickets(
    live_site: str, browser_page: OpenPage, size: tuple[int, int], options: dict[str, bool]
) -> None:
    event = make_event()
    ReturnPolicy.objects.create(event_id=event.id, until_hours=24)
    page = browser_page(*size, **options)
    get_in(page, live_site, "concert")
    page.goto(f"{live_site}/events/concert/choose?view=list")
    for seat in ("hall-A-4", "hall-A-5"):
        page.locator(f"input[name=seats][value={seat}]").check(force=True)
    page.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).click()
    pay(page)
    deliver_everything()
    page.reload()
    page.get_by_role("link", name="Return tickets").click()
    page.get_by_label(re.compile("seat 4")).wait_for()
    assert_nothing_sticks_out(page)
    page.get_by_label(re.compile("seat 4")).check(force=True)
    page.get_by_role("button", name="See refund").click()
    page.get_by_role("heading", name="Refund: $50.00").wait_for()
    assert_nothing_sticks_out(page)
    page.get_by_role("button", name="Return 1 ticket").click()
    page.get_by_role("heading", name="Refunds").wait_for()
    assert_nothing_sticks_out(page)
    assert page.locator("img.qr").count() == 1
    deliver_everything()
    page.reload()
    page.get_by_text("It can take a few days to appear").wait_for()
    assert Ticket.objects.filter(voided_at=None).count() == 1
    assert Refund.objects.get().status == "succeeded"
    assert_audit_clean()
