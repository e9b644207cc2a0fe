"""The waiting room in real browsers, with and without scripts."""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import TimeoutError as PlaywrightTimeout

from apps.queue import facade
from apps.queue.entries import positions
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.room import admission, operations
from apps.queue.status.status_messages import describe_pace, describe_wait
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.support.factories import assert_audit_clean, join
from tests.support.queue.rooms import join_waiting_entries, make_room
from tests.support.races import in_another_connection

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page, Route

    from apps.events.facade import EventView

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

OpenPage = Callable[..., "Page"]


@pytest.fixture
def full() -> "tuple[EventView, facade.EntryView]":
    """A room whose only slot is taken."""
    event = make_room(active=1, general_admission=20)
    return event, join(event)


def line_up(page: "Page", site: str) -> None:
    page.goto(f"{site}/events/concert/")
    page.get_by_role("button", name=re.compile("get tickets", re.IGNORECASE)).first.click()
    page.wait_for_url(re.compile("/events/concert/wait"))


def free_the_slot(event: "EventView", entry: "facade.EntryView") -> None:
    def act() -> None:
        positions.leave(event, facade.Caller(entry_id=entry.id))
        WaitingRoom.objects.update(ticked_at=None)
        assert admission.tick(event.id, 1) == 1

    in_another_connection(act)


@pytest.mark.parametrize(("size", "dark"), [((1440, 900), False), ((360, 740), True)], ids=["desk", "phone"])
def test_a_waiting_visitor_is_admitted_when_the_slot_is_free(
    live_site: str,
    browser_page: OpenPage,
    full: "tuple[EventView, facade.EntryView]",
    size: tuple[int, int],
    dark: bool,
) -> None:
    page = browser_page(*size, dark=dark)
    line_up(page, live_site)
    assert page.locator("[data-line-position]").text_content() == "1"
    assert_nothing_sticks_out(page)
    page.goto(f"{live_site}/events/concert/choose")
    assert page.url.endswith("/wait")
    free_the_slot(*full)
    page.wait_for_url(re.compile("/events/concert/choose"))
    assert QueueEntry.objects.filter(status="ready").count() == 1
    assert_audit_clean()


def test_without_scripts_the_page_reloads_itself(
    live_site: str, browser_page: OpenPage, full: "tuple[EventView, facade.EntryView]"
) -> None:
    page = browser_page(360, 740, javascript=False)
    line_up(page, live_site)
    free_the_slot(*full)
    page.wait_for_url(re.compile("/events/concert/choose"))


def test_a_lost_connection_is_reported_and_the_position_is_kept(
    live_site: str,
    browser_page: OpenPage,
    full: "tuple[EventView, facade.EntryView]",
) -> None:
    page = browser_page(1440, 900)
    line_up(page, live_site)
    page.context.set_offline(True)
    page.get_by_text("No connection. Your place").wait_for()
    page.context.set_offline(False)
    page.get_by_text("No connection. Your place").wait_for(state="hidden")
    free_the_slot(*full)
    page.wait_for_url(re.compile("/events/concert/choose"))


def test_two_visitors_are_admitted_in_order(
    live_site: str, browser_page: OpenPage, full: "tuple[EventView, facade.EntryView]"
) -> None:
    first, second = browser_page(1440, 900), browser_page(360, 740, dark=True)
    line_up(first, live_site)
    line_up(second, live_site)
    assert first.locator("[data-line-position]").text_content() == "1"
    assert second.locator("[data-line-position]").text_content() == "2"
    free_the_slot(*full)
    first.wait_for_url(re.compile("/events/concert/choose"))
    second.locator("[data-line-position]", has_text=re.compile("^1$")).wait_for()
    assert second.url.endswith("/wait")
    event, _ = full
    admitted = QueueEntry.objects.get(number=2)
    free_the_slot(event, positions.entry_by_id(admitted.id))
    second.wait_for_url(re.compile("/events/concert/choose"))
    assert [entry.status for entry in QueueEntry.objects.order_by("number")] == ["left", "left", "ready"]
    assert_audit_clean()


