"""Proof of work in real browsers: solved by a worker under the content policy, or replaced by waiting."""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from apps.accounts.models import User
from apps.kernel import rate_limits
from apps.queue.models import QueueEntry, WaitingRoom
from tests.support.accounts.credentials import LOG_IN, PASSWORD
from tests.support.queue.rooms import make_room

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

OpenPage = Callable[..., "Page"]


@pytest.fixture(autouse=True)
def _event(settings: Any) -> None:
    settings.PROOF_OF_WORK_STEPS, settings.PROOF_OF_WORK_DELAY_SECONDS = 30, 2
    make_room(active=5, general_admission=20)
    WaitingRoom.objects.update(screening="on")


def get_tickets(page: "Page", site: str) -> None:
    page.goto(f"{site}/events/concert/")
    page.get_by_role("button", name=re.compile("get tickets", re.IGNORECASE)).first.click()


def test_the_browser_does_the_work_and_joins(live_site: str, browser_page: OpenPage) -> None:
    page = browser_page()
    get_tickets(page, live_site)
    page.wait_for_url(re.compile("/events/concert/choose"))
    assert QueueEntry.objects.get().work is not None


def test_without_scripts_the_visitor_waits_and_presses_a_button(live_site: str, browser_page: OpenPage) -> None:
    page = browser_page(javascript=False)
    get_tickets(page, live_site)
    page.get_by_role("button", name="Join the line").click(timeout=20_000)
    page.wait_for_url(re.compile("/events/concert/choose"))
    assert QueueEntry.objects.count() == 1


def test_a_browser_without_workers_waits_instead(live_site: str, browser_page: OpenPage) -> None:
    page = browser_page()
    page.add_init_script("delete window.Worker")
    get_tickets(page, live_site)
    page.get_by_role("button", name="Join the line").click(timeout=20_000)
    page.wait_for_url(re.compile("/events/concert/choose"))


@pytest.mark.parametrize("javascript", [True, False])
def test_a_log_in_that_needs_work(live_site: str, browser_page: OpenPage, settings: Any, javascript: bool) -> None:
    """With scripts a press before the solution is sent as soon as it is there; without, the visitor waits first."""
    rate_limits.forget_everything()  # Delays of one address come one after another.
    settings.PROOF_OF_WORK_LOG_IN, settings.PROOF_OF_WORK_DELAY_SECONDS = "on", 1
    User.objects.create_user("ann@example.org", password=PASSWORD)
    page = browser_page(javascript=javascript)
    page.goto(f"{live_site}{LOG_IN}")
    if not javascript:
        assert "wait 1 second before you continue" in page.content()
        page.wait_for_timeout(1_100)
    page.get_by_label("Email or username").fill("ann@example.org")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Log in", exact=True).click()
    page.wait_for_url(re.compile(f"^{re.escape(live_site)}/(?!accounts/log-in)"))
