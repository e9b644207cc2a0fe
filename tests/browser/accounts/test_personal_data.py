"""A person downloads the account's data and erases the account in a real browser."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from apps.accounts.models import User
from apps.events.models import Event
from apps.kernel import clock
from apps.orders.models import Order
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.support.accounts.credentials import PASSWORD
from tests.support.factories import hold, join, make_event
from tests.support.orders.sale import buy, deliver_outbox
from tests.support.races import in_another_connection

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
OpenPage = Callable[..., "Page"]


def buy_with_account() -> Order:
    user = User.objects.create_user("ann@example.org", password=PASSWORD)
    event = make_event()
    order = buy(hold(event, join(event, account_id=user.pk), seats=["hall-A-1"]), email=user.email)
    deliver_outbox()
    return order


def end_event() -> None:
    Event.objects.update(starts_at=clock.now() - timedelta(days=2))


@pytest.mark.parametrize(
    ("size", "dark"),
    [((1440, 900), False), ((1440, 900), True), ((360, 740), False), ((360, 740), True)],
    ids=["desk", "desk-dark", "phone", "phone-dark"],
)
def test_a_person_erases_the_account_once_nothing_is_needed(
    live_site: str, browser_page: OpenPage, tmp_path: Path, size: tuple[int, int], dark: bool
) -> None:
    order = in_another_connection(buy_with_account)
    page = browser_page(*size, dark=dark)

    def check(name: str) -> None:
        assert_nothing_sticks_out(page)
        page.screenshot(path=str(tmp_path / f"{name}.png"), full_page=True)

    page.goto(f"{live_site}/accounts/log-in?next=/accounts/")
    page.locator("[name=username]").fill("ann@example.org")
    page.locator("[name=password]").fill(PASSWORD)
    page.locator("main button[type=submit]").first.click()
    page.get_by_role("heading", name="Your data").wait_for()
    check("account")
    with page.expect_download() as download:
        page.get_by_text("Download my data").click()
    assert order.number in Path(download.value.path()).read_text()
    page.get_by_role("link", name="Erase my account").click()
    page.get_by_text(f"Order {order.number} is needed for Concert until").wait_for()
    check("needed")
    in_another_connection(end_event)
    page.reload()
    page.get_by_label("I know that this cannot be undone").check()
    check("form")
    page.get_by_role("button", name="Erase my account").click()
    page.get_by_role("heading", name="Your account was erased").wait_for()
    check("erased")
    page.goto(f"{live_site}/accounts/")
    assert "/accounts/log-in" in page.url
