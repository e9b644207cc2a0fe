"""Best available under contention: one read for a batch, chosen around rivals, and nobody refused while seats fit."""

from typing import Any

import pytest
from django.db import connection

from apps.kernel.db import sql
from apps.reservations import facade as reservations
from apps.reservations.holds import candidates
from apps.reservations.models import SeatInventory
from tests.support.factories import assert_audit_clean, hold, make_event, make_hold_request
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


def test_the_read_comes_from_the_index_of_what_is_free_in_its_order() -> None:
    """However much is sold: no sort, and no look at what is not free."""
    make_event()
    ((section_id,),) = run_sql("SELECT DISTINCT section_id FROM reservations_seatinventory")
    statement = sql.load("apps.reservations", "free_seats")
    with connection.cursor() as cursor:
        # For fifty seats the planner prefers a sequential scan, or another index by the statistics of earlier tests.
        for method in ("seqscan", "bitmapscan", "sort"):
            cursor.execute(f"SET enable_{method} = off")
        cursor.execute(f"EXPLAIN {statement.text}", {"section_id": section_id, "category_id": None, "limit": 400})
        plan = "\n".join(line for (line,) in cursor.fetchall())
    assert "seat_inventory_free_by_rank" in plan
    assert "Sort" not in plan


def test_more_is_read_where_the_best_seats_have_no_room_for_a_party(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second seat of the first rows is free, and four together only behind what is read at first."""
    event = make_event(rows=3, seats_per_row=8)
    hold(event, seats=[f"hall-{row}-{number}" for row in "AB" for number in (1, 3, 5, 7)])
    monkeypatch.setattr(candidates, "READ_MIN", 6)
    monkeypatch.setattr(candidates, "READ_TO_WANTED", 1)
    together, alone = reservations.hold([best(event, 4), best(event, 1)])
    assert {guid[:6] for guid in seats_of(together)} == {"hall-C"}
    assert {guid[:6] for guid in seats_of(alone)} == {"hall-A"}
    assert_audit_clean()


def test_everything_is_read_before_anybody_is_told_that_too_little_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    event = make_event(rows=2, seats_per_row=4, accessible=frozenset({"hall-A-1", "hall-A-2", "hall-A-3"}))
    monkeypatch.setattr(candidates, "READ_MIN", 1)
    monkeypatch.setattr(candidates, "READ_TO_WANTED", 0)
    monkeypatch.setattr(candidates, "READ_ADJACENT_MAX", 2)
    (held,) = reservations.hold([best(event, 5)])
    assert seats_of(held) == ["hall-A-4", "hall-B-1", "hall-B-2", "hall-B-3", "hall-B-4"]
    (refused,) = reservations.hold([best(event, 1)])
    assert problem_of(refused).type == "sold-out", "wheelchair places are nobody's who did not ask"
    assert_audit_clean()


def test_who_chooses_again_does_not_take_what_a_neighbour_of_the_batch_has_locked() -> None:
    """P: the first wants two, the second wants two; both have chosen
    Q: takes what the first chose; COMMIT
    P: locks; the first's are held: it chooses again, around the second's
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


def test_parties_of_all_sizes_sell_a_hall_to_its_last_seat_however_they_ask() -> None:
    """Half of the buyers ask by group commit, half each in a transaction of their own, as two processes would. Who is
    refused comes again with one less; who is refused alone has gone when nothing was left. So no refusal was wrong for
    long: not one seat stays."""
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


@pytest.mark.parametrize("seed", range(3))
def test_two_batches_of_sixty_four_refuse_no_named_seat_that_nobody_ends_up_holding(seed: int) -> None:
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
