"""One form creates a draft from nothing; a page then asks for the prices of its plan."""

from datetime import timedelta
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.events.drafts import new_event_page
from apps.events.drafts.new_event import NewEventForm, create_draft
from apps.events.models import Category, Event, Organizer, Role, SeatingPlan, Section, Venue
from apps.events.plans import uploads
from apps.events.plans.colors import PALETTE
from apps.events.publication import publish_event
from tests.support import factories
from tests.support.events.factories import block, encoded, in_days, make_event, plan
from tests.support.races import storm

pytestmark = pytest.mark.django_db
ADD = "/admin/events/event/add/"


@pytest.fixture
def staff() -> Client:
    client = Client(headers={"Sec-Fetch-Site": "same-origin"})
    client.force_login(User.objects.create_superuser("organizer", "o@example.com", "secret"))
    return client


def fields(**changes: Any) -> dict[str, Any]:
    starts = in_days(30)
    return {
        "name": "Lear", "venue": "new", "new_venue": "Old Theatre", "city": "London", "address": "",
        "timezone": "Europe/London", "starts_at": f"{starts:%Y-%m-%dT20:00}", "currency": "GBP", "opens_at": "",
        **changes,
    }  # fmt: skip


def upload(*categories: str) -> SimpleUploadedFile:
    zones = [block(name, 1, 2, category=name, y=100 + 50 * number) for number, name in enumerate(categories)]
    document = plan(zones, categories)  # Every category has the same color.
    return SimpleUploadedFile("plan.json", encoded(document))


def test_the_event_its_venue_plan_and_on_sale_are_created_at_once(staff: Client) -> None:
    response = staff.post(ADD, fields(plan_file=upload("Stalls", "Circle")))
    event = Event.objects.select_related("venue", "plan", "on_sale").get()
    assert response["Location"] == reverse("admin:events_prices", args=[event.pk])
    assert (event.slug, event.status, event.currency, event.venue.timezone) == ("lear", "draft", "GBP", "Europe/London")
    assert event.plan is not None
    assert event.plan.seat_count == 4
    assert event.on_sale.opens_at < event.starts_at


