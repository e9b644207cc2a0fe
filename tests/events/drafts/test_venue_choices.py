"""Venues are shared by all organizers: no page lists them all, and a name that a form does not list is found."""

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.events.creation import free_slug
from apps.events.models import Event, Organizer, Role, Venue
from apps.events.organizers import venue_choices
from tests.support import factories
from tests.support.events.factories import in_days, make_event

pytestmark = pytest.mark.django_db
MANY = 100


@pytest.fixture
def hall(monkeypatch: pytest.MonkeyPatch) -> Venue:
    """The venue of an organizer's only event, last by name of many that others have added."""
    monkeypatch.setattr(venue_choices, "VENUES_MAX", 10)
    venue = make_event("lear").venue
    venue.name, venue.timezone = "Zirkus", "Europe/Berlin"
    venue.save()
    others = [
        Venue(name=f"A {number:03}", slug=f"a-{number}", city=f"City {number}", timezone="Europe/London")
        for number in range(MANY)
    ]
    Venue.objects.bulk_create(others)
    return venue


@pytest.fixture
def member(hall: Venue) -> Client:
    client = Client(headers={"Sec-Fetch-Site": "same-origin"})
    client.force_login(factories.make_member(Organizer.objects.get(), Role.ORGANIZER))
    return client


def make_draft(venue: Venue) -> Event:
    organizer = Organizer.objects.get()
    return Event.objects.create(
        slug="draft", name="Draft", organizer=organizer, venue=venue, starts_at=in_days(30), currency="EUR"
    )


def last_venue() -> Venue:
    return Venue.objects.get(name=f"A {MANY - 1:03}")


def fields(**changes: Any) -> dict[str, Any]:
    return {
        "name": "Othello", "venue": "new", "new_venue": "", "city": "", "address": "", "timezone": "Europe/London",
        "starts_at": f"{in_days(30):%Y-%m-%dT20:00}", "currency": "GBP", "opens_at": "", **changes,
    }  # fmt: skip


@pytest.mark.parametrize("model", ["event", "seatingplan"])
def test_a_form_offers_the_venues_of_the_organizer_and_a_few_others(member: Client, hall: Venue, model: str) -> None:
    page = member.get(f"/admin/events/{model}/add/").content.decode()
    assert f'value="{hall.pk}"' in page
    assert page.count(">A 0") == 9


def test_a_draft_keeps_a_venue_that_its_form_would_not_offer(member: Client, hall: Venue) -> None:
    last = last_venue()
    draft = make_draft(last)
    page = member.get(f"/admin/events/event/{draft.pk}/change/").content.decode()
    assert f'<option value="{last.pk}" selected data-zone="Europe/London">' in page
    assert page.count(">A 0") == 9


def test_a_new_venue_of_a_known_name_is_refused_and_the_known_one_is_offered(member: Client, hall: Venue) -> None:
    """The known one may be in another town: it is not taken without a choice, whatever the form lists."""
    last = last_venue()
    Venue.objects.filter(pk=last.pk).update(city="Birmingham", address="1 Broad Street")
    given = fields(new_venue=last.name, city="Leeds", address="5 Park Row")
    page = member.post("/admin/events/event/add/", given).content.decode()
    assert f"There is a venue of this name: {last.name}, 1 Broad Street, Birmingham." in page
    assert f'<option value="{last.pk}" data-zone="Europe/London"' in page
    assert not Event.objects.filter(name="Othello").exists()
    assert member.post("/admin/events/event/add/", fields(venue=last.pk)).status_code == 302
    assert Event.objects.get(name="Othello").venue == last
    refused = member.post("/admin/events/event/add/", fields(new_venue=hall.name)).content.decode()
    assert f"There is a venue of this name: {hall.name}" in refused
    assert Venue.objects.count() == MANY + 1


def test_filters_offer_only_venues_of_listed_rows(member: Client, hall: Venue) -> None:
    make_draft(last_venue())
    page = member.get("/admin/events/event/").content.decode()
    assert page.count("?venue__id__exact=") == 2
    assert "City" not in member.get("/admin/events/venue/").content.decode().split("changelist-filter")[1]


def test_the_search_for_a_free_short_name_takes_few_statements_however_many_are_taken() -> None:
    def taken(*slugs: str) -> None:
        Venue.objects.bulk_create(Venue(name=slug, slug=slug) for slug in slugs)

    assert free_slug(Venue, "hall") == "hall"
    taken("hall", "hall-2", "hall-4")
    assert free_slug(Venue, "hall") == "hall-3"
    taken("hall-3", *(f"hall-{number}" for number in range(5, 60)))
    with CaptureQueriesContext(connection) as statements:
        assert free_slug(Venue, "hall") == "hall-60"
    assert len(statements) <= 3
    Venue.objects.filter(slug="hall-20").delete()
    assert free_slug(Venue, "hall").startswith("hall-"), "one of another form, if the number is taken"
    assert not Venue.objects.filter(slug=free_slug(Venue, "hall")).exists()
    long = "x" * 74
    taken(long, *(f"{long}-{number}" for number in range(2, 10)), f"{long}-11")
    assert len(free_slug(Venue, long)) <= 80
