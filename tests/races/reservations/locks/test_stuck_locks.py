"""A lock that stays held delays only the requests that need it, and no other request of the batch."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from apps.kernel.db import transactions
from apps.reservations import facade as reservations
from apps.reservations.holds import service
from apps.reservations.models import PurchaseCap
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, join, make_event, make_hold_request
from tests.support.races import rival_connection
from tests.support.reservations.buyers import is_held, run_sql, submit_hold

pytestmark = pytest.mark.django_db(transaction=True)

ENTRY = "SELECT FROM queue_queueentry WHERE id = %s FOR NO KEY UPDATE"
ADMISSION = "SELECT pg_advisory_xact_lock(hashtextextended(%s::text, 0))"
CAP = "SELECT FROM reservations_purchasecap WHERE buyer = %s FOR NO KEY UPDATE"
NEW_CAP = "INSERT INTO reservations_purchasecap (event_id, buyer) VALUES (%s, %s)"
FLOOR = "SELECT FROM reservations_generaladmissioninventory WHERE event_id = %s FOR NO KEY UPDATE"
SEAT = (
    "SELECT FROM reservations_seatinventory AS inventory JOIN events_seat AS seat ON seat.id = inventory.seat_id"
    " WHERE seat.guid = %s FOR NO KEY UPDATE OF inventory"
)


@contextmanager
def locked(statement: str, *params: Any) -> Iterator[None]:
    """Another session has run this statement and does not end its transaction."""
    with rival_connection() as keeper:
        run_sql("BEGIN", using=keeper)
        run_sql(statement, list(params), using=keeper)
        yield
        run_sql("ROLLBACK", using=keeper)


def outcome_names(outcomes: list[reservations.HoldOutcome]) -> list[str]:
    return ["held" if isinstance(outcome, reservations.Held) else outcome.problem.type for outcome in outcomes]


@pytest.mark.parametrize("lock", ["entry", "admission", "cap", "new cap", "seat", "floor"])
def test_a_lock_that_stays_held_delays_no_other_request(lock: str) -> None:
    """K: has one row locked and keeps it
    H: three buyers of its event and one of another; one of them needs that row
    H: that one is asked to try again, the others get their holds while K still keeps the row
    K: ROLLBACK     H: that one again: held
    """
    event = make_event(general_admission=20, per_buyer_max=4)
    other = make_event("other", general_admission=20, per_buyer_max=4)
    entry = join(event)
    first = make_hold_request(event, entry, seats=["hall-B-1"], ga_section="floor", ga_quantity=1)
    same_event = [make_hold_request(event, seats=["hall-A-1"]), make_hold_request(event, seats=["hall-A-2"])]
    others = [make_hold_request(other, ga_section="floor", ga_quantity=1)]
    if lock == "cap":
        PurchaseCap.objects.create(event_id=event.id, buyer=entry.buyer)
    statement, *params = {
        "entry": (ENTRY, entry.id),
        "admission": (ADMISSION, entry.id),
        "cap": (CAP, entry.buyer),
        "new cap": (NEW_CAP, event.id, entry.buyer),
        "seat": (SEAT, "hall-B-1"),
        "floor": (FLOOR, event.id),
    }[lock]
    with locked(statement, *params):
        outcomes = reservations.hold([first, *same_event, *others])
    refusal = "idempotency-in-progress" if lock == "admission" else "busy"
    assert outcome_names(outcomes) == [refusal, "held", "held", "held"]
    assert is_held(submit_hold(first))
    assert_audit_clean()


def test_several_locks_delay_only_the_requests_that_need_them() -> None:
    event = make_event(general_admission=20)
    other = make_event("other", general_admission=20)
    entry = join(event)
    with locked(FLOOR, event.id), locked(ENTRY, entry.id), locked(SEAT, "hall-A-1"):
        outcomes = reservations.hold(
            [
                make_hold_request(event, ga_section="floor", ga_quantity=1),
                make_hold_request(event, entry, seats=["hall-B-1"]),
                make_hold_request(event, seats=["hall-A-1"]),
                make_hold_request(event, seats=["hall-A-2"]),
                make_hold_request(other, ga_section="floor", ga_quantity=1),
            ]
        )
    assert outcome_names(outcomes) == ["busy", "busy", "busy", "held", "held"]
    assert_audit_clean()


def test_winners_are_answered_while_the_others_are_still_being_decided() -> None:
    """By shape: the outcomes of the first transaction are returned before a second one waits for the lock."""
    event = make_event()
    requests = [make_hold_request(event, seats=["hall-A-1"]), make_hold_request(event, seats=["hall-A-2"])]
    with locked(SEAT, "hall-A-1"):
        rounds = service._rounds(requests, transactions.write_on_django)
        assert list(next(rounds)) == [1]
        (left,) = rounds
    assert list(left) == [0]
    assert_audit_clean()


def test_the_reservation_of_the_wanted_seat_is_swept_first_however_much_has_lapsed() -> None:
    """However long the backlog: the hold sweeps just the reservation of its seat, and leaves the rest to the sweep
    jobs."""
    event = make_event()
    views = [hold(event, seats=[f"hall-A-{number}"]) for number in range(1, 10)]
    for age, view in enumerate(views):
        backdate_deadline(view.id, seconds=100 - age)
    assert is_held(submit_hold(make_hold_request(event, seats=["hall-A-9"])))
    unswept = run_sql("SELECT count(*) FROM reservations_reservation WHERE status = 'pending_payment'")
    assert unswept == [(len(views),)], "the other eight, and the new one"


def test_a_seat_held_in_time_is_refused_even_if_other_holds_have_lapsed() -> None:
    """A final answer at once: no sweep can free it."""
    event = make_event()
    backdate_deadline(hold(event, seats=["hall-A-1"]).id)
    hold(event, seats=["hall-A-2"])
    assert outcome_names([submit_hold(make_hold_request(event, seats=["hall-A-1", "hall-A-2"]))]) == [
        "seats-unavailable"
    ]
    assert run_sql("SELECT count(*) FROM reservations_reservation WHERE status = 'expired'") == [(0,)]


def test_a_locked_lapsed_seat_delays_no_other_lapsed_seat() -> None:
    """K: keeps A-1 locked, whose reservation has lapsed; A-2's has too
    H: two buyers, one for each: the sweep of both skips what K keeps
    """
    event = make_event()
    for number in (1, 2):
        backdate_deadline(hold(event, seats=[f"hall-A-{number}"]).id)
    with locked(SEAT, "hall-A-1"):
        outcomes = reservations.hold(
            [make_hold_request(event, seats=["hall-A-1"]), make_hold_request(event, seats=["hall-A-2"])]
        )
    assert outcome_names(outcomes) == ["busy", "held"]
    assert is_held(submit_hold(make_hold_request(event, seats=["hall-A-1"])))
    assert_audit_clean()


def test_the_best_available_seat_released_within_the_batch_is_held() -> None:
    event = make_event(rows=1, seats_per_row=1, general_admission=5)
    entry = join(event)
    held = hold(event, entry, seats=["hall-A-1"])
    change = make_hold_request(event, entry, replace=str(held.id), ga_section="floor", ga_quantity=1)
    outcomes = reservations.hold([change, make_hold_request(event, best_available={"section": "hall", "quantity": 1})])
    assert outcome_names(outcomes) == ["held", "held"]
    assert_audit_clean()


def test_a_locked_lapsed_seat_delays_no_lapsed_ticket() -> None:
    """It is unknown which lapsed reservation has the wanted ticket: all of the event's are swept, except the locked
    one."""
    event = make_event(general_admission=1)
    backdate_deadline(hold(event, seats=["hall-A-1"]).id, seconds=60)
    backdate_deadline(hold(event, ga_section="floor", ga_quantity=1).id, seconds=30)
    with locked(SEAT, "hall-A-1"):
        assert outcome_names([submit_hold(make_hold_request(event, ga_section="floor", ga_quantity=1))]) == ["held"]
    assert is_held(submit_hold(make_hold_request(event, seats=["hall-A-1"])))
    assert_audit_clean()
