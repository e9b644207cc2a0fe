"""Best available without a section or up to a price: the best category first, and the party together."""

from typing import Any

import pytest

from apps.events import facade as events
from apps.events.pricing import PricePolicy
from apps.kernel.http import problems
from apps.reservations import facade as reservations
from apps.reservations.staff import tiers
from apps.reservations.staff.selection import Selection
from tests.support.factories import assert_audit_clean, hold, join, make_access_code, make_event, make_hold_request
from tests.support.races import rival_at
from tests.support.reservations.buyers import submit_hold
from tests.support.reservations.gates import count_answers, open_gate

pytestmark = pytest.mark.django_db(transaction=True)

BY = {"who": "staff", "why": ""}


@pytest.fixture
def house() -> events.EventView:
    """Two halls: the front rows of both are Gold, the rest is Standard; the balcony is cheap."""
    return make_event(
        rows=3,
        seats_per_row=6,
        halls=("Hall", "Wing", "Balcony"),
        tiers={"Gold": 9_000, "Cheap": 2_000},
        tier_of={"hall-A": "Gold", "wing-A": "Gold", "balcony": "Cheap"},
    )


def best(event: events.EventView, quantity: int, **more: Any) -> list[str]:
    """Hold the best seats; return them, sorted."""
    return sorted(seat.seat_id for seat in hold(event, best_available={"quantity": quantity, **more}).seats)


def refusal(event: events.EventView, **payload: Any) -> problems.Problem:
    (outcome,) = reservations.hold([make_hold_request(event, **payload)])
    assert isinstance(outcome, reservations.Refused), outcome
    return outcome.problem


def take_all_but(event: events.EventView, *left: str) -> None:
    """Hold every seat of the event but these."""
    every = [seat for section in events.list_sections(event.id) for seat in events.section_seats(section.id)]
    taken = [seat.guid for seat in every if seat.guid not in left]
    for start in range(0, len(taken), 8):
        hold(event, seats=taken[start : start + 8])


def test_anywhere_the_best_category_comes_first_then_the_next(house: events.EventView) -> None:
    assert best(house, 6) == [f"hall-A-{number}" for number in range(1, 7)]
    assert best(house, 6) == [f"wing-A-{number}" for number in range(1, 7)]
    assert {seat[:6] for seat in best(house, 2)} == {"hall-B"}
    assert_audit_clean()


def test_up_to_a_price_nothing_costs_more(house: events.EventView) -> None:
    assert {seat[:6] for seat in best(house, 2, price_max_minor=8_999)} == {"hall-B"}
    assert {seat[:7] for seat in best(house, 2, price_max_minor=4_999)} == {"balcony"}
    assert {seat[:6] for seat in best(house, 2, section="wing", price_max_minor=5_000)} == {"wing-B"}
    assert {seat[:6] for seat in best(house, 2, category="Standard", price_max_minor=9_000)} == {"hall-B"}


def test_the_maximum_price_is_what_a_ticket_costs_with_fee_and_tax() -> None:
    policy = PricePolicy(ticket_fee_minor=500, order_fee_minor=300, tax_rate=1_000, tax_included=False)
    event = make_event(tiers={"Cheap": 1_000}, tier_of={"hall-E": "Cheap"}, price_policy=policy)
    assert best(event, 1, price_max_minor=6_050)[0].startswith("hall-A")
    assert best(event, 1, price_max_minor=6_049)[0].startswith("hall-E")
    with pytest.raises(problems.Invalid):
        make_hold_request(event, best_available={"quantity": 1, "price_max_minor": 1_649})


def test_a_party_sits_together_in_a_lower_category_rather_than_apart_in_the_best(house: events.EventView) -> None:
    take_all_but(house, "hall-A-1", "hall-A-3", "wing-A-6", "wing-B-1", "wing-C-4", "balcony-B-2", "balcony-B-3")
    assert best(house, 2) == ["balcony-B-2", "balcony-B-3"]
    # Now no two seats are side by side: both are in one section, the first that has two.
    assert best(house, 2) == ["hall-A-1", "hall-A-3"]
    assert_audit_clean()


def test_a_party_may_sit_side_by_side_in_two_categories() -> None:
    """Half of a row is Gold."""
    event = make_event(rows=1, seats_per_row=4, halls=("Hall", "Wing"), tiers={"Gold": 9_000}, tier_of={"wing": "Gold"})
    tiers.move_seats(event, Selection(seats=("hall-A-1", "hall-A-2")), "Gold", **BY)
    hold(event, seats=["wing-A-2", "hall-A-1", "hall-A-4"])
    assert best(event, 2) == ["wing-A-3", "wing-A-4"]
    assert best(event, 2) == ["hall-A-2", "hall-A-3"]


