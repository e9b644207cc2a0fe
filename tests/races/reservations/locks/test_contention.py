"""A lock in the way is not a refusal (rules 6 and 13): only sold or held is."""

import threading

import pytest
from django.db import transaction

from apps.kernel.db import sql, transactions
from apps.reservations import facade as reservations
from apps.reservations.holds import outcomes
from apps.reservations.holds import transaction as hold_transaction
from apps.reservations.holds.statements import LockWait
from tests.support.factories import assert_audit_clean, make_event, make_hold_request
from tests.support.races import (
    in_another_connection,
    rival_connection,
    rival_waiting_at,
    run_at,
    statements,
    storm,
    values,
)
from tests.support.reservations.buyers import (
    hold_with_retries,
    is_held,
    outcome_types,
    problem_of,
    run_sql,
    seat,
    submit_hold,
)

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 40

lock_seats_skipping = sql.load("apps.reservations", "lock_seats_skipping")


def test_control_passing_over_locked_rows_alone_refuses_a_seat_that_nobody_takes() -> None:
    """Rule 6, the naive way: SKIP LOCKED, and what it did not find is gone.

    P: wants seat 1 and more places than are left; has seat 1 locked
    Q: wants seat 1; SKIP LOCKED does not show it: refused
    P: loses for want of places; COMMIT
    Seat 1 is free, and both were sent away.
    """
    event = make_event(general_admission=1)
    first = make_hold_request(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    second = make_hold_request(event, seats=["hall-A-1"])
    naive: list[object] = []

    def skip() -> list[tuple[object, ...]]:
        with transaction.atomic():
            return run_sql(lock_seats_skipping.text, {"seat_ids": list(second.seats)})

    with run_at("lock_general_admission", "before", lambda: naive.append(in_another_connection(skip))):
        assert problem_of(submit_hold(first)).type == "not-enough-left"
    assert naive == [[]]
    assert seat("hall-A-1").status == 0
    assert_audit_clean()


def test_a_seat_that_only_a_lock_hides_is_decided_again_and_won(patient: None) -> None:
    """P: wants seat 1 and more places than are left; has seat 1 locked
    Q: wants seat 1; passes it over; decides again, and waits for it
    P: loses for want of places; COMMIT
    Q: has seat 1, free under the lock: held
    """
    event = make_event(general_admission=1)
    first = make_hold_request(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    second = make_hold_request(event, seats=["hall-A-1"])
    with rival_waiting_at("lock_general_admission", "before", lambda: submit_hold(second)) as rival:
        assert problem_of(submit_hold(first)).type == "not-enough-left"
    assert is_held(rival.result())
    assert_audit_clean()


def test_a_seat_whose_locker_takes_it_is_refused_as_held(patient: None) -> None:
    """P: wants seat 1; has it locked
    Q: wants seats 1 and 2; passes 1 over, decides again, and waits for it
    P: takes seat 1; COMMIT
    Q: has seat 1, held under the lock: refused, by name; seat 2 is not taken
    """
    event = make_event()
    first, second = (
        make_hold_request(event, seats=["hall-A-1"]),
        make_hold_request(event, seats=["hall-A-2", "hall-A-1"]),
    )
    with rival_waiting_at("take_seats", "before", lambda: submit_hold(second)) as rival:
        assert is_held(submit_hold(first))
    problem = problem_of(rival.result())
    assert problem.type == "seats-unavailable"
    assert problem.extra == {"unavailable": ["hall-A-1"]}
    assert seat("hall-A-2").status == 0
    assert_audit_clean()


def test_in_many_rounds_no_seat_is_refused_that_nobody_took() -> None:
    """Each round: P wants a seat and places that are not there, Q the seat alone, at the same moment. P must lose and
    Q must win, every time."""
    event = make_event(rows=5, seats_per_row=ROUNDS // 5, general_admission=1)
    seats = [f"hall-{row}-{number}" for row in "ABCDE" for number in range(1, ROUNDS // 5 + 1)]
    losers = [make_hold_request(event, seats=[guid], ga_section="floor", ga_quantity=2) for guid in seats]
    winners = [make_hold_request(event, seats=[guid]) for guid in seats]
    together = threading.Barrier(2)

    def play(number: int) -> list[reservations.HoldOutcome]:
        outcomes = []
        for loser, winner in zip(losers, winners, strict=True):
            together.wait(timeout=30)
            outcomes.append(hold_with_retries(loser if number == 0 else winner))
        return outcomes

    lost, won = values(storm(2, play))
    assert set(outcome_types(lost)) <= {"not-enough-left", "seats-unavailable"}
    assert outcome_types(won) == ["held"] * ROUNDS
    assert_audit_clean()


def test_control_locking_every_free_seat_shows_the_rival_an_empty_hall() -> None:
    """Rule 13, the naive way: lock the free seats of the section, then choose among them.

    P: SELECT … status = 0 … SKIP LOCKED     has all fifty, wants two
    Q: the same     sees none, and says sold out
    """
    make_event()
    greedy = (
        "SELECT seat_id FROM reservations_seatinventory WHERE status = 0 ORDER BY seat_id FOR NO KEY UPDATE SKIP LOCKED"
    )
    with transaction.atomic(), rival_connection() as rival:
        assert len(run_sql(greedy)) == 50
        assert run_sql(greedy, using=rival) == []


def test_best_available_chooses_around_seats_that_a_rival_has_locked() -> None:
    """P: wants the best two; has them locked
    Q: wants the best two; chooses the same from what it reads, passes them over, and chooses others at once
    P: takes its two; COMMIT
    """
    event = make_event()
    first, second = (make_hold_request(event, best_available={"section": "hall", "quantity": 2}) for _ in range(2))
    came: list[reservations.HoldOutcome] = []
    with run_at("take_seats", "before", lambda: came.append(in_another_connection(lambda: submit_hold(second)))):
        assert is_held(submit_hold(first))
    assert is_held(came[0])
    assert_audit_clean()


def test_best_available_waits_where_only_locked_seats_would_fit(patient: None) -> None:
    """P: wants the last two seats and places that are not there; has the seats locked
    Q: wants the best two: nothing else is free; waits for them
    P: loses; COMMIT
    Q: has both
    """
    event = make_event(rows=1, seats_per_row=2, general_admission=1)
    first = make_hold_request(event, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=2)
    second = make_hold_request(event, best_available={"section": "hall", "quantity": 2})
    with rival_waiting_at("lock_general_admission", "before", lambda: submit_hold(second)) as rival:
        assert problem_of(submit_hold(first)).type == "not-enough-left"
    assert is_held(rival.result())
    assert_audit_clean()


def test_best_available_whose_choice_is_taken_while_it_waits_chooses_again(
    patient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P: takes the best two of four; not yet committed
    Q: wants the best two, and is made to wait for the very same: it finds them held, and chooses the other two
    """
    # As if chance never sent Q further down.
    monkeypatch.setattr("secrets.randbelow", lambda limit: 0)
    event = make_event(rows=1, seats_per_row=4)
    first, second = (make_hold_request(event, best_available={"section": "hall", "quantity": 2}) for _ in range(2))

    def wait() -> tuple[list[outcomes.Verdict], list[str]]:
        with statements() as names:
            verdicts = hold_transaction.decide_once(
                [second], patience=LockWait.WAITING, write=transactions.write_on_django
            )
        return verdicts, names

    with rival_waiting_at("take_seats", "before", wait) as rival:
        assert is_held(submit_hold(first))
    (verdict,), names = rival.result()
    assert isinstance(verdict, reservations.Held)
    assert [name for name in names if name.startswith("lock_seats")] == ["lock_seats_waiting", "lock_seats_skipping"]
    assert_audit_clean()


@pytest.mark.slow
def test_sixty_four_buyers_of_the_best_seats_are_all_served_while_seats_that_fit_are_free() -> None:
    """128 seats, 64 buyers of two each, at the same moment: everybody wins, and the hall is full."""
    event = make_event(rows=8, seats_per_row=16)
    wishes = [make_hold_request(event, best_available={"section": "hall", "quantity": 2}) for _ in range(64)]
    outcomes = values(storm(64, lambda number: hold_with_retries(wishes[number])))
    assert outcome_types(outcomes) == ["held"] * 64
    assert run_sql("SELECT status, count(*) FROM reservations_seatinventory GROUP BY status") == [(1, 128)]
    assert (
        problem_of(submit_hold(make_hold_request(event, best_available={"section": "hall", "quantity": 1}))).type
        == "sold-out"
    )
    assert_audit_clean()


@pytest.mark.slow
def test_sixty_four_buyers_of_the_best_seats_need_not_ask_twice_in_a_hall_with_room_for_all() -> None:
    """600 seats, 64 buyers of two each, at the same moment: all read the same best seats; each is answered at its first
    asking, because who loses a choice to a rival's lock looks further down than the others do."""
    event = make_event(rows=15, seats_per_row=40)
    wishes = [make_hold_request(event, best_available={"section": "hall", "quantity": 2}) for _ in range(64)]
    outcomes = values(storm(64, lambda number: submit_hold(wishes[number])))
    assert outcome_types(outcomes) == ["held"] * 64
    for outcome in outcomes:
        assert isinstance(outcome, reservations.Held)
        one, other = reservations.get_reservation(outcome.reservation_id).seats
        assert one.row == other.row
        assert abs(int(one.number) - int(other.number)) == 1
    assert_audit_clean()
