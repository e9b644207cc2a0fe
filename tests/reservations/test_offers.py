"""Offers of seats before anything is held: by the service, the API and the page."""

import re
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from apps.events import facade as events
from apps.kernel.http import problems
from apps.reservations import facade as reservations
from apps.reservations.models import Reservation
from tests.support.api_client import Api
from tests.support.factories import hold, join, make_access_code, make_event

CHOOSE = "/events/concert/choose"


@pytest.fixture
def house(db: None) -> events.EventView:
    """Two halls of which the front rows are Gold, and a cheap balcony."""
    return make_event(
        rows=3,
        seats_per_row=6,
        halls=("Hall", "Wing", "Balcony"),
        tiers={"Gold": 9_000, "Cheap": 2_000},
        tier_of={"hall-A": "Gold", "wing-A": "Gold", "balcony": "Cheap"},
    )


def propose(event: events.EventView, **asked: Any) -> list[tuple[str, bool]]:
    """Return each offer's first and last seat, and whether its seats are together."""
    offers = reservations.propose_offers(event, join(event), asked)
    return [(f"{offer.seat_ids[0]}..{offer.seats[-1].number}", offer.is_together) for offer in offers]


def test_each_offer_is_the_best_of_a_category_and_the_best_category_is_first(house: events.EventView) -> None:
    assert propose(house, quantity=2) == [("hall-A-3..4", True), ("hall-B-3..4", True), ("balcony-A-3..4", True)]
    assert not Reservation.objects.exists()


def test_with_few_categories_the_offers_are_in_different_sections_then_rows(house: events.EventView) -> None:
    gold = propose(house, quantity=2, category="Gold")
    assert gold[:2] == [("hall-A-3..4", True), ("wing-A-3..4", True)]
    assert gold[2][0].startswith("hall-A")
    (first, second, third) = (seats[:9] for seats, _ in propose(house, quantity=6, section="balcony"))
    assert (first, second, third) == ("balcony-A", "balcony-B", "balcony-C")


def test_offers_cost_at_most_the_maximum(house: events.EventView) -> None:
    assert next(seats[:6] for seats, _ in propose(house, quantity=2, price_max_minor=5_000)) == "hall-B"
    with pytest.raises(problems.Invalid):
        propose(house, quantity=2, price_max_minor=1_999)
    with pytest.raises(problems.Invalid):
        propose(house, quantity=9)


@pytest.mark.django_db(transaction=True)
def test_offers_side_by_side_come_before_better_seats_that_are_not() -> None:
    event = make_event(rows=2, seats_per_row=4, tiers={"Gold": 9_000}, tier_of={"hall-A": "Gold"})
    hold(event, seats=["hall-A-2", "hall-A-4", "hall-B-1"])
    assert propose(event, quantity=2) == [("hall-B-2..3", True)]
    hold(event, seats=["hall-B-2", "hall-B-4"])
    assert propose(event, quantity=2) == [("hall-A-3..3", False)], "one behind the other"
    assert propose(event, quantity=5) == []


@pytest.mark.django_db(transaction=True)
def test_sections_behind_a_code_are_offered_with_the_code_only() -> None:
    event = make_event(halls=("Hall", "Wing"), tiers={"Gold": 9_000}, tier_of={"hall": "Gold"}, needs_access=("hall",))
    make_access_code(event, "hall")
    entry = join(event)

    def sections(code: str, **asked: Any) -> set[str]:
        offers = reservations.propose_offers(event, entry, {"quantity": 2, **asked}, access_code=code)
        return {offer.seats[0].section_slug for offer in offers}

    assert sections("") == sections("WRONG") == {"wing"}
    assert sections("FANCLUB") == {"hall", "wing"}
    with pytest.raises(problems.Problem) as refused:
        sections("", section="hall")
    assert refused.value.type == "access-code-required"
    with pytest.raises(problems.Problem) as refused:
        sections("WRONG", section="hall")
    assert refused.value.type == "access-code-wrong"


def test_offers_of_a_large_sale_take_few_statements(house: events.EventView) -> None:
    entry = join(house)
    with CaptureQueriesContext(connection) as statements:
        reservations.propose_offers(house, entry, {"quantity": 2})
    assert len(statements) <= 12, [one["sql"][:80] for one in statements]
    locks = ("FOR NO KEY UPDATE", "FOR UPDATE", "FOR KEY SHARE", "FOR SHARE")
    assert not any(lock in one["sql"].upper() for one in statements for lock in locks), "no locks"


# --- the API ---------------------------------------------------------------------------------------------------------


