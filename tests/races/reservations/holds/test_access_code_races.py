"""Races for the last use of an access code. All end with a clean audit, except the controls, which show the race."""

from typing import Any

import pytest

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.reservations import facade as reservations
from apps.reservations.access_codes.generation import lock_codes, used_count
from apps.reservations.holds import access_codes
from apps.reservations.models import AccessCode, Reservation
from tests.support.factories import (
    assert_audit_clean,
    audit_breaches,
    backdate_deadline,
    hold,
    join,
    make_access_code,
    make_event,
    make_hold_request,
)
from tests.support.races import in_another_connection, rival_at, rival_waiting_at, storm, values
from tests.support.reservations.buyers import (
    begin_payment,
    confirm,
    hold_with_retries,
    is_held,
    outcome_types,
    problem_of,
    submit_hold,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("long_lock_wait")]

CODE = {"access_code": "FANCLUB"}
BUYERS = 8


@pytest.fixture
def club() -> events.EventView:
    return make_event(general_admission=50, needs_access=("floor", "hall"))


def make_request(event: events.EventView, number: int, **payload: Any) -> reservations.HoldRequest:
    """A different seat for each, so that only the code can conflict."""
    return make_hold_request(event, seats=[f"hall-A-{number}"], **CODE, **payload)


def test_control_uses_counted_without_the_lock_admit_two_buyers(club, monkeypatch: pytest.MonkeyPatch) -> None:
    """The naive way: count, then write.

    A: counts no use of the single-use code so far: accepted
    B: counts the same, since A is not committed: accepted; COMMIT
    A: COMMIT. Two reservations share one use; the auditor names the code.
    """
    code = make_access_code(club, uses_max=1)
    unlocked = sql.Statement(
        "lock_off",
        "SELECT id FROM reservations_accesscode WHERE event_id = ANY(%(event_ids)s) AND code = ANY(%(words)s)",
    )
    monkeypatch.setattr(access_codes, "_lock_codes", unlocked)
    first, second = make_request(club, 1), make_request(club, 2)
    with rival_at("insert_reservations_by_code", "before", lambda: submit_hold(second)) as rival:
        assert is_held(submit_hold(first))
    assert is_held(rival.result)
    assert used_count(code) == 2
    assert audit_breaches() == ["I5: concert: access code FANCLUB: used by 2 reservations of at most 1"]


def test_a_hold_for_the_last_use_waits_for_the_code_s_lock(club) -> None:
    """A: locks the code's row; counts no use so far: accepted
    B: waits for the code's row
    A: COMMIT
    B: has the lock, counts again: used up
    """
    make_access_code(club, uses_max=1)
    first, second = make_request(club, 1), make_request(club, 2)
    with rival_waiting_at("insert_reservations_by_code", "before", lambda: submit_hold(second)) as rival:
        assert is_held(submit_hold(first))
    assert problem_of(rival.result()).type == "access-code-used-up"
    assert_audit_clean()


def test_of_eight_concurrent_holds_for_the_last_use_exactly_one_succeeds(club) -> None:
    make_access_code(club, uses_max=1)
    requests = [make_request(club, number) for number in range(1, BUYERS + 1)]
    outcomes = values(storm(BUYERS, lambda number: hold_with_retries(requests[number])))
    assert outcome_types(outcomes) == ["access-code-used-up"] * (BUYERS - 1) + ["held"]
    assert Reservation.objects.count() == 1
    assert_audit_clean()


def test_of_eight_concurrent_holds_a_code_of_five_uses_admits_five(club) -> None:
    make_access_code(club, uses_max=5)
    requests = [make_hold_request(club, ga_section="floor", ga_quantity=1, **CODE) for _ in range(BUYERS)]
    outcomes = values(storm(BUYERS, lambda number: hold_with_retries(requests[number])))
    assert outcome_types(outcomes) == ["access-code-used-up"] * 3 + ["held"] * 5
    assert_audit_clean()


def test_a_lapsed_use_goes_to_exactly_one_of_eight_holds(club) -> None:
    make_access_code(club, uses_max=1)
    late = hold(club, seats=["hall-B-1"], **CODE)
    backdate_deadline(late.id)
    requests = [make_request(club, number) for number in range(1, BUYERS + 1)]
    outcomes = values(storm(BUYERS, lambda number: hold_with_retries(requests[number])))
    assert outcome_types(outcomes) == ["access-code-used-up"] * (BUYERS - 1) + ["held"]
    assert Reservation.objects.get(pk=late.id).status == "expired"
    assert_audit_clean()


