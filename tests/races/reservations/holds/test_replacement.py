"""A live hold replaced by another selection: both changes or neither, and no later deadline."""

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.reservations import facade as reservations
from apps.reservations.holds import transaction
from apps.reservations.holds.outcomes import Contended
from apps.reservations.holds.statements import LockWait
from apps.reservations.models import Reservation, ReservationTransition
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, join, make_event, make_hold_request
from tests.support.races import (
    in_another_connection,
    rival_at,
    rival_connection,
    rival_waiting_at,
    statements,
    storm,
    values,
)
from tests.support.reservations.buyers import (
    begin_payment,
    cancel,
    confirm,
    get_general_admission,
    hold_with_retries,
    is_held,
    problem_of,
    run_sql,
    seat,
    submit_hold,
)

pytestmark = pytest.mark.django_db(transaction=True)

lock_seats_waiting = sql.load("apps.reservations", "lock_seats_waiting")


def replace(event: Any, entry: Any, old: Any, **payload: Any) -> reservations.HoldOutcome:
    return submit_hold(make_hold_request(event, entry, replace=str(old.id), **payload))


def state(reservation: Any) -> tuple[str, list[str], int]:
    """Return its status, its seats and its number of general admission tickets."""
    view = reservations.get_reservation(reservation.id)
    holding = view.is_live and Reservation.objects.get(pk=view.id).lines.filter(live=True).exists()
    count = sum(one.quantity for one in view.general_admission) if holding else 0
    return view.status, sorted(one.seat_id for one in view.seats) if holding else [], count


def test_another_selection_replaces_the_first_and_keeps_its_deadline() -> None:
    event = make_event(general_admission=4)
    entry = join(event)
    old = hold(event, entry, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=3)
    outcome = replace(event, entry, old, seats=["hall-A-2", "hall-A-3"], ga_section="floor", ga_quantity=4)
    assert isinstance(outcome, reservations.Held), outcome
    new = reservations.get_reservation(outcome.reservation_id)
    assert new.expires_at == old.expires_at
    assert state(new) == ("pending_payment", ["hall-A-2", "hall-A-3"], 4)
    assert state(old) == ("canceled", [], 0)
    assert seat("hall-A-1").status == 0
    assert get_general_admission().taken == 4
    last = ReservationTransition.objects.filter(reservation_id=old.id).last()
    assert last is not None
    assert last.why == f"replaced by {new.id}"
    assert_audit_clean()


def test_a_retry_with_the_same_key_gets_the_same_answer() -> None:
    event = make_event()
    entry = join(event)
    old = hold(event, entry, seats=["hall-A-1"])
    request = make_hold_request(event, entry, key="once", seats=["hall-A-2"], replace=str(old.id))
    first = submit_hold(request)
    assert is_held(first)
    assert submit_hold(make_hold_request(event, entry, key="once", seats=["hall-A-2"], replace=str(old.id))) == first
    assert problem_of(replace(event, entry, old, seats=["hall-A-3"])).type == "reservation-expired"
    assert_audit_clean()


@pytest.mark.parametrize(
    ("payload", "type_"),
    [
        ({"seats": ["hall-A-1", "hall-B-1"]}, "seats-unavailable"),
        ({"ga_section": "floor", "ga_quantity": 4}, "not-enough-left"),
        ({"best_available": {"section": "hall", "quantity": 8}}, "not-enough-left"),
    ],
)
def test_a_refused_replacement_keeps_the_old_selection(payload: dict[str, Any], type_: str) -> None:
    event = make_event(rows=2, seats_per_row=4, general_admission=3)
    hold(event, seats=["hall-B-1"])
    entry = join(event)
    old = hold(event, entry, seats=["hall-A-1"])
    assert problem_of(replace(event, entry, old, **payload)).type == type_
    assert state(old) == ("pending_payment", ["hall-A-1"], 0)
    assert_audit_clean()


