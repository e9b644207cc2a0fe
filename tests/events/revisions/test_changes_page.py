"""The page of changes shows what a change means before it makes it, in the venue's time."""

import re
from datetime import timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.events import facade as events
from apps.events.models import EventChange, Organizer, Role
from tests.support import factories
from tests.support.events.factories import in_days
from tests.support.factories import make_event

pytestmark = pytest.mark.django_db
ZONE = "America/Chicago"


@pytest.fixture
def staff(settings: Any) -> Client:
    settings.REAUTHENTICATION_SECONDS = 0
    client = Client(headers={"Sec-Fetch-Site": "same-origin"})
    client.force_login(User.objects.create_superuser("organizer", "o@example.com", "secret"))
    return client


def page_of(event: events.EventView) -> str:
    return reverse("admin:events_changes", args=[event.id])


def local(moment: Any) -> str:
    return f"{moment.astimezone(ZoneInfo(ZONE)):%Y-%m-%dT%H:%M}"


def hidden(html: str) -> dict[str, str]:
    """Return the hidden fields of the confirmation."""
    review = html[html.index("changes__review") : html.index("Change and")]
    found = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', review))
    return {name: value for name, value in found.items() if name != "csrfmiddlewaretoken"}


def test_a_postponement_is_shown_then_confirmed(staff: Client) -> None:
    event = make_event(timezone=ZONE, starts_at=in_days(30).replace(second=0))
    factories.hold(event, seats=["hall-A-1"])
    later = event.starts_at + timedelta(days=7)
    form = {"kind": "schedule", "starts_at": local(later), "return_days": "14", "why": "rain", "message": "Sorry."}
    shown = staff.post(page_of(event), form).content.decode()
    assert "1 reservation is live (1 ticket)." in shown
    assert "CDT" in shown or "CST" in shown
    assert re.search(r'<blockquote class="changes__message">Sorry\.</blockquote>', shown)
    assert events.get_event_by_id(event.id).starts_at == event.starts_at
    done = staff.post(page_of(event), hidden(shown) | {"confirm": "yes"}, follow=True)
    assert "The event is changed." in done.content.decode()
    assert events.get_event_by_id(event.id).starts_at == later
    change = EventChange.objects.get()
    assert (change.who, change.why, change.message) == ("organizer", "rain", "Sorry.")


def test_a_confirmation_of_outdated_values_changes_nothing(staff: Client) -> None:
    event = make_event(timezone=ZONE)
    limits = {"kind": "limits", "seats_per_reservation_max": "8", "per_buyer_max": "", "payment_seconds": "180"}
    shown = staff.post(page_of(event), limits | {"hold_seconds": "300", "why": "faster"}).content.decode()
    first = hidden(shown) | {"confirm": "yes"}
    assert staff.post(page_of(event), first).status_code == 302
    again = staff.post(page_of(event), first | {"hold_seconds": "360"})
    assert again.status_code == 409
    assert EventChange.objects.count() == 1


def test_fees_are_typed_as_money_and_percent(staff: Client) -> None:
    event = make_event(currency="USD")
    form = {
        "kind": "fees", "ticket_fee_minor": "2.50", "ticket_fee_rate": "5", "order_fee_minor": "0",
        "waives_fees_when_free": "on", "tax_rate": "19", "tax_included": "on", "why": "new season",
    }  # fmt: skip
    shown = staff.post(page_of(event), form).content.decode()
    assert "$2.50" in shown
    staff.post(page_of(event), hidden(shown) | {"confirm": "yes"})
    policy = events.get_event_by_id(event.id).price_policy
    assert (policy.ticket_fee_minor, policy.ticket_fee_rate, policy.tax_rate) == (250, 500, 1_900)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ({"kind": "schedule", "starts_at": "x", "return_days": "1", "why": "y"}, "Enter a date and time."),
        ({"kind": "schedule", "starts_at": "2020-01-01T10:00", "return_days": "1", "why": "y"}, "in the future"),
        ({"kind": "schedule", "starts_at": "2190-11-02T01:30", "return_days": "1"}, "This field is required."),
        ({"kind": "on_sale", "opens_at": "2190-01-01T10:00", "why": "y"}, "opened already"),
        ({"kind": "limits", "hold_seconds": "999999", "why": "y"}, "Enter at most 4 h."),
        ({"kind": "fees", "ticket_fee_minor": "2,50", "why": "y"}, "“2,50” can mean 2.50 or 250.00."),
        ({"kind": "limits", "hold_seconds": "1" * 500, "why": "\x00"}, "Null characters"),
        ({"kind": "limits", "hold_seconds": "1" * 5_000, "why": "y"}, "Enter seconds, such as 90"),
    ],
)
def test_wrong_values_are_named_at_their_field(staff: Client, form: dict[str, str], text: str) -> None:
    event = make_event(timezone=ZONE)
    usual = {"seats_per_reservation_max": "8", "per_buyer_max": "", "hold_seconds": "600", "payment_seconds": "180"}
    response = staff.post(page_of(event), (usual if form["kind"] == "limits" else {}) | form)
    assert response.status_code in (400, 422)
    assert text in response.content.decode()
    assert not EventChange.objects.exists()


def test_a_time_that_occurs_twice_is_refused(staff: Client) -> None:
    event = make_event(timezone=ZONE)
    form = {"kind": "schedule", "starts_at": "2190-11-07T01:30", "return_days": "1", "why": "y"}
    assert "ambiguous" in staff.post(page_of(event), form).content.decode()


def test_an_unknown_kind_changes_nothing(staff: Client) -> None:
    event = make_event()
    assert staff.post(page_of(event), {"kind": "seats"}).status_code == 302


@pytest.mark.parametrize(("role", "sees", "changes"), [(Role.ORGANIZER, 200, 400), (Role.BOX_OFFICE, 200, 403)])
def test_members_see_the_record_and_only_organizers_change(role: Role, sees: int, changes: int, settings: Any) -> None:
    settings.REAUTHENTICATION_SECONDS = 0
    event = make_event()
    client = Client(headers={"Sec-Fetch-Site": "same-origin"})
    client.force_login(factories.make_member(Organizer.objects.get(), role))
    assert client.get(page_of(event)).status_code == sees
    assert client.post(page_of(event), {"kind": "limits"}).status_code == changes
    client.force_login(factories.make_member(factories.make_organizer("other"), Role.ORGANIZER))
    assert client.get(page_of(event)).status_code == 403
