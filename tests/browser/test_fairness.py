"""The fairness page verifies a line in the browser, reports mismatches, and works without scripts."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from apps.queue.fairness import published, receipts
from apps.queue.models import QueueEntry
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.support.queue.proven_rooms import (
    close_lobby,
    drawn_room,
    entries_of,
    join_entries,
    open_lobby,
    record_admissions,
)
from tests.support.queue.rooms import make_room
from tests.support.races import in_another_connection

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from apps.events.facade import EventView

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

OpenPage = Callable[..., "Page"]
PHONE, DESKTOP = (360, 740), (1440, 900)


@pytest.fixture
def drawn() -> "EventView":
    return drawn_room(lobby=40, late=25)


@pytest.fixture(autouse=True)
def _small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LEAVES_PER_PAGE", "ENTRANTS_PAGE", "LIST_PAGE"):
        monkeypatch.setattr(published, name, 16)


def verify(page: "Page", site: str) -> str:
    """Verify the line and return the result text."""
    page.goto(f"{site}/events/concert/fairness")
    page.get_by_role("button", name=re.compile("verify every position", re.IGNORECASE)).click()
    return result_of(page)


def result_of(page: "Page") -> str:
    page.locator("[data-fair-result]:not([hidden])").wait_for()
    return page.locator("[data-fair-result]").inner_text()


@pytest.mark.parametrize(("size", "dark"), [(DESKTOP, False), (PHONE, True)], ids=["desk", "phone"])
def test_the_browser_recomputes_every_position(
    live_site: str, browser_page: OpenPage, drawn: "EventView", size: tuple[int, int], dark: bool
) -> None:
    page = browser_page(*size, dark=dark)
    result = verify(page, live_site)
    assert "everything matches" in result.lower()
    assert "Numbers 1 to 40" in result
    assert "Numbers 41 to 65" in result
    assert "One number was admitted" in result
    assert "consistent, not operator-proof" in result
    assert_nothing_sticks_out(page)


def test_the_browser_follows_a_lobby_before_its_draw(live_site: str, browser_page: OpenPage) -> None:
    event = make_room("concert")
    page = browser_page(*DESKTOP)
    assert "No numbers have been assigned yet" in verify(page, live_site)
    in_another_connection(lambda: open_lobby(event, 40))
    assert "The lobby is open. Visitors in it: 40" in verify(page, live_site)
    in_another_connection(lambda: close_lobby(event))
    assert "All 40 entrants" in verify(page, live_site)
    in_another_connection(lambda: QueueEntry.objects.filter(pk=QueueEntry.objects.all()[:1]).update(nonce=b"x" * 16))
    assert "an entrant was changed, added or removed" in verify(page, live_site)


def test_the_browser_reports_the_first_number_that_does_not_match(
    live_site: str, browser_page: OpenPage, drawn: "EventView"
) -> None:
    def swap() -> None:
        one, other = QueueEntry.objects.get(number=21), QueueEntry.objects.get(number=30)
        for entry, number in ((one, 10**6), (other, 21), (one, 30)):
            entry.number = number
            entry.save(update_fields=["number"])

    in_another_connection(swap)
    page = browser_page(*DESKTOP)
    result = verify(page, live_site)
    assert "does not match" in result.lower()
    assert "Number 21: the seed assigns it to another entrant." in result


def test_a_changed_first_come_number_does_not_match(live_site: str, browser_page: OpenPage) -> None:
    event = make_room("concert")
    join_entries(event, 20)
    record_admissions(event)
    page = browser_page(*DESKTOP)
    assert "Numbers 1 to 20: none is missing" in verify(page, live_site)
    in_another_connection(lambda: QueueEntry.objects.filter(number=19).update(nonce=b"x" * 16))
    assert "The chain of numbers 1 to 20" in verify(page, live_site)
    in_another_connection(lambda: QueueEntry.objects.filter(number=18).delete())
    assert "Number 18: there is no entry." in verify(page, live_site)


def test_a_receipt_is_verified_in_the_browser(
    live_site: str, browser_page: OpenPage, drawn: "EventView", tmp_path: Path
) -> None:
    receipt = receipts.issue(drawn, entries_of(drawn)[49])
    page = browser_page(*DESKTOP)

    def check_receipt(content: object) -> str:
        file = tmp_path / "receipt.json"
        file.write_text(json.dumps(content))
        page.goto(f"{live_site}/events/concert/fairness")
        page.locator("[data-fair-receipt]").set_input_files(file)
        return result_of(page)

    assert "Your receipt: your number is 50" in check_receipt(receipt)
    assert "does not match your receipt" in check_receipt({**receipt, "number": 51}).lower()
    assert "another event" in check_receipt({**receipt, "event": "another"})
    assert "not a receipt" in check_receipt([1])


def test_without_scripts_the_page_shows_the_command(live_site: str, browser_page: OpenPage, drawn: "EventView") -> None:
    page = browser_page(*PHONE, javascript=False)
    page.goto(f"{live_site}/events/concert/fairness")
    assert f"verify_queue concert --url {live_site}" in (page.text_content("main") or "")
    assert not page.get_by_role("button", name=re.compile("verify every position", re.IGNORECASE)).is_visible()
    assert_nothing_sticks_out(page)
