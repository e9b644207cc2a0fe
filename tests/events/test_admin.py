"""The organizer's admin calls the services and shows their error messages."""

from collections.abc import Iterator

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from apps.accounts.models import User
from apps.events import admin
from apps.events.creation import create_event, store_plan
from apps.events.models import Category, Event, Seat, SeatingPlan, Section, Venue
from apps.events.plans import parse_plan, uploads
from apps.kernel import admin_lists
from apps.kernel.http import problems
from tests.support.events.factories import block, encoded, make_event, plan, spec

pytestmark = pytest.mark.django_db


@pytest.fixture
def staff() -> Client:
    client = Client(headers={"Sec-Fetch-Site": "same-origin"})
    client.force_login(User.objects.create_superuser("organizer", "o@example.com", "secret"))
    return client


@pytest.fixture(autouse=True)
def _turns() -> Iterator[None]:
    yield
    uploads.turns.forget()


def _upload(staff: Client, data: bytes) -> object:
    venue = Venue.objects.get_or_create(name="Old Theatre", slug="old-theatre")[0]
    fields = {"venue": venue.pk, "name": "", "file": SimpleUploadedFile("plan.json", data)}
    return staff.post(reverse("admin:events_seatingplan_add"), fields)


def test_a_plan_is_imported_from_a_file(staff: Client) -> None:
    assert _upload(staff, encoded(plan())).status_code == 302
    stored = SeatingPlan.objects.get()
    assert (stored.name, stored.seat_count) == ("Plan", 8)
    assert _upload(staff, encoded(plan())).status_code == 302
    assert SeatingPlan.objects.count() == 1


def test_an_invalid_file_is_refused_in_the_form_with_the_location(staff: Client) -> None:
    response = _upload(staff, encoded(plan([block("Stalls", 2, 4, category="Nowhere")])))
    assert response.status_code == 200
    assert "zones[0].rows[0].seats[0].category" in response.content.decode()
    assert SeatingPlan.objects.count() == 0


