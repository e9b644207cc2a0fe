"""Best available under contention: one read per batch, choices around rivals, and no refusal while seats fit."""

from typing import Any

import pytest
from django.db import connection

from apps.kernel.db import sql
from apps.reservations import facade as reservations
from apps.reservations.holds.seat_choice import candidates
from apps.reservations.models import SeatInventory
from tests.support.factories import assert_audit_clean, hold, join, make_event, make_hold_request
from tests.support.races import in_another_connection, run_at, statements, storm, values
from tests.support.reservations.buyers import (
    hold_with_retries,
    is_held,
    is_retryable,
    outcome_types,
    problem_of,
    run_sql,
)

pytestmark = pytest.mark.django_db(transaction=True)


def best(event: Any, quantity: int, **more: Any) -> reservations.HoldRequest:
    return make_hold_request(event, best_available={"section": "hall", "quantity": quantity, **more})


def seats_of(outcome: reservations.HoldOutcome) -> list[str]:
    assert isinstance(outcome, reservations.Held), outcome
    return sorted(seat.seat_id for seat in reservations.get_reservation(outcome.reservation_id).seats)


def test_a_batch_reads_the_section_once() -> None:
    event = make_event()
    requests = [best(event, 1 + number % 4) for number in range(16)]
    with statements() as names:
        outcomes = reservations.hold(requests)
    assert outcome_types(outcomes) == ["held"] * 16
    assert names.count("free_seats") == 1
    assert names.count("lock_seats_skipping") == 1
    assert_audit_clean()


def test_free_seats_are_read_from_their_partial_index_in_its_order() -> None:
    """However much is sold: no sort, and no read of seats that are not free."""
    make_event()
    ((section_id,),) = run_sql("SELECT DISTINCT section_id FROM reservations_seatinventory")
    statement = sql.load("apps.reservations", "free_seats")
    with connection.cursor() as cursor:
        # For fifty seats the planner prefers a sequential scan, or another index because of statistics from earlier
        # tests.
        for method in ("seqscan", "bitmapscan", "sort"):
            cursor.execute(f"SET enable_{method} = off")
        cursor.execute(f"EXPLAIN {statement.text}", {"section_id": section_id, "category_ids": [], "limit": 400})
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "seat_inventory_free_by_rank" in plan
    assert "Sort" not in plan


