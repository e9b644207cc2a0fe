"""A queue entry is busy exactly as long as it has a live reservation, even if updates arrive late or twice."""

from datetime import timedelta
from uuid import UUID

import pytest
from django.db import transaction

from apps.kernel import clock
from apps.queue.models import QueueEntry
from apps.reservations import facade as reservations
from apps.reservations import payment
from apps.reservations.lifecycle import release
from apps.reservations.lifecycle.queue_slots import complete_slots, refresh_slots
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, join, make_event, make_hold_request
from tests.support.races import ConcurrentCall, in_another_connection, rival_waiting_at
from tests.support.reservations.buyers import begin_payment, cancel, confirm, is_held, problem_of, submit_hold

pytestmark = pytest.mark.django_db(transaction=True)


def busy_until() -> object:
    return QueueEntry.objects.get().busy_until


def test_the_slot_follows_the_reservation_from_hold_to_end() -> None:
    event = make_event(hold_seconds=60)
    entry = join(event)
    view = hold(event, entry, seats=["hall-A-1"])
    assert busy_until() == view.expires_at
    paying = begin_payment(view.id)
    assert busy_until() == paying.pay_deadline
    cancel(view.id)
    assert busy_until() is None
    again = begin_payment(hold(event, entry, seats=["hall-A-1"]).id)
    confirm(again.id, clock.now())
    assert busy_until() is None
    assert QueueEntry.objects.get().status == "completed"
    assert_audit_clean(without_money=True)


def test_control_freeing_a_slot_by_the_old_deadline_frees_one_that_is_busy_again() -> None:
    """The naive way: a slot busy until no later than the ended reservation's deadline is free.

    R: one minute to hold, three to pay: canceled while paying; its deadline was three minutes ahead
    H: the buyer holds again: busy for one minute
    F: one minute is no later than three: "free", although a live reservation keeps it busy
    """
    event = make_event(hold_seconds=60)
    entry = join(event)
    first = begin_payment(hold(event, entry, seats=["hall-A-1"]).id)
    cancel(first.id)
    second = hold(event, entry, seats=["hall-A-2"])
    assert first.pay_deadline is not None
    naive = QueueEntry.objects.filter(pk=entry.id, busy_until__lte=first.pay_deadline)
    assert naive.exists()
    assert reservations.get_reservation(second.id).is_live
    refresh_slots([entry.id])  # Ours also runs late, but sets the slot from the live reservation.
    assert busy_until() == second.expires_at
    assert_audit_clean()


def test_freeing_a_slot_waits_for_a_new_hold_and_leaves_it_busy() -> None:
    """E: a reservation has ended; its entry's slot is to be freed afterwards
    H: the buyer holds again, and has the entry locked
    F: waits for the entry; reads under its lock that the new reservation keeps it busy
    """
    event = make_event()
    entry = join(event)
    reservations.release(hold(event, entry, seats=["hall-A-1"]).id, who="test")
    request = make_hold_request(event, entry, seats=["hall-A-2"])
    with rival_waiting_at("insert_lines", "before", lambda: refresh_slots([entry.id])) as rival:
        outcome = submit_hold(request)
    assert is_held(outcome)
    rival.result()
    assert busy_until() == reservations.get_reservation(request.reservation_id).expires_at
    assert_audit_clean()


def test_a_new_hold_that_waits_for_the_freeing_of_its_slot_is_busy_afterwards(long_lock_wait: None) -> None:
    """F: has the entry locked, reads that no reservation keeps it busy
    H: the buyer holds again: waits for the entry
    F: free; COMMIT
    H: holds; busy
    """
    event = make_event()
    entry = join(event)
    reservations.release(hold(event, entry, seats=["hall-A-1"]).id, who="test")
    request = make_hold_request(event, entry, seats=["hall-A-2"])
    with rival_waiting_at("set_busy_until", "before", lambda: submit_hold(request)) as rival:
        refresh_slots([entry.id])
    assert is_held(rival.result())
    assert busy_until() == reservations.get_reservation(request.reservation_id).expires_at
    assert_audit_clean()


def test_a_slot_is_freed_only_after_the_commit_that_ended_its_reservation() -> None:
    """Entries precede reservations in the lock order: freed inside the transaction, the two could deadlock."""
    event = make_event()
    entry = join(event)
    view = hold(event, entry, seats=["hall-A-1"])
    with transaction.atomic():
        release.cancel(view.id, who="test", why="test")
        assert busy_until() == view.expires_at
        # Another transaction can lock the entry meanwhile, without waiting.
        ConcurrentCall(lambda: QueueEntry.objects.update(joined_at=clock.now() - timedelta(minutes=1))).result()
    assert busy_until() is None
    assert_audit_clean()


def test_a_paid_admission_cannot_hold_again_before_it_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """P: the payment confirms and commits; the entry is completed only by the next transaction
    H: in between the entry still reads ready: the hold reads the paid reservation under the entry's lock, and
    refuses
    """
    event = make_event()
    entry = join(event)
    early: list[reservations.HoldOutcome] = []

    def hold_too_early(entry_id: UUID) -> None:
        early.append(in_another_connection(lambda: submit_hold(make_hold_request(event, entry, seats=["hall-A-2"]))))
        complete_slots(entry_id)

    monkeypatch.setattr(payment, "complete_slots", hold_too_early)
    confirm(begin_payment(hold(event, entry, seats=["hall-A-1"]).id).id, clock.now())
    assert [problem_of(outcome).type for outcome in early] == ["admission-expired"]
    assert QueueEntry.objects.get().status == "completed"
    assert problem_of(submit_hold(make_hold_request(event, entry, seats=["hall-A-2"]))).type == "admission-expired"
    assert_audit_clean(without_money=True)


def test_a_late_payment_leaves_the_slot_to_the_reservation_held_since() -> None:
    """S: the first reservation lapses while its payment, made in time, is in transit
    H: the buyer holds other seats by the same admission
    P: the payment revives the first: the admission is not over, the second hold keeps it until it ends
    """
    event = make_event()
    entry = join(event)
    first = begin_payment(hold(event, entry, seats=["hall-A-1"]).id)
    paid_at = clock.now()
    backdate_deadline(first.id, seconds=5)
    release.sweep()
    second = hold(event, entry, seats=["hall-A-2"])
    confirm(first.id, paid_at)
    assert busy_until() == second.expires_at
    assert QueueEntry.objects.get().status == "ready"
    confirm(begin_payment(second.id).id, clock.now())
    assert QueueEntry.objects.get().status == "completed"
    assert_audit_clean(without_money=True)
