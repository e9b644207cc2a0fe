"""Concurrent copies of one request (rule 8): one reservation, and always the same answer."""

import json

import pytest
from django.db import connection, transaction
from psycopg import errors

from apps.kernel import clock
from apps.kernel.models import IdempotentAnswer
from apps.reservations import facade as reservations
from apps.reservations.models import Reservation
from tests.support.factories import assert_audit_clean, join, make_event, make_hold_request
from tests.support.races import ConcurrentCall, rival_at, rival_waiting_at, statements, storm, values
from tests.support.reservations.buyers import (
    hold_with_retries,
    is_held,
    outcome_types,
    problem_of,
    run_sql,
    submit_hold,
)

pytestmark = pytest.mark.django_db(transaction=True)

INSERT_KEY = """
INSERT INTO kernel_idempotentanswer (scope, key, fingerprint, status, answer, created_at)
VALUES ('hold:x', %s, '', 201, %s, now()) ON CONFLICT (scope, key) DO NOTHING
"""


def test_control_inserting_headers_first_deadlocks_on_uncommitted_keys() -> None:
    """Rule 8, the naive way: insert the headers first, to learn from the conflict which request came second.

    A: inserts key 1
    B: inserts key 2
    A: inserts key 2     waits for B's commit
    B: inserts key 1     waits for A's. PostgreSQL ends one, and with it its whole batch.
    """

    def other_batch() -> None:
        with transaction.atomic():
            run_sql(INSERT_KEY, ["2", "b"])
            run_sql(INSERT_KEY, ["1", "b"])

    ended: list[BaseException] = []
    with transaction.atomic():
        run_sql(INSERT_KEY, ["1", "a"])
        rival = ConcurrentCall(other_batch).wait_until_blocked()
        try:
            with transaction.atomic():
                run_sql(INSERT_KEY, ["2", "a"])
        except Exception as error:
            ended.append(error)
    ended += [error for error in [rival.outcome().error] if error is not None]
    assert [type(error.__cause__) for error in ended] == [errors.DeadlockDetected]


def test_control_results_mapped_by_position_go_to_the_wrong_buyer() -> None:
    """Three requests, the first two of them the same: the insert returns two rows for three requests, and the second
    buyer receives the third one's."""
    requests = ["same", "same", "other"]
    returned = run_sql(
        "INSERT INTO kernel_idempotentanswer (scope, key, fingerprint, status, answer, created_at)"
        " SELECT 'hold:x', key, '', 201, key, now() FROM unnest(%s::text[]) AS given (key)"
        " ON CONFLICT (scope, key) DO NOTHING RETURNING answer",
        [requests],
    )
    by_position = dict(zip(range(3), [row[0] for row in returned], strict=False))
    assert by_position[1] == "other" != requests[1]
    IdempotentAnswer.objects.all().delete()


def test_a_batch_with_duplicates_answers_each_request_with_its_own_reservation() -> None:
    event = make_event()
    entries = [join(event) for _ in range(3)]
    requests = [
        make_hold_request(event, entries[0], key="a", seats=["hall-A-1"]),
        make_hold_request(event, entries[1], key="a", seats=["hall-A-2"]),
        make_hold_request(event, entries[0], key="a", seats=["hall-A-1"]),
        make_hold_request(event, entries[2], key="a", seats=["hall-A-3"]),
    ]
    outcomes = reservations.hold(requests)
    seats = [json.loads(outcome.answer.body)["seats"] for outcome in outcomes if isinstance(outcome, reservations.Held)]
    assert seats == [["hall-A-1"], ["hall-A-2"], ["hall-A-1"], ["hall-A-3"]]
    assert outcomes[0] == outcomes[2]
    assert Reservation.objects.count() == 3
    assert_audit_clean()


@pytest.mark.parametrize(
    "line", ["lock_entries_skipping", "lock_seats_skipping", "insert_reservations", "remember_answers"]
)
def test_the_same_key_during_the_first_call_is_in_progress_and_after_it_the_same_answer(line: str) -> None:
    """A: decides for the admission, and proceeds to the named line
    B: same key and body: another request is deciding for this admission; waits until its lock timeout: in progress
    A: COMMIT
    B: again: A's answer, byte for byte
    """
    event = make_event()
    entry = join(event)
    first, second = (make_hold_request(event, entry, key="once", seats=["hall-A-1"]) for _ in range(2))
    assert first.reservation_id != second.reservation_id
    with rival_at(line, "before", lambda: submit_hold(second)) as rival:
        outcome = submit_hold(first)
    problem = problem_of(rival.result)
    assert (problem.type, problem.status, problem.retry_after_seconds) == ("idempotency-in-progress", 409, 1)
    assert submit_hold(second) == outcome
    assert Reservation.objects.count() == 1
    assert_audit_clean()


