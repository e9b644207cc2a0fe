"""A whole sale in a real browser: on a desktop, on a phone, with the keyboard, and without scripts."""

import itertools
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from apps.events.demo.load import load_demo
from apps.kernel import clock
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.models import OutboxMessage
from apps.orders.models import Order, Ticket
from apps.reservations.models import Reservation
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import make_code
from tests.support.races import in_another_connection

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

DESKTOP, PHONE = (1440, 900), (360, 740)
OpenPage = Callable[..., "Page"]


def deliver_everything() -> None:
    """Run the worker's deliveries: the charge, then the ticket email."""
    while in_another_connection(outbox.deliver):
        pass


def get_in(page: "Page", site: str, slug: str) -> None:
    """Go from the catalog to ticket selection."""
    page.goto(site)
    page.get_by_role("link", name=re.compile(slug, re.IGNORECASE)).first.click()
    page.get_by_role("button", name=re.compile("get tickets", re.IGNORECASE)).first.click()
    page.wait_for_url(re.compile(f"/events/{slug}/choose"))


def pay(page: "Page", method: str = "sandbox") -> None:
    """Go from the held tickets to the order page."""
    page.get_by_role("link", name=re.compile("checkout", re.IGNORECASE)).click()
    page.get_by_label("Email address").fill("ada@example.org")
    page.get_by_label("Name", exact=True).fill("Ada Lovelace")
    card = page.locator(f"input[name=payment_method][value={method}]")
    if not card.is_visible():
        page.locator(".more-methods summary").click()
    card.check(force=True)
    page.get_by_role("button", name=re.compile("^pay", re.IGNORECASE)).click()
    page.wait_for_url(re.compile("/orders/"))


def assert_tickets(page: "Page", count: int) -> None:
    page.get_by_role("heading", name=re.compile("you.re in", re.IGNORECASE)).wait_for()
    assert page.locator("img.qr").count() == count
    for image in page.locator("img.qr").all():
        assert image.evaluate("picture => picture.decode().then(() => picture.naturalWidth > 0)")
    assert Ticket.objects.count() == count
    assert_audit_clean()


def choose_seat_by_keyboard(page: "Page") -> None:
    """Select one seat with the map's keys."""
    seat_map = page.get_by_role("listbox", name="Seat map")
    page.locator("[data-seat-map][data-ready=yes]").wait_for()
    seat_map.focus()
    for _ in range(8):
        page.keyboard.press("Enter")
        if page.locator("[data-tray-seats] li").count():
            return
        page.keyboard.press("ArrowRight")
    raise AssertionError("no seat was chosen by eight presses of Enter")


@pytest.mark.smoke
@pytest.mark.parametrize(("size", "dark"), [(DESKTOP, False), (PHONE, True)], ids=["desktop", "phone in the dark"])
def test_a_person_buys_two_seats_from_the_list_and_sees_tickets(
    live_site: str, browser_page: OpenPage, size: tuple[int, int], dark: bool
) -> None:
    make_event()
    page = browser_page(*size, dark=dark)
    get_in(page, live_site, "concert")
    page.goto(f"{live_site}/events/concert/choose?view=list")
    for seat in ("hall-A-4", "hall-A-5"):
        page.locator(f"input[name=seats][value={seat}]").check(force=True)
    assert_nothing_sticks_out(page)
    page.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).click()
    page.get_by_role("heading", name=re.compile("(is|are) reserved", re.IGNORECASE)).wait_for()
    assert_nothing_sticks_out(page)
    pay(page)
    assert_nothing_sticks_out(page)
    deliver_everything()
    # The page updates without interaction.
    assert_tickets(page, 2)
    assert_nothing_sticks_out(page)
    assert set(Ticket.objects.values_list("seat__seat__guid", flat=True)) == {"hall-A-4", "hall-A-5"}
    page.get_by_role("link", name=re.compile("view ticket", re.IGNORECASE)).first.click()
    page.locator("img.qr").wait_for()
    assert_nothing_sticks_out(page)


def test_a_person_buys_a_seat_on_the_map_with_the_keyboard_alone(live_site: str, browser_page: OpenPage) -> None:
    make_event()
    page = browser_page(*DESKTOP)
    get_in(page, live_site, "concert")
    page.get_by_role("listbox", name="Seat map").wait_for()
    choose_seat_by_keyboard(page)
    page.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).press("Enter")
    page.get_by_role("heading", name=re.compile("(is|are) reserved", re.IGNORECASE)).wait_for()
    assert Reservation.objects.get().seat_count == 1
    pay(page)
    deliver_everything()
    assert_tickets(page, 1)


def test_a_phone_without_scripts_buys_general_admission(live_site: str, browser_page: OpenPage) -> None:
    make_event(rows=0, general_admission=40)
    page = browser_page(*PHONE, javascript=False)
    get_in(page, live_site, "concert")
    page.get_by_label("Number of tickets").fill("3")
    page.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).click()
    page.get_by_role("heading", name=re.compile("(is|are) reserved", re.IGNORECASE)).wait_for()
    assert_nothing_sticks_out(page)
    pay(page)
    deliver_everything()
    page.reload()
    assert_tickets(page, 3)


