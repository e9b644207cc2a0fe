"""Two visitors, one let in after the other, in real browsers: by script and without."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from apps.queue import admitting, facade, line, outlook
from apps.queue.models import QueueEntry, WaitingRoom
from tests.factories import assert_audit_clean, join
from tests.queue.rooms import full_line, make_room
from tests.races import in_another_connection

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from apps.events.facade import EventView

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

OpenPage = Callable[..., "Page"]


@pytest.fixture
def full() -> "tuple[EventView, facade.EntryView]":
    """One slot, taken."""
    event = make_room(active=1, general_admission=20)
    return event, join(event)


def line_up(page: "Page", site: str) -> None:
    page.goto(f"{site}/events/concert/")
    page.get_by_role("button", name=re.compile("get tickets", re.IGNORECASE)).first.click()
    page.wait_for_url(re.compile("/events/concert/wait"))


def free_the_slot(event: "EventView", entry: "facade.EntryView") -> None:
    def act() -> None:
        line.leave(event, facade.Caller(entry_id=entry.id))
        WaitingRoom.objects.update(ticked_at=None)
        assert admitting.tick(event.id, 1) == 1

    in_another_connection(act)


def assert_nothing_sticks_out(page: "Page") -> None:
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1], f"{width[0]} px wide on a screen of {width[1]}"


@pytest.mark.parametrize(("size", "dark"), [((1440, 900), False), ((360, 740), True)], ids=["desk", "phone"])
def test_who_waits_goes_straight_on_when_the_one_before_has_left(
    live_site: str,
    browser_page: OpenPage,
    full: "tuple[EventView, facade.EntryView]",
    size: tuple[int, int],
    dark: bool,
) -> None:
    page = browser_page(*size, dark=dark)
    line_up(page, live_site)
    assert page.locator("[data-line-ahead]").text_content() == "1"
    assert_nothing_sticks_out(page)
    page.goto(f"{live_site}/events/concert/choose")
    assert page.url.endswith("/wait")
    free_the_slot(*full)
    page.wait_for_url(re.compile("/events/concert/choose"))
    assert QueueEntry.objects.filter(status="ready").count() == 1
    assert_audit_clean()


def test_without_scripts_the_page_looks_again_by_itself(
    live_site: str, browser_page: OpenPage, full: "tuple[EventView, facade.EntryView]"
) -> None:
    page = browser_page(360, 740, javascript=False)
    line_up(page, live_site)
    free_the_slot(*full)
    page.wait_for_url(re.compile("/events/concert/choose"))


def test_a_lost_network_is_said_and_the_place_is_still_there(
    live_site: str,
    browser_page: OpenPage,
    full: "tuple[EventView, facade.EntryView]",
) -> None:
    page = browser_page(1440, 900)
    line_up(page, live_site)
    page.context.set_offline(True)
    page.get_by_text("No connection right now").wait_for()
    page.context.set_offline(False)
    page.get_by_text("No connection right now").wait_for(state="hidden")
    free_the_slot(*full)
    page.wait_for_url(re.compile("/events/concert/choose"))


def test_a_long_line_says_an_honest_interval_and_leaving_ends_it(
    live_site: str, browser_page: OpenPage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(outlook, "NEXT_POLL_MAX_MS", 300)
    event = make_room(rate=1, active=50, general_admission=20)
    full_line(event, 3)
    WaitingRoom.objects.update(state="paused", next_number=2400)
    page = browser_page(360, 740)
    line_up(page, live_site)
    page.get_by_text("Your place is safe").wait_for()
    in_another_connection(lambda: WaitingRoom.objects.update(state="open"))
    page.locator("[data-line-wait]", has_text="Between 40 and 60 minutes").wait_for()
    assert page.locator("[data-line-ahead]").text_content() == "2,400"
    assert "2,400 to go" in page.title()
    assert_nothing_sticks_out(page)
    for name, size, dark in (("phone", (360, 740), False), ("desk", (1280, 800), True)):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.screenshot(path=str(tmp_path / f"{name}.png"))
    page.get_by_role("button", name="Leave the line").click()
    page.get_by_role("heading", name="You left the line").wait_for()
    page.screenshot(path=str(tmp_path / "left.png"))
