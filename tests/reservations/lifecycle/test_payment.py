"""From held to sold, one caller at a time: deadlines, caps, and the outcome of a payment in or out of time (I8)."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import IntegrityError

from apps.events.models import OnSale
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.queue.models import QueueEntry
from apps.reservations import facade as reservations
from apps.reservations.models import PurchaseCap, Reservation, ReservationTransition
from apps.reservations.staff.stock_summary import read_section_stock
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, join, make_event, make_hold_request
from tests.support.reservations.buyers import (
    begin_payment,
    cancel,
    confirm,
    get_general_admission,
    is_held,
    seat,
    submit_hold,
)

pytestmark = pytest.mark.django_db(transaction=True)

EMAIL = "buyer@example.org"


def test_beginning_payment_sets_one_deadline_and_repeating_it_does_not_extend_it() -> None:
    event = make_event()
    view = hold(event, seats=["hall-A-1"])
    first = begin_payment(view.id)
    # Ten minutes were left, more than a payment needs: paying takes none of them.
    assert first.pay_deadline == view.expires_at
    assert first.reserved_until == first.pay_deadline
    assert first.email == EMAIL
    again = begin_payment(view.id, "another@example.org")
    assert (again.pay_deadline, again.email) == (first.pay_deadline, EMAIL)
    assert ReservationTransition.objects.filter(to_status="paying").count() == 1
    assert_audit_clean()


def test_a_payment_that_begins_shortly_before_the_hold_ends_has_its_minutes() -> None:
    event = make_event()
    view = hold(event, seats=["hall-A-1"])
    backdate_deadline(view.id, seconds=-20)
    first = begin_payment(view.id)
    assert first.pay_deadline is not None
    left, minutes = first.pay_deadline - clock.now(), timedelta(seconds=event.policy.payment_seconds)
    assert minutes - timedelta(seconds=30) < left <= minutes
    assert begin_payment(view.id).pay_deadline == first.pay_deadline
    assert_audit_clean()


@pytest.mark.parametrize("left_seconds", [599, 181, 180, 179, 1])
def test_paying_never_shortens_a_hold(left_seconds: int) -> None:
    view = hold(make_event(), seats=["hall-A-1"])
    backdate_deadline(view.id, seconds=-left_seconds)
    hold_ends_at = Reservation.objects.get(pk=view.id).expires_at
    paying = begin_payment(view.id)
    assert paying.expires_at == hold_ends_at
    assert paying.pay_deadline is not None
    assert paying.pay_deadline >= hold_ends_at
    assert paying.pay_deadline - clock.now() > timedelta(minutes=2)


def test_the_database_refuses_a_payment_deadline_before_the_end_of_the_hold() -> None:
    view = begin_payment(hold(make_event(), seats=["hall-A-1"]).id)
    with pytest.raises(IntegrityError, match="reservation_paying_keeps_hold"):
        Reservation.objects.filter(pk=view.id).update(pay_deadline=view.expires_at - timedelta(seconds=1))


def test_a_payment_keeps_the_queue_entry_busy_as_long() -> None:
    event = make_event(hold_seconds=60)
    view = begin_payment(hold(event, seats=["hall-A-1"]).id)
    assert view.pay_deadline is not None
    assert view.pay_deadline > view.expires_at
    assert QueueEntry.objects.get().busy_until == view.pay_deadline


@pytest.mark.parametrize("ended", ["lapsed", "swept", "released", "confirmed"])
def test_a_reservation_that_is_no_longer_live_cannot_be_paid(ended: str) -> None:
    view = hold(make_event(), seats=["hall-A-1"])
    match ended:
        case "lapsed":
            backdate_deadline(view.id)
        case "swept":
            backdate_deadline(view.id)
            reservations.sweep()
        case "released":
            reservations.release(view.id, who="test")
        case "confirmed":
            confirm(begin_payment(view.id).id, clock.now())
    with pytest.raises(reservations.ReservationExpired):
        begin_payment(view.id)
    assert_audit_clean(without_money=True)


def test_a_payment_in_time_sells_the_seats_and_completes_the_entry() -> None:
    event = make_event(general_admission=5)
    view = begin_payment(hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2).id)
    sold = confirm(view.id, clock.now())
    assert sold.status == "confirmed"
    assert sold.confirmed_at is not None
    assert (seat("hall-A-1").status, get_general_admission().taken) == (2, 2)
    assert QueueEntry.objects.get().status == "completed"
    sections = read_section_stock(event.id)
    assert sorted((one.free, one.held, one.sold, one.blocked, one.capacity) for one in sections) == [
        (3, 0, 2, 0, 5), (49, 0, 1, 0, 50),
    ]  # fmt: skip
    assert_audit_clean(without_money=True)


def test_a_payment_reported_twice_confirms_once() -> None:
    view = begin_payment(hold(make_event(), seats=["hall-A-1"]).id)
    first = confirm(view.id, clock.now())
    assert confirm(view.id, clock.now() + timedelta(days=1)) == first
    assert ReservationTransition.objects.filter(to_status="confirmed").count() == 1
    assert_audit_clean(without_money=True)


def test_a_payment_after_deadline_and_grace_is_returned_whether_swept_or_not() -> None:
    event = make_event()
    grace = timedelta(seconds=event.policy.grace_seconds)
    swept, unswept = (begin_payment(hold(event, seats=[f"hall-A-{number}"]).id) for number in (1, 2))
    assert unswept.pay_deadline is not None
    late = unswept.pay_deadline + grace + timedelta(seconds=1)
    with pytest.raises(reservations.ReservationExpired):
        confirm(unswept.id, late)
    backdate_deadline(swept.id)
    reservations.sweep()
    with pytest.raises(reservations.ReservationExpired):
        confirm(swept.id, late)
    assert [seat(f"hall-A-{number}").status for number in (1, 2)] == [0, 1]
    assert_audit_clean()


def test_a_payment_for_a_canceled_reservation_is_returned_even_if_in_time() -> None:
    view = begin_payment(hold(make_event(), seats=["hall-A-1"]).id)
    cancel(view.id)
    with pytest.raises(reservations.ReservationExpired, match="canceled"):
        confirm(view.id, clock.now())
    assert seat("hall-A-1").status == 0
    assert_audit_clean()


def test_an_expired_reservation_confirmed_in_the_grace_period_has_its_lines_again() -> None:
    event = make_event(general_admission=3)
    view = begin_payment(hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=3).id)
    occurred_at = clock.now()
    backdate_deadline(view.id)
    reservations.sweep()
    again = confirm(view.id, occurred_at)
    assert (again.status, len(again.seats), again.general_admission[0].quantity) == ("confirmed", 1, 3)
    assert Reservation.objects.get().ended_at is None
    assert (seat("hall-A-1").status, get_general_admission().taken) == (2, 3)
    assert_audit_clean(without_money=True)


def test_a_canceled_sale_frees_its_seats_for_the_next_buyer() -> None:
    event = make_event(general_admission=2)
    view = begin_payment(hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2).id)
    confirm(view.id, clock.now())
    cancel(view.id)
    assert is_held(submit_hold(make_hold_request(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)))
    assert_audit_clean()


def test_a_checkout_above_the_addresss_cap_is_refused_and_the_hold_stays() -> None:
    event = make_event(per_buyer_max=2)
    reservations.prepare_payment(event.id, EMAIL)
    confirm(begin_payment(hold(event, seats=["hall-A-1", "hall-A-2"]).id).id, clock.now())
    other = hold(event, join(event), seats=["hall-B-1"])
    with pytest.raises(reservations.PurchaseCapReached):
        begin_payment(other.id)
    assert reservations.get_reservation(other.id).status == "pending_payment"
    assert begin_payment(other.id, "another@example.org").status == "paying"
    assert_audit_clean(without_money=True)


def test_an_unpaid_reservation_of_another_buyer_does_not_block_the_addresss_owner() -> None:
    event = make_event(per_buyer_max=2)
    reservations.prepare_payment(event.id, EMAIL)
    stranger = begin_payment(hold(event, seats=["hall-A-1", "hall-A-2"]).id)
    owner = begin_payment(hold(event, seats=["hall-B-1", "hall-B-2"]).id)
    assert confirm(owner.id, clock.now()).status == "confirmed"
    with pytest.raises(reservations.PurchaseCapReached):
        confirm(stranger.id, clock.now())
    assert reservations.get_reservation(stranger.id).status == "paying", "the caller refunds the payment and cancels"
    assert_audit_clean(without_money=True)


def test_a_limit_that_was_lowered_refunds_no_payment_that_was_allowed() -> None:
    event = make_event(per_buyer_max=4)
    reservations.prepare_payment(event.id, EMAIL)
    view = begin_payment(hold(event, seats=["hall-A-1", "hall-A-2", "hall-A-3"]).id)
    OnSale.objects.update(per_buyer_max=2)
    assert confirm(view.id, clock.now()).status == "confirmed"


def test_cap_rows_are_created_once_and_only_if_there_is_a_cap() -> None:
    capped = make_event("concert", per_buyer_max=2)
    free = make_event("opera", venue="The Other Venue")
    for event in (capped, capped, free):
        reservations.prepare_payment(event.id, EMAIL)
    assert list(PurchaseCap.objects.values_list("event_id", "buyer")) == [(capped.id, f"email:{EMAIL}")]


@pytest.mark.parametrize("act", ["begin_payment", "confirm"])
def test_payment_steps_join_their_callers_transaction_and_do_not_find_a_missing_reservation(act: str) -> None:
    calls = {
        "begin_payment": lambda: reservations.begin_payment(uuid4(), email=EMAIL, who="test"),
        "confirm": lambda: reservations.confirm(uuid4(), occurred_at=clock.now(), who="test", why="test"),
    }
    with pytest.raises(transactions.OutsideTransaction):
        calls[act]()
    with pytest.raises(reservations.ReservationNotFound), transactions.write():
        calls[act]()


def test_a_confirmation_rolled_back_by_its_caller_never_happened() -> None:
    view = begin_payment(hold(make_event(), seats=["hall-A-1"]).id)
    with pytest.raises(LookupError):
        confirm_and_fail(view)
    assert reservations.get_reservation(view.id).status == "paying"
    assert QueueEntry.objects.get().status == "ready"
    assert seat("hall-A-1").status == 1
    assert_audit_clean()


def confirm_and_fail(view: reservations.ReservationView) -> None:
    with transactions.write():
        reservations.confirm(view.id, occurred_at=clock.now(), who="test", why="test")
        raise LookupError
