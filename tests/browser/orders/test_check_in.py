"""The check-in page in a real browser: camera scans, offline use, and each ticket checked in once."""

import io
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import segno
from PIL import Image

from apps.events import facade as events
from apps.kernel import clock
from apps.orders.checkin import door_links
from apps.orders.models import Order, Ticket, TicketScan
from tests.conftest import CHROMIUM_FLAGS, Pages
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import buy
from tests.support.programs import CHROMIUM
from tests.support.races import in_another_connection

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
PHONE = (360, 740)
OpenPage = Callable[..., "Page"]


@pytest.fixture
def order() -> Order:
    concert = make_event("concert", starts_at=clock.now() + timedelta(hours=1))
    return buy(hold(concert, seats=["hall-A-1", "hall-A-2", "hall-A-3"]))


def codes(order: Order) -> list[str]:
    return list(order.tickets.order_by("id").values_list("code", flat=True))


def door_address() -> str:
    event, now = events.get_event("concert"), clock.now()
    made = door_links.make_link(
        event.id,
        name="Vera",
        door="North",
        good_from=now - timedelta(hours=1),
        good_until=now + timedelta(hours=4),
        who="staff:1",
    )
    return door_links.link_url(made, event.slug)


def open_check_in(page: "Page") -> None:
    page.goto(door_address())
    page.locator("[data-check-in][data-ready=yes]").wait_for()
    assert "link=" not in page.url


def type_in(page: "Page", code: str) -> None:
    page.get_by_label("Code on the ticket").fill(code)
    page.get_by_role("button", name="Check", exact=True).click()


def answer(page: "Page", expected: str) -> str:
    """Return the text of the result panel once it shows this text."""
    panel = page.locator("[data-answer]")
    panel.get_by_text(expected, exact=True).wait_for()
    assert panel.locator("svg use").count() == 1, "an icon beside the color"
    return panel.text_content() or ""


_REFUSE_WRITES = """(() => {
    const send = window.fetch;
    window.fetch = (resource, options = {}) =>
        localStorage.getItem("test-offline") && options.method === "POST"
            ? Promise.reject(new TypeError("offline"))
            : send(resource, options);
})()"""


def go_offline(page: "Page") -> None:
    """Go offline. The page's own requests fail, too: a page that has just been reloaded is online for a moment."""
    page.context.add_init_script(_REFUSE_WRITES)
    page.evaluate(_REFUSE_WRITES)
    page.evaluate("localStorage.setItem('test-offline', 'yes')")
    page.context.set_offline(True)


def connect(page: "Page") -> None:
    page.evaluate("localStorage.removeItem('test-offline')")
    page.context.set_offline(False)


def wait_for_all_answers(page: "Page") -> None:
    page.locator("[data-check-in][data-waiting='0']").wait_for()


def test_each_typed_code_gets_its_own_result(live_site: str, browser_page: OpenPage, order) -> None:
    page = browser_page(*PHONE)
    open_check_in(page)
    one, _, _ = codes(order)
    field = page.get_by_label("Code on the ticket")
    field.press_sequentially(one.lower())
    assert field.input_value() == " ".join(one[at : at + 4] for at in range(0, 28, 4))
    page.get_by_role("button", name="Check", exact=True).click()
    assert "Hall, row A, seat 1" in answer(page, "Let in")
    type_in(page, one)
    assert "North" in answer(page, "Already in")
    type_in(page, "ABCD" * 7)
    answer(page, "Code not recognized")
    page.locator("[data-entered]").get_by_text("1", exact=True).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert list(TicketScan.objects.order_by("id").values_list("outcome", flat=True)) == [
        "welcome", "already_in", "unknown",
    ]  # fmt: skip


def test_offline_scans_are_not_welcomed_and_each_ticket_counts_once(
    live_site: str, browser_page: OpenPage, order
) -> None:
    """The network fails; two tickets are scanned, one of them twice; the page is reloaded; the network recovers."""
    page = browser_page(*PHONE)
    open_check_in(page)
    first, second, third = codes(order)
    type_in(page, first)
    answer(page, "Let in")
    page.locator("[data-check-in][data-kept=asked]").wait_for()
    _wait_until_cached(page)
    go_offline(page)
    type_in(page, second)
    answer(page, "Not confirmed yet")
    type_in(page, second)
    assert "On this phone" in answer(page, "Scanned before")
    page.reload()
    page.locator("[data-check-in][data-ready=yes]").wait_for()
    assert "3 of 3" not in (page.locator(".door__counts").text_content() or "")
    type_in(page, third)
    answer(page, "Not confirmed yet")
    page.get_by_text("3 scans are waiting on this phone").wait_for()
    assert Ticket.objects.filter(checked_in_at__isnull=False).count() == 1
    connect(page)
    wait_for_all_answers(page)
    answer(page, "Let in")
    assert not Ticket.objects.filter(checked_in_at=None).exists()
    outcomes = TicketScan.objects.order_by("id").values_list("code", "outcome")
    assert list(outcomes) == [
        (first, "welcome"), (second, "welcome"), (second, "already_in"), (third, "welcome"),
    ]  # fmt: skip
    assert_audit_clean()


