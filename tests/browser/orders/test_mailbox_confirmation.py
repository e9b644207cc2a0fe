"""A buyer opens the link of the mail on another device, confirms the mailbox once, and returns a ticket."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from django.core import mail

from apps.orders import access
from apps.orders.models import ReturnPolicy, Ticket
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.browser.test_whole_sale import DESKTOP, PHONE
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import buy, deliver_outbox

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


@pytest.mark.parametrize(
    ("size", "options"),
    [(DESKTOP, {}), (PHONE, {"dark": True, "javascript": False})],
    ids=["desktop", "phone in the dark, without scripts"],
)
def test_a_person_confirms_the_mailbox_and_returns_a_ticket(
    live_site: str, browser_page: Callable[..., "Page"], size: tuple[int, int], options: dict[str, bool]
) -> None:
    event = make_event()
    ReturnPolicy.objects.create(event_id=event.id, until_hours=24)
    order = buy(hold(event, seats=["hall-A-4", "hall-A-5"]))
    page = browser_page(*size, **options)
    page.goto(f"{live_site}/orders/{order.pk}/?key={access.link_key(order.pk)}")
    page.get_by_role("link", name="Return tickets").click()
    page.get_by_role("heading", name="Confirm your email").wait_for()
    assert_nothing_sticks_out(page)
    mail.outbox.clear()
    page.get_by_role("button", name="Email me a link").click()
    page.get_by_role("heading", name="Check your email").wait_for()
    assert_nothing_sticks_out(page)
    deliver_outbox()
    found = re.search(r"https?://[^/]+(/orders/\S+confirmation=\S+)", str(mail.outbox[0].body))
    assert found is not None
    page.goto(live_site + found[1])
    page.get_by_text("In this browser you can now cancel this order").wait_for()
    page.get_by_role("link", name="Return tickets").click()
    page.get_by_label(re.compile("seat 4")).check(force=True)
    page.get_by_role("button", name="See refund").click()
    page.get_by_role("button", name="Return 1 ticket").click()
    page.get_by_role("heading", name="Refunds").wait_for()
    assert Ticket.objects.filter(voided_at=None).count() == 1
    assert_audit_clean()
