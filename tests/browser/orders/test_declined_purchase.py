"""A shopper on a phone buys two seats side by side under a price, is declined, and pays again while the clock runs."""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from apps.orders.models import Order, Ticket
from apps.orders.payments.providers import sandbox
from apps.orders.provider_sync import event_storage
from apps.reservations.models import Reservation
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.browser.test_whole_sale import PHONE, assert_tickets, deliver_everything, get_in, pay
from tests.support.factories import make_event
from tests.support.orders.sale import make_code, payment_of
from tests.support.races import in_another_connection

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
OpenPage = Callable[..., "Page"]


def clock_of(page: "Page") -> datetime:
    """Return the moment at which the clock of the page ends."""
    shown = page.locator("[data-countdown]").first.get_attribute("data-countdown")
    assert shown is not None
    return datetime.fromisoformat(shown)


def test_two_together_under_a_price_are_declined_and_paid_before_the_same_moment(
    live_site: str, browser_page: OpenPage
) -> None:
    make_event(tiers={"Gold": 9_000}, tier_of={"hall-A": "Gold"})
    page = browser_page(*PHONE)
    get_in(page, live_site, "concert")
    page.goto(f"{live_site}/events/concert/choose?view=best")
    page.locator("#best_quantity").fill("2")
    page.locator("#best_price_max").select_option("5000")
    page.locator("#choose-form button[type=submit]").click()
    page.wait_for_url(re.compile("best_price_max=5000"))
    offer = page.locator("form.seat-offer").first
    assert offer.locator(".seat-offer__together").is_visible()
    assert "$100.00" in offer.inner_text()
    assert_nothing_sticks_out(page)
    offer.locator("button").click()

    page.wait_for_url(re.compile("/reservations/"))
    ends_at = clock_of(page)
    assert_nothing_sticks_out(page)
    pay(page, "sandbox_decline")
    deliver_everything()
    page.locator(".checkout__pay").wait_for()  # The page moves on by itself.
    assert abs(clock_of(page) - ends_at) < timedelta(seconds=1), "the decline changed the clock"
    assert page.locator("[data-countdown-digits]").inner_text() <= "9:59"
    assert_nothing_sticks_out(page)

    page.locator("input[name=payment_method][value=sandbox]").check(force=True)
    # The bar may cover the choice, so it names what is chosen.
    assert "Test card: approved" in page.locator("[data-pay-method]").inner_text()
    page.locator(".checkout__pay button").click()
    page.wait_for_url(re.compile("/orders/"))
    deliver_everything()
    assert_tickets(page, 2)
    first, second = Ticket.objects.order_by("seat__seat__guid").values_list("seat__seat__guid", flat=True)
    assert (first[:6], int(second[7:]) - int(first[7:])) == (second[:6], 1), "side by side"
    assert [payment.attempt for payment in Order.objects.get().payments.order_by("attempt")] == [1, 2]
    assert Reservation.objects.get().total_minor == 10_000


def test_a_refused_code_on_the_page_of_a_declined_order_still_follows_the_payment(
    live_site: str, browser_page: OpenPage
) -> None:
    """The page answers a form. Meanwhile the bank approves the payment after all: the order's page opens by itself."""
    make_code(make_event(rows=0, general_admission=10))
    page = browser_page(*PHONE)
    get_in(page, live_site, "concert")
    page.locator("#choose-form button[type=submit]").click()
    pay(page, "sandbox_decline")
    order_url = page.url
    deliver_everything()
    page.locator(".checkout__promo summary").click()
    page.locator("#id_code").fill("wrong")
    page.locator("[name=apply]").click()
    page.locator(".field--code.field--wrong").wait_for()
    assert page.url.endswith("/checkout")
    in_another_connection(approve_after_all)
    deliver_everything()
    page.wait_for_url(order_url)
    assert_tickets(page, 2)


def approve_after_all() -> None:
    order = Order.objects.get()
    raw = sandbox.settle(str(payment_of(order).pk), "succeeded", order.placed_at)
    event_storage.receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})