@pytest.mark.parametrize(
    "line", ["lock_entries_skipping", "lock_seats_skipping", "insert_reservations", "remember_answers"]
)
def test_a_second_click_waits_and_gets_the_first_one_s_answer(line: str, long_lock_wait: None) -> None:
    """A: decides for the admission, and proceeds to the named line
    B: same key and body: another request is deciding for this admission; decides again and waits, holding no other lock
    A: COMMIT
    B: has the lock, reads the answer under it: A's, byte for byte
    """
    event = make_event()
    entry = join(event)
    first, second = (make_hold_request(event, entry, key="once", seats=["hall-A-1"]) for _ in range(2))
    with rival_waiting_at(line, "before", lambda: submit_hold(second)) as rival:
        outcome = submit_hold(first)
    assert is_held(outcome)
    assert rival.result() == outcome
    assert Reservation.objects.count() == 1
    assert_audit_clean()


def test_the_same_key_in_eight_tabs_at_once_is_one_reservation_and_one_answer() -> None:
    event = make_event(general_admission=100)
    entry = join(event)
    twins = [make_hold_request(event, entry, key="once", ga_section="floor", ga_quantity=2) for _ in range(8)]
    outcomes = values(storm(8, lambda number: hold_with_retries(twins[number])))
    assert len({outcome.answer.body for outcome in outcomes}) == 1
    assert Reservation.objects.count() == 1
    assert_audit_clean()


def test_eight_keys_of_one_admission_at_once_are_one_reservation() -> None:
    event = make_event()
    entry = join(event)
    tabs = [make_hold_request(event, entry, seats=[f"hall-A-{number}"]) for number in range(1, 9)]
    outcomes = values(storm(8, lambda number: hold_with_retries(tabs[number])))
    assert outcome_types(outcomes) == ["held"] + ["reservation-exists"] * 7
    (winner,) = (outcome for outcome in outcomes if isinstance(outcome, reservations.Held))
    named = {outcome.problem.extra["reservation"] for outcome in outcomes if isinstance(outcome, reservations.Refused)}
    assert named == {str(winner.reservation_id)}
    assert_audit_clean()


def test_one_key_with_another_body_is_refused_whichever_comes_first() -> None:
    event = make_event()
    entry = join(event)
    bodies = [make_hold_request(event, entry, key="once", seats=[f"hall-A-{number}"]) for number in (1, 2)]
    outcomes = values(storm(2, lambda number: hold_with_retries(bodies[number])))
    assert outcome_types(outcomes) == ["held", "idempotency-mismatch"]
    assert_audit_clean()


def test_a_lost_answer_is_returned_again_although_the_seats_are_taken() -> None:
    """The hold committed and its answer was lost; a retry with the same key returns that answer, not a refusal."""
    event = make_event(rows=1, seats_per_row=2)
    request = make_hold_request(event, key="once", seats=["hall-A-1", "hall-A-2"])
    lost = submit_hold(request)
    again = submit_hold(request)
    assert again == lost
    assert is_held(again)
    assert_audit_clean()


def test_headers_are_inserted_after_every_lock_and_decision() -> None:
    """Every lock and every decision precedes the first insert; the answers are stored last before the commit."""
    event = make_event(general_admission=5, per_buyer_max=5)
    request = make_hold_request(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=1)
    with statements() as names:
        submit_hold(request)
    assert names == [
        "create_caps",
        "try_admissions",
        "lock_entries_skipping",
        "read_clock",
        "recall_answers",
        "reservations_of_entries",
        "lock_caps_skipping",
        "count_of_buyers",
        "read_seats",
        "lock_seats_skipping",
        "lock_general_admission",
        "prices",
        "take_seats",
        "take_general_admission",
        "insert_reservations",
        "insert_lines",
        "insert_transitions",
        "set_busy_until",
        "remember_answers",
        "read_transaction",
    ]
    assert IdempotentAnswer.objects.get().created_at <= clock.now()
    assert not connection.in_atomic_block
    assert_audit_clean()
