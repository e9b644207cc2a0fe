"""Live pages: one buyer's changes appear in another buyer's window without a reload."""

import re
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from apps.events import facade as events
from apps.events.facade import WaitingRoomSettings
from apps.queue import facade
from apps.queue.entries import positions
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.room import admission, operations
from apps.reservations import facade as reservations
from apps.reservations.models import Reservation
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.support.factories import assert_audit_clean, hold, join, make_event
from tests.support.races import in_another_connection

if TYPE_CHECKING:
    from playwright.sync_api import Page, Request, Route

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

DESKTOP, PHONE = (1440, 900), (360, 740)
SIZES = pytest.mark.parametrize(("size", "dark"), [(DESKTOP, False), (PHONE, True)], ids=["desk", "phone in the dark"])
OpenPage = Callable[..., "Page"]


def an_event(**spec: Any) -> events.EventView:
    """An event with a unique slug: `web` caches events for seconds, and they are deleted after the test."""
    return make_event(f"event-{uuid.uuid4().hex[:12]}", **spec)


def get_in(page: "Page", site: str, event: events.EventView, view: str = "map") -> None:
    page.goto(f"{site}/events/{event.slug}/")
    page.get_by_role("button", name=re.compile("get tickets", re.IGNORECASE)).first.click()
    page.wait_for_url(re.compile(f"/events/{event.slug}/choose"))
    page.goto(f"{site}/events/{event.slug}/choose?view={view}")


def says_live(page: "Page") -> None:
    page.locator("[data-live-state=stream]", has_text=re.compile("^Live$")).wait_for()


def take(event: events.EventView, *seats: str) -> reservations.ReservationView:
    """Hold the seats as another buyer."""
    return in_another_connection(lambda: hold(event, seats=list(seats)))


def requests_for(page: "Page", part: str) -> "list[Request]":
    found: list[Request] = []
    page.on("request", lambda request: found.append(request) if part in request.url else None)
    return found


@SIZES
def test_an_events_counts_update_from_the_stream_without_polling(
    full_site: str, browser_page: OpenPage, size: tuple[int, int], dark: bool, tmp_path: Path
) -> None:
    event = an_event(general_admission=20)
    page = browser_page(*size, dark=dark)
    polls = requests_for(page, "/sections")
    page.goto(f"{full_site}/events/{event.slug}/")
    says_live(page)
    held = take(event, "hall-A-1", "hall-A-2")
    page.locator("[data-left-section=hall] [data-left-words]", has_text="48 left").wait_for()
    page.get_by_text("68 tickets left").wait_for()
    assert_nothing_sticks_out(page)
    page.screenshot(path=str(tmp_path / "event.png"))
    in_another_connection(lambda: reservations.release(held.id, who="test"))
    page.locator("[data-left-section=hall] [data-left-words]", has_text="50 left").wait_for()
    assert [request.url.rpartition("/")[2] for request in polls] == ["updates"]


@SIZES
def test_a_seat_held_by_one_buyer_is_unavailable_on_anothers_map(
    full_site: str, browser_page: OpenPage, size: tuple[int, int], dark: bool
) -> None:
    event = an_event()
    one, other = browser_page(*size, dark=dark), browser_page(*DESKTOP)
    get_in(one, full_site, event)
    get_in(other, full_site, event, "list")
    says_live(one)
    other.locator("input[name=seats][value=hall-C-5]").check(force=True)
    other.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).click()
    other.get_by_role("heading", name=re.compile("(is|are) reserved", re.IGNORECASE)).wait_for()
    seat = one.locator("[data-seat=hall-C-5]")
    one.locator("[data-seat=hall-C-5].seat-mark--taken").wait_for(state="attached")
    other.get_by_role("button", name=re.compile("^release", re.IGNORECASE)).click()
    one.locator("[data-seat=hall-C-5]:not(.seat-mark--taken)").wait_for(state="attached")
    assert seat.count() == 1


