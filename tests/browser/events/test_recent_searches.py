"""Recent searches in a real browser: below the empty field by keyboard, across pages, without JavaScript, and axe's
rules."""

from typing import TYPE_CHECKING

import pytest

from apps.events.models import RecentSearch, SearchHistory
from tests.browser.accessibility import find_violations
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.support.batches import wait_until
from tests.support.factories import make_event

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.conftest import Pages

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def search(page: "Page", words: str) -> None:
    field = page.get_by_role("combobox")
    field.fill(words)
    field.press("Enter")
    page.get_by_role("heading", name=f"Results for “{words}”").wait_for()
    wait_until(lambda: RecentSearch.objects.filter(text=words).exists(), f"{words} is saved")
    # The response may come after the page was left.
    wait_until(lambda: "recents" in {cookie.get("name") for cookie in page.context.cookies()}, "a cookie")


@pytest.mark.parametrize("width", [360, 1440])
def test_the_list_is_used_by_keyboard_and_deleted_one_by_one(live_site: str, browser_page: "Pages", width: int) -> None:
    make_event("jazz", name="Jazz Night", rows=1)
    page = browser_page(width, 740)
    page.goto(f"{live_site}/")
    field = page.get_by_role("combobox")
    field.focus()
    assert not page.get_by_role("region", name="Recent searches").is_visible()
    for words in ("jazz & more", "opera", "ballet"):
        search(page, words)
    page.goto(f"{live_site}/")
    with page.expect_response("**/api/search/recents"):
        field.focus()
    panel = page.get_by_role("region", name="Recent searches")
    panel.wait_for()
    assert panel.get_by_role("link").all_inner_texts() == ["ballet", "opera", "jazz & more"]
    assert find_violations(browser_page, page) == []
    assert_nothing_sticks_out(page)
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Delete opera"
    page.keyboard.press("Enter")
    panel.get_by_role("link", name="opera").wait_for(state="detached")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Delete jazz & more"
    page.keyboard.press("Escape")
    assert not panel.is_visible()
    page.keyboard.press("ArrowDown")
    panel.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Results for “jazz & more”").wait_for()
    page.goto(f"{live_site}/")
    field.click()
    panel.get_by_role("button", name="Don’t save searches").click()
    panel.get_by_text("Your searches are not saved.").wait_for()
    assert not RecentSearch.objects.exists()
    assert find_violations(browser_page, page) == []
    panel.get_by_role("button", name="Save searches").click()
    panel.wait_for(state="hidden")
    assert SearchHistory.objects.get().is_on
    search(page, "ballet")
    page.goto(f"{live_site}/")
    field.click()
    panel.get_by_role("button", name="Clear all").click()
    panel.wait_for(state="hidden")
    assert page.evaluate("document.activeElement.id") == "q"
    assert not RecentSearch.objects.exists()


@pytest.mark.parametrize("width", [360, 1440])
def test_without_javascript_a_page_lists_what_the_form_saved(live_site: str, browser_page: "Pages", width: int) -> None:
    make_event("jazz", name="Jazz Night", rows=1)
    page = browser_page(width, 740, javascript=False)
    page.goto(f"{live_site}/")
    page.get_by_role("searchbox").fill("jazz")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("heading", name="Results for “jazz”").wait_for()
    page.get_by_role("link", name="Recent searches").click()
    assert page.get_by_role("link", name="jazz").is_visible()
    assert_nothing_sticks_out(page)
    page.get_by_role("button", name="Delete jazz").click()
    page.get_by_text("No searches are saved.").wait_for()
    page.get_by_role("button", name="Don’t save searches").click()
    page.get_by_text("Your searches are not saved.").wait_for()
    page.get_by_role("button", name="Save searches").click()
    page.get_by_text("No searches are saved.").wait_for()
