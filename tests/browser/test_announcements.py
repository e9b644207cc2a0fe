"""New announcements appear on an open page without a reload."""

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from apps.events.announcements import service
from tests.support.factories import assert_audit_clean, join, make_event
from tests.support.queue.rooms import make_room
from tests.support.races import in_another_connection

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from apps.events.facade import EventView

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

OpenPage = Callable[..., "Page"]
ITEMS = "[data-announcements] [data-announcement]"
DISPATCH = """announcement => document.dispatchEvent(new CustomEvent("live:announcement", {detail: announcement}))"""


def post(event: "EventView", text: str) -> None:
    in_another_connection(lambda: service.post(event.id, text, author="ann"))


def texts(page: "Page") -> list[str]:
    return [(text or "").strip() for text in page.locator(f"{ITEMS} .news__text").all_text_contents()]


def until_shown(page: "Page", wanted: list[str]) -> None:
    page.wait_for_function(
        "wanted => JSON.stringify([...document.querySelectorAll('.news__text')].map(e => e.textContent)) === wanted",
        arg=json.dumps(wanted, separators=(",", ":")),
    )


@pytest.mark.parametrize(("size", "dark"), [((1440, 900), False), ((360, 740), True)], ids=["desk", "phone"])
def test_the_event_page_polls_for_announcements_without_a_stream(
    live_site: str, browser_page: OpenPage, size: tuple[int, int], dark: bool
) -> None:
    event = make_event(general_admission=20)
    page = browser_page(*size, dark=dark)
    page.goto(f"{live_site}/events/concert/")
    assert page.locator("[data-announcements-box]").is_hidden()
    post(event, "Doors open at sven.")
    until_shown(page, ["Doors open at sven."])
    assert page.locator("[data-announcements-box]").is_visible()
    in_another_connection(lambda: service.correct(event.id, 1, "Doors open at seven.", author="bob"))
    post(event, "The bar is open.")
    until_shown(page, ["The bar is open.", "Doors open at seven."])
    written = page.locator(f"{ITEMS} time").first.text_content()
    in_another_connection(lambda: service.retract(event.id, 1, author="bob"))
    until_shown(page, ["The bar is open."])
    page.reload()
    assert texts(page) == ["The bar is open."]
    assert page.locator(f"{ITEMS} time").first.text_content() == written, "script and server write times alike"
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    assert_audit_clean()


def test_streamed_announcements_are_shown_once_and_in_order(live_site: str, browser_page: OpenPage) -> None:
    event = make_event(general_admission=20)
    for number in range(1, 5):
        post(event, f"Number {number}.")
    page = browser_page()
    page.goto(f"{live_site}/events/concert/")

    def receive(announcement: int, version: int, text: str | None) -> None:
        at = "2026-11-22T19:30:00.000Z"
        page.evaluate(DISPATCH, {"announcement_id": announcement, "version": version, "text": text, "posted_at": at,
                              "changed_at": None if version == announcement else at})  # fmt: skip

    receive(6, 6, "Number 6.")
    receive(5, 5, "<b>Number 5</b>")
    receive(6, 6, "Number 6.")
    assert texts(page) == ["Number 6.", "<b>Number 5</b>", "Number 4.", "Number 3."], (
        "four, and a link to the older ones"
    )
    assert page.get_by_role("link", name="All announcements").is_visible()
    receive(6, 8, None)
    receive(6, 7, "An older version that comes late.")
    receive(4, 9, "Number 4, corrected.")
    assert texts(page) == ["<b>Number 5</b>", "Number 4, corrected.", "Number 3."]
    assert "corrected" in (page.locator('[data-announcement="4"]').text_content() or "")
    for nonsense in (None, {}, {"announcement_id": "1"}, {"announcement_id": 1, "version": 99, "text": 7}):
        page.evaluate(DISPATCH, nonsense)
    assert len(texts(page)) == 3


def test_the_page_does_not_poll_while_the_stream_is_connected(live_site: str, browser_page: OpenPage) -> None:
    make_event(general_admission=20)
    page = browser_page()
    page.clock.install()
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url) if "/announcements?" in request.url else None)

    def set_connection(way: str) -> None:
        page.evaluate("way => document.dispatchEvent(new CustomEvent('live:connection', {detail: {way}}))", way)
        with page.expect_response(re.compile(r"/announcements\?")):
            page.clock.run_for(9_000)

    with page.expect_response(re.compile(r"/announcements\?")):
        page.goto(f"{live_site}/events/concert/")
    set_connection("stream")
    before = len(requests)
    page.clock.run_for(120_000)
    assert len(requests) == before, "one request for the missed announcements, and no more"
    set_connection("")
    assert len(requests) > before


def test_a_waiting_visitor_sees_a_new_announcement(live_site: str, browser_page: OpenPage) -> None:
    event = make_room(active=1, general_admission=20)
    join(event)
    page = browser_page(360, 740)
    page.goto(f"{live_site}/events/concert/")
    page.get_by_role("button", name=re.compile("get tickets", re.IGNORECASE)).first.click()
    page.wait_for_url(re.compile("/events/concert/wait"))
    post(event, "Doors open at seven.")
    until_shown(page, ["Doors open at seven."])


def test_without_scripts_the_page_shows_announcements_on_load(live_site: str, browser_page: OpenPage) -> None:
    event = make_event(general_admission=20)
    post(event, "Doors open at seven.")
    page = browser_page(360, 740, javascript=False)
    page.goto(f"{live_site}/events/concert/")
    assert texts(page) == ["Doors open at seven."]
    page.goto(f"{live_site}/events/concert/announcements/")
    assert page.locator(".news__text").all_text_contents() == ["Doors open at seven."]