def test_control_releasing_first_and_then_holding_can_lose_both() -> None:
    """The naive way: two requests.

    A: releases seat 1
    B: holds seats 1 and 2; COMMIT
    A: wants seat 2: taken, and so is seat 1
    """
    event = make_event()
    entry = join(event)
    old = hold(event, entry, seats=["hall-A-1"])
    reservations.release(old.id, who="test")
    in_another_connection(lambda: hold(event, seats=["hall-A-1", "hall-A-2"]))
    assert problem_of(submit_hold(make_hold_request(event, entry, seats=["hall-A-2"]))).type == "seats-unavailable"
    assert reservations.live_reservation_of(entry.id) is None
    assert_audit_clean()


def test_the_best_available_may_include_released_seats() -> None:
    event = make_event(rows=1, seats_per_row=4)
    hold(event, seats=["hall-A-1"])
    entry = join(event)
    old = hold(event, entry, seats=["hall-A-3"])
    outcome = replace(event, entry, old, best_available={"section": "hall", "quantity": 3})
    assert isinstance(outcome, reservations.Held), outcome
    new = reservations.get_reservation(outcome.reservation_id)
    assert state(new)[1] == ["hall-A-2", "hall-A-3", "hall-A-4"]
    assert_audit_clean()


def test_a_cap_does_not_count_the_replaced_hold() -> None:
    event = make_event(general_admission=10, per_buyer_max=4)
    entry = join(event)
    old = hold(event, entry, ga_section="floor", ga_quantity=3)
    assert problem_of(replace(event, entry, old, ga_section="floor", ga_quantity=5)).type == "purchase-cap"
    assert is_held(replace(event, entry, old, ga_section="floor", ga_quantity=4))
    assert_audit_clean()


def test_only_the_buyer_s_own_live_unpaid_reservation_can_be_replaced() -> None:
    event = make_event()
    entry = join(event)
    unknown = make_hold_request(event, entry, seats=["hall-A-1"], replace=str(uuid.uuid4()))
    assert problem_of(submit_hold(unknown)).type == "not-found"
    others = hold(event, seats=["hall-B-1"])
    assert problem_of(replace(event, entry, others, seats=["hall-A-1"])).type == "not-owner"
    old = hold(event, entry, seats=["hall-A-1"])
    assert problem_of(replace(event, entry, others, seats=["hall-A-2"])).type == "not-owner"
    begin_payment(old.id)
    assert problem_of(replace(event, entry, old, seats=["hall-A-2"])).type == "payment-in-progress"
    confirm(old.id, clock.now())
    assert problem_of(replace(event, entry, old, seats=["hall-A-2"])).type == "payment-in-progress"
    assert_audit_clean(without_money=True)


def test_a_lapsed_hold_is_not_replaced_and_thus_not_extended() -> None:
    event = make_event()
    entry = join(event)
    old = hold(event, entry, seats=["hall-A-1"])
    backdate_deadline(old.id)
    assert problem_of(replace(event, entry, old, seats=["hall-A-2"])).type == "reservation-expired"
    assert is_held(hold_with_retries(make_hold_request(event, entry, seats=["hall-A-2"])))
    assert_audit_clean()


def test_two_buyers_who_swap_their_holds_in_one_batch_both_keep_their_own() -> None:
    """The first requests what the second still holds at that moment: neither replacement is done in part."""
    event = make_event()
    one, two = join(event), join(event)
    first, second = hold(event, one, seats=["hall-A-1"]), hold(event, two, seats=["hall-A-2"])
    outcomes = reservations.hold(
        [
            make_hold_request(event, one, seats=["hall-A-2"], replace=str(first.id)),
            make_hold_request(event, two, seats=["hall-A-1"], replace=str(second.id)),
        ]
    )
    assert [problem_of(outcome).type for outcome in outcomes] == ["seats-unavailable"] * 2
    assert state(first)[1] + state(second)[1] == ["hall-A-1", "hall-A-2"]
    assert_audit_clean()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "left"),
    [(cancel, "canceled"), (begin_payment, "paying")],
)
def test_a_rival_that_ends_or_pays_the_reservation_first_wins(end: Callable[[Any], Any], left: str) -> None:
    """R: replaces; has locked nothing yet
    E: ends or pays the same reservation; COMMIT
    R: reads the new status under its lock: refused
    """
    event = make_event()
    entry = join(event)
    old = hold(event, entry, seats=["hall-A-1"])
    with rival_at("lock_replaced_skipping", "before", lambda: end(old.id)):
        outcome = replace(event, entry, old, seats=["hall-A-2"])
    assert problem_of(outcome).type in ("reservation-expired", "payment-in-progress")
    assert state(old)[0] == left
    assert seat("hall-A-2").status == 0
    assert_audit_clean(without_money=True)


