"""Buyers of different things never wait for each other, and a hold runs exactly the expected statements."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from apps.kernel.db import sql
from apps.reservations import facade as reservations
from apps.reservations.holds import transaction
from tests.support.factories import assert_audit_clean, hold, make_event, make_hold_request
from tests.support.races import rival_at, rival_connection, statements, storm, values
from tests.support.reservations.buyers import (
    begin_payment,
    get_general_admission,
    hold_with_retries,
    is_held,
    outcome_types,
    run_sql,
    seat,
    submit_hold,
)

pytestmark = pytest.mark.django_db(transaction=True)

lock_seats_waiting = sql.load("apps.reservations", "lock_seats_waiting")


@pytest.fixture
def no_lock_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any wait for a lock fails."""
    monkeypatch.setattr(transaction, "LOCK_WAIT_MS", 1)


def test_a_hold_next_to_locked_seats_is_decided_in_one_round(no_lock_wait: None) -> None:
    """K: keeps every seat of row A locked
    H: holds two seats of row B: one transaction, nothing decided twice
    """
    event = make_event(general_admission=5)
    request = make_hold_request(event, seats=["hall-B-1", "hall-B-2"], ga_section="floor", ga_quantity=1)
    with rival_connection() as keeper:
        keeper.set_autocommit(False)
        row_a = [seat(f"hall-A-{number}").pk for number in range(1, 11)]
        run_sql(lock_seats_waiting.text, {"seat_ids": row_a}, using=keeper)
        with statements() as names:
            outcome = submit_hold(request)
        keeper.rollback()
    assert is_held(outcome)
    assert names.count("lock_entries_skipping") == 1
    assert "lock_seats_waiting" not in names
    assert_audit_clean()


@pytest.mark.parametrize("line", ["lock_seats_skipping", "take_seats", "insert_reservations", "remember_answers"])
def test_two_holds_of_different_seats_do_not_wait_for_each_other(line: str, no_lock_wait: None) -> None:
    """A: holds seat 1, and proceeds to the named line
    B: holds seat 2 of the same event, the same section, the same row; COMMIT
    A: COMMIT
    """
    event = make_event()
    first, second = (make_hold_request(event, seats=[f"hall-A-{number}"]) for number in (1, 2))
    with rival_at(line, "after", lambda: submit_hold(second)) as rival:
        assert is_held(submit_hold(first))
    assert is_held(rival.result)
    assert_audit_clean()


def test_a_release_a_payment_and_a_sweep_do_not_wait_for_a_running_hold(no_lock_wait: None) -> None:
    event = make_event()
    to_release, to_pay = (hold(event, seats=[f"hall-B-{number}"]) for number in (1, 2))
    request = make_hold_request(event, seats=["hall-A-1"])

    def run_others() -> list[str]:
        released = reservations.release(to_release.id, who="test").status
        paying = begin_payment(to_pay.id).status
        return [released, paying, str(reservations.sweep().reservations)]

    with rival_at("insert_reservations", "after", run_others) as rival:
        assert is_held(submit_hold(request))
    assert rival.result == ["canceled", "paying", "0"]
    assert_audit_clean()


def test_holds_of_two_events_do_not_wait_for_each_other(no_lock_wait: None) -> None:
    """Each event has its own general admission row: the last lock of a hold conflicts with no other event."""
    concert = make_event("concert", rows=0, general_admission=1)
    opera = make_event("opera", rows=0, general_admission=1, venue="The Other Venue")
    first, second = (make_hold_request(event, ga_section="floor", ga_quantity=1) for event in (concert, opera))
    with rival_at("take_general_admission", "after", lambda: submit_hold(second)) as rival:
        assert is_held(submit_hold(first))
    assert is_held(rival.result)
    assert_audit_clean()


def test_buyers_of_different_seats_all_win_at_their_first_attempt() -> None:
    event = make_event(rows=4, seats_per_row=8)
    requests = [make_hold_request(event, seats=[f"hall-{row}-{number}"]) for row in "ABCD" for number in range(1, 9)]
    with CountedRounds() as rounds:
        outcomes = values(storm(32, lambda number: hold_with_retries(requests[number])))
    assert outcome_types(outcomes) == ["held"] * 32
    assert rounds.count == 32
    assert_audit_clean()


class CountedRounds:
    """Counts the transactions that all holds of the block begin, in every thread."""

    def __init__(self) -> None:
        self.count = 0
        self._watch = sql.observe(self._observe)

    def _observe(self, name: str, when: str) -> None:
        self.count += when == "before" and name in ("try_admissions", "lock_admissions")

    def __enter__(self) -> "CountedRounds":
        self._watch.__enter__()
        return self

    def __exit__(self, *reason: object) -> None:
        self._watch.__exit__(None, None, None)


@pytest.mark.parametrize(
    ("payload", "queries"),
    [
        ({"seats": ["hall-A-1"]}, 18),
        ({"seats": [f"hall-A-{number}" for number in range(1, 9)]}, 18),
        ({"ga_section": "floor", "ga_quantity": 8}, 17),
        ({"best_available": {"section": "hall", "quantity": 8}}, 19),
    ],
)
def test_a_hold_runs_the_same_few_statements_however_much_it_requests(payload: dict[str, object], queries: int) -> None:
    """The counts are exact, with BEGIN, limits and COMMIT: every hold pays for one more."""
    event = make_event(general_admission=20)
    request = make_hold_request(event, **payload)
    with CaptureQueriesContext(
        connection,
    ) as captured:
        assert is_held(submit_hold(request))
    assert len(captured) == queries, [query["sql"][:60] for query in captured]
    assert_audit_clean()


def test_a_batch_of_ten_runs_as_many_statements_as_a_batch_of_one() -> None:
    event = make_event(general_admission=20)
    one = [make_hold_request(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=1)]
    ten = [
        make_hold_request(event, seats=[f"hall-B-{number}"], ga_section="floor", ga_quantity=1)
        for number in range(1, 11)
    ]
    counts = []
    for requests in (one, ten):
        with CaptureQueriesContext(connection) as captured:
            assert all(map(is_held, reservations.hold(requests)))
        counts.append(len(captured))
    assert counts[0] == counts[1]
    assert get_general_admission().taken == 11
    assert_audit_clean()


def test_a_refusal_for_taken_seats_locks_no_seat() -> None:
    """Read first: a request that cannot win does not lock rows that others can."""
    event = make_event()
    hold(event, seats=["hall-A-1"])
    request = make_hold_request(event, seats=["hall-A-1", "hall-A-2"])
    with statements() as names:
        outcome = submit_hold(request)
    assert outcome_types([outcome]) == ["seats-unavailable"]
    assert not [name for name in names if name.startswith(("lock_seats", "insert"))]
    assert_audit_clean()
