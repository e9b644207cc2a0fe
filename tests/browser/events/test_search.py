"""The catalog's search in a real browser: type-ahead by keyboard, results without JavaScript, and axe's rules."""

from typing import TYPE_CHECKING

import pytest

from apps.events.search import index_writer
from apps.events.search.memory import index
from tests.browser.accessibility import find_violations
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.support.factories import make_event

if TYPE_CHECKING:
    from tests.conftest import Pages

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def evenings() -> None:
    make_event(
        "arnold", name="An Evening with Arnold", performers=("Arnold Schwarzenegger",), city="New York", rows=1,
        venue="Grand Hall",
    )  # fmt: skip
    make_event("jazz", name="Jazz Night", venue="Keller", city="Wien", rows=1)
    index_writer.rebuild()
    index.clear()


@pytest.mark.usefixtures("evenings")
def test_the_suggestions_are_a_combobox_by_keyboard_and_lead_to_the_event(
    live_site: str, browser_page: "Pages"
) -> None:
    page = browser_page(360, 740)
    page.goto(f"{live_site}/")
    field = page.get_by_role("combobox", name="Search events, performers, venues and cities")
    field.press_sequentially("arnold schw")
    option = page.get_by_role("option", name="An Evening with Arnold New York")
    option.wait_for()
    assert field.get_attribute("aria-expanded") == "true"
    field.press("ArrowDown")
    field.press("ArrowDown")
    assert field.get_attribute("aria-activedescendant") == option.get_attribute("id")
    assert find_violations(browser_page, page) == []
    field.press("Escape")
    assert not option.is_visible()
    field.press("ArrowUp")
    field.press("Enter")
    page.wait_for_url("**/events/arnold/")


@pytest.mark.usefixtures("evenings")
@pytest.mark.parametrize("width", [360, 1440])
def test_a_misspelled_search_shows_its_event_and_one_tap_corrects_it(
    live_site: str, browser_page: "Pages", width: int
) -> None:
    page = browser_page(width, 740, javascript=False)
    page.goto(f"{live_site}/")
    page.get_by_role("searchbox").fill("swarzeneger in newyork")
    page.get_by_role("button", name="Search").click()
    assert page.get_by_role("heading", level=2).all_inner_texts() == ["AN EVENING WITH ARNOLD"]
    page.get_by_role("group").get_by_text("Filter and sort").click()
    assert_nothing_sticks_out(page)
    page.get_by_role("link", name="schwarzenegger in new york").click()
    page.get_by_role("heading", level=2, name="An Evening with Arnold").wait_for()
    assert page.get_by_text("Did you mean").count() == 0