def test_a_long_line_shows_a_wait_interval_until_the_visitor_leaves(
    live_site: str, browser_page: OpenPage, tmp_path: Path
) -> None:
    event = make_room(rate=1, active=50, general_admission=20)
    join_waiting_entries(event, 3)
    WaitingRoom.objects.update(state="paused", next_number=2400)
    page = browser_page(360, 740)
    line_up(page, live_site)
    page.get_by_text("Your place is saved").first.wait_for()
    in_another_connection(lambda: WaitingRoom.objects.update(state="open"))
    ask_until(page, "document.querySelector('[data-line-wait]').textContent.startsWith('Between ')")
    assert page.locator("[data-line-position]").text_content() == "2,400"
    assert "2,400 in line" in page.title()
    assert_nothing_sticks_out(page)
    for name, size, dark in (("phone", (360, 740), False), ("desk", (1280, 800), True)):
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.screenshot(path=str(tmp_path / f"{name}.png"))
    page.locator("summary", has_text="Leave the line").click()
    page.get_by_role("button", name="Give up my place in line").click()
    page.get_by_role("heading", name="You left the line").wait_for()
    page.screenshot(path=str(tmp_path / "left.png"))


def ask_until(page: "Page", condition: str) -> None:
    """Make the page poll at once, as after sleep, until the condition holds."""
    page.wait_for_function(f"() => {{ dispatchEvent(new Event('online')); return {condition}; }}", polling=300)


class Answers:
    """Replaces the responses of the status API: set `now` to (status code, headers, body), where the body is JSON or a
    string; None breaks the connection."""

    def __init__(self, page: "Page", first: dict[str, Any]) -> None:
        self.request_count = 0
        self.place = first
        self.now: tuple[int, dict[str, str], Any] | None = (200, {}, first)
        page.route("**/queue/status", self._answer)

    def _answer(self, route: "Route") -> None:
        self.request_count += 1
        if self.now is None:
            route.abort("connectionreset")
            return
        status, headers, body = self.now
        text = body if isinstance(body, str) else json.dumps(body)
        route.fulfill(status=status, headers=headers, body=text)

    def say(self, **body: Any) -> None:
        self.place = {**self.place, **body}
        self.now = (200, {}, self.place)


PLACE = {
    "status": "waiting", "position_in_queue": 40, "estimated_wait_time": 90, "estimated_wait_range": [30, 150],
    "next_poll": 200_000, "message": "", "tickets_left": None,
}  # fmt: skip


def test_each_status_has_its_view(
    live_site: str, browser_page: OpenPage, full: "tuple[EventView, facade.EntryView]"
) -> None:
    page = browser_page(360, 740)
    answers = Answers(page, {**PLACE, "status": "lobby", "stage": "lobby", "position_in_queue": None})
    line_up(page, live_site)
    ask_until(page, "document.querySelector('[data-line]').dataset.status === 'lobby'")
    page.get_by_text("everyone here gets a random position").wait_for()
    answers.say(stage="drawing")
    ask_until(page, "document.querySelector('[data-line]').dataset.status === 'drawing'")
    page.get_by_text("Your position is being drawn").first.wait_for()
    answers.say(status="waiting", position_in_queue=40, tickets_left=300)
    ask_until(page, "document.querySelector('[data-line-position]').textContent === '40'")
    assert page.locator("[data-line-tickets]").text_content() == "300"
    assert page.locator("[data-line-odds]").is_hidden()
    answers.say(position_in_queue=10, tickets_left=4, message="<b>Bear</b> with us\nplease")
    ask_until(page, "document.querySelector('[data-line-position]').textContent === '10'")
    assert page.locator("[data-line-track]").get_attribute("aria-valuenow") == "75"
    assert page.locator(".line__message-text").text_content() == "<b>Bear</b> with us\nplease"
    assert "unlikely" in (page.locator("[data-line-odds]").text_content() or "")
    answers.say(status="paused", message="")
    ask_until(page, "document.querySelector('[data-line]').dataset.status === 'paused'")
    assert page.locator("[data-line-message]").text_content() == ""
    assert page.title().startswith("Paused")
    assert_nothing_sticks_out(page)


