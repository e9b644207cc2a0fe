"""Announcements on the event page, in the waiting room, in their history, and on the admin page."""

import re
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from apps.accounts.models import User
from apps.events.announcements import redis_cache, service
from apps.events.facade import EventView
from apps.events.models.announcements import AnnouncementVersion
from tests.support.factories import join
from tests.support.queue.rooms import make_room

pytestmark = pytest.mark.django_db


def post(event: EventView, text: str, author: str = "ann") -> None:
    service.post(event.id, text, author=author)


def text_of(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200
    return response.content.decode()


def test_the_events_page_shows_the_newest_few_and_where_the_others_are(browser: Client, concert: EventView) -> None:
    without_announcements = text_of(browser, "/events/concert/")
    assert re.search(r"data-announcements-box hidden", without_announcements)
    for number in range(1, 7):
        post(concert, f"Number {number}.")
    service.correct(concert.id, 5, "<b>Number 5</b>.", author="ann")
    page = text_of(browser, "/events/concert/")
    assert re.findall(r'data-announcement="(\d+)" data-announcement-version="(\d+)"', page) == [
        ("6", "6"), ("5", "7"), ("4", "4"), ("3", "3")
    ]  # fmt: skip
    assert "&lt;b&gt;Number 5&lt;/b&gt;." in page
    assert 'data-announcements-since="7"' in page
    assert 'href="/events/concert/announcements/"' in page
    assert page.count("<span>corrected</span>") == 1
    assert 'js/announcements.js"' in page


def test_the_event_page_sets_no_cookie_and_changes_with_a_new_announcement(browser: Client, concert: EventView) -> None:
    before = browser.get("/events/concert/")
    post(concert, "Doors open at seven.")
    after = browser.get("/events/concert/", headers={"If-None-Match": before.headers["ETag"]})
    assert after.status_code == 200
    assert not after.cookies


def test_a_waiting_visitor_sees_announcements(browser: Client) -> None:
    event = make_room(active=1, general_admission=20)
    join(event)
    post(event, "Doors open at seven.")
    page = browser.post("/events/concert/join", follow=True).content.decode()
    assert "In line" in page
    assert 'data-announcement="1"' in page
    assert "Doors open at seven." in page


def test_the_history_has_all_announcements_in_pages(browser: Client, concert: EventView) -> None:
    assert "No announcements yet." in text_of(browser, "/events/concert/announcements/")
    for number in range(1, 53):
        post(concert, f"Number {number}.", author=f"author {number}")
    newest = text_of(browser, "/events/concert/announcements/")
    assert re.findall(r'data-announcement="(\d+)"', newest) == [str(number) for number in range(52, 2, -1)]
    (older,) = re.findall(r'href="\?before=(\d+)"', newest)
    page = text_of(browser, f"/events/concert/announcements/?before={older}")
    assert re.findall(r'data-announcement="(\d+)"', page) == ["2", "1"]
    assert "no-store" not in browser.get("/events/concert/announcements/").headers["Cache-Control"]
    for wrong in ("/events/concert/announcements/?before=x", "/events/nowhere/announcements/"):
        assert browser.get(wrong).status_code == 404


@pytest.fixture
def staff(browser: Client) -> Client:
    browser.force_login(User.objects.create_superuser("staff@example.org"))
    return browser


def admin_url(event: EventView) -> str:
    return f"/admin/events/announcementversion/of/{event.id}/"


def form(client: Client, event: EventView, **fields: Any) -> dict[str, Any]:
    """Return the fields that the page's own form would send."""
    key = re.search(r'name="key" value="([^"]+)"', text_of(client, admin_url(event)))
    assert key is not None
    return {"action": "post", "key": key[1], **fields}


def test_staff_post_an_announcement_and_readers_see_it(staff: Client, concert: EventView) -> None:
    sent = form(staff, concert, text="Doors open at seven.")
    response = staff.post(admin_url(concert), sent, follow=True)
    assert "The announcement is published." in response.content.decode()
    assert "Doors open at seven." in text_of(staff, "/events/concert/")
    assert AnnouncementVersion.objects.get().who == "staff@example.org"
    again = staff.post(admin_url(concert), sent, follow=True)
    assert "already published" in again.content.decode()
    assert AnnouncementVersion.objects.count() == 1


def test_staff_correct_and_retract_announcements(staff: Client, concert: EventView) -> None:
    post(concert, "Doors open at sven.")
    fields = {"announcement": 1, "version": 1, "text": "Doors open at seven."}
    assert staff.post(admin_url(concert), form(staff, concert, action="correct", **fields)).status_code == 302
    assert "Doors open at seven." in text_of(staff, "/events/concert/")
    stale = staff.post(admin_url(concert), form(staff, concert, action="correct", **(fields | {"text": "At eight."})))
    assert stale.status_code == 422
    assert "was changed meanwhile by staff@example.org" in stale.content.decode()
    assert staff.post(admin_url(concert), form(staff, concert, action="take_back", announcement=1)).status_code == 302
    assert "Doors open" not in text_of(staff, "/events/concert/")
    assert "Retracted" in text_of(staff, admin_url(concert))


def test_a_refused_text_stays_in_the_form(staff: Client, concert: EventView) -> None:
    response = staff.post(admin_url(concert), form(staff, concert, text="Bell \x07 and all"))
    assert response.status_code == 422
    assert "Bell \x07 and all" in response.content.decode()
    for wrong in (
        {"text": ""},
        {"text": "x" * 501},
        {"key": "x" * 65, "text": "y"},
        {"action": "correct", "text": "y"},
    ):
        assert staff.post(admin_url(concert), form(staff, concert, **wrong)).status_code == 422
    staff.post(admin_url(concert), {"action": "dance"})
    assert not AnnouncementVersion.objects.exists()


def test_the_admin_page_shows_when_an_announcement_has_not_reached_readers(
    staff: Client, concert: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(concert, "First.")
    with monkeypatch.context() as patched:
        patched.setattr(redis_cache, "store", lambda *_: None)
        post(concert, "Second.")
    assert "is not published yet" in text_of(staff, admin_url(concert))
    redis_cache.refresh()
    assert "is not published yet" not in text_of(staff, admin_url(concert))


def test_staff_with_view_permission_only_cannot_post(browser: Client, concert: EventView) -> None:
    assert browser.get(admin_url(concert)).status_code == 302
    guest = User.objects.create_user("guest@example.org", is_staff=True)
    browser.force_login(guest)
    assert browser.get(admin_url(concert)).status_code == 403
    guest.user_permissions.add(Permission.objects.get(codename="view_announcementversion"))
    page = text_of(browser, admin_url(concert))
    assert "Post announcement" not in page
    for action in ("post", "correct", "take_back"):
        response = browser.post(admin_url(concert), {"action": action, "text": "Hello.", "key": "k", "announcement": 1})
        assert response.status_code == 403
    guest.user_permissions.add(Permission.objects.get(codename="add_announcementversion"))
    assert browser.post(admin_url(concert), form(browser, concert, text="Hello.")).status_code == 302
    assert browser.get("/admin/events/announcementversion/of/999999/").status_code == 404
    assert browser.get("/admin/events/announcementversion/of/99999999999999999999/").status_code == 404