def test_an_offer_of_the_api_can_be_held(api: Api, concert: events.EventView) -> None:
    token = api.admission("concert")
    path = "/events/concert/offers"
    found = api.post(path, {"best_available": {"quantity": 3}}, token=token)
    assert found.status_code == 200
    assert found.headers["Cache-Control"] == "no-store"
    first = found.json()["offers"][0]
    assert first["together"] is True
    assert first["total_minor"] == first["to_pay_minor"] == 15_000
    seats = [seat["seat_id"] for seat in first["seats"]]
    held = api.post("/events/concert/reservations", {"seats": seats}, token=token, key="one")
    assert held.status_code == 201
    again = {"best_available": {"quantity": 3}, "replace": held.json()["reservation_id"]}
    assert [seat["seat_id"] for seat in api.post(path, again, token=token).json()["offers"][0]["seats"]] == seats
    assert api.post(path, again, token=api.admission("concert")).status_code == 404
    assert api.post(path, {"best_available": {"quantity": 0}}, token=token).status_code == 422
    assert api.post(path, {"seats": seats}, token=token).status_code == 422
    assert api.post(path, {"best_available": {"quantity": 1}}).status_code == 401


# --- the page --------------------------------------------------------------------------------------------------------


def seats_in(page: str, form: str) -> list[str]:
    """Return the seats that the first form of this class would hold."""
    start = page.index(f'<form class="{form}"')
    return re.findall(r'name="seats" value="([^"]+)"', page[start : page.index("</form>", start)])


def test_the_page_offers_seats_and_reserves_one_offer(house: events.EventView, browser: Client) -> None:
    browser.post("/events/concert/join", follow=True)
    page = browser.get(f"{CHOOSE}?view=best&best_quantity=4&best_price_max=5000").content.decode()
    seats = seats_in(page, "seat-offer")
    assert {seat[:6] for seat in seats} == {"hall-B"}
    assert page.count('<form class="seat-offer"') == 3
    assert '<option value="5000" selected>Up to $50.00</option>' in page
    held = browser.post(CHOOSE, {"view": "best", "best_quantity": "4", "seats": seats, "idempotency_key": "a-1"})
    assert held.status_code == 303
    assert Reservation.objects.get().seat_count == 4


def test_when_an_offered_seat_is_lost_the_next_offers_keep_the_party_together(
    shopper: Client, concert: events.EventView
) -> None:
    seats = seats_in(shopper.get(f"{CHOOSE}?view=best&best_quantity=4").content.decode(), "seat-offer")
    hold(concert, seats=seats[:1])
    fields = {"view": "best", "best_quantity": "4", "best_price_max": "", "seats": seats, "idempotency_key": "a-1"}
    response = shopper.post(CHOOSE, fields)
    assert response.status_code == 409
    page = response.content.decode()
    assert "Just taken:" in page
    other = seats_in(page, "seat-offer")
    assert len({seat[:6] for seat in other}) == 1
    numbers = [int(seat.rpartition("-")[2]) for seat in other]
    assert numbers == list(range(numbers[0], numbers[0] + 4))
    assert seats[0] not in other


def test_when_one_of_two_chosen_seats_is_lost_two_together_are_offered(
    shopper: Client, concert: events.EventView
) -> None:
    hold(concert, seats=["hall-B-1"])
    response = shopper.post(CHOOSE, {"view": "list", "seats": ["hall-B-1", "hall-B-2"], "idempotency_key": "a-1"})
    page = response.content.decode()
    one, other = seats_in(page, "instead")
    assert one[:6] == other[:6]
    assert abs(int(one[7:]) - int(other[7:])) == 1
    held = shopper.post(CHOOSE, {"view": "list", "seats": [one, other], "idempotency_key": "a-2"})
    assert held.status_code == 303


def test_a_party_that_fits_nowhere_learns_it(shopper: Client, concert: events.EventView) -> None:
    for row in "ABCDE":
        hold(concert, seats=[f"hall-{row}-{number}" for number in range(1, 9)])
    hold(concert, seats=[f"hall-{row}-{number}" for row in "ABCD" for number in (9, 10)])
    page = shopper.get(f"{CHOOSE}?view=best&best_quantity=3").content.decode()
    assert "No seats found" in page
    assert "3 seats in one section" in page
    assert '<form class="seat-offer"' in shopper.get(f"{CHOOSE}?view=best&best_quantity=2").content.decode()


@pytest.mark.parametrize("query", ["best_quantity=0", "best_quantity=x", "best_section=nowhere", "best_price_max=-1"])
def test_a_party_with_errors_is_explained(shopper: Client, query: str) -> None:
    response = shopper.get(f"{CHOOSE}?view=best&{query}")
    assert response.status_code == 200
    assert response.context["party_errors"]
    assert not response.context["offers"]
