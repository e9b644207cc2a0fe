"""A lock that somebody keeps is in the way of those who need it, and of nobody else in the batch."""

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
NEW_CAP = "INSERT INTO reservations_purchasecap (event_id, buyer) SELECT event_id, %s FROM queue_queueentry LIMIT 1"
FLOOR = "SELECT FROM reservations_generaladmissioninventory WHERE event_id = %s FOR NO KEY UPDATE"
SEAT = (
    "SELECT FROM reservations_seatinventory AS inventory JOIN events_seat AS seat ON seat.id = inventory.seat_id"
    " WHERE seat.guid = %s FOR NO KEY UPDATE OF inventory"
)


@contextmanager
def kept(statement: str, *params: Any) -> Iterator[None]:
    """Somebody has done this and does not end."""
    with rival_connection() as keeper:
        run_sql("BEGIN", using=keeper)
        run_sql(statement, list(params), using=keeper)
        yield
        run_sql("ROLLBACK", using=keeper)


def words(outcomes: list[reservations.HoldOutcome]) -> list[str]:
    return ["held" if isinstance(outcome, reservations.Held) else outcome.problem.type for outcome in outcomes]


@pytest.mark.parametrize("lock", ["entry", "admission", "cap", "new cap", "seat", "floor"])
def test_a_lock_that_somebody_keeps_is_in_nobody_else_s_way(lock: str) -> None:
    """K: has one row and keeps it
    H: three buyers of its event and one of another; one of them needs that row
    H: the one is told to come back, the others have their places while K still keeps it
    K: ROLLBACK     H: the one again, and has it
    """
    event = make_event(general_admission=20, per_buyer_max=4)
    other = make_event("other", general_admission=20, per_buyer_max=4)
    entry = join(event)
    first = make_hold_request(event, entry, seats=["hall-B-1"], ga_section="floor", ga_quantity=1)
    neighbours = [make_hold_request(event, seats=["hall-A-1"]), make_hold_request(event, seats=["hall-A-2"])]
    others = [make_hold_request(other, ga_section="floor", ga_quantity=1)]
    if lock == "cap":
        PurchaseCap.objects.create(event_id=event.id, buyer=entry.buyer)
    statement, param = {
        "entry": (ENTRY, entry.id),
        "admission": (ADMISSION, entry.id),
        "cap": (CAP, entry.buyer),
        "new cap": (NEW_CAP, entry.buyer),
        "seat": (SEAT, "hall-B-1"),
        "floor": (FLOOR, event.id),
    }[lock]
    with kept(statement, param):
        outcomes = reservations.hold([first, *neighbours, *others])
    told = "idempotency-in-progress" if lock == "admission" else "busy"
    assert words(outcomes) == [told, "held", "held", "held"]
    assert is_held(submit_hold(first))
    assert_audit_clean()


def test_several_locks_are_in_the_way_of_just_those_who_need_them() -> None:
    event = make_event(general_admission=20)
    other = make_event("other", general_admission=20)
    entry = join(event)
    with kept(FLOOR, event.id), kept(ENTRY, entry.id), kept(SEAT, "hall-A-1"):
        outcomes = reservations.hold(
            [
                make_hold_request(event, ga_section="floor", ga_quantity=1),
                make_hold_request(event, entry, seats=["hall-B-1"]),
                make_hold_request(event, seats=["hall-A-1"]),
                make_hold_request(event, seats=["hall-A-2"]),
                make_hold_request(other, ga_section="floor", ga_quantity=1),
            ]
        )
    assert words(outcomes) == ["busy", "busy", "busy", "held", "held"]
    assert_audit_clean()


def test_who_has_won_is_answered_while_the_losers_are_still_being_decided() -> None:
    """By shape: what the first transaction settles is out before a second one waits for the lock."""
    event = make_event()
    requests = [make_hold_request(event, seats=["hall-A-1"]), make_hold_request(event, seats=["hall-A-2"])]
    with kept(SEAT, "hall-A-1"):
        rounds = service._rounds(requests, transactions.write_on_django)
        assert list(next(rounds)) == [1]
        (left,) = rounds
    assert list(left) == [0]
    assert_audit_clean()


def test_what_holds_the_wanted_seat_is_swept_first_however_much_else_has_lapsed() -> None:
    """However deep in a backlog: the hold that wants it ends just that reservation, and leaves the rest to the nets."""
    event = make_event()
    views = [hold(event, seats=[f"hall-A-{number}"]) for number in range(1, 10)]
    for age, view in enumerate(views):
        backdate_deadline(view.id, seconds=100 - age)
    assert is_held(submit_hold(make_hold_request(event, seats=["hall-A-9"])))
    unswept = run_sql("SELECT count(*) FROM reservations_reservation WHERE status = 'pending_payment'")
    assert unswept == [(len(views),)], "the other eight, and the new one"


def test_a_seat_of_somebody_in_time_is_refused_whoever_else_has_lapsed() -> None:
    """A final answer at once: no sweep can free it."""
    event = make_event()
    backdate_deadline(hold(event, seats=["hall-A-1"]).id)
    hold(event, seats=["hall-A-2"])
    assert words([submit_hold(make_hold_request(event, seats=["hall-A-1", "hall-A-2"]))]) == ["seats-unavailable"]
    assert run_sql("SELECT count(*) FROM reservations_reservation WHERE status = 'expired'") == [(0,)]


def test_a_kept_seat_of_one_that_has_lapsed_keeps_no_other_lapsed_seat_from_its_buyer() -> None:
    """K: keeps A-1, whose reservation has lapsed; A-2's has too
    H: two buyers, one for each: the sweep of both goes round what K keeps
    """
    event = make_event()
    for number in (1, 2):
        backdate_deadline(hold(event, seats=[f"hall-A-{number}"]).id)
    with kept(SEAT, "hall-A-1"):
        outcomes = reservations.hold(
            [make_hold_request(event, seats=["hall-A-1"]), make_hold_request(event, seats=["hall-A-2"])]
        )
    assert words(outcomes) == ["busy", "held"]
    assert is_held(submit_hold(make_hold_request(event, seats=["hall-A-1"])))
    assert_audit_clean()


def test_the_best_available_seat_that_somebody_of_the_batch_gives_up_is_not_refused_for_good() -> None:
    event = make_event(rows=1, seats_per_row=1, general_admission=5)
    entry = join(event)
    held = hold(event, entry, seats=["hall-A-1"])
    change = make_hold_request(event, entry, replace=str(held.id), ga_section="floor", ga_quantity=1)
    outcomes = reservations.hold([change, make_hold_request(event, best_available={"section": "hall", "quantity": 1})])
    assert words(outcomes) == ["held", "held"]
    assert_audit_clean()


def test_a_kept_seat_of_one_that_has_lapsed_keeps_no_lapsed_place_from_its_buyer() -> None:
    """Nobody knows which of the lapsed has the wanted place: all of the event's are swept, around the one."""
    event = make_event(general_admission=1)
    backdate_deadline(hold(event, seats=["hall-A-1"]).id, seconds=60)
    backdate_deadline(hold(event, ga_section="floor", ga_quantity=1).id, seconds=30)
    with kept(SEAT, "hall-A-1"):
        assert words([submit_hold(make_hold_request(event, ga_section="floor", ga_quantity=1))]) == ["held"]
    assert is_held(submit_hold(make_hold_request(event, seats=["hall-A-1"])))
    assert_audit_clean()
