"""The page of a reservation, and releasing it."""

import re
import uuid
from datetime import timedelta

import pytest
from django.test import Client

from apps.events import facade as events
from apps.events.models import OnSale
from apps.kernel import clock
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.snapshot import room_snapshot
from apps.reservations import facade
from apps.reservations.models import Reservation
from tests.support import factories
from tests.support.queue.rooms import join_waiting_entries, make_room


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


def test_after_the_deadline_the_same_tickets_are_offered_while_they_are_free(shopper: Client, held: str) -> None:
    factories.backdate_deadline(uuid.UUID(held.split("/")[2]))
    facade.sweep_all()
    page = shopper.get(held).content.decode()
    assert "Still available" in page
    assert "choose?view=list&amp;seats=hall-A-1&amp;seats=hall-A-2" in page
    assert "2 × floor" in page.lower()


def test_if_they_are_taken_the_nearest_equivalent_is_offered(shopper: Client, concert: events.EventView) -> None:
    response = shopper.post("/events/concert/choose", {"seats": ["hall-A-1", "hall-A-2"]})
    factories.backdate_deadline(uuid.UUID(response.url.split("/")[2]))
    facade.sweep_all()
    factories.hold(concert, factories.join(concert), seats=["hall-A-2"])
    page = shopper.get(response.url).content.decode()
    assert "Closest match" in page
    (first, second) = re.findall(r"row (\w+), seat (\d+)", page)
    assert first[0] == second[0], "side by side"
    assert abs(int(first[1]) - int(second[1])) == 1
    assert ("A", "2") not in (first, second)


def test_after_the_admission_the_offered_seats_are_selected_once_the_visitor_is_in_again(
    shopper: Client, held: str
) -> None:
    factories.backdate_deadline(uuid.UUID(held.split("/")[2]))
    facade.sweep_all()
    QueueEntry.objects.update(status="expired", ended_at=clock.now())
    page = shopper.get(held).content.decode()
    assert '<input type="hidden" name="seats" value="hall-A-1">' in page
    again = shopper.post("/events/concert/join", {"seats": ["hall-A-1", "x" * 121, "hall-A-2"]})
    assert again.url == "/events/concert/choose?view=list&seats=hall-A-1&seats=hall-A-2"
    assert shopper.get(again.url).status_code == 200


def test_after_the_sale_nothing_is_offered(shopper: Client, held: str) -> None:
    factories.backdate_deadline(uuid.UUID(held.split("/")[2]))
    facade.sweep_all()
    OnSale.objects.update(closes_at=clock.now() - timedelta(seconds=1), opens_at=clock.now() - timedelta(days=1))
    page = shopper.get(held).content.decode()
    assert "Your reservation has expired" in page
    assert "Still available" not in page


def test_without_a_waiting_room_no_page_counts_down_the_time_to_choose(shopper: Client, held: str) -> None:
    """A visitor who takes longer than an admission lasts goes on, and keeps the selection."""
    shopper.post(f"{held}release")
    assert "Time to choose" not in shopper.get("/events/concert/choose").content.decode()
    QueueEntry.objects.update(status="expired", ended_at=clock.now())
    again = shopper.post("/events/concert/choose", {"seats": ["hall-B-1"]})
    assert (again.status_code, again.url.startswith("/reservations/")) == (303, True)
    factories.assert_audit_clean()


def test_with_proof_of_work_an_expired_visitor_joins_by_the_form(shopper: Client, held: str) -> None:
    shopper.post(f"{held}release")
    WaitingRoom.objects.update(screening="on")
    QueueEntry.objects.update(status="expired", ended_at=clock.now())
    response = shopper.post("/events/concert/choose", {"seats": ["hall-B-1"]})
    assert response.status_code == 410
    page = response.content.decode()
    for words in ("Start again", "Get tickets"):
        assert words in page
    for words in ("in line", "next visitor", "Rejoin"):
        assert words not in page
    assert QueueEntry.objects.count() == 1


@pytest.mark.django_db
def test_a_room_with_an_empty_line_admits_an_expired_visitor_again_and_one_with_a_line_does_not() -> None:
    event = make_room(rate=10, active=1)
    browser = Client(headers={"Sec-Fetch-Site": "same-origin"})
    browser.post(f"/events/{event.slug}/join", follow=True)
    choose = f"/events/{event.slug}/choose"
    assert "Time to choose" in browser.get(choose).content.decode()
    QueueEntry.objects.update(status="expired", ended_at=clock.now())
    room_snapshot.invalidate(event.id)
    assert browser.get(choose).status_code == 200
    assert list(QueueEntry.objects.order_by("number").values_list("status", flat=True)) == ["expired", "ready"]
    join_waiting_entries(event, 1)
    QueueEntry.objects.filter(status="ready").update(status="expired", ended_at=clock.now())
    room_snapshot.invalidate(event.id)
    page = browser.get(choose).content.decode()
    assert "If you rejoin, you start at the back." in page
    assert QueueEntry.objects.filter(status="waiting").count() == 1


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