def test_more_seats_are_read_if_the_best_ones_do_not_fit_a_party(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the first rows every second seat is free; four together are only beyond what is read first."""
    event = make_event(rows=3, seats_per_row=8)
    hold(event, seats=[f"hall-{row}-{number}" for row in "AB" for number in (1, 3, 5, 7)])
    monkeypatch.setattr(candidates, "READ_MIN", 6)
    monkeypatch.setattr(candidates, "READ_TO_WANTED", 1)
    together, alone = reservations.hold([best(event, 4), best(event, 1)])
    assert {guid[:6] for guid in seats_of(together)} == {"hall-C"}
    assert {guid[:6] for guid in seats_of(alone)} == {"hall-A"}
    assert_audit_clean()


def test_parties_of_other_sizes_are_examined_once_more_only_if_seats_side_by_side_are_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two rows of every second seat, then one of five and one of three seats side by side."""
    event = make_event(rows=4, seats_per_row=8)
    hold(event, seats=[f"hall-{row}-{number}" for row in "AB" for number in (1, 3, 5, 7)])
    hold(event, seats=["hall-C-6", "hall-C-7", "hall-C-8", "hall-D-4", "hall-D-5", "hall-D-6", "hall-D-7", "hall-D-8"])
    monkeypatch.setattr(candidates, "READ_MIN", 9)
    monkeypatch.setattr(candidates, "READ_TO_WANTED", 0)
    with statements() as names:
        five, three, four, two = reservations.hold([best(event, 5), best(event, 3), best(event, 4), best(event, 2)])
    assert {guid[:6] for guid in seats_of(five)} == {"hall-C"}
    assert {guid[:6] for guid in seats_of(three)} == {"hall-D"}
    assert {guid[:6] for guid in seats_of(four)} <= {"hall-A", "hall-B"}
    assert len(seats_of(two)) == 2
    assert names.count("adjacent_seats") == 3, "for five, for three, and for four seats; then none are side by side"
    assert_audit_clean()


@pytest.mark.parametrize("is_first", [True, False])
def test_a_party_s_own_seats_count_as_free_for_itself_alone(monkeypatch: pytest.MonkeyPatch, is_first: bool) -> None:
    """Every second seat is free but in the last row, where a buyer of two wants four."""
    event = make_event(rows=3, seats_per_row=8)
    hold(event, seats=[f"hall-{row}-{number}" for row in "AB" for number in (1, 3, 5, 7)])
    hold(event, seats=["hall-C-1", "hall-C-2", "hall-C-7", "hall-C-8"])
    entry = join(event)
    own = hold(event, entry, seats=["hall-C-4", "hall-C-5"])
    monkeypatch.setattr(candidates, "READ_MIN", 9)
    monkeypatch.setattr(candidates, "READ_TO_WANTED", 0)
    again = make_hold_request(event, entry, best_available={"section": "hall", "quantity": 4}, replace=str(own.id))
    requests = [again, best(event, 4)]
    more, other = reservations.hold(requests) if is_first else reversed(reservations.hold(list(reversed(requests))))
    assert seats_of(more) == [f"hall-C-{number}" for number in (3, 4, 5, 6)]
    assert not any(guid.startswith("hall-C") for guid in seats_of(other))
    assert_audit_clean()


def test_all_seats_are_read_before_a_request_is_refused_for_lack_of_seats(monkeypatch: pytest.MonkeyPatch) -> None:
    event = make_event(rows=2, seats_per_row=4, accessible=frozenset({"hall-A-1", "hall-A-2", "hall-A-3"}))
    monkeypatch.setattr(candidates, "READ_MIN", 1)
    monkeypatch.setattr(candidates, "READ_TO_WANTED", 0)
    monkeypatch.setattr(candidates, "READ_ADJACENT_MAX", 2)
    (held,) = reservations.hold([best(event, 5)])
    assert seats_of(held) == ["hall-A-4", "hall-B-1", "hall-B-2", "hall-B-3", "hall-B-4"]
    (refused,) = reservations.hold([best(event, 1)])
    assert problem_of(refused).type == "sold-out", (
        "accessible seats are not given to requests that did not ask for them"
    )
    assert_audit_clean()


def test_a_second_choice_avoids_seats_locked_by_another_request_of_the_batch() -> None:
    """P: both requests of the batch want two seats and have chosen
    Q: takes a seat that the first request chose; COMMIT
    P: locks; the first request's seat is held: it chooses again, around the second request's seats
    """
    event = make_event(rows=1, seats_per_row=6)
    ((middle, _),) = [seats_of(reservations.hold([best(event, 2)])[0])]
    reservations.release(run_sql("SELECT id FROM reservations_reservation")[0][0], who="test")
    first, second = best(event, 2), best(event, 2)

    def rival() -> None:
        hold(event, seats=[middle])

    with run_at("lock_seats_skipping", "before", lambda: in_another_connection(rival)):
        outcomes = reservations.hold([first, second])
    assert outcome_types(outcomes) == ["held", "held"]
    assert not set(seats_of(outcomes[0])) & {*seats_of(outcomes[1]), middle}
    assert_audit_clean()


def test_parties_of_all_sizes_sell_a_hall_to_its_last_seat_by_either_way_to_commit() -> None:
    """Half of the buyers hold by group commit, half in their own transactions, as two processes would. A refused party
    tries again with one seat less; a single buyer is refused only if nothing was left. So no refusal is wrong for long:
    every seat is sold."""
    event = make_event(rows=8, seats_per_row=12)
    sizes = [6, 1, 4, 2, 3, 5, 2, 2] * 3
    entries = [[best(event, size) for size in range(sizes[number], 0, -1)] for number in range(24)]

    def buy(number: int) -> None:
        requests = iter(entries[number])
        for request in requests:
            if number % 2:
                outcome = hold_with_retries(request)
            else:
                outcome = reservations.holds.submit_sync(request, 60_000)
                while is_retryable(outcome):
                    outcome = reservations.holds.submit_sync(request, 60_000)
            if not is_held(outcome):
                assert problem_of(outcome).type in ("not-enough-left", "sold-out")

    values(storm(24, buy))
    assert not SeatInventory.objects.filter(status=SeatInventory.Status.AVAILABLE).exists()
    assert_audit_clean()


def test_a_batch_that_sits_anywhere_shares_its_reads() -> None:
    event = make_event(halls=("Hall", "Wing"))
    requests = [make_hold_request(event, best_available={"quantity": 2}) for _ in range(16)]
    with statements() as names:
        outcomes = reservations.hold(requests)
    assert outcome_types(outcomes) == ["held"] * 16
    assert (names.count("free_areas"), names.count("free_seats")) == (1, 1)
    assert_audit_clean()


def test_pairs_that_sit_anywhere_all_sit_together_while_any_two_seats_do() -> None:
    """Sixteen pairs for six rows of ten, half by group commit: eighteen could at worst block all rows for a pair."""
    event = make_event(rows=2, seats_per_row=10, halls=("Hall", "Wing", "Loge"))
    requests = [make_hold_request(event, best_available={"quantity": 2}) for _ in range(16)]

    def buy(number: int) -> reservations.HoldOutcome:
        if number % 2:
            return hold_with_retries(requests[number])
        outcome = reservations.holds.submit_sync(requests[number], 60_000)
        while is_retryable(outcome):
            outcome = reservations.holds.submit_sync(requests[number], 60_000)
        return outcome

    pairs = [[seat.rpartition("-") for seat in seats_of(outcome)] for outcome in values(storm(16, buy))]
    for one, other in pairs:
        assert one[0] == other[0]
        assert abs(int(one[2]) - int(other[2])) == 1
    assert_audit_clean()


@pytest.mark.parametrize("seed", range(3))
def test_two_batches_of_sixty_four_refuse_no_named_seat_that_stays_free(seed: int) -> None:
    """P and Q each decide 64 requests for 50 seats, in opposite orders, at the same moment."""
    event = make_event()
    names = [f"hall-{row}-{number}" for row in "ABCDE" for number in range(1, 11)]
    batches = [
        [make_hold_request(event, seats=[names[(number * 7 + seed) % 50]]) for number in range(64)] for _ in range(2)
    ]
    batches[1].reverse()
    outcomes = values(storm(2, lambda number: reservations.hold(batches[number])))
    assert SeatInventory.objects.filter(status=SeatInventory.Status.HELD).count() == 50
    assert outcome_types(outcomes[0] + outcomes[1]) == ["held"] * 50 + ["seats-unavailable"] * 78
    assert_audit_clean()
