"""A seat whose row says free while somebody's line is on it: what no service leaves behind, and no buyer is to feel."""

import pytest

from apps.reservations import facade as reservations
from apps.reservations.models import SeatInventory
from tests.support.factories import hold, make_event, wish
from tests.support.reservations.buyers import ask, is_held, refusal, seat

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_seat_that_says_free_under_its_buyer_is_sold_to_nobody_and_troubles_no_neighbour() -> None:
    event = make_event(rows=1, seats_per_row=4)
    hold(event, seats=["hall-A-1"])
    SeatInventory.objects.filter(seat__guid="hall-A-1").update(status=0, reservation_id=None)
    assert refusal(ask(wish(event, seats=["hall-A-1"]))).type == "seats-unavailable"
    mine, other = reservations.hold([wish(event, seats=["hall-A-1"]), wish(event, seats=["hall-A-4"])])
    assert refusal(mine).type == "seats-unavailable"
    assert is_held(other)
    assert is_held(ask(wish(event, best_available={"section": "hall", "quantity": 2})))
    assert seat("hall-A-1").status == 0
