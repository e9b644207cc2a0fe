"""The seat map on phones: everything visible above the tray, filters, names that float, chips that fly; offers."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from apps.events import facade as events
from apps.events.demo.load import load_demo
from apps.reservations.models import Reservation
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.support.factories import hold, make_event
from tests.support.races import in_another_connection

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

SMALL, PHONE, TABLET, DESKTOP = (360, 640), (360, 740), (768, 1024), (1440, 900)
OpenPage = Callable[..., "Page"]


def get_in(page: "Page", site: str, slug: str = "concert", query: str = "view=map") -> None:
    page.goto(f"{site}/events/{slug}/")
    page.get_by_role("button", name=re.compile("get tickets", re.IGNORECASE)).first.click()
    page.wait_for_url(re.compile(f"/events/{slug}/choose"))
    page.goto(f"{site}/events/{slug}/choose?{query}")
    if "view=map" in query:
        page.locator("[data-seat-map][data-ready]").wait_for()


@pytest.fixture
def priced() -> events.EventView:
    """Two halls, whose front rows are Gold."""
    return make_event(
        rows=4, halls=("Hall", "Wing"), tiers={"Gold": 9_000}, tier_of={"hall-A": "Gold", "wing-A": "Gold"}
    )


@pytest.mark.parametrize("size", [SMALL, PHONE, TABLET, DESKTOP], ids=["small", "phone", "tablet", "desktop"])
def test_the_map_does_not_move_when_the_first_seat_is_selected(
    live_site: str, browser_page: OpenPage, size: tuple[int, int]
) -> None:
    """A second tap follows at once: it must select the seat that was under the finger."""
    make_event(rows=3, seats_per_row=8)
    page = browser_page(*size)
    get_in(page, live_site)
    seats = page.locator("[data-seat]")
    seats.nth(11).wait_for(state="attached")
    before = seats.nth(12).bounding_box()
    seats.nth(11).click()
    page.locator("[data-tray-seats] li").wait_for()
    two_frames = "requestAnimationFrame(() => requestAnimationFrame(() => done(true)))"
    page.wait_for_function(f"new Promise((done) => {two_frames})")
    assert seats.nth(12).bounding_box() == before


@pytest.mark.parametrize("size", [SMALL, PHONE, TABLET, DESKTOP], ids=["small", "phone", "tablet", "desktop"])
def test_the_last_row_is_visible_above_the_tray_and_the_hint_covers_no_seat(
    live_site: str, browser_page: OpenPage, size: tuple[int, int]
) -> None:
    make_event(rows=9, seats_per_row=12)
    page = browser_page(*size)
    get_in(page, live_site)
    seats = page.locator("[data-seat]")
    seats.first.wait_for(state="attached")
    lowest, highest = page.evaluate(
        """() => {
            const boxes = [...document.querySelectorAll("[data-seat]")].map((seat) => seat.getBoundingClientRect());
            return [Math.max(...boxes.map((box) => box.bottom)), Math.min(...boxes.map((box) => box.top))];
        }"""
    )
    assert seats.count() == 108
    tray, hint = page.locator(".tray").bounding_box(), page.locator(".map__hint").bounding_box()
    assert tray
    assert hint
    assert lowest <= tray["y"]
    assert hint["y"] + hint["height"] <= highest or hint["y"] >= lowest
    assert_nothing_sticks_out(page)


def test_a_chip_names_the_section_and_moves_the_map_to_its_seat(
    live_site: str, browser_page: OpenPage, priced: events.EventView
) -> None:
    page = browser_page(*PHONE)
    get_in(page, live_site, query="view=map&seats=wing-D-10")
    assert page.locator(".chip").count() == 1
    page.get_by_role("button", name=re.compile("Wing Row D · 10")).click()
    stage = page.locator("[data-map-stage]").bounding_box()
    assert stage
    page.wait_for_function(
        """([x, y]) => {
            const box = document.querySelector("[data-seat='wing-D-10']").getBoundingClientRect();
            const away = Math.hypot(box.x + box.width / 2 - x, box.y + box.height / 2 - y);
            return box.width > 20 && away < 8;
        }""",
        arg=[stage["x"] + stage["width"] / 2, stage["y"] + stage["height"] / 2],
    )
    # Zoomed in, the section's name and the rows' names float over the map.
    assert page.locator("[data-map-where]").inner_text().lower() == "wing"
    assert "D" in page.locator(".map-pins text").all_text_contents()
    assert not page.locator(".map__hint").is_visible()


def test_the_price_filter_leaves_only_seats_of_that_price(
    live_site: str, browser_page: OpenPage, priced: events.EventView
) -> None:
    page = browser_page(*DESKTOP)
    get_in(page, live_site)
    free = page.locator("[data-seat]:not(.seat-mark--taken)")
    page.locator("[data-seat='hall-B-1']:not(.seat-mark--taken)").wait_for(state="attached")
    assert free.count() == 80
    gold = page.get_by_role("button", name=re.compile("Gold"))
    gold.click()
    page.locator("[data-seat='hall-B-1'].seat-mark--taken").wait_for(state="attached")
    assert free.count() == 20
    assert gold.get_attribute("aria-pressed") == "true"
    assert page.locator("[data-legend]:visible").count() == 0, "the plan has no wheelchair spaces"
    assert "Showing Gold: 20 left." in (page.locator("[data-map-says]").text_content() or "")
    gold.press("Enter")
    page.locator("[data-seat='hall-B-1']:not(.seat-mark--taken)").wait_for(state="attached")
    assert free.count() == 80


def test_no_two_row_names_of_the_arena_overlap(live_site: str, browser_page: OpenPage) -> None:
    load_demo()
    page = browser_page(*DESKTOP)
    get_in(page, live_site, "voltaic-afterglow")
    overlaps = page.evaluate(
        """async () => {
            const script = document.querySelector("script[src*='seat-map']").src;
            const { Plan } = await import(script.replace(/seat-map[^/]*$/, "seat-map-plan.js"));
            const url = document.querySelector("[data-seat-map]").dataset.planUrl;
            const plan = new Plan(await (await fetch(url)).json());
            const names = plan.tiles.flatMap((tile) => tile.labels);
            let overlaps = 0;
            names.forEach((one, index) => names.slice(index + 1).forEach((other) => {
                if (Math.hypot(one.x - other.x, one.y - other.y) < plan.pitch * 0.5) overlaps += 1;
            }));
            return [names.length, overlaps];
        }"""
    )
    assert overlaps[0] > 500
    assert overlaps[1] == 0


def test_a_shopper_on_a_phone_buys_two_together_under_a_price(
    live_site: str, browser_page: OpenPage, priced: events.EventView
) -> None:
    page = browser_page(*PHONE, dark=True)
    get_in(page, live_site, query="view=best")
    page.get_by_role("heading", name="Best seats for 2").wait_for()
    page.get_by_label("Price per ticket").select_option(label="Up to $50.00")
    page.get_by_role("button", name="Find seats").click()
    page.wait_for_url(re.compile("best_price_max=5000"))
    first = page.locator("form.seat-offer").first
    assert "Side by side" in first.inner_text()
    seats = first.locator("input[name=seats]").evaluate_all("all => all.map((one) => one.value)")
    assert_nothing_sticks_out(page)
    # Another buyer is faster: the next offers keep the party together.
    in_another_connection(lambda: hold(priced, seats=seats[:1]))
    first.get_by_role("button").click()
    page.get_by_role("alert").get_by_text("Just taken:").wait_for()
    other = page.locator("form.seat-offer").first
    assert "Side by side" in other.inner_text()
    assert "$100.00" in other.inner_text()
    other.get_by_role("button").click()
    page.get_by_role("heading", name=re.compile("(is|are) reserved", re.IGNORECASE)).wait_for()
    mine = Reservation.objects.latest("created_at")
    held = sorted(mine.lines.values_list("seat__seat__guid", flat=True))
    assert len(held) == 2
    assert held[0][:6] == held[1][:6]
    assert mine.total_minor == 10_000


def test_an_offer_is_shown_on_the_map(live_site: str, browser_page: OpenPage, priced: events.EventView) -> None:
    page = browser_page(*PHONE)
    get_in(page, live_site, query="view=best&best_quantity=3")
    page.get_by_role("link", name="Show on map").first.click()
    page.locator("[data-seat-map][data-ready]").wait_for()
    assert page.locator(".chip").count() == 3


def test_enter_selects_a_seat_of_the_list(live_site: str, browser_page: OpenPage, priced: events.EventView) -> None:
    page = browser_page(*DESKTOP)
    get_in(page, live_site, query="view=list&section=wing")
    box = page.locator("input[name=seats][value=wing-B-4]")
    box.focus()
    page.keyboard.press("Enter")
    assert box.is_checked()
    assert "section=wing" in page.url
    page.get_by_text("1 of").wait_for()
