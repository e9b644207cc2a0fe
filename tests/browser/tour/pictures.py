"""Takes the pictures of docs/tour.md: `make tour`. Not a test of the suite, but run by pytest, whose fixtures start
PostgreSQL, Valkey, the site and Chromium, and stop them.

Each picture is a WebP file in docs/tour, named as in the document. `TOUR=checkout,declined` takes these only.
"""

import io
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from apps.accounts.models import User
from apps.events import facade as events
from apps.kernel import clock, rate_limits
from tests.browser.shop.shop import Shop, deliver_everything
from tests.browser.tour import sales
from tests.support.races import in_another_connection

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.django_db(transaction=True)

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "tour"
PHONE, DESKTOP, TALL = (360, 740), (1440, 900), (1440, 1300)
QUALITY = 72
PHONE_SCALE = 2
WANTED = frozenset(filter(None, os.environ.get("TOUR", "").split(",")))
_Arrange = Callable[[Shop], None]
PICTURES: dict[str, tuple[tuple[int, int], bool, _Arrange]] = {}


def picture(name: str, size: tuple[int, int] = DESKTOP, *, dark: bool = False) -> Callable[[_Arrange], _Arrange]:
    """Register what leads a new browser to the page of a picture."""

    def register(arrange: _Arrange) -> _Arrange:
        PICTURES[name] = (size, dark, arrange)
        return arrange

    return register


@picture("catalog")
@picture("catalog-phone", PHONE, dark=True)
def _catalog(shop: Shop) -> None:
    shop.open("/")


@picture("event")
@picture("event-phone", PHONE)
def _event(shop: Shop) -> None:
    shop.open(f"/events/{sales.ORCHARD}/")


@picture("waiting-room", dark=True)
@picture("waiting-room-phone", PHONE)
def _waiting_room(shop: Shop) -> None:
    shop.join(events.get_event(sales.SOLSTICE))
    shop.open(f"/events/{sales.SOLSTICE}/wait")


def _choose(shop: Shop, view: str, slug: str = sales.ORCHARD) -> None:
    shop.join(events.get_event(slug))
    shop.open(f"/events/{slug}/choose?view={view}")


@picture("seat-map")
@picture("seat-map-phone", PHONE, dark=True)
def _seat_map(shop: Shop) -> None:
    _choose(shop, "map")
    shop.page.locator("[data-seat-map][data-ready=yes]").wait_for()
    shop.page.get_by_role("listbox").focus()
    for _ in range(3):
        shop.page.keyboard.press("Enter")
        shop.page.keyboard.press("ArrowRight")
    shop.page.locator("[data-tray-seats] li").first.wait_for()
    if shop.page.viewport_size == {"width": DESKTOP[0], "height": DESKTOP[1]}:
        shop.page.locator("[data-map-zoom=fit]").click()
    shop.page.evaluate("document.activeElement.blur()")


@picture("arena", dark=True)
def _arena(shop: Shop) -> None:
    _choose(shop, "map", sales.AFTERGLOW)
    shop.page.locator("[data-seat-map][data-ready=yes]").wait_for()


@picture("best-available-phone", PHONE)
def _best_available(shop: Shop) -> None:
    _choose(shop, "best&best_quantity=2&best_price_max=7200")


@picture("list-phone", PHONE)
def _list(shop: Shop) -> None:
    _choose(shop, "list")
    shop.page.locator("input[name=seats]:not(:disabled)").nth(0).check(force=True)
    shop.page.locator("input[name=seats]:not(:disabled)").nth(1).check(force=True)


def _hold(shop: Shop) -> Any:
    return shop.hold(events.get_event(sales.ORCHARD), best_available={"section": "circle", "quantity": 2})


@picture("reserved-phone", PHONE)
def _reserved(shop: Shop) -> None:
    _hold(shop)


@picture("bar")
def _bar(shop: Shop) -> None:
    _hold(shop)
    shop.open("/?q=voltaic")
    shop.page.locator(".hold-bar").wait_for()


@picture("checkout")
@picture("checkout-phone", PHONE)
def _checkout(shop: Shop) -> None:
    shop.open(f"/reservations/{_hold(shop).id}/checkout")
    shop.page.locator("#id_email").fill("ada@example.org")
    shop.page.locator("#id_name").fill("Ada Byron")
    shop.page.evaluate("document.activeElement.blur()")


def _order(shop: Shop, method: str) -> None:
    held = _hold(shop)
    shop.open(f"/reservations/{held.id}/checkout")
    shop.page.locator("#id_email").fill("ada@example.org")
    shop.page.locator("#id_name").fill("Ada Byron")
    shop.page.locator(f"input[name=payment_method][value={method}]").check(force=True)
    shop.press(".checkout__pay button")
    deliver_everything()
    shop.page.reload()


@picture("declined-phone", PHONE)
def _declined(shop: Shop) -> None:
    _order(shop, "sandbox_decline")
    shop.page.locator(".checkout__pay").wait_for()


@picture("order")
@picture("order-phone", PHONE, dark=True)
def _paid(shop: Shop) -> None:
    _order(shop, "sandbox")
    shop.page.locator("img.qr").first.wait_for()
    shop.page.wait_for_load_state("networkidle")


@picture("ticket-phone", PHONE)
def _ticket(shop: Shop) -> None:
    _paid(shop)
    shop.press(".ticket__link a")
    shop.page.wait_for_load_state("networkidle")