def test_a_large_plan_keeps_its_turn_until_the_event_is_created(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    monkeypatch.setattr(
        new_event_page, "create_draft", lambda *of: kept.append(bool(uploads.turns._accounts)) or create_draft(*of)
    )
    monkeypatch.setattr(uploads, "LARGE_BYTES", 100)
    assert staff.post(ADD, fields(plan_file=upload("Stalls"))).status_code == 302
    assert kept == [True]
    assert not uploads.turns._accounts


def test_the_texts_of_the_event_are_optional_folded_and_limited_as_on_its_own_form(staff: Client) -> None:
    folded = '<details class="desk__act new-event__texts">'
    assert folded in staff.get(ADD).content.decode()
    texts = {
        "summary": "A king and his daughters.", "tags": "theatre, drama",
        "performers": " Ann Lee \r\n\r\nBob Ray\nAnn Lee",
        "description": "Five acts.\r\nOne interval.",
    }  # fmt: skip
    wrong = staff.post(ADD, fields(**texts | {"performers": "x" * 121, "tags": "x" * 301, "description": "x" * 10_001}))
    page = wrong.content.decode()
    assert wrong.status_code == 400
    assert folded not in page
    assert "each with at most 120 characters" in page
    assert "at most 300 characters" in page
    assert "Enter at most 10,000 characters" in page
    staff.post(ADD, fields(**texts, plan_file=upload("Stalls")))
    event = Event.objects.get()
    assert (event.summary, event.performers, event.tags) == (texts["summary"], "Ann Lee\nBob Ray", "theatre, drama")
    assert event.description == texts["description"]


def test_the_form_of_the_event_offers_the_price_categories_of_the_plan_in_distinct_colors(staff: Client) -> None:
    staff.post(ADD, fields(plan_file=upload("Stalls", "Circle", "Balcony")))
    event = Event.objects.get()
    page = staff.get(reverse("admin:events_event_change", args=[event.pk]))
    formsets = {entry.formset.prefix: entry.formset for entry in page.context["inline_admin_formsets"]}
    offered = [form.initial for form in formsets["categories"].forms]
    assert [(one["key"], one["position"]) for one in offered] == [("Stalls", 0), ("Circle", 1), ("Balcony", 2)]
    assert [one["color"] for one in offered] == ["#0f766e", PALETTE[0], PALETTE[2]]
    Category.objects.create(event=event, key="Circle", name="Circle", color=PALETTE[0], price_minor=100, position=1)
    page = staff.get(reverse("admin:events_event_change", args=[event.pk]))
    formsets = {entry.formset.prefix: entry.formset for entry in page.context["inline_admin_formsets"]}
    assert [form.initial["key"] for form in formsets["categories"].extra_forms] == ["Stalls", "Balcony"]


def test_names_that_are_taken_get_a_number_and_a_known_venue_is_chosen(staff: Client) -> None:
    venue = make_event("lear").venue
    staff.post(ADD, fields(venue=str(venue.pk)))
    assert Event.objects.filter(slug="lear-2", venue=venue).exists()
    refused = staff.post(ADD, fields(new_venue=venue.name))
    assert refused.status_code == 400
    assert "Choose it above" in refused.content.decode()
    assert Venue.objects.count() == 1


def test_a_venue_is_preselected_only_without_a_choice_and_no_zone_is_named_before_it(staff: Client) -> None:
    assert NewEventForm(User.objects.get()).initial["venue"] == "new"
    first = make_event("lear").venue
    assert NewEventForm(User.objects.get()).initial["venue"] == str(first.pk)
    Venue.objects.create(name="New Theatre", slug="new-theatre", timezone="Europe/London")
    page = staff.get(ADD)
    assert page.context["form"].initial["venue"] == ""
    assert "data-zone-label></span>" in page.content.decode()
    assert page.context["form"].only_organizer in page.content.decode()
    assert "Choose a venue." in staff.post(ADD, fields(venue="")).content.decode()


def test_a_wrong_price_is_the_only_error_of_its_section(staff: Client) -> None:
    page = staff.post(ADD, fields() | seats(("Stalls", "10", "12", "abc")) | tickets()).content.decode()
    assert "Enter a section with seats" not in page
    assert page.count('class="changes__error"') == 1
    assert "data-unreserved" in page
    assert 'new-event__tickets" open' not in page


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": ""}, "Enter the name of the event."),
        ({"new_venue": " "}, "Enter the name of the venue"),
        ({"timezone": "Mars/Olympus"}, "Select a valid choice"),
        ({"timezone": ""}, "Choose the time zone of the venue."),
        ({"starts_at": "tomorrow"}, "Enter a date and time."),
        ({"starts_at": "2020-01-01T20:00"}, "would start in the past"),
        ({"starts_at": "2027-10-31T01:30"}, "ambiguous"),
        ({"opens_at": "2190-01-01T20:00"}, "Sales would open after the event starts."),
        ({"currency": "ZZZ"}, "Select a valid choice"),
        ({"venue": "99999999999999999999"}, "Select a valid choice"),
        ({"plan_file": SimpleUploadedFile("plan.json", b"{")}, "plan.json:"),
        ({"name": "a\x00b"}, "Null characters"),
    ],
)
def test_wrong_values_are_named_at_their_field_and_nothing_is_created(
    staff: Client, changes: dict[str, Any], text: str
) -> None:
    response = staff.post(ADD, fields(**changes))
    assert response.status_code == 400
    assert text in response.content.decode()
    assert not Event.objects.exists()
    assert not Venue.objects.exists()


def test_a_member_creates_events_of_its_organizers_only() -> None:
    opera, other = factories.make_organizer("opera"), factories.make_organizer("other")
    client = Client(headers={"Sec-Fetch-Site": "same-origin"})
    client.force_login(factories.make_member(opera, Role.ORGANIZER))
    client.post(ADD, fields(organizer=str(other.pk)))
    assert not Event.objects.filter(organizer=other).exists()
    client.post(ADD, fields())
    assert Event.objects.get().organizer == opera
    client.force_login(factories.make_member(opera, Role.BOX_OFFICE))
    assert client.get(ADD).status_code == 403
    assert SeatingPlan.objects.count() == 0
    assert Organizer.objects.count() == 2


