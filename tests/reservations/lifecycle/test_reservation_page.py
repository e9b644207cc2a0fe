"""The page of a reservation, and releasing it."""

import uuid

import pytest
from django.test import Client

from apps.events import facade as events
from apps.reservations.models import Reservation
from tests.support import factories


@pytest.fixture
def held(shopper: Client) -> str:
    """The address of the shopper's reservation."""
    response = shopper.post(
        "/events/concert/choose", {"seats": ["hall-A-1", "hall-A-2"], "ga_section": "floor", "ga_quantity": "2"}
    )
    assert response.status_code == 303
    return str(response.url)


def test_the_page_shows_the_tickets_their_price_and_the_deadline(shopper: Client, held: str) -> None:
    response = shopper.get(held)
    page = response.content.decode()
    assert "no-store" in response.headers["Cache-Control"]
    assert "Row <b>A</b>" in page
    assert "$150.00" in page
    assert "data-countdown=" in page
    assert f"{held}checkout" in page


def test_releasing_frees_the_tickets_and_the_buyer_chooses_again(shopper: Client, held: str) -> None:
    response = shopper.post(f"{held}release", follow=True)
    assert response.redirect_chain == [(held, 303)]
    assert "Seats released" in response.content.decode()
    assert shopper.get("/events/concert/choose").status_code == 200
    assert shopper.post("/events/concert/choose", {"seats": ["hall-A-1"]}).status_code == 303
    factories.assert_audit_clean()


def test_a_get_request_of_the_release_address_releases_nothing(shopper: Client, held: str) -> None:
    assert shopper.get(f"{held}release").url == held
    assert Reservation.objects.get().status == "pending_payment"


def test_after_the_deadline_the_page_shows_that_it_expired(shopper: Client, held: str) -> None:
    factories.backdate_deadline(uuid.UUID(held.split("/")[2]))
    assert "Your reservation has expired" in shopper.get(held).content.decode()


def test_a_reservation_in_payment_is_not_released(shopper: Client, held: str) -> None:
    reservation = Reservation.objects.get()
    Reservation.objects.update(status="paying", pay_deadline=reservation.expires_at)
    page = shopper.post(f"{held}release", follow=True).content.decode()
    assert "The payment has started" in page
    assert Reservation.objects.get().status == "paying"


def test_no_other_visitor_sees_or_releases_it(held: str, concert: events.EventView) -> None:
    stranger = Client(headers={"sec-fetch-site": "same-origin"})
    assert stranger.get(held).status_code == 401
    stranger.post("/events/concert/join", follow=True)
    assert stranger.get(held).status_code == 403
    assert stranger.post(f"{held}release").status_code == 403
    assert Reservation.objects.get().status == "pending_payment"


def test_a_missing_reservation_is_not_found(shopper: Client) -> None:
    assert shopper.get(f"/reservations/{uuid.UUID(int=7)}/").status_code == 404
    assert shopper.post(f"/reservations/{uuid.UUID(int=7)}/release").status_code == 404
