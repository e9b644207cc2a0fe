"""Deadlines are judged by the database's moving clock, after the lock (rule 4)."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.db import transaction

from apps.kernel import clock
from apps.queue.models import QueueEntry
from apps.reservations import facade as reservations
from apps.reservations.models import Reservation, ReservationTransition
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, join, make_event, make_hold_request
from tests.support.races import ConcurrentCall, rival_waiting_at
from tests.support.reservations.buyers import begin_payment, confirm, problem_of, run_sql, submit_hold

pytestmark = pytest.mark.django_db(transaction=True)


def deadline_passes(reservation_id: UUID, rival: ConcurrentCall) -> None:
    """Let the deadline pass while the rival waits for the lock we hold: set it to a moment after the rival's BEGIN and
    before we release the lock."""
    rival.wait_until_blocked()
    run_sql("UPDATE reservations_reservation SET expires_at = clock_timestamp() WHERE id = %s", [reservation_id])


def test_control_a_deadline_judged_by_now_is_missed_behind_a_lock() -> None:
    """The naive way: `now()`.

    L: locks the reservation
    P: BEGIN; locks the reservation, and waits
    L: the deadline passes; COMMIT
    P: has the lock; expires_at > now()? now() is P's BEGIN: still in time, and the buyer pays for a seat that is on
    sale again
    """
    view = hold(make_event(), seats=["hall-A-1"])

    def judge() -> tuple[bool, bool]:
        with transaction.atomic():
            run_sql("SELECT 1 FROM reservations_reservation WHERE id = %s FOR NO KEY UPDATE", [view.id])
            ((naive, ours),) = run_sql(
                "SELECT expires_at > now(), expires_at > clock_timestamp() FROM reservations_reservation WHERE id = %s",
                [view.id],
            )
            return naive, ours

    with transaction.atomic():
        run_sql("SELECT 1 FROM reservations_reservation WHERE id = %s FOR NO KEY UPDATE", [view.id])
        rival = ConcurrentCall(judge)
        deadline_passes(view.id, rival)
    assert rival.result() == (True, False)


def test_a_payment_start_that_waited_for_a_lock_past_the_deadline_is_refused() -> None:
    """L: locks the reservation
    P: begins to pay, and waits
    L: the deadline passes; COMMIT
    P: has the lock, reads the clock now: refused; the reservation stays as it is, for the sweep
    """
    view = hold(make_event(), seats=["hall-A-1"])
    with transaction.atomic():
        run_sql("SELECT 1 FROM reservations_reservation WHERE id = %s FOR NO KEY UPDATE", [view.id])
        rival = ConcurrentCall(lambda: begin_payment(view.id))
        deadline_passes(view.id, rival)
    assert isinstance(rival.outcome().error, reservations.ReservationExpired)
    assert Reservation.objects.get().status == "pending_payment"
    assert reservations.sweep().seats == 1
    assert_audit_clean()


def test_a_payment_that_waited_for_the_sweep_counts_from_when_it_occurred() -> None:
    """S: the sweep locks the reservation, whose deadline has passed
    P: a payment that occurred in time asks to confirm, and waits
    S: expires the reservation, frees the seat; COMMIT
    P: has the lock, reads the status under it: expired; the seat is free, so P takes it again: confirmed
    """
    view = begin_payment(hold(make_event(), seats=["hall-A-1"]).id)
    occurred_at = clock.now()
    backdate_deadline(view.id)
    with rival_waiting_at("end_lines", "before", lambda: confirm(view.id, occurred_at)) as rival:
        assert reservations.sweep().seats == 1
    assert rival.result().status == "confirmed"
    transitions = ReservationTransition.objects.values_list("from_status", "to_status")
    assert list(transitions)[-2:] == [("paying", "expired"), ("expired", "confirmed")]
    assert_audit_clean(without_money=True)


def test_a_hold_that_waited_for_its_entry_s_lock_is_judged_by_the_admission_at_that_time() -> None:
    """L: locks the queue entry
    H: a hold of that entry, and waits
    L: the admission ends; COMMIT
    H: has the lock: the admission is over
    """
    event = make_event()
    entry = join(event)
    request = make_hold_request(event, entry, seats=["hall-A-1"])
    with transaction.atomic():
        run_sql("SELECT 1 FROM queue_queueentry WHERE id = %s FOR NO KEY UPDATE", [entry.id])
        rival = ConcurrentCall(lambda: submit_hold(request)).wait_until_blocked()
        run_sql("UPDATE queue_queueentry SET admission_expires_at = clock_timestamp() WHERE id = %s", [entry.id])
    assert problem_of(rival.result()).type == "admission-expired"
    assert_audit_clean()


def test_a_hold_of_an_entry_that_left_meanwhile_is_refused() -> None:
    """L: the visitor leaves in another tab; the entry is locked and not yet committed
    H: a hold of that entry, and waits
    L: COMMIT
    H: has the lock, reads the status under it: left
    """
    event = make_event()
    entry = join(event)
    request = make_hold_request(event, entry, seats=["hall-A-1"])
    with transaction.atomic():
        QueueEntry.objects.filter(pk=entry.id).update(status="left", ended_at=clock.now())
        rival = ConcurrentCall(lambda: submit_hold(request)).wait_until_blocked()
    assert problem_of(rival.result()).type == "admission-expired"
    assert Reservation.objects.count() == 0
    assert_audit_clean()


def test_the_deadline_and_the_grace_are_inclusive_and_a_moment_later_is_too_late() -> None:
    event = make_event()
    first, second = (begin_payment(hold(event, seats=[f"hall-A-{n}"]).id) for n in (1, 2))
    grace = timedelta(seconds=event.policy.grace_seconds)
    assert first.pay_deadline is not None
    assert second.pay_deadline is not None
    assert confirm(first.id, first.pay_deadline + grace).status == "confirmed"
    with pytest.raises(reservations.ReservationExpired):
        confirm(second.id, second.pay_deadline + grace + timedelta(microseconds=1))
    assert_audit_clean(without_money=True)