def tickets(*rows: tuple[str, str, str]) -> dict[str, Any]:
    """Return the rows of general admission as the form sends them."""
    sent: dict[str, Any] = {"tickets-TOTAL_FORMS": "3", "tickets-INITIAL_FORMS": "0"}
    for number, row in enumerate((*rows, *[("", "", "")] * (3 - len(rows)))):
        sent |= {f"tickets-{number}-{name}": value for name, value in zip(ROW_FIELDS, row, strict=True)}
    return sent


ROW_FIELDS = ("name", "capacity", "price")


def test_general_admission_is_set_up_on_the_same_form_and_the_checklist_follows(staff: Client) -> None:
    assert "Tickets without numbered seats" in staff.get(ADD).content.decode()
    response = staff.post(ADD, fields() | tickets(("Floor", "300", "45.00"), ("", "", ""), ("Upper floor", "80", "0")))
    event = Event.objects.get()
    assert response["Location"] == reverse("admin:events_publish", args=[event.pk])
    sections = Section.objects.filter(event=event).order_by("position").values_list("slug", "kind", "capacity")
    assert list(sections) == [("floor", "general_admission", 300), ("upper-floor", "general_admission", 80)]
    prices = Category.objects.filter(event=event).order_by("position").values_list("name", "price_minor", "color")
    assert list(prices) == [("Floor", 4_500, PALETTE[0]), ("Upper floor", 0, PALETTE[1])]
    page = staff.get(response["Location"]).content.decode()
    assert "There is nothing to sell" not in page
    publish_event(event.pk)
    assert Client().get("/events/lear/").status_code == 200


def test_general_admission_beside_a_seating_plan_asks_for_the_prices_of_the_plan(staff: Client) -> None:
    response = staff.post(ADD, fields(plan_file=upload("Stalls")) | tickets(("Floor", "300", "45")))
    event = Event.objects.get()
    assert response["Location"] == reverse("admin:events_prices", args=[event.pk])
    assert Category.objects.get(event=event).position == 1
    page = staff.get(reverse("admin:events_event_change", args=[event.pk]))
    formsets = {entry.formset.prefix: entry.formset for entry in page.context["inline_admin_formsets"]}
    assert [form.initial["key"] for form in formsets["categories"].extra_forms] == ["Stalls"]


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([("", "300", "45")], "Enter a name, such as Floor."),
        ([("Floor", "", "45")], "Enter how many tickets there are."),
        ([("Floor", "300", "")], "Enter the price; 0 for free tickets."),
        ([("Floor", "0", "45")], "greater than or equal to 1"),
        ([("Floor", "300", "45,00")], 'id="id_tickets-0-price_error"'),
        ([("…", "300", "45")], "Enter a name with a letter or a digit."),
        ([("Floor", "1", "1"), ("floor", "1", "1")], "There is a section “Floor” already."),
        ([("Stalls", "1", "1")], "There is a section “Stalls” already."),
        ([("Gold", "1", "1")], "The seating plan has a price category “Gold” already."),
    ],
)
def test_a_row_of_general_admission_that_cannot_be_read_is_refused(
    staff: Client, rows: list[tuple[str, str, str]], text: str
) -> None:
    zones = [block("Stalls", 1, 2, category="Gold", y=100)]
    file = SimpleUploadedFile("plan.json", encoded(plan(zones, ("Gold",))))
    response = staff.post(ADD, fields(plan_file=file) | tickets(*rows))
    assert response.status_code == 400
    assert text in response.content.decode()
    assert "Please fix the errors below." in response.content.decode()
    assert not Event.objects.exists()


def seats(*sections: tuple[str, str, str, str], seating: str = "rows") -> dict[str, Any]:
    """Return sections of numbered rows as the form sends them."""
    names = ("name", "row_count", "seats_per_row", "price")
    sent: dict[str, Any] = {"seats-TOTAL_FORMS": "3", "seats-INITIAL_FORMS": "1", "seating": seating}
    for number, section in enumerate((*sections, *[("", "", "", "")] * (3 - len(sections)))):
        sent |= {f"seats-{number}-{name}": value for name, value in zip(names, section, strict=True)}
    return sent


