"""A buyer passes a ticket to a friend in a real browser, who accepts it on another."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from apps.orders import access
from apps.orders.models import Ticket, TicketTransfer
from apps.orders.transfers.transfer_links import transfer_path
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.browser.test_whole_sale import DESKTOP, PHONE, deliver_everything
from tests.support.factories import assert_audit_clean
from tests.support.orders.transfers import sold_order
from tests.support.races import in_another_connection

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]
OpenPage = Callable[..., "Page"]


@pytest.mark.parametrize(
    ("size", "options"),
    [(DESKTOP, {}), (DESKTOP, {"dark": True}), (PHONE, {}), (PHONE, {"dark": True, "javascript": False})],
    ids=["desktop", "desktop in the dark", "phone", "phone in the dark, without scripts"],
)
def test_a_person_passes_a_ticket_to_a_friend(
    live_site: str,
    browser_page: OpenPage,
    tmp_path: Path,
    settings: Any,
    size: tuple[int, int],
    options: dict[str, bool],
) -> None:
    order = in_another_connection(sold_order)
    buyer, friend = browser_page(*size, **options), browser_page(*size, **options)

    def check(page: "Page", name: str) -> None:
        assert_nothing_sticks_out(page)
        page.screenshot(path=str(tmp_path / f"{name}.png"), full_page=True)

    buyer.goto(f"{live_site}/orders/{order.pk}/?key={access.link_key(order.pk)}")
    buyer.goto(access.confirmation_url(order.pk).replace(settings.SITE_URL, live_site))
    form = buyer.locator("details", has_text="Pass this ticket to someone else").first
    form.locator("summary").click()
    check(buyer, "form")
    form.get_by_label("Their email address").fill("friend@example.org")
    form.get_by_role("button").click()
    buyer.get_by_text("Offered to friend@example.org").wait_for()
    check(buyer, "offered")
    deliver_everything()
    friend.goto(live_site + transfer_path(TicketTransfer.objects.get().pk))
    check(friend, "offer")
    friend.get_by_label("Your name").fill("Grace Friend")
    friend.get_by_role("button", name="Accept ticket").click()
    friend.get_by_role("heading", name="Your ticket").wait_for()
    check(friend, "accepted")
    friend.get_by_role("link", name="Open ticket").click()
    friend.get_by_text("Grace Friend").wait_for()
    check(friend, "ticket")
    buyer.reload()
    buyer.get_by_role("heading", name="Passed to others").wait_for()
    check(buyer, "passed")
    assert buyer.locator("img.qr").count() == 1
    assert Ticket.objects.filter(voided_at=None, transfer=None).count() == 1
    assert_audit_clean()
