"""The page with a draft's prices: one field for each price category, stored under the lock of the draft."""

import re
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from apps.accounts.models import User
from apps.events.models import Category, Event, OnSale
from apps.events.publication import publish_event
from tests.events.checklist.test_findings import make_draft
from tests.events.drafts.test_publish_page import staff  # noqa: F401 - A fixture.
from tests.support.races import storm

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


def unpriced() -> Event:
    event = make_draft()
    Category.objects.filter(event=event, key="Stalls").delete()
    return event


def url(event: Event) -> str:
    return reverse("admin:events_prices", args=[event.pk])


def answers(stalls: str, floor: str = "20.00") -> dict[str, Any]:
    return {"tier": ["Stalls", "Floor"], "price-0": stalls, "price-1": floor}


@pytest.mark.django_db
def test_the_prices_of_the_plan_and_of_general_admission_are_entered_on_one_page(staff: Client) -> None:  # noqa: F811
    event = unpriced()
    page = staff.get(url(event)).content.decode()
    assert "8 seats" in page
    assert 'value="20.00"' in page
    done = staff.post(url(event), answers("45.00", "22"))
    assert done["Location"] == reverse("admin:events_publish", args=[event.pk])
    prices = Category.objects.filter(event=event).values_list("key", "price_minor")
    assert set(prices) == {("Stalls", 4_500), ("Floor", 2_200)}


@pytest.mark.django_db
def test_each_price_has_what_the_buyer_pays_below_it(staff: Client) -> None:  # noqa: F811
    event = unpriced()
    OnSale.objects.filter(event=event).update(ticket_fee_rate=1_000)
    page = staff.get(url(event)).content.decode()
    assert "Buyer pays $22.00 incl. fees" in page
    notes_url = re.search(r'data-notes-url="([^"]+)"', page)
    assert notes_url is not None
    notes = staff.post(notes_url[1], answers("45.00", "1,0")).json()
    assert notes["texts"]["price-0"] == "Buyer pays $49.50 incl. fees"
    assert notes["errors"] == ["price-1"]


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"price-0": ""}, "Enter the price; 0 for free tickets."),
        ({"price-0": "4,5,0"}, "id_price-0_error"),
        ({"tier": ["Floor", "Stalls"]}, "have changed since you opened this page"),
        ({"tier": []}, "have changed since you opened this page"),
    ],
)
def test_prices_that_cannot_be_read_change_nothing(
    staff: Client,  # noqa: F811
    changes: dict[str, Any],
    text: str,
) -> None:
    event = unpriced()
    response = staff.post(url(event), answers("45.00") | changes)
    assert response.status_code == 400
    assert text in response.content.decode()
    assert list(Category.objects.filter(event=event).values_list("price_minor", flat=True)) == [2_000]


@pytest.mark.django_db
def test_a_published_event_keeps_its_prices(staff: Client) -> None:  # noqa: F811
    event = make_draft()
    publish_event(event.pk)
    response = staff.post(url(event), answers("1.00"), follow=True)
    assert "already published" in response.content.decode()
    assert Category.objects.get(event=event, key="Stalls").price_minor == 4_500


@pytest.mark.django_db(transaction=True)
def test_prices_that_are_saved_twice_at_once_are_stored_once() -> None:
    """Both requests find no row for Stalls; the second waits for the draft's lock, and then finds the first one's."""
    event, user = unpriced(), User.objects.create_superuser("organizer", "o@example.com", "secret")

    def act(number: int) -> int:
        client = Client(headers=SAME_ORIGIN)
        client.force_login(user)
        return client.post(url(event), answers(f"{45 + number}.00")).status_code

    assert [outcome.value for outcome in storm(3, act)] == [302] * 3
    assert Category.objects.filter(event=event, key="Stalls").count() == 1
