"""Sign-up for a draw in a real browser: a visitor without an account is sent to the log-in, and then signs up."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.page_layout import assert_nothing_sticks_out
from tests.browser.test_whole_sale import DESKTOP, PHONE
from tests.support.accounts.credentials import PASSWORD
from tests.support.queue.sign_ups import close_sign_up, make_account, make_draw
from tests.support.races import in_another_connection

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
OpenPage = Callable[..., "Page"]
ADDRESS = "ann@example.org"


def make_draw_and_account() -> object:
    make_account(ADDRESS)
    return make_draw()


@pytest.mark.parametrize(
    ("size", "options"),
    [(DESKTOP, {}), (DESKTOP, {"dark": True}), (PHONE, {}), (PHONE, {"dark": True, "javascript": False})],
    ids=["desktop", "desktop in the dark", "phone", "phone in the dark, without scripts"],
)
def test_a_person_logs_in_and_signs_up_for_the_draw(
    live_site: str, browser_page: OpenPage, tmp_path: Path, size: tuple[int, int], options: dict[str, bool]
) -> None:
    event = in_another_connection(make_draw_and_account)
    page = browser_page(*size, **options)

    def check(name: str) -> None:
        assert_nothing_sticks_out(page)
        page.screenshot(path=str(tmp_path / f"{name}.png"), full_page=True)

    page.goto(f"{live_site}/events/concert/")
    page.get_by_text("one entry per person").wait_for()
    check("event")
    page.get_by_role("button", name="Sign up for the draw").click()
    page.get_by_role("heading", name="Presale").wait_for()
    check("refused")
    page.get_by_role("main").get_by_role("link", name="Log in", exact=True).click()
    page.locator("#id_username").fill(ADDRESS)
    page.locator("#id_password").fill(PASSWORD)
    page.get_by_role("button", name="Log in", exact=True).click()
    page.wait_for_url("**/events/concert/")
    page.get_by_role("button", name="Sign up for the draw").click()
    page.wait_for_url("**/events/concert/wait")
    page.get_by_text("You’re in the lobby").first.wait_for()
    check("lobby")
    in_another_connection(lambda: close_sign_up(event))
    page.goto(f"{live_site}/events/concert/?later")  # The browser keeps the page of the other address for some seconds.
    page.get_by_text("Sign-up has closed").wait_for()
    check("closed")