def test_a_code_that_the_server_refuses_stops_no_other_scan(live_site: str, browser_page: OpenPage, order) -> None:
    """A QR code can contain any text, also some for which the server refuses the whole batch."""
    page = browser_page(*PHONE)
    open_check_in(page)
    go_offline(page)
    first, second, third = codes(order)
    type_in(page, first)
    answer(page, "Not confirmed yet")
    # As the camera stores it.
    page.evaluate(
        """localStorage.setItem('check-in:concert:scan:crafted-1',
            JSON.stringify({scan_id: 'crafted-1', code: '\\u0000', door: '', made: Date.now(), nth: 9}))"""
    )
    type_in(page, second)
    page.get_by_text("3 scans are waiting on this phone").wait_for()
    connect(page)
    wait_for_all_answers(page)
    type_in(page, third)
    answer(page, "Let in")
    assert not Ticket.objects.filter(checked_in_at=None).exists()


def _wait_until_cached(page: "Page") -> None:
    """Wait until the service worker has cached the page and its decoder."""
    page.locator("body").evaluate(
        """async () => {
            const wanted = [location.pathname, "/static/js/check-in.js", "/static/vendor/qr/decode.js"];
            const kept = async () => {
                const shelf = await caches.open("check-in-1");
                return (await Promise.all(wanted.map((each) => shelf.match(each)))).every(Boolean);
            };
            while (!(await kept())) await new Promise((next) => setTimeout(next, 50));
        }"""
    )


def test_a_lost_response_is_requested_again(live_site: str, browser_page: OpenPage, order) -> None:
    """The server has checked the ticket in but its response was lost: the same scan, sent again, is welcome."""
    page = browser_page(*PHONE)
    open_check_in(page)
    lost = []

    def lose(route) -> None:
        if route.request.method == "POST" and not lost:
            lost.append(route.fetch().json()["outcome"])
            route.abort("connectionreset")
        else:
            route.continue_()

    page.route("**/check-in", lose)
    type_in(page, codes(order)[0])
    assert "Hall, row A, seat 1" in answer(page, "Let in")
    assert lost == ["welcome"]
    assert TicketScan.objects.count() == 1


def test_a_scan_that_lost_to_another_door_is_reported_when_back_online(
    live_site: str, browser_page: OpenPage, order
) -> None:
    page = browser_page(*PHONE)
    open_check_in(page)
    first, second, _ = codes(order)
    page.context.set_offline(True)
    type_in(page, first)
    answer(page, "Not confirmed yet")
    type_in(page, second)
    answer(page, "Not confirmed yet")
    in_another_connection(lambda: _scan_at_another_door(first))
    page.context.set_offline(False)
    wait_for_all_answers(page)
    warned = page.locator("[data-line]")
    warned.wait_for()
    assert re.search(r"seat 1, scanned at \d\d:\d\d: Already in\. .* South", warned.text_content() or "")


def _scan_at_another_door(code: str) -> None:
    from apps.orders.checkin.check_in import Scan, scan

    scan(events.get_event("concert"), Scan("scan-elsewhere", code, door="South"), "staff:1")


def test_a_mistaken_check_in_is_undone_on_the_page(live_site: str, browser_page: OpenPage, order) -> None:
    page = browser_page(*PHONE)
    open_check_in(page)
    page.on("dialog", lambda dialog: dialog.accept())
    type_in(page, codes(order)[0])
    answer(page, "Let in")
    page.get_by_role("button", name=re.compile("^undo", re.IGNORECASE)).click()
    answer(page, "Undone")
    type_in(page, codes(order)[0])
    answer(page, "Let in")
    outcomes = TicketScan.objects.order_by("id").values_list("outcome", flat=True)
    assert list(outcomes) == ["welcome", "undone", "welcome"]


def test_a_revoked_link_keeps_the_scans_and_reports_it(live_site: str, browser_page: OpenPage, order) -> None:
    from apps.orders.models import DoorLink

    page = browser_page(*PHONE)
    open_check_in(page)
    door_links.revoke_link(DoorLink.objects.get().pk, "staff:1")
    type_in(page, codes(order)[0])
    answer(page, "Check-in closed")
    page.get_by_text(re.compile("revoked.*1 scan is waiting on this phone")).wait_for()
    assert not TicketScan.objects.exists()
    page.reload()
    page.get_by_text("This door link was revoked").wait_for()