def test_a_party_that_fits_in_no_section_learns_how_many_do(house: events.EventView) -> None:
    take_all_but(house, "hall-A-1", "hall-B-1", "wing-A-1", "wing-C-6", "wing-B-3")
    problem = refusal(house, best_available={"quantity": 4})
    assert (problem.type, problem.extra["available"]) == ("not-enough-left", 3)
    assert len(best(house, 3)) == 3
    problem = refusal(house, best_available={"quantity": 1, "price_max_minor": 2_000})
    assert problem.type == "sold-out"


def test_a_wheelchair_user_and_a_companion_sit_anywhere_together() -> None:
    event = make_event(halls=("Hall", "Wing"), accessible=frozenset({"wing-C-5"}))
    assert best(event, 2, accessible=True, companions=1) == ["wing-C-5", "wing-C-6"]
    assert refusal(event, best_available={"quantity": 1, "accessible": True}).type == "sold-out"


def test_a_change_of_seats_may_include_the_own_ones(house: events.EventView) -> None:
    entry = join(house)
    held = hold(house, entry, seats=["hall-A-1", "hall-A-2"])
    hold(house, seats=["hall-A-4", "wing-A-2", "wing-A-5"])
    again = hold(house, entry, best_available={"quantity": 3, "price_max_minor": 9_000}, replace=str(held.id))
    assert sorted(seat.seat_id for seat in again.seats) == ["hall-A-1", "hall-A-2", "hall-A-3"]
    assert_audit_clean()


def test_sections_behind_a_code_are_chosen_only_with_the_code() -> None:
    event = make_event(halls=("Hall", "Wing"), tiers={"Gold": 9_000}, tier_of={"hall": "Gold"}, needs_access=("hall",))
    assert best(event, 2)[0].startswith("wing")
    make_access_code(event, "hall", uses_max=1)
    fan = hold(event, best_available={"quantity": 2}, access_code="FANCLUB")
    assert fan.has_access_code
    assert {seat.section for seat in fan.seats} == {"hall"}
    # The code is used up: the other sections are still open.
    other = hold(event, best_available={"quantity": 2}, access_code="FANCLUB")
    assert not other.has_access_code
    assert {seat.section for seat in other.seats} == {"wing"}
    only_gold = {"quantity": 2, "category": "Gold"}
    assert refusal(event, best_available=only_gold).type == "access-code-required"
    assert refusal(event, best_available=only_gold, access_code="FANCLUB").type == "access-code-used-up"
    assert refusal(event, best_available=only_gold, access_code="NONSENSE").type == "access-code-wrong"
    assert_audit_clean()


def test_a_price_raised_meanwhile_is_not_paid(house: events.EventView) -> None:
    """H: the best two up to 50.00; has chosen hall-B-3 and hall-B-4, not yet locked
    S: raises Standard to 60.00; COMMIT
    H: reads the new price under its locks: try again
    """
    request = make_hold_request(house, best_available={"quantity": 2, "price_max_minor": 5_000})
    with rival_at("lock_seats_skipping", "before", lambda: tiers.reprice(house, "Standard", 6_000, **BY)):
        outcome = submit_hold(request)
    assert isinstance(outcome, reservations.Refused)
    assert outcome.problem.type == "busy"
    assert {seat[:7] for seat in best(house, 2, price_max_minor=5_000)} == {"balcony"}


def test_the_gate_refuses_only_when_every_section_is_sold_out() -> None:
    event = make_event(rows=1, seats_per_row=2, halls=("Hall", "Wing"))
    hold(event, seats=["hall-A-1", "hall-A-2"])
    open_gate(event)
    anywhere = {"best_available": {"quantity": 1}}
    let_through = count_answers("left")
    reservations.hold_one(event, join(event), anywhere, "one")
    assert count_answers("left") == let_through + 1
    hold(event, seats=["wing-A-1" if "wing-A-2" in reservations_of(event) else "wing-A-2"])
    open_gate(event)
    refused = count_answers("refused")
    with pytest.raises(reservations.SoldOut):
        reservations.hold_one(event, join(event), anywhere, "two")
    assert count_answers("refused") == refused + 1


def reservations_of(event: events.EventView) -> set[str]:
    taken = reservations.seat_statuses(event_id=event.id)
    return {seat.guid for seat in events.seats_by_id(taken).values()}
