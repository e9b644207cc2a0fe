"""How reservations end: released, canceled, swept; their seats and tickets are free again, once, as the ledger
records."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import DatabaseError

from apps.kernel import clock
from apps.kernel.checks import auditor
from apps.kernel.db import transactions
from apps.queue.models import QueueEntry
from apps.reservations import facade as reservations
from apps.reservations.lifecycle import release
from apps.reservations.models import CleanupLog, Reservation, ReservationLine, ReservationTransition, SeatInventory
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, join, make_event, make_hold_request
from tests.support.reservations.buyers import (
    begin_payment,
    cancel,
    confirm,
    get_general_admission,
    is_held,
    run_sql,
    seat,
)

pytestmark = pytest.mark.django_db(transaction=True)


def history(reservation_id: object) -> list[tuple[str, str]]:
    rows = ReservationTransition.objects.filter(reservation_id=reservation_id)
    return list(rows.values_list("from_status", "to_status"))


def test_a_sweep_ends_reservations_past_their_deadline_and_no_others() -> None:
    event = make_event(general_admission=10)
    late = hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    late_paying = begin_payment(hold(event, seats=["hall-A-2"]).id)
    live = hold(event, seats=["hall-A-3"])
    paying = begin_payment(hold(event, seats=["hall-A-4"]).id)
    sold = confirm(begin_payment(hold(event, seats=["hall-A-5"]).id).id, clock.now())
    backdate_deadline(late.id)
    backdate_deadline(late_paying.id)
    # A payment has its own deadline: the first one no longer counts.
    run_sql("UPDATE reservations_reservation SET expires_at = clock_timestamp() WHERE id = %s", [paying.id])
    assert reservations.sweep() == reservations.SweepResult(reservations=2, seats=2, tickets=2)
    statuses = dict(Reservation.objects.values_list("id", "status"))
    assert [statuses[view.id] for view in (late, late_paying, live, paying, sold)] == [
        "expired", "expired", "pending_payment", "paying", "confirmed",
    ]  # fmt: skip
    assert [seat(f"hall-A-{number}").status for number in range(1, 6)] == [0, 0, 1, 1, 2]
    assert get_general_admission().taken == 0
    assert history(late_paying.id) == [("", "pending_payment"), ("pending_payment", "paying"), ("paying", "expired")]
    assert_audit_clean(without_money=True)


def test_a_sweep_of_large_reservations_ends_only_some_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """One transaction has SWEEP_TICKETS_MAX seats at most, or one reservation; the others are swept after it."""
    monkeypatch.setattr(release, "SWEEP_TICKETS_MAX", 9)
    event = make_event()
    for row in "ABCD":
        backdate_deadline(hold(event, seats=[f"hall-{row}-{number}" for number in range(1, 5)]).id)
    swept = reservations.sweep()
    assert (swept.reservations, swept.seats, swept.left, swept.found) == (2, 8, 2, 4)
    assert_audit_clean(without_money=True)
    assert reservations.sweep_all() == 2
    assert not SeatInventory.objects.exclude(status=0).exists()
    monkeypatch.setattr(release, "SWEEP_TICKETS_MAX", 1)
    backdate_deadline(hold(event, seats=["hall-A-1", "hall-A-2"]).id)
    assert reservations.sweep() == reservations.SweepResult(reservations=1, seats=2, tickets=0)
    assert_audit_clean(without_money=True)


def test_a_hold_gets_lapsed_seats_however_many_sweeps_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "SWEEP_TICKETS_MAX", 1)
    event = make_event()
    wanted = [f"hall-A-{number}" for number in range(1, 6)]
    for one in wanted:
        backdate_deadline(hold(event, seats=[one]).id)
    assert len(hold(event, seats=wanted).seats) == 5
    assert_audit_clean(without_money=True)


def test_a_lapsed_reservation_reads_as_expired_before_the_sweep() -> None:
    event = make_event()
    entry = join(event)
    view = hold(event, entry, seats=["hall-A-1"])
    live = reservations.live_reservation_of(entry.id)
    assert live is not None
    assert live.id == view.id
    backdate_deadline(view.id)
    assert reservations.get_reservation(view.id).status == "expired"
    assert reservations.live_reservation_of(entry.id) is None
    assert Reservation.objects.get().status == "pending_payment"


def test_a_sweep_records_the_released_tickets_of_each_section() -> None:
    event = make_event(general_admission=10)
    backdate_deadline(hold(event, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=3).id)
    backdate_deadline(hold(event, ga_section="floor", ga_quantity=1).id)
    reservations.sweep(by="test")
    rows = CleanupLog.objects.order_by("section__slug").values_list(
        "section__slug", "seats_released", "general_admission_released", "reservations_affected", "swept_by"
    )
    assert list(rows) == [("floor", 0, 4, 2, "test"), ("hall", 2, 0, 1, "test")]
    assert reservations.sweep(by="test") == reservations.SweepResult(0, 0, 0)
    assert CleanupLog.objects.count() == 2


def test_a_swept_reservation_frees_its_entry_for_another_hold() -> None:
    event = make_event()
    entry = join(event)
    backdate_deadline(hold(event, entry, seats=["hall-A-1"]).id)
    reservations.sweep()
    (outcome,) = reservations.hold([make_hold_request(event, entry, seats=["hall-A-1"])])
    assert is_held(outcome)
    assert_audit_clean()


def test_the_slot_of_a_reservation_in_payment_is_free_when_the_payment_deadline_has_passed() -> None:
    """Held for ten minutes, then in payment from the start, still for ten: the entry is busy until the reservation
    ends."""
    event = make_event()
    entry = join(event)
    view = begin_payment(hold(event, entry, seats=["hall-A-1"]).id)
    assert view.pay_deadline is not None
    assert view.pay_deadline == view.expires_at
    assert QueueEntry.objects.get().busy_until == view.pay_deadline
    backdate_deadline(view.id, 0)
    reservations.sweep()
    assert QueueEntry.objects.get().busy_until is None


def test_sweeping_all_runs_batch_after_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "SWEEP_MAX", 2)
    event = make_event(general_admission=10)
    for _ in range(5):
        backdate_deadline(hold(event, ga_section="floor", ga_quantity=1).id)
    assert reservations.sweep_all() == 5
    assert reservations.sweep_all() == 0
    assert_audit_clean()


def test_a_release_frees_everything_and_a_second_one_changes_nothing() -> None:
    event = make_event(general_admission=4)
    view = hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=4)
    for _ in range(2):
        assert reservations.release(view.id, who="test").status == "canceled"
    assert (seat("hall-A-1").status, get_general_admission().taken) == (0, 0)
    assert history(view.id) == [("", "pending_payment"), ("pending_payment", "canceled")]
    assert_audit_clean()


def test_a_reservation_in_payment_or_paid_is_not_released() -> None:
    event = make_event()
    view = begin_payment(hold(event, seats=["hall-A-1"]).id)
    with pytest.raises(reservations.PaymentInProgress):
        reservations.release(view.id, who="test")
    confirm(view.id, clock.now())
    with pytest.raises(reservations.PaymentInProgress, match="paid"):
        reservations.release(view.id, who="test")
    assert seat("hall-A-1").status == 2
    assert_audit_clean(without_money=True)


@pytest.mark.parametrize("how", ["release", "cancel", "get_reservation"])
def test_a_missing_reservation_is_not_found(how: str) -> None:
    act = {
        "release": lambda: reservations.release(uuid4(), who="test"),
        "cancel": lambda: cancel(uuid4()),
        "get_reservation": lambda: reservations.get_reservation(uuid4()),
    }[how]
    with pytest.raises(reservations.ReservationNotFound):
        act()


def test_a_cancellation_rolled_back_by_its_caller_never_happened() -> None:
    view = hold(make_event(), seats=["hall-A-1"])
    with pytest.raises(LookupError):
        cancel_and_fail(view)
    assert reservations.get_reservation(view.id).status == "pending_payment"
    assert QueueEntry.objects.get().busy_until is not None
    assert_audit_clean()


def cancel_and_fail(view: reservations.ReservationView) -> None:
    with transactions.write():
        reservations.cancel(view.id, who="test", why="test")
        raise LookupError


def test_a_cancellation_needs_its_callers_transaction() -> None:
    view = hold(make_event(), seats=["hall-A-1"])
    with pytest.raises(transactions.OutsideTransaction):
        reservations.cancel(view.id, who="test", why="test")


def test_the_ledger_cannot_be_rewritten() -> None:
    hold(make_event(), seats=["hall-A-1"])
    for act in (
        lambda: ReservationTransition.objects.update(who="forged"),
        lambda: ReservationTransition.objects.all().delete(),
    ):
        with pytest.raises(DatabaseError) as refused:
            act()
        assert transactions.violated_constraint(refused.value) == "reservation_transition_append_only"
    assert ReservationTransition.objects.get().who != "forged"


def test_one_inconsistent_reservation_does_not_keep_the_others_from_ending() -> None:
    """A row changed by hand: the seat belongs to another reservation. Its own reservation cannot release it, and is
    left for a person, to whom the auditor reports it; every other one ends normally."""
    event = make_event()
    views = [hold(event, seats=[f"hall-A-{number}"]) for number in range(1, 5)]
    stranger = hold(event, seats=["hall-B-1"])
    SeatInventory.objects.filter(seat__guid="hall-A-2").update(reservation_id=stranger.id)
    for view in views:
        backdate_deadline(view.id)
    assert reservations.sweep() == reservations.SweepResult(3, 3, 0)
    assert reservations.sweep() == reservations.SweepResult(0, 0, 0)
    assert [Reservation.objects.get(pk=view.id).status for view in views] == [
        "expired", "pending_payment", "expired", "expired",
    ]  # fmt: skip
    assert ReservationLine.objects.filter(reservation_id=views[1].id, live=True).exists()
    assert any(finding.breaches for finding in auditor.run() if finding.invariant == "I2")


def test_the_time_of_an_end_is_the_moment_it_happened() -> None:
    view = hold(make_event(), seats=["hall-A-1"])
    before = clock.now()
    reservations.release(view.id, who="test")
    row = Reservation.objects.get()
    assert row.ended_at is not None
    assert before < row.ended_at < clock.now()
    assert row.ended_at - row.created_at < timedelta(minutes=1)
