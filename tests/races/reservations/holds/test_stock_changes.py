"""Staff change the stock while buyers hold it: exactly one of the two wins, and nothing is lost."""

import json
from typing import Any

import pytest

from apps.events import facade as events
from apps.events.models import Section
from apps.kernel.http import problems
from apps.reservations import facade as reservations
from apps.reservations.models import InventoryChange, ReservationLine
from apps.reservations.staff import stock, tiers
from apps.reservations.staff.selection import Selection
from tests.races.reservations.conftest import PATIENT_MS
from tests.support.factories import (
    SEAT_PRICE_MINOR,
    assert_audit_clean,
    audit_breaches,
    backdate_deadline,
    hold,
    make_event,
    make_hold_request,
)
from tests.support.races import in_another_connection, rival_at, rival_waiting_at, statements, storm, values
from tests.support.reservations.buyers import (
    get_general_admission,
    is_held,
    is_retryable,
    problem_of,
    run_sql,
    seat,
    submit_hold,
)

pytestmark = pytest.mark.django_db(transaction=True)

BY: dict[str, Any] = {"who": "ann", "why": ""}
ROW_A = Selection(section="hall", rows=("A",))


@pytest.fixture(autouse=True)
def _patient_staff(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let staff's changes wait for locks longer than the test takes, even on a slow machine."""
    monkeypatch.setattr(stock, "LOCK_WAIT_MS", PATIENT_MS)


def test_control_a_seat_read_as_free_and_then_blocked_is_taken_from_its_buyer() -> None:
    """The naive way: read, then write.

    S: reads seat 1 as free
    H: holds seat 1; COMMIT
    S: writes it as blocked. The buyer's line has no seat any more; the auditor names it.
    """
    event = make_event()
    assert seat("hall-A-1").status == 0
    in_another_connection(lambda: hold(event, seats=["hall-A-1"]))
    run_sql(
        "UPDATE reservations_seatinventory SET status = 3, blocked_for = 'house', reservation_id = NULL"
        " WHERE seat_id = %s",
        [seat("hall-A-1").pk],
    )
    assert [breach[:2] for breach in audit_breaches()] == ["I1", "I2"]


def test_control_a_section_saved_as_it_was_read_loses_holds_taken_meanwhile() -> None:
    """The naive way: read the row, change its capacity, save it.

    S: reads 20 tickets, none taken
    H: holds 5; COMMIT
    S: saves 30 tickets, none taken: five would be sold twice. The auditor names the section.
    """
    event = make_event(rows=0, general_admission=20)
    row = get_general_admission()
    in_another_connection(lambda: hold(event, ga_section="floor", ga_quantity=5))
    row.capacity = 30
    row.save()
    assert any(breach.startswith("I3") and "taken 0 against 5" in breach for breach in audit_breaches())


def test_a_seat_that_is_being_held_is_not_blocked() -> None:
    """H: wants seat 1; has it locked
    S: blocks row A; waits for seat 1
    H: takes seat 1; COMMIT
    S: reads it as held: refused by name, and the rest of the row stays on sale
    """
    event = make_event()
    request = make_hold_request(event, seats=["hall-A-1"])
    with rival_waiting_at("take_seats", "before", lambda: stock.block_seats(event, ROW_A, "house", **BY)) as rival:
        assert is_held(submit_hold(request))
    with pytest.raises(reservations.SeatsUnavailable) as refused:
        rival.result()
    assert refused.value.extra == {"unavailable": ["hall-A-1"]}
    assert seat("hall-A-2").status == 0
    assert not InventoryChange.objects.exists()
    assert_audit_clean()


def test_a_seat_that_is_being_blocked_is_not_held(long_lock_wait: None) -> None:
    """S: blocks row A; has it locked
    H: wants seat 1; skips it, decides again, and waits for it
    S: COMMIT
    H: reads it as blocked: refused by name
    """
    event = make_event()
    request = make_hold_request(event, seats=["hall-B-1", "hall-A-1"])
    with rival_waiting_at("block_seats", "before", lambda: submit_hold(request)) as rival:
        assert stock.block_seats(event, ROW_A, "house", **BY) == 10
    problem = problem_of(rival.result())
    assert (problem.type, problem.extra) == ("seats-unavailable", {"unavailable": ["hall-A-1"]})
    assert seat("hall-B-1").status == 0
    assert_audit_clean()


def test_holds_elsewhere_do_not_wait_for_a_row_that_is_being_blocked() -> None:
    event = make_event(general_admission=5)
    request = make_hold_request(event, seats=["hall-B-1"], ga_section="floor", ga_quantity=2)
    best = make_hold_request(event, best_available={"section": "hall", "quantity": 3})
    with rival_at("insert_inventory_changes", "after", lambda: (submit_hold(request), submit_hold(best))) as rival:
        stock.block_seats(event, ROW_A, "house", **BY)
    assert [is_held(outcome) for outcome in rival.result] == [True, True]
    assert_audit_clean()


def test_a_section_that_is_being_held_does_not_shrink_below_it() -> None:
    """H: wants 5 of 20 tickets; has the row locked
    S: shrinks the section to 4; waits for the row
    H: COMMIT
    S: reads 5 taken: refused with the least possible capacity; the published capacity stays unchanged too
    """
    event = make_event(rows=0, general_admission=20)
    request = make_hold_request(event, ga_section="floor", ga_quantity=5)
    with rival_waiting_at("take_general_admission", "before", lambda: stock.resize(event, "floor", 4, **BY)) as rival:
        assert is_held(submit_hold(request))
    with pytest.raises(stock.CapacityInUse) as refused:
        rival.result()
    assert refused.value.extra == {"least": 5}
    assert Section.objects.get().capacity == get_general_admission().capacity == 20
    assert_audit_clean()


def test_staff_are_not_refused_for_holds_that_a_concurrent_sweep_has_just_ended() -> None:
    """S: shrinks the section to 4; 5 tickets are held, past their deadline: refused, for now
    N: sweeps them; COMMIT
    S: sweeps: nothing is left to end. It tries again nevertheless: the section shrinks.
    """
    event = make_event(rows=0, general_admission=20)
    backdate_deadline(hold(event, ga_section="floor", ga_quantity=5).id)
    with rival_at("lock_lapsed_of_event", "before", reservations.sweep) as rival:
        assert stock.resize(event, "floor", 4, **BY).capacity == 4
    assert rival.result.tickets == 5
    assert_audit_clean()


def test_a_shrinking_section_does_not_sell_removed_tickets(long_lock_wait: None) -> None:
    """S: shrinks 20 tickets to 4; has the row locked
    H: wants 5; waits for the row
    S: COMMIT
    H: reads 4 left: refused
    """
    event = make_event(rows=0, general_admission=20)
    request = make_hold_request(event, ga_section="floor", ga_quantity=5)
    with rival_waiting_at("set_stock_general_admission", "before", lambda: submit_hold(request)) as rival:
        stock.resize(event, "floor", 4, **BY)
    problem = problem_of(rival.result())
    assert (problem.type, problem.extra) == ("not-enough-left", {"available": 4})
    assert_audit_clean()


def test_unblocked_tickets_are_held_by_the_request_that_waited_for_them(long_lock_wait: None) -> None:
    """S: unblocks the tickets; has the row locked
    H: wants 5; waits for the row
    S: COMMIT
    H: reads them as free: held
    """
    event = make_event(rows=0, general_admission=5)
    stock.block_general_admission(event, "floor", 5, "house", **BY)
    request = make_hold_request(event, ga_section="floor", ga_quantity=5)
    with rival_waiting_at("set_stock_general_admission", "before", lambda: submit_hold(request)) as rival:
        stock.unblock_general_admission(event, "floor", 5, "house", **BY)
    assert is_held(rival.result())
    assert_audit_clean()


def test_two_concurrent_resizes_run_one_after_the_other() -> None:
    """S: 20 → 25; has section and row locked
    T: → 30; waits
    S: COMMIT
    T: 25 → 30, not 20 → 30
    """
    event = make_event(rows=0, general_admission=20)
    with rival_waiting_at(
        "set_stock_general_admission", "before", lambda: stock.resize(event, "floor", 30, **BY)
    ) as rival:
        stock.resize(event, "floor", 25, **BY)
    assert rival.result().capacity == 30
    assert Section.objects.get().capacity == get_general_admission().capacity == 30
    details = [(row.detail["before"]["capacity"], row.detail["after"]["capacity"]) for row in _changes()]
    assert details == [(20, 25), (25, 30)]
    assert_audit_clean()


def test_a_price_that_changes_during_a_hold_never_shows_one_sum_and_charges_another() -> None:
    """H: wants seat 1 and two tickets; their rows are locked
    S: doubles both prices; COMMIT, without waiting
    H: COMMIT. The answer, the reservation's header and the sum of its lines show one total, at either price.
    """
    event = make_event(general_admission=5, place_price_minor=SEAT_PRICE_MINOR)
    request = make_hold_request(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)

    def reprice() -> None:
        for category in ("Standard", "Floor"):
            tiers.reprice(event, category, 2 * SEAT_PRICE_MINOR, **BY)

    with rival_at("take_seats", "before", reprice):
        outcome = submit_hold(request)
    assert isinstance(outcome, reservations.Held)
    shown = reservations.get_reservation(outcome.reservation_id)
    lines = ReservationLine.objects.filter(reservation_id=outcome.reservation_id)
    assert shown.total_minor == sum(line.price_minor * line.quantity for line in lines)
    assert json.loads(outcome.answer.body)["total_minor"] == shown.total_minor
    assert shown.total_minor in (3 * SEAT_PRICE_MINOR, 6 * SEAT_PRICE_MINOR)
    assert hold(event, seats=["hall-A-2"]).total_minor == 2 * SEAT_PRICE_MINOR
    assert_audit_clean()


def test_a_seat_that_is_being_held_does_not_move_and_one_that_moves_costs_its_new_price(long_lock_wait: None) -> None:
    """H: has seat 1 locked. S: moves it; waits; reads it as held: refused.
    S: moves seat 2; has it locked. H: waits for it; reads it as free at its new price: held at that price.
    """
    event = make_event()
    tiers.add_price(event, "Better", 9_000, **BY)
    first, second = make_hold_request(event, seats=["hall-A-1"]), make_hold_request(event, seats=["hall-A-2"])

    def move(guid: str) -> int:
        return tiers.move_seats(event, Selection(seats=(guid,)), "Better", **BY)

    with rival_waiting_at("take_seats", "before", lambda: move("hall-A-1")) as rival:
        assert is_held(submit_hold(first))
    with pytest.raises(reservations.SeatsUnavailable):
        rival.result()
    with rival_waiting_at("move_inventory", "before", lambda: submit_hold(second)) as rival:
        assert move("hall-A-2") == 1
    assert is_held(rival.result())
    assert reservations.get_reservation(second.reservation_id).total_minor == 9_000
    assert_audit_clean()


def test_the_best_available_of_a_price_has_that_price_although_seats_move_meanwhile() -> None:
    """H: the best two at the standard price; has chosen A-1 and A-2, not yet locked
    S: moves A-1 to a higher price; COMMIT
    H: reads it under the lock, and chooses again
    """
    event = make_event(rows=2, seats_per_row=2)
    tiers.add_price(event, "Better", 9_000, **BY)
    best = {"section": "hall", "quantity": 2, "category": "Standard"}
    move = Selection(seats=("hall-A-1",))
    with rival_at("lock_seats_skipping", "before", lambda: tiers.move_seats(event, move, "Better", **BY)):
        outcome = submit_hold(make_hold_request(event, best_available=best))
    assert isinstance(outcome, reservations.Held)
    assert reservations.get_reservation(outcome.reservation_id).total_minor == 10_000
    assert_audit_clean()


def test_concurrent_buyers_and_staff_leave_a_consistent_inventory() -> None:
    """Buyers hold seats and tickets while staff block, unblock, shrink and grow the same ones, all at once."""
    event = make_event(general_admission=30)
    requests = [
        make_hold_request(event, seats=[f"hall-A-{n + 1}"], ga_section="floor", ga_quantity=3) for n in range(8)
    ]

    def change_stock(number: int) -> None:
        row = Selection(section="hall", rows=("A",))
        stock.block_seats(event, row, "house" if number % 2 else "out_of_use", **BY, only_free=True)
        stock.block_general_admission(event, "floor", 4, "house", **BY)
        stock.resize(event, "floor", 25 + number, **BY)
        stock.unblock_seats(event, Selection(seats=("hall-A-1", "hall-A-2")), **BY)
        stock.unblock_general_admission(event, "floor", 2, "house", **BY)

    def act(number: int) -> str:
        if number % 3:
            outcome = submit_hold(requests[number * 2 // 3])
            return "held" if is_held(outcome) else "again" if is_retryable(outcome) else "refused"
        try:
            change_stock(number)
        except problems.Problem as problem:
            return problem.type
        return "done"

    outcomes = values(storm(12, act))
    assert set(outcomes) <= {"held", "again", "refused", "done", "not-enough-left", "capacity-in-use", "busy"}
    assert_audit_clean()
    assert Section.objects.get(slug="floor").capacity == get_general_admission().capacity
    blocked = sum(row.quantity * (1 if row.kind == "blocked" else -1) for row in _changes() if row.seat_id is None
                  and row.kind in ("blocked", "unblocked"))  # fmt: skip
    assert get_general_admission().blocked == blocked


def test_a_stock_change_that_times_out_is_refused_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """S: blocks row A; has it locked. T: blocks seat 1 for another reason; its lock times out."""
    monkeypatch.setattr(stock, "LOCK_WAIT_MS", 50)
    event = make_event()

    def rival() -> str:
        with pytest.raises(problems.Busy) as refused:
            stock.block_seats(event, Selection(seats=("hall-A-1",)), "out_of_use", **BY)
        return refused.value.detail

    with rival_at("block_seats", "after", rival) as rival_call:
        stock.block_seats(event, ROW_A, "house", **BY)
    assert rival_call.result == "These seats or tickets are being changed by others. Nothing was changed; try again."
    assert {row.detail["after"] for row in _changes()} == {"house"}


def test_stock_changes_lock_first_and_then_write() -> None:
    event = make_event(general_admission=5)
    written = ["read_clock", "insert_inventory_changes"]
    with statements() as seen:
        stock.block_seats(event, ROW_A, "house", **BY)
    assert seen == ["section_views", "lock_stock_seats", "block_seats", *written, "read_transaction"]
    with statements() as seen:
        stock.resize(event, "floor", 6, **BY)
    changed = ["lock_stock_general_admission", "set_stock_general_admission", *written, "read_transaction"]
    assert seen == ["section_views", *changed]
    tiers.add_price(event, "Better", 9_000, **BY)
    with statements() as seen:
        tiers.move_seats(event, ROW_A, "Better", **BY)
    expected = [
        "section_views",
        "lock_stock_seats",
        "move_seats",
        "unlink_categories",
        "link_categories",
        "move_inventory",
        *written,
    ]
    assert seen == expected
    assert events.list_sections(event.id)[0].prices[0].category == "Better"


def _changes() -> list[InventoryChange]:
    return list(InventoryChange.objects.order_by("id"))