def test_numbered_rows_become_a_seating_plan_with_prices_and_are_published(staff: Client) -> None:
    page = staff.get(ADD).content.decode()
    assert 'value="Stalls"' in page
    assert "T20:00" in page
    both = seats(("Stalls", "2", "3", "45.00"), ("Circle", "1", "4", "0")) | tickets(("Floor", "10", "5"))
    response = staff.post(ADD, fields() | both)
    event = Event.objects.select_related("on_sale").get()
    assert response["Location"] == reverse("admin:events_publish", args=[event.pk])
    shown = staff.get(response["Location"]).content.decode()
    assert "as soon as you publish" in shown
    assert "Missing" not in shown
    prices = Category.objects.filter(event=event).order_by("position").values_list("key", "price_minor")
    assert list(prices) == [("Stalls", 4_500), ("Circle", 0), ("Floor", 500)]
    publish_event(event.pk)
    assert Section.objects.filter(event=event, slug="stalls").get().capacity == 6
    assert Client().get("/events/lear/").status_code == 200


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (seats(("Stalls", "10", "12", "")), "Enter the price; 0 for free tickets."),
        (seats(("Stalls", "101", "12", "5")), "less than or equal to 100"),
        (seats(("Stalls", "", "12", "5")), "Enter how many rows there are."),
        (seats(("Stalls", "1", "1", "4,5,0")), 'id="id_seats-0-price_error"'),
        (seats(("Stalls", "1", "1", "5"), ("stalls", "1", "1", "5")), "There is a section “Stalls” already."),
        (seats(), "Enter a section with seats"),
        (seats(("Stalls", "1", "1", "")) | {"seating": "file"}, "Choose a file, or another kind of seats."),
        (seats(("Stalls", "1", "1", "")) | {"seating": "none"} | tickets(), "Enter the tickets below"),
        ({"seating": "everything"}, "Select a valid choice"),
    ],
)
def test_seats_that_cannot_be_read_are_named_and_nothing_is_created(
    staff: Client, changes: dict[str, Any], text: str
) -> None:
    response = staff.post(ADD, fields(**changes))
    assert response.status_code == 400
    assert text in response.content.decode()
    assert not Event.objects.exists()


def test_a_kind_of_seats_that_is_not_chosen_is_ignored(staff: Client) -> None:
    chosen = seats(("Stalls", "", "12", "wrong"), seating="none") | tickets(("Floor", "300", "45"))
    staff.post(ADD, fields(plan_file=upload("Stalls")) | chosen)
    event = Event.objects.get()
    assert event.plan is None
    assert Section.objects.get(event=event).name == "Floor"


@pytest.mark.parametrize("count", ["x", "-1", "1000000"])
def test_a_count_of_rows_that_the_form_cannot_send_is_refused(staff: Client, count: str) -> None:
    assert staff.post(ADD, fields() | tickets() | {"tickets-TOTAL_FORMS": count}).status_code in (302, 400)


@pytest.mark.django_db(transaction=True)
def test_events_that_are_created_at_once_share_their_new_venue_or_are_refused() -> None:
    user = User.objects.create_superuser("organizer", "o@example.com", "secret")
    starts_at = in_days(30) + timedelta(hours=1)

    def act(number: int) -> str:
        form = NewEventForm(user, fields(starts_at=f"{starts_at:%Y-%m-%dT%H:%M}"))
        if not form.is_valid():
            return "refused"
        return Event.objects.get(pk=create_draft(form.cleaned_data, None, b"").event_id).slug

    outcomes = storm(4, act)
    created = [outcome.value for outcome in outcomes if outcome.error is None and outcome.value != "refused"]
    assert len(created) == len(set(created)) >= 1
    assert Venue.objects.count() == 1
    assert {type(outcome.error).__name__ for outcome in outcomes} <= {"NoneType", "EventRefused"}
