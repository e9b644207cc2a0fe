"""Changes of a published event while it is on sale: joins, holds and checkouts lose nothing that was promised."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from apps.events import facade as events
from apps.events.models import EventChange, OnSale
from apps.events.revisions import proposal, service
from apps.events.revisions.proposal import Kind
from apps.events.revisions.terms import BuyerTerms
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.http import problems
from apps.orders.models import Order
from apps.queue.models import WaitingRoom
from apps.queue.room import operations
from apps.queue.room_row import lock_room, save_room
from apps.reservations import facade as reservations
from apps.reservations.errors import PurchaseCapReached
from apps.reservations.models import Reservation
from tests.support.events.factories import in_days
from tests.support.factories import SEAT_PRICE_MINOR, assert_audit_clean, audit_breaches, hold, join, make_event
from tests.support.orders.sale import buy, place_order
from tests.support.queue.rooms import make_room, open_now
from tests.support.races import ConcurrentCall, rival_at, storm, values

pytestmark = pytest.mark.django_db(transaction=True)
BY = {"who": "ada", "why": "test"}


def change(event: events.EventView, kind: str, **wanted: Any) -> int | None:
    return service.change_event(event.id, kind, wanted, return_days=14, **BY)


# --- a moved opening and processes that know the old one -------------------------------------------------------------


def decided_before_the_opening(monkeypatch: pytest.MonkeyPatch) -> tuple[events.EventView, Callable[[], object]]:
    """Return an event with a room as a process knows it, which opened a second ago, and a change of its opening that
    is decided a second earlier than that and commits now."""
    event = make_room(opens_at=clock.now() - timedelta(seconds=1))
    monkeypatch.setattr(service.clock, "now", lambda: event.policy.opens_at - timedelta(seconds=1))
    return event, lambda: change(event, Kind.ON_SALE, opens_at=event.policy.opens_at + timedelta(hours=1))


def test_control_without_a_margin_a_join_opens_the_room_before_the_new_opening(monkeypatch: pytest.MonkeyPatch) -> None:
    """S: decides to move the opening of 20:00 to 21:00, at 19:59:59; COMMIT
    J: knows the event as it was a second ago: it is 20:00, so the join opens the room
    """
    monkeypatch.setattr(proposal, "OPENING_MARGIN_SECONDS", 0)
    known, move = decided_before_the_opening(monkeypatch)
    move()
    monkeypatch.undo()
    join(known)
    assert WaitingRoom.objects.get().state == "open"
    assert events.get_event_by_id(known.id).selling_state(clock.now()) == "upcoming"


def test_an_opening_is_not_moved_while_a_process_may_still_open_the_room_at_the_old_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _, move = decided_before_the_opening(monkeypatch)
    with pytest.raises(problems.Invalid):
        move()
    assert not EventChange.objects.exists()


# --- a sale that goes on, and the job that drains rooms of ended sales -----------------------------------------------


def ended_sale() -> events.EventView:
    """Return an event whose sale ended a moment ago, with an open room."""
    event = make_room(closes_at=in_days(1))
    open_now(event)
    OnSale.objects.update(closes_at=clock.now() - timedelta(seconds=1))
    return event


def prolong(event: events.EventView) -> int | None:
    return change(event, Kind.ON_SALE, closes_at=in_days(2))


def naive_drain(event_id: int) -> None:
    """Read the event, then lock the room."""
    event = events.get_event_by_id(event_id)
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event_id)
        if event.is_over(clock.now_on(cursor)):
            operations._drain(cursor, room, clock.now_on(cursor), "sales have closed")
            save_room(cursor, room)


def test_control_a_drain_that_reads_the_event_before_the_lock_drains_a_sale_that_goes_on() -> None:
    """D: reads the event: its sale has ended
    S: prolongs the sale; COMMIT
    D: locks the room and drains it
    """
    event = ended_sale()
    with rival_at("lock_rooms", "before", lambda: prolong(event)):
        naive_drain(event.id)
    assert WaitingRoom.objects.get().state == "drained"
    assert events.get_event_by_id(event.id).selling_state(clock.now()) == "on_sale"


def test_a_drain_reads_the_event_under_the_lock() -> None:
    event = ended_sale()
    with rival_at("lock_rooms", "before", lambda: prolong(event)):
        assert operations._drain_if_over(event.id) is False
    assert WaitingRoom.objects.get().state == "open"


def test_a_room_that_was_drained_at_the_end_of_sales_opens_again_with_them() -> None:
    """D: has the room locked and drains it
    S: has written the event, waits for the room; reads under its lock that it is drained: opens it
    """
    event = ended_sale()
    with transactions.write(), connection.cursor() as cursor:
        room = lock_room(cursor, event.id)
        prolonging = ConcurrentCall(lambda: prolong(event)).wait_until_blocked()
        operations._drain(cursor, room, clock.now_on(cursor), "sales have closed")
        save_room(cursor, room)
    assert prolonging.result() is not None
    assert WaitingRoom.objects.get().state == "open"
    assert join(events.get_event_by_id(event.id)).number == 1


def test_a_room_that_an_operator_drained_during_the_sale_stays_drained() -> None:
    event = make_room(closes_at=in_days(1))
    open_now(event)
    operations.set_state(event.id, "drained", who="ada")
    prolong(event)
    assert WaitingRoom.objects.get().state == "drained"


# --- live holds and checkouts ----------------------------------------------------------------------------------------


def test_a_live_hold_keeps_its_deadline_when_limits_are_lowered() -> None:
    event = make_event(per_buyer_max=8)
    held = hold(event, seats=["hall-A-1", "hall-A-2", "hall-A-3"])
    change(event, Kind.LIMITS, hold_seconds=60, seats_per_reservation_max=1, per_buyer_max=1)
    after = reservations.get_reservation(held.id)
    assert (after.expires_at, after.is_live) == (held.expires_at, True)
    assert buy(after).status == Order.Status.CONFIRMED
    assert_audit_clean()


def test_control_a_lower_cap_that_holds_for_earlier_holds_ends_their_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    event = make_event(per_buyer_max=8)
    held = hold(event, seats=["hall-A-1", "hall-A-2", "hall-A-3"])
    change(event, Kind.LIMITS, per_buyer_max=1)
    monkeypatch.setattr(events, "terms_at", lambda event, at: BuyerTerms(event.price_policy, 1))
    with pytest.raises(PurchaseCapReached):
        place_order(reservations.get_reservation(held.id))
    monkeypatch.setattr(events, "cap_since", lambda event: None)
    assert len(audit_breaches()) == 1


def test_a_lower_cap_holds_for_reservations_made_after_it() -> None:
    event = make_event(per_buyer_max=8)
    account_id = get_user_model().objects.create_user("buyer").pk
    buy(hold(event, join(event, account_id=account_id), seats=["hall-A-1", "hall-A-2"]))
    change(event, Kind.LIMITS, per_buyer_max=2)
    fresh = events.get_event_by_id(event.id)
    assert_audit_clean()
    with pytest.raises(AssertionError, match="PurchaseCapReached"):
        hold(fresh, join(fresh, account_id=account_id), seats=["hall-A-3"])


def quoted(reservation: reservations.ReservationView) -> int:
    return reservations.get_reservation(reservation.id).bill.total_minor


def test_control_a_checkout_by_the_present_fees_charges_more_than_the_buyer_saw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    event = make_event()
    held = hold(event, seats=["hall-A-1"])
    seen = quoted(held)
    change(event, Kind.FEES, ticket_fee_minor=500)
    monkeypatch.setattr(events, "terms_at", lambda event, at: BuyerTerms(event.price_policy, None))
    assert place_order(reservations.get_reservation(held.id)).total_minor == seen + 500


def test_checkouts_during_a_change_of_the_fees_charge_what_their_buyers_saw() -> None:
    """Holds from before the change and from the seconds after it, which may have shown the old fees, keep them."""
    event = make_event()
    held = [hold(event, seats=[f"hall-{row}-{seat}"]) for row in "AB" for seat in range(1, 6)]

    def act(number: int) -> Any:
        if number == len(held):
            return change(event, Kind.FEES, ticket_fee_minor=500, tax_rate=1_900, tax_included=False)
        return place_order(reservations.get_reservation(held[number].id)).total_minor

    assert values(storm(len(held) + 1, act))[:-1] == [SEAT_PRICE_MINOR] * len(held)
    soon = hold(events.get_event_by_id(event.id), seats=["hall-C-1"])
    assert quoted(soon) == SEAT_PRICE_MINOR
    Reservation.objects.filter(pk=soon.id).update(
        created_at=soon.created_at + timedelta(seconds=events.EFFECTIVE_AFTER_SECONDS + 1)
    )
    assert quoted(soon) == 6_545
    assert_audit_clean()


def test_two_members_of_staff_never_overwrite_each_other() -> None:
    """Both saw the same values; one change wins, the others are refused."""
    event = make_event()
    seen = service.version(event, Kind.LIMITS)
    outcomes = storm(
        4,
        lambda number: service.change_event(event.id, Kind.LIMITS, {"hold_seconds": 60 + number}, seen=seen, **BY),
    )
    assert sum(outcome.error is None for outcome in outcomes) == 1
    assert {type(outcome.error) for outcome in outcomes if outcome.error} == {service.EventChangedMeanwhile}
    assert EventChange.objects.count() == 1


def test_a_hold_never_waits_for_a_change() -> None:
    """S: has the event and its on-sale locked
    H: holds and commits meanwhile
    """
    event = make_event()
    starts_at = in_days(40)
    with rival_at("lock_rooms", "before", lambda: hold(event, seats=["hall-A-1"])):
        change(event, Kind.SCHEDULE, starts_at=starts_at)
    assert events.get_event_by_id(event.id).starts_at == starts_at
    assert Reservation.objects.get().status == "pending_payment"