RANGES = [
    (0, 60),
    (0, 61),
    (31, 61),
    (70, 210),
    (120, 120),
    (321, 963),
    (1300, 2500),
    (3000, 9000),
    (5400, 10800),
    (36000, 54001),
]


def test_scripts_word_waits_and_pace_like_the_server(
    live_site: str, browser_page: OpenPage, full: "tuple[EventView, facade.EntryView]"
) -> None:
    page = browser_page(360, 740)
    answers = Answers(page, PLACE)
    line_up(page, live_site)
    for number, wait_range in enumerate(RANGES):
        rate = 50 / 7**number
        answers.say(estimated_wait_range=list(wait_range), rate_per_second=rate, position_in_queue=39 - number)
        ask_until(page, f"document.querySelector('[data-line-position]').textContent === '{39 - number}'")
        assert page.locator("[data-line-wait]").text_content() == describe_wait("waiting", wait_range, None)
        assert page.locator("[data-line-pace]").text_content() == describe_pace("waiting", rate)


def test_the_organizers_message_reaches_waiting_visitors(
    live_site: str, browser_page: OpenPage, full: "tuple[EventView, facade.EntryView]"
) -> None:
    page = browser_page(360, 740)
    line_up(page, live_site)
    event, _ = full
    in_another_connection(lambda: operations.set_message(event.id, "The <i>till</i> is slow.", who="boss"))
    page.locator(".line__message-text", has_text="The <i>till</i> is slow.").wait_for()
    in_another_connection(lambda: operations.set_message(event.id, "", who="boss"))
    page.locator(".line__message-text").wait_for(state="detached")


def test_a_reload_keeps_the_progress(
    live_site: str, browser_page: OpenPage, full: "tuple[EventView, facade.EntryView]"
) -> None:
    page = browser_page(360, 740)
    answers = Answers(page, PLACE)
    line_up(page, live_site)
    ask_until(page, "document.querySelector('[data-line-first]').textContent === '40'")
    answers.say(position_in_queue=20)
    page.reload()
    ask_until(page, "document.querySelector('[data-line-track]').getAttribute('aria-valuenow') === '50'")


def test_the_page_never_polls_sooner_than_the_server_requested(
    live_site: str, browser_page: OpenPage, full: "tuple[EventView, facade.EntryView]"
) -> None:
    page = browser_page(1440, 900)
    page.clock.install()
    answers = Answers(page, PLACE)
    line_up(page, live_site)
    with page.expect_response("**/queue/status"):
        page.clock.run_for(5_000)
    page.locator("[data-line-position]", has_text=re.compile("^40$")).wait_for()
    assert answers.request_count == 1
    page.clock.run_for(150_000)
    assert page.locator("[data-line-position]").text_content() == "40"
    assert answers.request_count == 1
    answers.now = (503, {"Retry-After": "120"}, {"type": "busy"})
    with page.expect_response("**/queue/status"):
        page.clock.run_for(60_000)
    page.get_by_text("We’re very busy right now").wait_for()
    request_count = answers.request_count
    page.clock.run_for(100_000)
    page.evaluate("dispatchEvent(new Event('online'))")
    assert page.get_by_text("We’re very busy right now").is_visible()
    assert answers.request_count == request_count, "the server had requested two minutes"
    answers.now = (200, {}, PLACE)
    with page.expect_response("**/queue/status"):
        page.clock.run_for(60_000)
    page.get_by_text("We’re very busy right now").wait_for(state="hidden")
    answers.say(position_in_queue=3)
    page.clock.fast_forward("02:00:00")  # As on a device that was asleep.
    page.locator("[data-line-position]", has_text=re.compile("^3$")).wait_for()