def test_without_scripts_the_form_checks_in_and_undoes(live_site: str, browser_page: OpenPage, order) -> None:
    page = browser_page(*PHONE, javascript=False)
    page.goto(door_address())
    type_in(page, codes(order)[0])
    assert "Hall, row A, seat 1" in answer(page, "Let in")
    page.reload()  # The form is submitted again, with the same id.
    answer(page, "Let in")
    page.get_by_role("button", name=re.compile("undo this check-in", re.IGNORECASE)).click()
    answer(page, "Undone")
    assert TicketScan.objects.count() == 2


def test_an_early_ticket_is_let_in_by_a_confirmation(live_site: str, browser_page: OpenPage) -> None:
    order = buy(hold(make_event("concert"), seats=["hall-A-1", "hall-A-2"]))
    page = browser_page(*PHONE)
    open_check_in(page)
    one, other = codes(order)
    type_in(page, one)
    assert "in 30 days" in answer(page, "Too early") or "in 29 days" in answer(page, "Too early")
    page.locator("[data-anyway]").get_by_role("button", name="Let in anyway: Hall, row A, seat 1").click()
    answer(page, "Let in")
    assert page.get_by_role("button", name=re.compile("^Let in anyway")).count() == 0
    # A scan that was sent later, from the phone's list.
    page.context.set_offline(True)
    type_in(page, other)
    answer(page, "Not confirmed yet")
    type_in(page, "ABCD" * 7)
    answer(page, "Not confirmed yet")
    page.context.set_offline(False)
    wait_for_all_answers(page)
    page.locator("[data-log]").get_by_role("button", name="Let in anyway: Hall, row A, seat 2").click()
    answer(page, "Let in")
    rows = TicketScan.objects.order_by("id").values_list("outcome", "anyway")
    assert list(rows) == [
        ("too_early", False), ("welcome", True), ("too_early", False), ("unknown", False), ("welcome", True),
    ]  # fmt: skip


def test_without_scripts_a_confirmation_lets_an_early_ticket_in(live_site: str, browser_page: OpenPage) -> None:
    order = buy(hold(make_event("concert"), seats=["hall-A-1"]))
    page = browser_page(*PHONE, javascript=False)
    page.goto(door_address())
    type_in(page, codes(order)[0])
    answer(page, "Too early")
    page.get_by_role("button", name="Let in anyway").click()
    answer(page, "Let in")


@pytest.fixture
def filming(chromium: "Browser", tmp_path: Path) -> Iterator[Callable[[str], "Page"]]:
    """Opens a page whose camera sees this code, in a Chromium of its own: the camera's input is set at launch."""
    opened = []

    def film(code: str) -> "Page":
        seen = tmp_path / "camera.y4m"
        seen.write_bytes(_film_of(code))
        camera = ["--use-fake-device-for-media-stream", f"--use-file-for-fake-video-capture={seen}"]
        filming_chromium = chromium.browser_type.launch(
            executable_path=CHROMIUM.find(), args=[*CHROMIUM_FLAGS, *camera]
        )
        pages = Pages(filming_chromium)
        opened.append((filming_chromium, pages))
        page = pages(*PHONE)
        page.context.grant_permissions(["camera"])
        return page

    yield film
    for browser, pages in opened:
        browser.close()
        assert not pages.errors, pages.errors


def _film_of(code: str) -> bytes:
    """Return a few slightly rotated images of the code, in the only format that Chromium plays as a camera."""
    out = io.BytesIO()
    segno.make_qr(code, error="m").save(out, kind="png", scale=8, border=4)
    drawn = Image.open(out).convert("L").resize((340, 340)).rotate(7, fillcolor=255)
    picture = Image.new("L", (640, 480), 200)
    picture.paste(drawn, (150, 70))
    frame = b"FRAME\n" + picture.tobytes() + bytes([128]) * (640 * 480 // 2)
    return b"YUV4MPEG2 W640 H480 F10:1 Ip A1:1 C420jpeg\n" + frame * 3


def test_the_camera_reads_the_code_of_a_ticket_once(live_site: str, filming, order) -> None:
    page = filming(codes(order)[1])
    open_check_in(page)
    page.locator("[data-camera][data-running=yes]").wait_for()
    assert "Hall, row A, seat 2" in answer(page, "Let in")
    # The ticket stays in front of the camera and is not scanned again.
    for _ in range(20):
        page.evaluate("new Promise((next) => requestAnimationFrame(next))")
    assert "Let in" in (page.locator("[data-answer]").text_content() or "")
    assert TicketScan.objects.get().outcome == "welcome"
