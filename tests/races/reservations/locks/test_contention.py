"""A request blocked by a lock is not refused (rules 6 and 13): only a sold or held seat is."""

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


def test_control_skipping_locked_rows_refuses_a_seat_that_stays_free() -> None:
    """Rule 6, the naive way: SKIP LOCKED, and treat a row it did not return as taken.

    P: wants seat 1 and more tickets than are left; has seat 1 locked
    Q: wants seat 1; SKIP LOCKED does not return it: refused
    P: refused for lack of tickets; COMMIT
    Seat 1 is free, and both were refused.
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


def test_a_request_for_a_seat_that_is_only_locked_is_decided_again_and_wins(long_lock_wait: None) -> None:
    """P: wants seat 1 and more tickets than are left; has seat 1 locked
    Q: wants seat 1; skips it; decides again, and waits for it
    P: refused for lack of tickets; COMMIT
    Q: has seat 1 locked, reads it as free: held
    """
    event = make_event(general_admission=1)
    first = make_hold_request(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    second = make_hold_request(event, seats=["hall-A-1"])
    with rival_waiting_at("lock_general_admission", "before", lambda: submit_hold(second)) as rival:
        assert problem_of(submit_hold(first)).type == "not-enough-left"
    assert is_held(rival.result())
    assert_audit_clean()


def test_a_seat_that_its_locker_takes_is_refused_as_held(long_lock_wait: None) -> None:
    """P: wants seat 1; has it locked
    Q: wants seats 1 and 2; skips 1, decides again, and waits for it
    P: takes seat 1; COMMIT
    Q: has seat 1 locked, reads it as held: refused, by name; seat 2 is not taken
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


def test_in_many_rounds_no_free_seat_is_refused() -> None:
    """Each round: P wants a seat and more tickets than exist, Q the seat alone, at the same moment. P must lose and Q
    must win, every time."""
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


def test_control_locking_every_free_seat_makes_the_hall_look_sold_out() -> None:
    """Rule 13, the naive way: lock the free seats of the section, then choose among them.

    P: SELECT … status = 0 … SKIP LOCKED     locks all fifty, wants two
    Q: the same     sees none, and answers sold out
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
    Q: wants the best two; chooses the same from what it reads, skips them, and chooses others at once
    P: takes its two; COMMIT
    """
    event = make_event()
    first, second = (make_hold_request(event, best_available={"section": "hall", "quantity": 2}) for _ in range(2))
    rival_outcomes: list[reservations.HoldOutcome] = []
    with run_at(
        "take_seats", "before", lambda: rival_outcomes.append(in_another_connection(lambda: submit_hold(second)))
    ):
        assert is_held(submit_hold(first))
    assert is_held(rival_outcomes[0])
    assert_audit_clean()


def test_best_available_waits_if_only_locked_seats_would_fit(long_lock_wait: None) -> None:
    """P: wants the last two seats and more tickets than exist; has the seats locked
    Q: wants the best two: nothing else is free; waits for them
    P: refused; COMMIT
    Q: holds both
    """
    event = make_event(rows=1, seats_per_row=2, general_admission=1)
    first = make_hold_request(event, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=2)
    second = make_hold_request(event, best_available={"section": "hall", "quantity": 2})
    with rival_waiting_at("lock_general_admission", "before", lambda: submit_hold(second)) as rival:
        assert problem_of(submit_hold(first)).type == "not-enough-left"
    assert is_held(rival.result())
    assert_audit_clean()


def test_best_available_whose_choice_is_taken_while_it_waits_chooses_again(
    long_lock_wait: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P: takes the best two of four; not yet committed
    Q: wants the best two, and must wait for the same seats: reads them as held, and chooses the other two
    """
    # Q makes no random choice further down the list.
    monkeypatch.setattr("secrets.randbelow", lambda limit: 0)
    event = make_event(rows=1, seats_per_row=4)
    first, second = (make_hold_request(event, best_available={"section": "hall", "quantity": 2}) for _ in range(2))

    def wait() -> tuple[list[outcomes.Verdict], list[str]]:
        with statements() as names:
            verdicts = hold_transaction.decide_once([second], wait=LockWait.WAITING, write=transactions.write_on_django)
        return verdicts, names

    with rival_waiting_at("take_seats", "before", wait) as rival:
        assert is_held(submit_hold(first))
    (verdict,), names = rival.result()
    assert isinstance(verdict, reservations.Held)
    assert [name for name in names if name.startswith("lock_seats")] == ["lock_seats_waiting", "lock_seats_skipping"]
    assert_audit_clean()


@pytest.mark.slow
def test_sixty_four_concurrent_requests_for_the_best_seats_fill_the_hall() -> None:
    """128 seats, 64 concurrent buyers of two each: every buyer wins, and the hall is full."""
    event = make_event(rows=8, seats_per_row=16)
    requests = [make_hold_request(event, best_available={"section": "hall", "quantity": 2}) for _ in range(64)]
    outcomes = values(storm(64, lambda number: hold_with_retries(requests[number])))
    assert outcome_types(outcomes) == ["held"] * 64
    assert run_sql("SELECT status, count(*) FROM reservations_seatinventory GROUP BY status") == [(1, 128)]
    assert (
        problem_of(submit_hold(make_hold_request(event, best_available={"section": "hall", "quantity": 1}))).type
        == "sold-out"
    )
    assert_audit_clean()


@pytest.mark.slow
def test_sixty_four_requests_for_the_best_seats_of_a_large_hall_need_no_retry() -> None:
    """600 seats, 64 concurrent buyers of two each: all read the same best seats, and each is answered at its first
    attempt, because a request that loses its choice to a rival's lock chooses at random further down."""
    event = make_event(rows=15, seats_per_row=40)
    requests = [make_hold_request(event, best_available={"section": "hall", "quantity": 2}) for _ in range(64)]
    outcomes = values(storm(64, lambda number: submit_hold(requests[number])))
    assert outcome_types(outcomes) == ["held"] * 64
    for outcome in outcomes:
        assert isinstance(outcome, reservations.Held)
        one, other = reservations.get_reservation(outcome.reservation_id).seats
        assert one.row == other.row
        assert abs(int(one.number) - int(other.number)) == 1
    assert_audit_clean()