LOG_IN_OF_A_HOTEL = "<!doctype html><title>Welcome</title><h1>Your room number, please</h1>"
BUSY, WRONG, AWAY = "We’re very busy right now", "We couldn’t update your position", "No connection. Your place"
BAD_ANSWERS: list[tuple[str, tuple[int, dict[str, str], Any] | None]] = [
    (BUSY, (503, {"Retry-After": "2"}, {"type": "busy"})),
    (BUSY, (429, {"Retry-After": "Sat, 01 Jan 2000 00:00:00 GMT"}, {"type": "rate-limited"})),
    (WRONG, (500, {}, LOG_IN_OF_A_HOTEL)),
    (WRONG, (200, {"Content-Type": "text/html"}, LOG_IN_OF_A_HOTEL)),
    (WRONG, (200, {}, "null")),
    (WRONG, (200, {}, {"status": "waiting", "position_in_queue": "many"})),
    (AWAY, None),
]


def test_the_page_survives_invalid_responses(
    live_site: str, browser_page: OpenPage, full: "tuple[EventView, facade.EntryView]"
) -> None:
    page = browser_page(360, 740)
    page.clock.install()
    answers = Answers(page, {**PLACE, "next_poll": 5_000})
    line_up(page, live_site)
    at_place = page.locator("[data-line-position]", has_text=re.compile("^40$"))
    run_until(page, at_place)
    for text, bad in BAD_ANSWERS:
        answers.now = bad
        run_until(page, page.get_by_text(text))
        assert page.locator("[data-line-position]").text_content() == "40", "the last known state is still shown"
        assert (
            page.get_by_text("Less than a minute")
            .or_(page.get_by_text("Between 30 seconds and 2½ minutes"))
            .first.is_visible()
        )
        assert_nothing_sticks_out(page)
        answers.say()
        run_until(page, page.locator(".line__trouble:empty"))
    answers.say(estimated_wait_range=["soon", None], tickets_left="some", message=7, position_in_queue=39)
    run_until(page, page.locator("[data-line-position]", has_text=re.compile("^39$")))
    assert page.locator("[data-line-wait]").text_content() == "No wait estimate yet."
    assert page.locator("[data-line-message]").text_content() == ""


def run_until(page: "Page", locator: "Locator") -> None:
    """Advance the page's clock a few seconds at a time until the element is present."""
    for _ in range(60):
        page.clock.run_for(2_000)
        with suppress(PlaywrightTimeout):
            locator.first.wait_for(state="attached", timeout=250)
            return
    raise AssertionError(f"{locator} did not appear")


def test_an_absurd_retry_after_causes_no_polling_storm(
    live_site: str, browser_page: OpenPage, full: "tuple[EventView, facade.EntryView]"
) -> None:
    """A timer of more than 2³¹ ms fires at once: the page would poll as fast as it can."""
    page = browser_page(1440, 900)
    page.clock.install()
    answers = Answers(page, {**PLACE, "next_poll": 1e13})
    line_up(page, live_site)
    run_until(page, page.locator("[data-line-position]", has_text=re.compile("^40$")))
    assert answers.request_count == 1
    page.clock.run_for(300_000)
    assert answers.request_count == 1
    answers.now = (503, {"Retry-After": "99999999999"}, "")
    page.clock.run_for(300_000)
    page.get_by_text(BUSY).wait_for()
    page.clock.run_for(300_000)
    assert answers.request_count == 2
    answers.say(position_in_queue=7)
    page.clock.run_for(430_000)
    page.locator("[data-line-position]", has_text=re.compile("^7$")).wait_for()


