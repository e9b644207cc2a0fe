"""Times of an event on the clock of its venue, with the name of the zone, wherever they are shown or typed."""

from datetime import UTC, datetime

import pytest
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.events.creation import create_event
from apps.events.models import Event, Venue
from tests.support.events.factories import in_days, make_event, spec

pytestmark = pytest.mark.django_db
CHICAGO = "America/Chicago"
EVENING = datetime(2190, 12, 4, 20, 0)
"""20:00 in Chicago is 2:00 of the next day in UTC."""


@pytest.fixture
def staff() -> Client:
    client = Client(headers={"Sec-Fetch-Site": "same-origin"})
    client.force_login(User.objects.create_superuser("organizer", "o@example.com", "secret"))
    return client


def test_a_show_in_chicago_is_listed_on_the_clock_of_chicago(staff: Client, client: Client) -> None:
    event = make_event(starts_at=EVENING, timezone=CHICAGO)
    assert event.starts_at == datetime(2190, 12, 5, 2, 0, tzinfo=UTC)
    assert "20:00 CST" in client.get("/").content.decode()
    assert "4 Dec 2190, 20:00:00 (CST)" in staff.get(reverse("admin:events_event_changelist")).content.decode()
    page = staff.get(reverse("admin:events_event_change", args=[event.pk])).content.decode()
    assert "4 Dec 2190, 20:00:00 CST" in page
    assert "02:00" not in page


def test_a_draft_shows_and_takes_times_on_the_clock_of_its_venue(staff: Client) -> None:
    draft = create_event(spec(draft=True, starts_at=EVENING, opens_at=in_days(2), timezone=CHICAGO)).event_id
    page = staff.get(reverse("admin:events_event_change", args=[draft]))
    form = page.context["adminform"].form
    assert (form["starts_at"].value(), form.fields["starts_at"].zone) == ("2190-12-04T20:00", CHICAGO)
    on_sale = page.context["inline_admin_formsets"][0].formset.forms[0]
    assert on_sale.fields["opens_at"].zone == CHICAGO
    assert page.content.decode().count(f"data-zone-label>{CHICAGO}<") >= 8


@pytest.mark.parametrize("model", ["venue", "event"])
def test_a_new_venue_asks_for_its_zone(staff: Client, model: str) -> None:
    address = reverse(f"admin:events_{model}_add")
    page = staff.get(address).content.decode()
    assert '<option value="" selected>Choose…</option>' in page
    fields = {"name": "Hall", "slug": "hall", "city": "", "address": "", "timezone": ""}
    if model == "event":
        fields = {
            "name": "Gala",
            "venue": "new",
            "new_venue": "Hall",
            "starts_at": "2190-12-04T20:00",
            "currency": "USD",
        }
    staff.post(address, fields)
    assert not Venue.objects.exists()
    staff.post(address, fields | {"timezone": CHICAGO})
    assert Venue.objects.get().timezone == CHICAGO
    if model == "event":
        assert Event.objects.get().starts_at == datetime(2190, 12, 5, 2, 0, tzinfo=UTC)


def test_the_command_asks_for_the_zone_of_a_new_venue() -> None:
    options = {
        "name": "Gala", "venue": "Hall", "starts": "2190-12-04T20:00", "currency": "USD",
        "general_admission": ["Floor:10:1000"],
    }  # fmt: skip
    with pytest.raises(CommandError, match="--timezone is needed for the new venue “Hall”"):
        call_command("create_event", "gala", **options)
    call_command("create_event", "gala", timezone=CHICAGO, **options)
    call_command("create_event", "ball", **options)
    assert set(Event.objects.values_list("starts_at", flat=True)) == {datetime(2190, 12, 5, 2, 0, tzinfo=UTC)}