def test_best_available_holds_adjacent_seats_without_scripts(live_site: str, browser_page: OpenPage) -> None:
    make_event()
    page = browser_page(*DESKTOP, javascript=False)
    get_in(page, live_site, "concert")
    page.goto(f"{live_site}/events/concert/choose?view=best")
    page.get_by_label("Number of people").fill("4")
    page.get_by_role("button", name="Find seats").click()
    page.get_by_role("heading", name="Best seats for 4").wait_for()
    page.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).first.click()
    page.get_by_role("heading", name=re.compile("(is|are) reserved", re.IGNORECASE)).wait_for()
    assert Reservation.objects.get().seat_count == 4


def test_a_lost_seat_is_named_and_the_rest_stays_selected(live_site: str, browser_page: OpenPage) -> None:
    event = make_event()
    page = browser_page(*DESKTOP)
    get_in(page, live_site, "concert")
    page.goto(f"{live_site}/events/concert/choose?view=list")
    for seat in ("hall-B-4", "hall-B-5"):
        page.locator(f"input[name=seats][value={seat}]").check(force=True)
    in_another_connection(lambda: hold(event, seats=["hall-B-4"]))
    page.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).click()
    alert = page.get_by_role("alert").filter(has_text="Just taken")
    assert "row B seat 4" in (alert.text_content() or "")
    assert page.locator("input[name=seats][value=hall-B-5]").is_checked()
    page.get_by_role("button", name="Reserve seat", exact=True).click()
    page.get_by_role("heading", name=re.compile("(is|are) reserved", re.IGNORECASE)).wait_for()
    assert_audit_clean()


@pytest.mark.parametrize("javascript", [True, False])
def test_after_a_decline_the_clock_stays_and_the_same_page_pays_with_a_code(
    live_site: str, browser_page: OpenPage, javascript: bool
) -> None:
    make_code(make_event(rows=0, general_admission=10))
    page = browser_page(*PHONE, javascript=javascript)
    get_in(page, live_site, "concert")
    page.get_by_label("Number of tickets").fill("2")
    page.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).click()
    page.get_by_role("heading", name=re.compile("(is|are) reserved", re.IGNORECASE)).wait_for()
    hold_ends_at = Reservation.objects.get().expires_at
    pay(page, "sandbox_decline")
    order_url = page.url
    deliver_everything()
    # With scripts the page moves on by itself.
    if not javascript:
        page.reload()
    page.get_by_role("heading", name="Your order for $50.00 was not paid").wait_for()
    assert Order.objects.get().pay_deadline == hold_ends_at
    shown = page.locator("[data-countdown]").get_attribute("data-countdown")
    assert shown is not None
    assert abs(datetime.fromisoformat(shown) - hold_ends_at) < timedelta(seconds=1)
    assert page.locator(".hold-bar").count() == 0, "the page shows the clock itself"
    assert_nothing_sticks_out(page)
    page.locator(".checkout__promo summary").click()
    page.get_by_label("Promo code").fill("wrong")
    page.get_by_role("button", name="Apply").click()
    page.get_by_text("That code isn't valid for this event.").wait_for()
    code = page.get_by_label("Promo code")
    assert code.input_value() == "wrong"
    assert code.evaluate("field => field === document.activeElement")
    code.fill("halfprice")
    page.get_by_role("button", name="Apply").click()
    page.get_by_role("button", name="Pay $25.00").last.click()
    page.wait_for_url(order_url)
    deliver_everything()
    if not javascript:
        page.reload()
    assert_tickets(page, 2)
    assert [payment.amount_minor for payment in Order.objects.get().payments.order_by("attempt")] == [5000, 2500]


def test_on_a_phone_the_pay_button_stays_in_view_and_the_first_error_has_the_focus(
    live_site: str, browser_page: OpenPage
) -> None:
    make_event(rows=0, general_admission=10)
    page = browser_page(*PHONE)
    get_in(page, live_site, "concert")
    page.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).click()
    page.get_by_role("link", name=re.compile("checkout", re.IGNORECASE)).click()
    button = page.locator(".checkout__pay button")
    button.wait_for()
    height = page.evaluate("innerHeight")

    def is_in_view() -> bool:
        box = button.bounding_box()
        return box is not None and box["y"] >= 0 and box["y"] + box["height"] <= height

    assert is_in_view()
    page.set_viewport_size({"width": 360, "height": 740})
    height = 740
    field, pay_button = page.get_by_label("Name", exact=True).bounding_box(), button.bounding_box()
    assert field is not None
    assert pay_button is not None
    assert field["y"] + field["height"] < pay_button["y"], "summary, details and Pay are on one screen"
    page.evaluate("scrollTo(0, 300)")
    assert is_in_view()
    page.get_by_label("Name", exact=True).fill("Ada Lovelace")
    page.get_by_label("Email address").fill("ada")
    button.click()
    page.get_by_text("Enter a valid email address.").wait_for()
    page.get_by_label("Email address").fill("ada@example.com")
    assert page.locator(".field--wrong, .notice--wrong").count() == 0, "a corrected error goes away"
    page.get_by_label("Email address").fill("ada")
    button.click()
    page.get_by_text("Enter a valid email address.").wait_for()
    address = page.get_by_label("Email address")
    assert address.evaluate("field => field === document.activeElement")
    top, pay_top = address.bounding_box(), button.bounding_box()
    assert top is not None
    assert pay_top is not None
    assert top["y"] + top["height"] < pay_top["y"], "the focused field is not behind the button"
    assert address.input_value() == "ada"
    assert page.get_by_label("Name", exact=True).input_value() == "Ada Lovelace"


