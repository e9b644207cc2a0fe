"""A seat whose row is free although another buyer's line has it: no service causes this, and no buyer may be affected
by it."""

import pytest

from apps.reservations import facade as reservations
from apps.reservations.models import SeatInventory
from tests.support.factories import hold, make_event, make_hold_request
from tests.support.reservations.buyers import is_held, problem_of, seat, submit_hold

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_free_seat_with_a_buyers_line_is_not_sold_and_delays_no_other_seat() -> None:
    event = make_event(rows=1, seats_per_row=4)
    hold(event, seats=["hall-A-1"])
    SeatInventory.objects.filter(seat__guid="hall-A-1").update(status=0, reservation_id=None)
    assert problem_of(submit_hold(make_hold_request(event, seats=["hall-A-1"]))).type == "seats-unavailable"
    mine, other = reservations.hold(
        [make_hold_request(event, seats=["hall-A-1"]), make_hold_request(event, seats=["hall-A-4"])]
    )
    assert problem_of(mine).type == "seats-unavailable"
    assert is_held(other)
    assert is_held(submit_hold(make_hold_request(event, best_available={"section": "hall", "quantity": 2})))
    assert seat("hall-A-1").status == 0