def test_a_slow_response_is_not_requested_twice(
    live_site: str, browser_page: OpenPage, full: "tuple[EventView, facade.EntryView]"
) -> None:
    page = browser_page(360, 740)
    held: list[Route] = []
    page.route("**/queue/status", lambda route: held.append(route))  # noqa: PLW0108 - it marks what it is given
    with page.expect_request("**/queue/status"):
        line_up(page, live_site)
    for _ in range(5):
        page.evaluate("dispatchEvent(new Event('online'))")
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    assert len(held) == 1
    assert page.locator("[data-line-trouble]").text_content() == ""
    assert page.locator("[data-line-position]").text_content() == "1"
    held[0].fulfill(json={**PLACE, "position_in_queue": 0})
    page.locator("[data-line-position]", has_text="Next").wait_for()


def test_screen_readers_hear_occasional_announcements(
    live_site: str, browser_page: OpenPage, full: "tuple[EventView, facade.EntryView]"
) -> None:
    page = browser_page(360, 740)
    page.clock.install()
    answers = Answers(page, {**PLACE, "next_poll": 5_000})
    line_up(page, live_site)
    page.evaluate(
        "() => { window.spoken = []; new MutationObserver(() => window.spoken.push("
        "document.querySelector('[data-line-says]').textContent)).observe("
        "document.querySelector('[data-line-says]'), { childList: true, characterData: true, subtree: true }); }"
    )
    for number in range(16, 0, -1):
        answers.say(position_in_queue=number)
        run_until(page, page.locator("[data-line-position]", has_text=re.compile(f"^{number}$")))
    spoken = page.evaluate("window.spoken")
    assert 1 <= len(spoken) <= 3, spoken
    assert all(re.match(r"Your position in line is \d+\. |You’re next\. ", words) for words in spoken)
    answers.say(status="paused")
    run_until(page, page.locator("[data-line][data-status=paused]"))
    assert page.evaluate("window.spoken.at(-1)").endswith("The line is paused. Your place is saved.")


# Chromium shows no real message in a test: the page's own calls are recorded instead.
NOTE_MESSAGES = """
window.Notification = class {
  static permission = "default";
  static requestPermission() {
    sessionStorage.setItem("asked", String(Number(sessionStorage.getItem("asked")) + 1));
    this.permission = "granted";
    return Promise.resolve("granted");
  }
  constructor(title) { sessionStorage.setItem("notified", title); }
};
"""


def test_notifications_are_requested_only_on_demand(
    live_site: str, browser_page: OpenPage, full: "tuple[EventView, facade.EntryView]"
) -> None:
    page = browser_page(360, 740)
    page.add_init_script(NOTE_MESSAGES)
    line_up(page, live_site)
    button = page.get_by_role("button", name="Notify me of my turn")
    button.wait_for()
    assert page.evaluate("sessionStorage.getItem('asked')") is None
    button.click()
    notified = page.get_by_role("button", name="You’ll be notified", pressed=True)
    notified.wait_for()
    page.get_by_text("a browser notification. Keep this page open").wait_for()
    assert page.evaluate("sessionStorage.getItem('asked')") == "1"
    page.reload()
    notified.wait_for()
    notified.click()
    button.wait_for()
    button.click()
    free_the_slot(*full)
    page.wait_for_url(re.compile("/events/concert/choose"))
    assert page.evaluate("sessionStorage.getItem('notified')") == "It’s your turn"


def test_the_keyboard_alone_enables_notifications_and_leaves(
    live_site: str, browser_page: OpenPage, full: "tuple[EventView, facade.EntryView]"
) -> None:
    page = browser_page(1440, 900)
    page.add_init_script(NOTE_MESSAGES)
    line_up(page, live_site)
    page.get_by_role("button", name="Notify me").wait_for()
    tab_to(page, "[data-line-notify-button]")
    page.keyboard.press("Enter")
    page.get_by_role("button", name="You’ll be notified", pressed=True).wait_for()
    tab_to(page, ".line__leave summary")
    page.keyboard.press("Enter")
    tab_to(page, "form[action$='/leave'] button")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="You left the line").wait_for()


def tab_to(page: "Page", selector: str) -> None:
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("(wanted) => document.activeElement?.matches(wanted) ?? false", selector):
            return
    raise AssertionError(f"the keyboard does not reach {selector}")