@SIZES
def test_the_map_reports_a_lost_seat_and_one_tap_keeps_the_party_together(
    full_site: str, browser_page: OpenPage, size: tuple[int, int], dark: bool, tmp_path: Path
) -> None:
    event = an_event()
    page = browser_page(*size, dark=dark)
    page.goto(f"{full_site}/events/{event.slug}/")
    get_in(page, full_site, event, "map&seats=hall-C-5&seats=hall-C-6")
    says_live(page)
    page.locator("[data-tray-seats] li").nth(1).wait_for()
    take(event, "hall-C-5")
    lost_seat = page.locator("[data-just-gone]")
    lost_seat.get_by_text("row C seat 5 in").wait_for()
    assert page.locator("[data-tray-seats] input[name=seats]").evaluate_all("all => all.map(one => one.value)") == [
        "hall-C-6"
    ]
    assert_nothing_sticks_out(page)
    page.screenshot(path=str(tmp_path / "gone.png"))
    # The seat on the other side of the remaining one. It is taken before the tap: the page offers two others together.
    page.get_by_role("button", name="Select row C seat 7 instead").wait_for()
    take(event, "hall-C-7")
    page.get_by_role("button", name=re.compile("Select row [BD] seat 5 and row [BD] seat 6 instead")).click()
    chosen = page.locator("[data-tray-seats] input[name=seats]").evaluate_all("all => all.map(one => one.value)")
    assert sorted(chosen) in (["hall-B-5", "hall-B-6"], ["hall-D-5", "hall-D-6"])
    assert not lost_seat.text_content()
    page.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).click()
    page.get_by_role("heading", name=re.compile("(is|are) reserved", re.IGNORECASE)).wait_for()
    assert Reservation.objects.count() == 3
    assert_audit_clean()


@SIZES
def test_the_list_reports_a_lost_seat_and_one_tap_selects_the_nearest(
    full_site: str, browser_page: OpenPage, size: tuple[int, int], dark: bool, tmp_path: Path
) -> None:
    event = an_event(accessible=frozenset({"hall-B-4"}))
    page = browser_page(*size, dark=dark)
    get_in(page, full_site, event, "list")
    says_live(page)
    page.locator("input[name=seats][value=hall-B-5]").check(force=True)
    take(event, "hall-B-5", "hall-B-6")
    # The seat beside it is a wheelchair space, which is never offered as a replacement.
    button = page.get_by_role("button", name=re.compile("Select row . seat . instead"))
    button.wait_for()
    assert button.text_content() != "Select row B seat 4 instead"
    assert page.locator("input[name=seats][value=hall-B-5]").is_disabled()
    page.locator("[data-free=hall]", has_text="48 left").wait_for()
    assert_nothing_sticks_out(page)
    page.screenshot(path=str(tmp_path / "list.png"))
    button.click()
    page.get_by_text("1 of").first.wait_for()
    page.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).click()
    page.get_by_role("heading", name=re.compile("(is|are) reserved", re.IGNORECASE)).wait_for()
    assert_audit_clean()


def test_own_held_seats_stay_selectable_while_changing_seats(full_site: str, browser_page: OpenPage) -> None:
    event = an_event()
    page = browser_page(*DESKTOP)
    get_in(page, full_site, event, "list")
    page.locator("input[name=seats][value=hall-A-1]").check(force=True)
    page.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).click()
    page.get_by_role("link", name=re.compile("^Change seat")).click()
    for view in ("map", "list"):
        page.goto(f"{full_site}/events/{event.slug}/choose?change=1&view={view}&seats=hall-A-1")
        says_live(page)
        taken = take(event, "hall-A-2")
        lost_seat = page.locator("[data-seat=hall-A-2].seat-mark--taken, input[value=hall-A-2]:disabled")
        lost_seat.wait_for(state="attached")
        assert not page.locator("[data-just-gone]").text_content()
        assert page.locator("[data-tray-seats] li, input[value=hall-A-1]:checked").count() == 1
        in_another_connection(lambda view=taken: reservations.release(view.id, who="test"))


@pytest.fixture
def waiting() -> "tuple[events.EventView, list[facade.EntryView]]":
    """One visitor is admitted and one waits."""
    event = an_event(room=WaitingRoomSettings(rate_per_second=10, active_max=1), general_admission=20)
    return event, [join(event), join(event)]


def line_up(page: "Page", site: str, event: events.EventView) -> None:
    page.goto(f"{site}/events/{event.slug}/")
    page.get_by_role("button", name=re.compile("get tickets", re.IGNORECASE)).first.click()
    page.wait_for_url(re.compile(f"/events/{event.slug}/wait"))


def free_the_slot(event: events.EventView, entry: facade.EntryView) -> None:
    def act() -> None:
        positions.leave(event, facade.Caller(entry_id=entry.id))
        WaitingRoom.objects.update(ticked_at=None)
        assert admission.tick(event.id, 1) == 1

    in_another_connection(act)