@picture("find-order-phone", PHONE)
def _find_order(shop: Shop) -> None:
    shop.open("/orders/find")
    shop.page.locator("main input[type=email]").fill("ada@example.org")
    shop.page.evaluate("document.activeElement.blur()")


@picture("return-phone", PHONE)
def _return(shop: Shop) -> None:
    _paid(shop)
    shop.press("a[href$='/return']")
    shop.page.locator("[name=ticket]").first.check(force=True)
    shop.press("main form .button--big")


def _staff(shop: Shop, path: str) -> None:
    shop.log_in(User.objects.get(username=sales.STAFF))
    shop.open(path)
    shop.page.wait_for_load_state("networkidle")


@picture("home")
def _home(shop: Shop) -> None:
    _staff(shop, "/admin/")


@picture("new-event", TALL)
def _new_event(shop: Shop) -> None:
    _staff(shop, "/admin/events/event/add/")
    shop.page.get_by_label("Name of the event", exact=True).fill("Blues Night")
    shop.page.get_by_label("Start", exact=True).fill(f"{clock.now() + timedelta(days=40):%Y-%m-%d}T20:00")
    shop.page.get_by_label("Price", exact=True).first.fill("45.00")
    shop.page.evaluate("document.activeElement.blur()")


@picture("checklist")
def _checklist(shop: Shop) -> None:
    _staff(shop, f"/admin/events/event/{sales.event_id(sales.DRAFT)}/publish/")


@picture("dashboard", TALL)
@picture("dashboard-dark", dark=True)
def _dashboard(shop: Shop) -> None:
    _staff(shop, f"/admin/events/event/{sales.event_id(sales.ORCHARD)}/dashboard/")


@picture("order-of-staff", TALL)
def _order_of_staff(shop: Shop) -> None:
    order = sales.order_of(sales.ORCHARD, status="confirmed")
    _staff(shop, f"/admin/orders/order/{order.pk}/change/")


@picture("check-in-twice-phone", PHONE, dark=True)
@picture("check-in-phone", PHONE)
def _check_in(shop: Shop) -> None:
    shop.open(sales.door_link().removeprefix(shop.settings.SITE_URL))
    shop.page.locator("[data-check-in][data-ready=yes]").wait_for()
    for code in sales.codes_at_the_door()[:3]:
        shop.page.locator("#code").fill(code)
        shop.page.locator("[data-form] button").click()
        shop.page.locator("#code").and_(shop.page.locator(":placeholder-shown")).wait_for()
        shop.page.locator(".door__place").wait_for()
    shop.page.locator("[data-entered]").filter(has_not_text="0").wait_for()  # Counts are fetched every few seconds.


@picture("waiting-room-log")
def _waiting_room_log(shop: Shop) -> None:
    _staff(shop, "/admin/queue/roomact/")


@picture("payment-reconciliation")
def _payment_reconciliation(shop: Shop) -> None:
    _staff(shop, "/admin/orders/paymentdifference/")


@picture("report", TALL)
def _report(shop: Shop) -> None:
    shop.open(f"/events/{sales.REPORTED}/report")


@picture("fairness")
def _fairness(shop: Shop) -> None:
    shop.open(f"/events/{sales.SOLSTICE}/fairness")
    shop.page.locator("[data-fair-go]").click()
    shop.page.locator("[data-fair-result]:not([hidden])").wait_for()


def test_take_the_pictures(
    live_site: str, chromium: "Browser", settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert set(PICTURES) >= WANTED, f"no such picture: {sorted(WANTED - set(PICTURES))}"
    settings.REAUTHENTICATION_SECONDS = 0
    User.objects.create_superuser(sales.STAFF, sales.STAFF, "secret")
    in_another_connection(sales.make_all, seconds_max=300)
    FOLDER.mkdir(exist_ok=True)
    for name, (size, dark, arrange) in PICTURES.items():
        if WANTED and name not in WANTED:
            continue
        _take(chromium, name, size, dark, arrange, live_site, settings, monkeypatch, tmp_path)
    if not WANTED:
        for old in FOLDER.glob("*.webp"):
            if old.stem not in PICTURES:
                old.unlink()
    print(
        f"\n{len(list(FOLDER.glob('*.webp')))} pictures, {sum(f.stat().st_size for f in FOLDER.iterdir()) // 1024} KiB"
    )


def _take(
    chromium: "Browser",
    name: str,
    size: tuple[int, int],
    dark: bool,
    arrange: _Arrange,
    site: str,
    settings: Any,
    patches: pytest.MonkeyPatch,
    folder: Path,
) -> None:
    rate_limits.forget_everything()
    width, height = size
    context = chromium.new_context(
        viewport={"width": width, "height": height},
        device_scale_factor=PHONE_SCALE if size == PHONE else 1,
        color_scheme="dark" if dark else "light",
        has_touch=size == PHONE,
        locale="en-US",
        timezone_id="Europe/London",
    )
    page = context.new_page()
    page.set_default_timeout(30_000)
    arrange(Shop(page, site, settings, patches, folder))
    page.evaluate("document.fonts.ready.then(() => scrollTo(0, 0))")
    taken = page.screenshot(animations="disabled")
    context.close()
    with Image.open(io.BytesIO(taken)) as image:
        image.convert("RGB").save(FOLDER / f"{name}.webp", quality=QUALITY, method=6)
