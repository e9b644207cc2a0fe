"""The staff page of an event's stock, and the actions on its seats: every act uses the services."""

from datetime import timedelta
from typing import Any

import pytest
from django.contrib import admin
from django.contrib.auth.models import Permission
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.events import facade as events
from apps.events import publication
from apps.events.creation import EventSpec, GeneralAdmission, create_event
from apps.events.models import Category, Event, Section
from apps.kernel import clock
from apps.reservations.models import GeneralAdmissionInventory, InventoryChange, SeatInventory
from apps.reservations.staff import stock
from apps.reservations.staff.selection import Selection
from tests.support import factories


@pytest.fixture
def staff(browser: Client) -> Client:
    browser.force_login(User.objects.create_superuser("admin"))
    return browser


def send(staff: Client, event: events.EventView, action: str, **given: Any) -> tuple[int, str]:
    response = staff.post(
        f"/admin/reservations/seatinventory/stock/{event.id}/", {"action": action, **given}, follow=True
    )
    (message,) = [str(message) for message in response.context["messages"]]
    return response.status_code, message


def seat(guid: str) -> SeatInventory:
    return SeatInventory.objects.get(seat__guid=guid)


def test_the_page_changes_everything_by_its_service_and_reports_it(staff: Client, concert: events.EventView) -> None:
    factories.hold(concert, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    hall = {"section": "hall", "rows": "A, B", "reason": "house"}
    refused, message = send(staff, concert, "block", **hall, why="press")
    assert (refused, message) == (409, "Not free (1 of 20): hall-A-1 held. Nothing was blocked.")
    recorded = InventoryChange.objects.get()
    assert (recorded.kind, recorded.who, recorded.why) == ("blocked", "admin", "press")
    assert recorded.refusal == message
    assert send(staff, concert, "block", **hall, why="press", only_free="yes")[1] == ("Blocked, house seats: 19 seats.")
    assert send(staff, concert, "unblock", seats="hall-A-2\nhall-A-3")[1] == "Unblocked: 2 seats."
    assert send(staff, concert, "block", section="hall", reason="house") == (
        422, "Rows: name the rows, or tick the box for the whole section.",
    )  # fmt: skip
    floor = {"section": "floor", "seen": 0, "reason": "out_of_use"}
    assert send(staff, concert, "block_quantity", **floor, quantity=5)[1] == "5 more out of use; 13 free."
    assert send(staff, concert, "block_quantity", **floor, quantity=5)[0] == 409  # The same form again.
    assert send(staff, concert, "unblock_quantity", **{**floor, "seen": 5}, quantity=1)[1] == "1 unblocked; 14 free."
    assert send(staff, concert, "resize", section="floor", capacity=5)[1].startswith("Floor cannot shrink below 6")
    assert send(staff, concert, "resize", section="floor", capacity=30)[1] == "Capacity 30, 24 free."
    assert send(staff, concert, "reprice", category="Standard", price="60.00")[1].startswith(
        "Standard costs $60.00 for"
    )
    assert send(staff, concert, "add_price", category="Back", price="$10")[1].startswith("Back costs $10.00")
    assert send(staff, concert, "move", section="hall", rows="E", to="Back")[1] == "Moved to Back: 10 seats."
    assert send(staff, concert, "reprice", category="Standard", price="60,00") == (
        422, "Price: “60,00” can mean 60.00 or 6,000.00. Write one of these.",
    )  # fmt: skip
    for action, given in (
        ("reprice", {"price": "x"}),
        ("block", {"reason": "fun", "seats": "hall-C-1"}),
        ("dance", {}),
    ):
        assert send(staff, concert, action, **given)[0] in (200, 422)
    page = staff.get(f"/admin/reservations/seatinventory/stock/{concert.id}/").content.decode()
    assert "17 of hall: house seats" not in page
    assert "19 of hall: house seats" in page
    assert "press" in page
    assert set(InventoryChange.objects.values_list("who", flat=True)) == {"admin"}
    factories.assert_audit_clean()


def test_the_page_names_an_inconsistency_and_the_command_that_repairs_it(
    staff: Client, concert: events.EventView
) -> None:
    """A seat is blocked although it has a buyer, another seat and the floor have no inventory row."""
    holder = factories.hold(concert, seats=["hall-A-1"])
    SeatInventory.objects.filter(seat__guid="hall-A-1").update(status=3, reservation_id=None, blocked_for="house")
    SeatInventory.objects.filter(seat__guid="hall-B-1").delete()
    GeneralAdmissionInventory.objects.all().delete()
    repair = "manage.py reconcile concert --repair"
    status, message = send(staff, concert, "unblock", seats="hall-A-1")
    assert (status, message.startswith(f"Cannot unblock: hall-A-1 belongs to reservation {holder.id}")) == (409, True)
    assert repair in message
    for action, given in (
        ("block", {"seats": "hall-B-1", "reason": "house"}),
        ("resize", {"section": "floor", "capacity": 30}),
    ):
        status, message = send(staff, concert, action, **given)
        assert (status, message.startswith("Not in the inventory: ")) == (409, True)
        assert repair in message


def test_the_page_opens_for_public_events_and_for_permitted_users(browser: Client, concert: events.EventView) -> None:
    address = f"/admin/reservations/seatinventory/stock/{concert.id}/"
    clerk = User.objects.create_user("clerk", is_staff=True)
    browser.force_login(clerk)
    assert browser.get(address).status_code == 403
    clerk.user_permissions.add(Permission.objects.get(codename="view_seatinventory"))
    page = browser.get(address)
    assert page.status_code == 200
    assert "Set price" not in page.content.decode()
    assert browser.post(address, {"action": "reprice", "category": "Standard", "price": "1"}).status_code == 403
    assert browser.post(address, {"action": "block", "seats": "hall-A-1", "reason": "house"}).status_code == 403
    assert not InventoryChange.objects.exists()
    Event.objects.update(status="draft")
    assert browser.get(address).status_code == 404
    assert browser.get(address.replace(str(concert.id), "9" * 30)).status_code == 404


def test_the_list_of_seats_blocks_and_unblocks_after_confirmation(staff: Client, concert: events.EventView) -> None:
    factories.hold(concert, seats=["hall-A-1"])
    keys = [seat(f"hall-A-{number}").pk for number in (1, 2, 3)]
    address = "/admin/reservations/seatinventory/"

    def act(action: str, **confirmed: str) -> str:
        form = {"action": action, "_selected_action": keys, "why": "camera", **confirmed}
        return staff.post(address, form, follow=True).content.decode()

    confirmation = act("block_out_of_use")
    assert "stays: it is held." in confirmation
    assert "is blocked (out of use)." in confirmation
    assert "camera" in confirmation
    assert not InventoryChange.objects.exists()
    assert "Concert: 2 seats blocked (out of use), 1 seat unchanged." in act("block_out_of_use", confirmed="yes")
    assert "Concert: 2 seats blocked (house seats), 1 seat unchanged." in act("block_for_house", confirmed="yes")
    assert "stays: it is held." in act("put_back")
    assert "Concert: 2 seats back on sale, 1 seat unchanged." in act("put_back", confirmed="yes")
    assert set(InventoryChange.objects.values_list("why", flat=True)) == {"camera"}
    factories.assert_audit_clean()


def test_a_general_admission_section_has_its_form_on_its_own_page(staff: Client, concert: events.EventView) -> None:
    row = GeneralAdmissionInventory.objects.get()
    page = staff.get(reverse("admin:reservations_generaladmissioninventory_change", args=[row.pk])).content.decode()
    assert f'action="/admin/reservations/seatinventory/stock/{concert.id}/"' in page
    assert "Set capacity" in page


def test_prices_of_a_published_event_change_on_the_stock_page_only(staff: Client, concert: events.EventView) -> None:
    dashboard = staff.get(reverse("admin:event_dashboard", args=[concert.id])).content.decode()
    assert reverse("admin:reservations_stock", args=[concert.id]) in dashboard
    address = reverse("admin:events_event_change", args=[concert.id])
    category, section = Category.objects.get(key="Standard"), Section.objects.get(slug="floor")
    fields = {
        "name": "Concert", "description": "", "on_sale-TOTAL_FORMS": 1, "on_sale-INITIAL_FORMS": 1,
        "categories-TOTAL_FORMS": 1, "categories-INITIAL_FORMS": 1, "categories-0-id": category.pk,
        "categories-0-event": concert.id, "categories-0-key": "Standard", "categories-0-name": "Standard",
        "categories-0-color": "#123456", "categories-0-price_minor": 1, "categories-0-position": 0,
        "sections-TOTAL_FORMS": 1, "sections-INITIAL_FORMS": 1, "sections-0-id": section.pk,
        "sections-0-event": concert.id, "sections-0-capacity": 7,
    }  # fmt: skip
    staff.post(address, fields)
    assert Category.objects.get(key="Standard").price_minor == factories.SEAT_PRICE_MINOR
    assert Section.objects.get(slug="floor").capacity == 20


def test_a_blocked_seat_is_refused_and_listed_as_blocked(shopper: Client, concert: events.EventView) -> None:
    stock.block_seats(concert, Selection(seats=("hall-A-1",)), "house", who="ann")
    response = shopper.post("/events/concert/choose", {"seats": "hall-A-1", "idempotency_key": "k", "view": "list"})
    assert response.status_code == 409
    listed = shopper.get("/events/concert/choose?view=list").context["list_rows"][0]["seats"][0]
    assert (listed["seat_id"], listed["status"]) == ("hall-A-1", "blocked")
    api = shopper.get("/api/events/concert/sections").json()["sections"]
    assert [(one["total_seats"], one["available_seats"]) for one in api] == [(50, 49), (20, 20)]


def test_a_draft_published_while_its_form_is_saved_stays_published(
    staff: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form reads a draft; it is published; saved as it was read it would be a draft again, with seats on sale."""
    event_id = create_event(
        EventSpec(
            slug="gala", name="Gala", venue="The Venue", starts_at=clock.now() + timedelta(days=9), currency="USD",
            general_admission=(GeneralAdmission("Floor", 10, 500),), draft=True,
        )
    ).event_id  # fmt: skip
    address = reverse("admin:events_event_change", args=[event_id])
    form = staff.get(address).context
    fields = {
        form_field.html_name: form_field.value()
        for shown in (form["adminform"].form, *_inline_forms(form))
        for form_field in shown
    }
    fields |= {"starts_at": "2190-01-01T20:00"}
    fields |= {"on_sale-0-opens_at": "2189-01-01T20:00"}
    fields = {name: value for name, value in fields.items() if value is not None}
    read, seen = admin.ModelAdmin.get_object, []

    def publish_after_the_first_look(self: Any, request: Any, *args: Any) -> Any:
        found = read(self, request, *args)
        if request.method == "POST" and not seen:
            seen.append(found.status)
            publication.publish_locked(publication.lock_event(event_id))
        return found

    monkeypatch.setattr(admin.ModelAdmin, "get_object", publish_after_the_first_look)
    staff.post(address, fields)
    assert seen == ["draft"]
    assert Event.objects.get(pk=event_id).status == "published"


def _inline_forms(context: Any) -> list[Any]:
    sets = [inline.formset for inline in context["inline_admin_formsets"]]
    return [form for formset in sets for form in (formset.management_form, *formset.initial_forms)]