@SIZES
def test_the_position_moves_without_polling_and_the_turn_is_polled(
    full_site: str,
    browser_page: OpenPage,
    waiting: "tuple[events.EventView, list[facade.EntryView]]",
    size: tuple[int, int],
    dark: bool,
    tmp_path: Path,
) -> None:
    event, (first, second) = waiting
    page = browser_page(*size, dark=dark)
    line_up(page, full_site, event)
    says_live(page)
    polls = requests_for(page, "/queue/status")
    page.locator("[data-line-position]", has_text=re.compile("^2$")).wait_for()
    before = len(polls)
    free_the_slot(event, first)
    page.locator("[data-line-position]", has_text=re.compile("^1$")).wait_for()
    in_another_connection(lambda: operations.set_message(event.id, "The till is <i>slow</i>.", who="boss"))
    page.locator(".line__message-text", has_text="The till is <i>slow</i>.").wait_for()
    in_another_connection(lambda: operations.set_state(event.id, "paused", who="boss"))
    page.get_by_text("Your place is saved").first.wait_for()
    in_another_connection(lambda: operations.set_state(event.id, "open", who="boss"))
    page.locator("[data-line-stamp]", has_text="In line").wait_for()
    assert_nothing_sticks_out(page)
    page.screenshot(path=str(tmp_path / "wait.png"))
    assert len(polls) == before
    free_the_slot(event, positions.entry_by_id(second.id))
    page.wait_for_url(re.compile("/choose"))


def test_a_visitor_admitted_ahead_of_turn_is_notified_before_the_next_poll(
    full_site: str, browser_page: OpenPage, waiting: "tuple[events.EventView, list[facade.EntryView]]"
) -> None:
    event, (first, _) = waiting
    page = browser_page(*PHONE)
    line_up(page, full_site, event)
    says_live(page)
    page.locator("[data-line-position]", has_text=re.compile("^2$")).wait_for()
    mine = QueueEntry.objects.filter(event_id=event.id).latest("number")
    in_another_connection(lambda: operations.let_through(mine.id, who="boss", why="the drummer's mother"))
    free_the_slot(event, first)
    page.wait_for_url(re.compile("/choose"))


def test_without_a_stream_the_page_polls_and_reports_it(full_site: str, browser_page: OpenPage) -> None:
    event = an_event()
    page = browser_page(*PHONE)

    def refuse(route: "Route") -> None:
        if "text/event-stream" in route.request.headers["accept"]:
            route.fulfill(status=503, headers={"Retry-After": "1"}, json={"type": "busy"})
        else:
            route.continue_()

    page.route("**/sections/updates*", refuse)
    get_in(page, full_site, event, "list&section=hall")
    page.locator("[data-live-state=poll]", has_text="Updating every few seconds").wait_for()
    page.locator("input[name=seats][value=hall-B-5]").check(force=True)
    take(event, "hall-B-5")
    page.get_by_role("button", name=re.compile("Select row . seat . instead")).wait_for()
    page.goto(f"{full_site}/events/{event.slug}/")
    page.get_by_text("Updates every 30 seconds").wait_for()


@SIZES
def test_a_lost_connection_is_reported_and_nothing_is_missed(
    full_site: str, browser_page: OpenPage, size: tuple[int, int], dark: bool, tmp_path: Path
) -> None:
    event = an_event()
    page = browser_page(*size, dark=dark)
    get_in(page, full_site, event, "map&seats=hall-C-5")
    says_live(page)
    page.locator("[data-tray-seats] li").wait_for()
    page.context.set_offline(True)
    page.locator(
        "[data-live-state=away]", has_text=re.compile(r"^No connection, last updated \d\d:\d\d:\d\d$")
    ).wait_for()
    assert_nothing_sticks_out(page)
    page.screenshot(path=str(tmp_path / "away.png"))
    take(event, "hall-C-5")
    page.context.set_offline(False)
    says_live(page)
    page.get_by_role("button", name=re.compile("Select row C seat [46] instead")).wait_for()


HIDE = """(isHidden) => {
  Object.defineProperty(document, "hidden", {value: isHidden, configurable: true});
  document.dispatchEvent(new Event("visibilitychange"));
}"""


def test_a_hidden_page_closes_its_stream_and_reopens_it_when_visible(full_site: str, browser_page: OpenPage) -> None:
    event = an_event()
    page = browser_page(*DESKTOP)
    page.clock.install()
    page.goto(f"{full_site}/events/{event.slug}/")
    says_live(page)
    page.evaluate("document.addEventListener('live:connection', (event) => { window.way = event.detail.way; })")
    page.evaluate(HIDE, True)
    page.clock.run_for(35_000)
    page.wait_for_function("() => window.way === ''")
    take(event, "hall-A-1")
    page.evaluate(HIDE, False)
    page.wait_for_function("() => window.way === 'stream'")
    page.locator("[data-left-section=hall] [data-left-words]", has_text="49 left").wait_for()
