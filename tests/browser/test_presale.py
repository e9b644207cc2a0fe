"""A presale in a real browser: the code opens the line, and is there when the visitor chooses tickets."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from apps.events import facade as events
from apps.kernel import clock
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.browser.test_whole_sale import DESKTOP, PHONE
from tests.support.factories import make_access_code, make_event
from tests.support.races import in_another_connection

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
OpenPage = Callable[..., "Page"]


def make_presale() -> None:
    event = make_event(presale=events.Presale("code", clock.now() + timedelta(hours=1)))
    make_access_code(event)


@pytest.mark.parametrize(
    ("size", "options"),
    [(DESKTOP, {}), (DESKTOP, {"dark": True}), (PHONE, {}), (PHONE, {"dark": True, "javascript": False})],
    ids=["desktop", "desktop in the dark", "phone", "phone in the dark, without scripts"],
)
def test_a_person_enters_a_presale_with_a_code(
    live_site: str, browser_page: OpenPage, tmp_path: Path, size: tuple[int, int], options: dict[str, bool]
) -> None:
    in_another_connection(make_presale)
    page = browser_page(*size, **options)

    def check(name: str) -> None:
        assert_nothing_sticks_out(page)
        page.screenshot(path=str(tmp_path / f"{name}.png"), full_page=True)

    page.goto(f"{live_site}/events/concert/")
    page.get_by_text("you need an access code").first.wait_for()
    check("event")
    page.get_by_role("button", name="Get tickets").click()
    page.get_by_role("heading", name="Presale").wait_for()
    check("asked")
    page.get_by_label("Access code").fill("wrong")
    page.get_by_role("button", name="Get tickets").click()
    page.get_by_text("This access code is not valid").wait_for()
    check("refused")
    page.get_by_label("Access code").fill("fanclub")
    page.get_by_role("button", name="Get tickets").click()
    page.wait_for_url("**/events/concert/choose")
    page.locator("#access_code").wait_for()
    assert page.locator("#access_code").input_value() == "FANCLUB"
    check("choose")