def test_a_payment_waits_for_a_running_replacement_and_then_finds_the_reservation_ended(long_lock_wait: None) -> None:
    """R: replaces; has the reservation locked
    P: wants to pay for it; waits
    R: COMMIT
    P: has the lock, reads canceled: the reservation has expired
    """
    event = make_event()
    entry = join(event)
    old = hold(event, entry, seats=["hall-A-1"])
    with rival_waiting_at("take_seats", "before", lambda: begin_payment(old.id)) as rival:
        assert is_held(replace(event, entry, old, seats=["hall-A-2"]))
    with pytest.raises(reservations.ReservationExpired):
        rival.result()
    assert_audit_clean()


def test_concurrent_replacements_lose_no_reservation() -> None:
    """Eight buyers replace what they hold by each other's seats, again and again, in two tabs each."""
    event = make_event(rows=2, seats_per_row=8, general_admission=16)
    entries = [join(event) for _ in range(8)]
    mine = [hold(event, entry, seats=[f"hall-A-{number + 1}"]) for number, entry in enumerate(entries)]

    def change(number: int) -> None:
        entry = entries[number % 8]
        for turn in range(4):
            held = reservations.live_reservation_of(entry.id) or mine[number % 8]
            row, number_in_row = "AB"[(number + turn) % 2], (number + turn) % 8 + 1
            hold_with_retries(
                make_hold_request(
                    event,
                    entry,
                    seats=[f"hall-{row}-{number_in_row}"],
                    ga_section="floor",
                    ga_quantity=2,
                    replace=str(held.id),
                )
            )

    values(storm(16, change))
    live = Reservation.objects.filter(status="pending_payment")
    assert sorted(live.values_list("entry_id", flat=True)) == sorted(entry.id for entry in entries)
    assert {row.expires_at for row in live} <= {one.expires_at for one in mine}
    assert_audit_clean()


def test_seats_released_by_a_replacement_are_free_for_the_next_request_of_the_batch() -> None:
    event = make_event()
    one = join(event)
    old = hold(event, one, seats=["hall-A-1"])
    outcomes = reservations.hold(
        [
            make_hold_request(event, one, seats=["hall-A-2"], replace=str(old.id)),
            make_hold_request(event, seats=["hall-A-1"]),
        ]
    )
    assert all(is_held(outcome) for outcome in outcomes), outcomes
    assert_audit_clean()


def test_a_replacement_never_waits_for_its_own_seat_after_the_other_locks(long_lock_wait: None) -> None:
    """K: keeps the old seat locked
    R: replaces it by general admission; skips the locked seat, and tries again without having waited for the hot row
    """
    event = make_event(general_admission=5)
    entry = join(event)
    old = hold(event, entry, seats=["hall-A-1"])
    request = make_hold_request(event, entry, ga_section="floor", ga_quantity=1, replace=str(old.id))
    with rival_connection() as keeper, statements() as names:
        run_sql("BEGIN", using=keeper)
        run_sql(lock_seats_waiting.text, {"seat_ids": [seat("hall-A-1").pk]}, using=keeper)
        (verdict,) = transaction.decide_once(
            [request], wait=LockWait.GENERAL_ADMISSION_ONLY, write=transactions.write_on_django
        )
    assert isinstance(verdict, Contended)
    assert "end_reservations" not in names
    assert is_held(submit_hold(request))
    assert_audit_clean()
