"""What every browser test expects of a page's layout."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page


def assert_nothing_sticks_out(page: "Page") -> None:
    """Assert that the page does not scroll horizontally.

    A click does not wait for the page that it opens: wait for an element of that page first."""
    width, available = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    assert width <= available, f"{width} px wide on a screen of {available}"
