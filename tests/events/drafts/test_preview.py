"""The preview shows a draft as a shopper would see it, to staff with the right only, and is never cached."""

import json
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.events.models import Category, Event, OnSale, Organizer, Role, Seat, Section
from apps.events.plans import layout, uploads
from apps.events.public_plan import documents
from apps.events.publication import publish_event
from tests.events.checklist.test_findings import make_draft
from tests.support import factories

pytestmark = pytest.mark.django_db
PAGES = ("preview", "preview_map", "preview_plan", "preview_status", "preview_poster")


@pytest.fixture
def staff() -> Client:
    client = Client(headers={"Sec-Fetch-Site": "same-origin"})
    client.force_login(User.objects.create_superuser("organizer", "o@example.com", "secret"))
    return client


def url(event: Event, page: str = "preview") -> str:
    return reverse(f"admin:events_{page}", args=[event.pk])


@pytest.mark.parametrize("page", PAGES)
def test_every_page_of_a_preview_is_neither_cached_nor_indexed_and_writes_nothing(staff: Client, page: str) -> None:
    event = make_draft()
    response = staff.get(url(event, page))
    assert response.status_code == 200
    assert "no-store" in response.headers["Cache-Control"]
    assert response.headers["X-Robots-Tag"] == "noindex, nofollow"
    assert staff.get(reverse("events:event", args=[event.slug])).status_code == 404
    assert not Seat.objects.exists()
    assert not Section.objects.filter(kind="reserved").exists()


def test_pages_with_a_large_plan_are_made_one_at_a_time(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    event = make_draft()
    change = reverse("admin:events_event_change", args=[event.pk])
    pages = [change, change.replace(str(event.pk), f"%20{event.pk}")]
    pages += [url(event, page) for page in ("preview", "preview_map", "preview_plan", "publish", "prices")]
    with uploads.reading_alone(-1, uploads.LARGE_SEATS + 1):
        assert [staff.get(page).status_code for page in pages] == [200] * len(pages), "its plan is small"
        monkeypatch.setattr(uploads, "LARGE_SEATS", event.plan.seat_count - 1)
        assert [staff.get(page).status_code for page in pages] == [503] * len(pages)
        stranger = Client(headers={"Sec-Fetch-Site": "same-origin"})
        stranger.force_login(factories.make_member(factories.make_organizer("other"), Role.ORGANIZER))
        refused = [stranger.get(page).status_code for page in pages[2:]]
        assert refused == [403] * len(refused), "who may not see the event does not wait for its plan"
    assert [staff.get(page).status_code for page in pages] == [200] * len(pages)


def test_the_preview_shows_prices_and_sections_of_the_plan(staff: Client) -> None:
    event = make_draft()
    html = staff.get(url(event)).content.decode()
    assert "Preview of a draft." in html
    assert "$45.00" in html
    assert "Floor" in html


def test_the_previewed_plan_is_that_of_the_published_event(staff: Client) -> None:
    event = make_draft()
    previewed = json.loads(staff.get(url(event, "preview_plan")).content)
    assert json.loads(staff.get(url(event, "preview_status")).content)["general_admission"] == {"floor": 10}
    publish_event(event.pk)
    assert previewed == json.loads(documents.plan_document(event.slug).body)


@pytest.mark.parametrize("page", ["preview", "preview_map", "preview_plan"])
def test_a_preview_reads_columns_and_makes_no_seats(staff: Client, monkeypatch: pytest.MonkeyPatch, page: str) -> None:
    """With 100,000 seats each page took 0.7 to 2.5 s of a processor, nearly all of it to make objects of seats."""
    event = make_draft()
    monkeypatch.setattr(layout, "PlanSeat", None)
    assert staff.get(url(event, page)).status_code == 200


def test_an_incomplete_draft_can_be_previewed_as_far_as_it_goes(staff: Client) -> None:
    event = make_draft()
    Category.objects.filter(key="Stalls").delete()
    assert staff.get(url(event)).status_code == 200
    assert json.loads(staff.get(url(event, "preview_plan")).content)["seats"]["id"] == []
    OnSale.objects.all().delete()
    for page in ("preview", "preview_map"):
        assert staff.get(url(event, page))["Location"] == reverse("admin:events_publish", args=[event.pk])
    assert staff.get(url(event, "preview_plan")).status_code == 302


def test_a_published_event_has_its_own_page(staff: Client) -> None:
    event = make_draft()
    publish_event(event.pk)
    assert staff.get(url(event))["Location"] == reverse("events:event", args=[event.slug])
    assert staff.get(reverse("admin:events_preview", args=[event.pk + 1])).status_code == 404


@pytest.mark.parametrize("page", PAGES)
def test_only_members_of_the_organizer_see_a_preview(page: str) -> None:
    event = make_draft()
    client = Client(headers={"Sec-Fetch-Site": "same-origin"})
    assert client.get(url(event, page)).status_code == 302
    client.force_login(factories.make_member(Organizer.objects.get(), Role.BOX_OFFICE))
    assert client.get(url(event, page)).status_code == 200
    client.force_login(factories.make_member(factories.make_organizer("other"), Role.ORGANIZER))
    assert client.get(url(event, page)).status_code == 403
    shopper: Any = User.objects.create_user("shopper")
    client.force_login(shopper)
    assert client.get(url(event, page)).status_code in (302, 403)
