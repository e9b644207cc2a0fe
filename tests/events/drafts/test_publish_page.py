"""The page that publishes a draft shows its checklist, and publishes only what the user saw."""

import re

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.events.drafts.large_plans import count_draft_seats
from apps.events.models import Category, Event, Organizer, Role
from tests.events.checklist.test_findings import make_draft
from tests.support import factories

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff() -> Client:
    client = Client(headers={"Sec-Fetch-Site": "same-origin"})
    client.force_login(User.objects.create_superuser("organizer", "o@example.com", "secret"))
    return client


def page_of(event: Event) -> str:
    return reverse("admin:events_publish", args=[event.pk])


def seen_on(client: Client, event: Event) -> str:
    found = re.search(r'name="seen" value="(\w+)"', client.get(page_of(event)).content.decode())
    assert found is not None
    return found[1]


def test_a_draft_is_published_by_the_button_of_its_checklist(staff: Client) -> None:
    event = make_draft()
    response = staff.get(page_of(event))
    assert "Publish now" in response.content.decode()
    done = staff.post(page_of(event), {"seen": seen_on(staff, event)}, follow=True)
    assert "Hamlet is published" in done.content.decode()
    event.refresh_from_db()
    assert event.status == "published"
    again = staff.post(page_of(event), {"seen": "x"}, follow=True)
    assert "already published" in again.content.decode()


def test_nothing_is_published_while_something_is_missing_or_if_the_list_has_changed(staff: Client) -> None:
    event = make_draft()
    seen = seen_on(staff, event)
    price = Category.objects.get(event=event, key="Stalls")
    Category.objects.filter(pk=price.pk).update(price_minor=45)
    response = staff.post(page_of(event), {"seen": seen})
    assert response.status_code == 409
    assert "has changed since you opened this page" in response.content.decode()
    price.delete()
    page = staff.get(page_of(event)).content.decode()
    assert "There is no price for “Stalls”" in page
    assert "Publish now" not in page
    assert staff.post(page_of(event), {"seen": seen_on(staff, event)}).status_code == 409
    assert Event.objects.get().status == "draft"


def test_the_form_of_a_draft_leads_to_the_checklist(staff: Client) -> None:
    event = make_draft()
    form = reverse("admin:events_event_change", args=[event.pk])
    assert 'name="_check"' in staff.get(form).content.decode()
    Event.objects.update(status="published", published_at=event.created_at)
    assert 'name="_check"' not in staff.get(form).content.decode()


@pytest.mark.parametrize(("role", "status"), [(Role.ORGANIZER, 200), (Role.BOX_OFFICE, 403)])
def test_only_members_with_the_right_see_the_page(role: Role, status: int) -> None:
    event = make_draft()
    client = Client(headers={"Sec-Fetch-Site": "same-origin"})
    client.force_login(factories.make_member(Organizer.objects.get(), role))
    assert client.get(page_of(event)).status_code == status
    other = factories.make_organizer("other")
    stranger = factories.make_member(other, Role.ORGANIZER)
    client.force_login(stranger)
    assert client.get(page_of(event)).status_code == 403
    assert client.get(reverse("admin:events_publish", args=[event.pk + 1])).status_code == 404


def test_the_action_publishes_only_so_many_seats_at_once(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """One action runs in one thread of the site: the plans of a hundred drafts take it seconds."""
    events = [make_draft(), make_draft(slug="lear", name="Lear")]
    action = {"action": "publish", "_selected_action": [event.pk for event in events]}
    monkeypatch.setattr("apps.events.admin.LARGE_SEATS", count_draft_seats(events[0].pk) * 2 - 1)
    done = staff.post(reverse("admin:events_event_changelist"), action, follow=True)
    assert "Publish at most" in done.content.decode()
    assert set(Event.objects.values_list("status", flat=True)) == {"draft"}
    monkeypatch.undo()
    staff.post(reverse("admin:events_event_changelist"), action)
    assert set(Event.objects.values_list("status", flat=True)) == {"published"}