def test_a_buyer_confirms_with_the_bank_and_returns_to_the_tickets(live_site: str, browser_page: OpenPage) -> None:
    make_event(rows=0, general_admission=10)
    page = browser_page(*PHONE, dark=True)
    get_in(page, live_site, "concert")
    page.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).click()
    pay(page, "sandbox_challenge")
    deliver_everything()
    page.get_by_role("link", name="Confirm with your bank").click()
    page.get_by_role("button", name="Approve").wait_for()
    assert_nothing_sticks_out(page)
    page.get_by_role("button", name="Approve").click()
    page.wait_for_url(re.compile("/orders/"))
    deliver_everything()
    assert_tickets(page, 2)


def test_a_charge_without_a_response_is_retried_and_ends_in_tickets(live_site: str, browser_page: OpenPage) -> None:
    make_event(rows=0, general_admission=10)
    page = browser_page(*DESKTOP)
    get_in(page, live_site, "concert")
    page.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).click()
    pay(page, "sandbox_timeout_charged")
    deliver_everything()
    page.get_by_text("attempt 2 of 3").wait_for()
    in_another_connection(lambda: OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now()))
    deliver_everything()
    assert_tickets(page, 2)
    assert Order.objects.get().payments.count() == 1


def test_a_lost_connection_is_reported_and_the_page_continues(live_site: str, browser_page: OpenPage) -> None:
    make_event(rows=0, general_admission=10)
    page = browser_page(*PHONE)
    get_in(page, live_site, "concert")
    page.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).click()
    pay(page)
    page.context.set_offline(True)
    page.locator("[data-follow-trouble]").wait_for(state="visible")
    assert_nothing_sticks_out(page)
    deliver_everything()
    page.context.set_offline(False)
    assert_tickets(page, 2)
    assert not page.locator("[data-follow-trouble]").is_visible()


def test_released_seats_are_available_again_at_once(live_site: str, browser_page: OpenPage) -> None:
    make_event(rows=0, general_admission=2)
    page = browser_page(*PHONE)
    get_in(page, live_site, "concert")
    page.get_by_role("button", name=re.compile("^reserve", re.IGNORECASE)).click()
    page.get_by_role("button", name=re.compile("^release", re.IGNORECASE)).click()
    page.wait_for_load_state()
    assert Reservation.objects.get().status == Reservation.Status.CANCELED
    page.goto(f"{live_site}/events/concert/")
    assert "2 left" in (page.text_content("main") or "")
    assert_audit_clean()


def test_without_scripts_the_map_tab_links_to_the_other_tabs(live_site: str, browser_page: OpenPage) -> None:
    make_event()
    page = browser_page(*PHONE, javascript=False)
    get_in(page, live_site, "concert")
    page.goto(f"{live_site}/events/concert/choose?view=map")
    assert page.locator("noscript .notice").is_visible()
    assert not page.locator("[data-map-zoom]:visible, [data-tray-hold]:visible").count()
    assert not page.get_by_text("Loading seat map").is_visible()
    page.goto(f"{live_site}/events/concert/choose?view=list&seats=hall-A-1")
    page.get_by_role("button", name="Reserve seats").click()
    page.goto(f"{live_site}/events/concert/choose?view=map&change=1")
    assert page.get_by_text(re.compile(r"until \d\d:\d\d UTC")).is_visible()


def test_section_names_on_an_arena_map_never_overlap_on_a_phone(live_site: str, browser_page: OpenPage) -> None:
    load_demo()
    page = browser_page(*PHONE)
    page.goto(f"{live_site}/events/voltaic-afterglow/")
    page.get_by_role("button", name=re.compile("get tickets", re.IGNORECASE)).first.click()
    page.locator("[data-seat-map][data-ready]").wait_for()
    boxes = [name.bounding_box() for name in page.locator(".section-name:not([hidden]) tspan").all()]
    boxes = [box for box in boxes if box and box["width"]]
    assert len(boxes) > 12, "the map shows section names"
    for one, other in itertools.combinations(boxes, 2):
        apart_x = max(one["x"], other["x"]) - min(one["x"] + one["width"], other["x"] + other["width"])
        apart_y = max(one["y"], other["y"]) - min(one["y"] + one["height"], other["y"] + other["height"])
        # A line's box includes space above and below its letters, where two lines of one name may overlap.
        assert max(apart_x, apart_y) > -5, (one, other)
    shown = page.locator(".section-name:not([hidden])").all_text_contents()
    assert len({text.isdigit() for text in shown if text != "Floor"}) == 1, "all blocks have one form of label"
