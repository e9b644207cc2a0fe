"""An organizer creates, previews, publishes and postpones an event with a seat map from nothing, by the pages alone."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest
from django.core import mail
from django.test import Client

from apps.accounts.models import User
from apps.events import facade as events
from apps.events.models import Event
from tests.browser.page_layout import assert_nothing_sticks_out
from tests.support.events.factories import block, encoded, in_days, plan
from tests.support.factories import hold
from tests.support.orders.sale import buy, deliver_outbox
from tests.support.races import in_another_connection

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.django_db(transaction=True)]
CLICKS_MAX, FIELDS_MAX = 10, 10
SHOTS = os.environ.get("SCREENSHOT_FOLDER", "")


@dataclass
class Organizer:
    """Uses the pages by clicks and fields only, and counts both."""

    page: "Page"
    clicks: int = 0
    fields: int = 0

    def click(self, name: str, role: Any = "button") -> None:
        self.clicks += 1
        self.page.get_by_role(role, name=name, exact=True).first.click()

    def fill(self, label: str, value: str) -> None:
        self.fields += 1
        self.page.get_by_label(label, exact=True).fill(value)

    def choose(self, label: str, value: str) -> None:
        self.fields += 1
        self.page.get_by_label(label, exact=True).select_option(value)


@pytest.fixture
def organizer(live_site: str, browser_page: Callable[..., "Page"], settings: Any) -> Organizer:
    settings.REAUTHENTICATION_SECONDS = 0
    client = Client()
    client.force_login(User.objects.create_superuser("organizer", "o@example.com", "secret"))
    page = browser_page(1440, 900)
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    page.context.add_cookies([{"name": cookie.key, "value": cookie.value, "url": live_site}])
    page.goto(f"{live_site}/admin/events/event/")
    return Organizer(page)


def shoot(page: "Page", name: str) -> None:
    """Keep pictures of the page, if SCREENSHOT_FOLDER is set: for the eyes of a developer."""
    if SHOTS:
        for width in (360, 768, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
                page.screenshot(path=str(Path(SHOTS) / f"{name}-{width}-{scheme}.png"), full_page=True)
        page.set_viewport_size({"width": 1440, "height": 900})


def test_an_event_with_a_seat_map_is_created_previewed_published_and_postponed(
    organizer: Organizer, tmp_path: Path
) -> None:
    page = organizer.page
    file = tmp_path / "plan.json"
    zones = [block("Stalls", 4, 8), block("Circle", 3, 8, category="Circle", y=300)]
    file.write_bytes(encoded(plan(zones, ("Stalls", "Circle"))))
    zone = ZoneInfo("America/Chicago")
    starts_at = in_days(40).astimezone(zone).replace(hour=20, minute=0, second=0)

    organizer.click("Add event", "link")
    page.wait_for_selector(".new-event")
    assert_nothing_sticks_out(page)
    shoot(page, "new-event")
    organizer.fill("Name of the event", "Blues Night")
    organizer.fill("Name of the new venue", "Blue Hall")
    organizer.fill("City", "Chicago")
    assert page.get_by_label("Time zone", exact=True).input_value() == "America/Chicago"
    assert page.get_by_label("Currency of the prices", exact=True).input_value() == "USD"
    organizer.fill("Start", f"{starts_at:%Y-%m-%dT%H:%M}")
    organizer.fields += 2
    page.get_by_label("Upload a seating plan", exact=True).check()
    page.get_by_label("Seating plan file", exact=True).set_input_files(file)
    organizer.click("Continue")

    page.wait_for_selector(".prices")
    assert_nothing_sticks_out(page)
    shoot(page, "prices")
    for number, price in enumerate(("45.00", "30.00")):
        organizer.fields += 1
        page.locator(f"#id_price-{number}").fill(price)
    organizer.click("Save and continue")

    page.wait_for_selector(".checklist")
    assert_nothing_sticks_out(page)
    shoot(page, "checklist")
    assert page.get_by_text("Missing").count() == 0
    organizer.click("Preview as a shopper", "link")
    page.wait_for_selector(".preview-bar")
    assert page.get_by_role("heading", name="Blues Night", exact=True).is_visible()
    assert page.get_by_text("Stalls").first.is_visible()
    assert_nothing_sticks_out(page)
    shoot(page, "preview")
    organizer.click("Seat map", "link")
    page.wait_for_url("**/preview/map/")
    page.wait_for_selector("[data-map-wait]", state="detached")
    assert_nothing_sticks_out(page)
    shoot(page, "preview-map")
    organizer.click("Checklist and publish", "link")
    organizer.click("Publish now")

    page.wait_for_selector(".messagelist .success")
    event = events.get_event("blues-night")
    assert event.starts_at == starts_at
    assert [price.key for price in events.list_categories(event.id)] == ["Stalls", "Circle"]
    order = in_another_connection(lambda: buy(hold(event, seats=["Stalls-A-1"])))

    shoot(page, "published")
    organizer.click("Date, sale and fees", "link")
    page.wait_for_selector(".changes__kind")
    shoot(page, "changes")
    later = starts_at + timedelta(days=7)
    organizer.fill("Start", f"{later:%Y-%m-%dT%H:%M}")
    organizer.fields += 1
    page.locator("#id_schedule-why").fill("The band is ill.")
    organizer.clicks += 1
    page.get_by_role("button", name="Show what this means").first.click()
    page.wait_for_selector(".changes__review")
    assert page.get_by_text("1 ticket in 1 order stays valid for the new times.").is_visible()
    assert_nothing_sticks_out(page)
    shoot(page, "review")
    organizer.click("Change and email the buyers")
    page.wait_for_selector(".messagelist .success")
    shoot(page, "changed")

    assert events.get_event("blues-night").starts_at == later
    deliver_outbox()
    assert [sent.to for sent in mail.outbox if sent.subject == "New date: Blues Night"] == [[order.email]]
    assert organizer.clicks <= CLICKS_MAX, organizer.clicks
    assert organizer.fields <= FIELDS_MAX, organizer.fields


def test_a_preview_is_for_staff_only_and_never_cached(live_site: str, client: Client) -> None:
    assert client.get("/admin/events/event/1/preview/").status_code == 302
    assert not Event.objects.exists()