def test_a_use_released_and_taken_at_once_is_never_counted_twice(club) -> None:
    """Four buyers release while four others hold. A hold that counts before a release has committed is refused; there
    are never more than four uses."""
    make_access_code(club, uses_max=4)
    held = [hold(club, seats=[f"hall-B-{number}"], **CODE) for number in range(1, 5)]
    requests = [make_request(club, number) for number in range(1, 5)]

    def act(number: int) -> Any:
        if number < 4:
            return reservations.release(held[number].id, who="buyer")
        return hold_with_retries(requests[number - 4])

    outcomes = values(storm(8, act))[4:]
    assert set(outcome_types(outcomes)) <= {"held", "access-code-used-up"}
    assert Reservation.objects.filter(status="pending_payment").count() == outcome_types(outcomes).count("held")
    assert_audit_clean()


def test_a_late_payment_and_a_hold_never_share_the_last_use(club) -> None:
    """A: the payment of an expired reservation counts under the code's lock: no use so far
    B: waits for the code's row
    A: confirmed; COMMIT
    B: used up
    """
    make_access_code(club, uses_max=1)
    late = hold(club, seats=["hall-B-1"], **CODE)
    begin_payment(late.id)
    occurred_at = clock.now()
    backdate_deadline(late.id, 0)
    reservations.sweep(event_id=club.id)
    request = make_request(club, 1)
    with rival_waiting_at("take_seats", "before", lambda: submit_hold(request)) as rival:
        assert confirm(late.id, occurred_at).status == "confirmed"
    assert problem_of(rival.result()).type == "access-code-used-up"
    assert_audit_clean(without_money=True)


def test_holds_by_a_code_without_limits_do_not_wait_for_each_other(club) -> None:
    make_access_code(club)
    first, second = make_request(club, 1), make_request(club, 2)
    with rival_at("insert_reservations_by_code", "before", lambda: submit_hold(second)) as rival:
        assert is_held(submit_hold(first))
    assert is_held(rival.result)
    assert_audit_clean()


def test_limiting_a_code_waits_for_holds_that_use_it(club) -> None:
    """A hold by a code without limits locks the code's row against changes: staff count its use before they set a
    limit."""
    code = make_access_code(club)
    seen: list[int] = []

    def limit() -> None:
        with transactions.write():
            (locked,) = lock_codes([code.pk])
            seen.append(used_count(locked))
            AccessCode.objects.filter(pk=code.pk).update(uses_max=max(1, seen[0]))

    with rival_waiting_at("insert_reservations_by_code", "before", limit) as rival:
        assert is_held(submit_hold(make_request(club, 1)))
    rival.result()
    assert seen == [1]
    assert problem_of(submit_hold(make_request(club, 2))).type == "access-code-used-up"
    assert_audit_clean()


def test_a_locked_code_does_not_block_holds_by_another_code(club, monkeypatch: pytest.MonkeyPatch) -> None:
    code = make_access_code(club, uses_max=5)
    make_access_code(club, code="OTHER", uses_max=5)
    mine, other = make_request(club, 1), make_hold_request(club, seats=["hall-A-2"], access_code="OTHER")
    from apps.reservations.holds import transaction

    monkeypatch.setattr(transaction, "LOCK_WAIT_MS", 50)
    with transactions.write():
        lock_codes([code.pk])
        outcomes = in_another_connection(lambda: reservations.hold([mine, other]))
    assert outcome_types(outcomes) == ["busy", "held"]
    assert_audit_clean()


def test_two_batches_with_the_same_codes_in_opposite_orders_never_deadlock(club) -> None:
    words = [f"CODE{number}" for number in range(6)]
    for word in words:
        make_access_code(club, code=word, uses_max=20)
    entries = [[join(club) for _ in words] for _ in range(4)]

    def hold_all(number: int) -> list[reservations.HoldOutcome]:
        ordered = words if number % 2 else list(reversed(words))
        requests = [
            make_hold_request(club, entry, ga_section="floor", ga_quantity=1, access_code=word)
            for entry, word in zip(entries[number], ordered, strict=True)
        ]
        return reservations.hold(requests)

    outcomes = [one for some in values(storm(4, hold_all)) for one in some]
    assert outcome_types(outcomes) == ["held"] * 24
    assert_audit_clean()