def test_one_large_plan_is_read_at_a_time_and_before_the_transaction(
    staff: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four large plans at once kept all threads busy; a transaction that was idle meanwhile ended with a 500."""
    depth = len(connection.atomic_blocks)
    depths: list[int] = []
    monkeypatch.setattr(
        uploads, "parse_plan", lambda *of: depths.append(len(connection.atomic_blocks)) or parse_plan(*of)
    )
    with uploads.turns.take(-1):
        assert _upload(staff, encoded(plan([block("Stalls", 2, 5)]))).status_code == 302, "a small plan is read at once"
        monkeypatch.setattr(uploads, "LARGE_BYTES", 100)
        depths.clear()
        response = _upload(staff, encoded(plan()))
    assert "another large seating plan is being read at the moment; send the form again" in response.content.decode()
    assert (SeatingPlan.objects.count(), depths) == (1, [])
    assert _upload(staff, encoded(plan())).status_code == 302
    assert depths == [depth]


def test_a_plan_of_a_second_of_processor_time_waits_for_its_turn_although_its_file_is_small(staff: Client) -> None:
    """Sixteen of these at once kept all threads of the site from other visitors for twenty seconds."""
    lines = [f"S,{seat // 100:x},{seat % 100},C" for seat in range(24_000)]
    data = "\n".join(("section,row,seat,category", *lines)).encode()
    assert len(data) < 240_000
    with uploads.turns.take(-1):
        response = _upload(staff, data)
    assert "another large seating plan is being read at the moment; send the form again" in response.content.decode()
    assert SeatingPlan.objects.count() == 0


def test_an_account_that_was_refused_comes_before_one_that_sends_plans_all_the_time(staff: Client) -> None:
    data = "\n".join(["section,row,seat,category", *(f"S,{seat // 100:x},{seat % 100},C" for seat in range(4_000))])
    with uploads.turns.take(-1):
        assert _upload(staff, data.encode()).status_code == 200
    with pytest.raises(problems.Busy), uploads.turns.take(-1):
        pass
    assert _upload(staff, data.encode()).status_code == 302
    with uploads.turns.take(-1):
        pass


def test_a_large_plan_keeps_its_turn_until_it_is_stored(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[bool] = []
    monkeypatch.setattr(admin, "store_plan", lambda *of: kept.append(bool(uploads.turns._accounts)) or store_plan(*of))
    assert _upload(staff, encoded(plan())).status_code == 302
    monkeypatch.setattr(uploads, "LARGE_BYTES", 100)
    assert _upload(staff, b"no plan" * 100).status_code == 200
    assert not uploads.turns._accounts
    assert _upload(staff, encoded(plan([block("Stalls", 2, 5)]))).status_code == 302
    assert kept == [False, True]
    assert not uploads.turns._accounts


def test_a_file_over_the_limit_is_refused_in_the_form(staff: Client, settings) -> None:
    settings.SEATING_PLAN_FILE_MAX_BYTES = 1024 * 1024
    response = _upload(staff, b" " * (1024 * 1024 + 1))
    assert "larger than 1 MiB" in response.content.decode()


def test_the_publish_action_publishes_drafts_and_leaves_other_events(staff: Client) -> None:
    make_event("standing")
    draft = create_event(spec("draft", draft=True)).event_id
    chosen = list(Event.objects.values_list("pk", flat=True))
    response = staff.post(
        reverse("admin:events_event_changelist"), {"action": "publish", "_selected_action": chosen}, follow=True
    )
    texts = [str(message) for message in response.context["messages"]]
    assert sorted(texts) == ["Hamlet: already published; nothing changed", "Hamlet: published"]
    assert Event.objects.get(pk=draft).status == "published"
    assert Seat.objects.filter(event=draft).count() == 8


def test_the_publish_action_shows_why_a_draft_cannot_be_published(staff: Client) -> None:
    draft = create_event(spec(draft=True)).event_id
    Category.objects.filter(key="Stalls").delete()
    response = staff.post(
        reverse("admin:events_event_changelist"), {"action": "publish", "_selected_action": [draft]}, follow=True
    )
    assert [str(message) for message in response.context["messages"]] == ["Hamlet: There is no price for “Stalls”."]
    assert Event.objects.get().status == "draft"


@pytest.mark.parametrize("model", ["venue", "seatingplan", "event", "section", "seat"])
def test_every_list_searches_and_every_row_opens(staff: Client, model: str) -> None:
    event = make_event()
    rows = {"venue": event.venue_id, "seatingplan": event.plan_id, "event": event.pk}
    pk = rows.get(model) or {"section": Section, "seat": Seat}[model].objects.values_list("pk", flat=True)[0]
    assert staff.get(reverse(f"admin:events_{model}_changelist"), {"q": "a"}).status_code == 200
    assert staff.get(reverse(f"admin:events_{model}_change", args=[pk])).status_code == 200


def test_a_venue_with_an_unknown_time_zone_is_refused(staff: Client) -> None:
    fields = {"name": "Olympus", "slug": "olympus", "city": "", "address": "", "timezone": "Mars/Olympus"}
    response = staff.post(reverse("admin:events_venue_add"), fields)
    assert "IANA" in response.content.decode()
    assert staff.post(reverse("admin:events_venue_add"), fields | {"timezone": "Europe/Athens"}).status_code == 302
    assert Venue.objects.get().timezone == "Europe/Athens"


def test_a_draft_accepts_general_admission_of_its_own_categories_and_valid_colors_only(staff: Client) -> None:
    make_event("other")
    draft = create_event(spec(draft=True)).event_id
    page = reverse("admin:events_event_change", args=[draft])
    form = staff.get(page).context
    shown = {entry.formset.prefix: entry.formset for entry in form["inline_admin_formsets"]}
    offered = shown["sections"].empty_form.fields["category"].queryset
    assert set(offered.values_list("event_id", flat=True)) == {draft}
    fields = {
        name: "" if value is None else value
        for formset in shown.values()
        for form in (formset.management_form, *formset.initial_forms)
        for name, value in {form.add_prefix(key): form[key].value() for key in form.fields}.items()
    }
    fields |= {
        "name": "Hamlet", "slug": "hamlet", "description": "", "venue": Venue.objects.get().pk,
        "plan": SeatingPlan.objects.get().pk, "starts_at": "2190-01-01T20:00", "currency": "USD",
        "on_sale-0-opens_at": "2189-01-01T20:00", "categories-0-color": "url(//x)",
        "sections-0-capacity": 0,
    }  # fmt: skip
    refused = staff.post(page, fields).content.decode()
    assert "Enter a color as #rrggbb" in refused
    assert "Enter a number from 1 to" in refused
    fields |= {"categories-0-color": "#ABC", "sections-0-capacity": 25, "sections-0-needs_access": "on"}
    response = staff.post(page, fields)
    assert response.status_code == 302, [entry.formset.errors for entry in response.context["inline_admin_formsets"]]
    floor = Section.objects.get(event=draft)
    assert (floor.capacity, floor.needs_access) == (25, True)
    assert Category.objects.get(event=draft, key="Stalls").color == "#aabbcc"


def test_seats_and_published_events_cannot_be_rewritten_or_deleted(staff: Client) -> None:
    event = make_event()
    seat = Seat.objects.values_list("pk", flat=True)[0]
    assert staff.post(reverse("admin:events_seat_change", args=[seat]), {"row": "Z"}).status_code == 403
    assert staff.post(reverse("admin:events_event_delete", args=[event.pk]), {"post": "yes"}).status_code == 403
    assert Event.objects.filter(pk=event.pk).exists()


def test_the_list_of_seats_follows_an_index_and_counts_a_part(staff: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of 450,000 seats sorted all of them, and a search compared eight words with each."""
    event = make_event("hamlet")
    make_event("macbeth")
    found = Seat.objects.filter(event_id=event.pk).order_by("section_id", "row_index", "place_index")
    guid = found[2].guid
    with CaptureQueriesContext(connection) as queries:
        response = staff.get(reverse("admin:events_seat_changelist"), {"event__id__exact": event.pk, "o": "1.-2"})
        assert list(response.context["cl"].result_list) == list(found)
        listed = staff.get(reverse("admin:events_seat_changelist"), {"q": guid})
    assert {seat.guid for seat in listed.context["cl"].result_list} == {guid}
    of_seats = [one["sql"] for one in queries if 'FROM "events_seat"' in one["sql"]]
    assert [sql for sql in of_seats if "UPPER(" in sql or "LIKE" in sql] == []
    ordered = {sql.partition("ORDER BY ")[2].partition(" LIMIT")[0] for sql in of_seats}
    by_index = ", ".join(f'"events_seat"."{name}" ASC' for name in ("section_id", "row_index", "place_index"))
    assert ordered == {"", by_index}
    monkeypatch.setattr(admin_lists, "COUNTED_MAX", 5)
    assert staff.get(reverse("admin:events_seat_changelist")).context["cl"].result_count == 5
