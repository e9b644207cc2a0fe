"""The auditor finds each breach when it is planted, with the constraint out of the way where one stands before it."""

import pytest

from apps.queue.models import QueueEntry
from apps.reservations.models import (
    GeneralAdmissionInventory,
    Reservation,
    ReservationLine,
    ReservationTransition,
    SeatInventory,
)
from tests.factories import assert_audit_clean, audit_breaches, hold, join, make_event
from tests.reservations.race.buyers import begin_payment, confirm, run, seat
from ticketing.kernel import clock

# Each test is undone with its transaction, the dropped constraints too.
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _sale() -> None:
    """One event with a live reservation (hall-A-1 and two places), another buyer's (hall-B-1), and a sale
    (hall-C-1). Clean."""
    event = make_event(general_admission=10, per_buyer_max=3)
    hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    hold(event, seats=["hall-B-1"])
    confirm(begin_payment(hold(event, seats=["hall-C-1"]).id).id, clock.now())
    assert_audit_clean(without_money=True)


def owner_of(guid: str) -> Reservation:
    return Reservation.objects.get(pk=seat(guid).reservation_id)


def drop(table: str, constraint: str) -> None:
    run("SET CONSTRAINTS ALL IMMEDIATE")
    run(f"ALTER TABLE reservations_{table} DROP CONSTRAINT {constraint}")


def drop_index(name: str) -> None:
    run("SET CONSTRAINTS ALL IMMEDIATE")
    run(f"DROP INDEX {name}")


def found(invariant: str, *words: str) -> bool:
    """Some breach of this invariant names all these words."""
    return any(
        breach.startswith(f"{invariant}: ") and all(word in breach for word in words) for breach in audit_breaches()
    )


def test_i1_a_seat_without_its_inventory_row() -> None:
    SeatInventory.objects.filter(seat__guid="hall-E-9").delete()
    assert found("I1", "concert/hall", "capacity 50, 49 inventory rows")


def test_i1_a_held_seat_set_free_behind_its_reservation_s_back() -> None:
    SeatInventory.objects.filter(seat__guid="hall-A-1").update(status=0, reservation_id=None)
    assert found("I1", "concert/hall", "held 1 against 2 by lines")
    assert found("I2", str(seat("hall-A-1").pk))


def test_i1_a_sold_seat_that_says_it_is_held() -> None:
    SeatInventory.objects.filter(seat__guid="hall-C-1").update(status=1)
    assert found("I1", "sold 0 against 1")
    assert found("I2", str(seat("hall-C-1").pk), "confirmed")


def test_i1_an_ended_reservation_whose_lines_still_hold() -> None:
    owner = owner_of("hall-B-1")
    Reservation.objects.filter(pk=owner.pk).update(status="canceled", ended_at=clock.now())
    assert found("I1", str(owner.pk), "is canceled with 1 of 1 lines holding")
    assert found("I8", str(owner.pk), "the ledger says")


def test_i1_a_live_reservation_whose_lines_hold_nothing() -> None:
    owner = owner_of("hall-B-1")
    ReservationLine.objects.filter(reservation=owner).update(live=False)
    assert found("I1", str(owner.pk), "is pending_payment with 0 of 1 lines holding")


def test_i1_a_header_that_counts_other_than_its_lines() -> None:
    owner = owner_of("hall-B-1")
    Reservation.objects.filter(pk=owner.pk).update(seat_count=2)
    assert found("I1", str(owner.pk), "1 places against 2 in its header")


def test_i2_a_seat_on_two_live_lines() -> None:
    drop_index("reservation_line_seat_held_once")
    ReservationLine.objects.filter(seat=seat("hall-B-1")).update(seat=seat("hall-A-1"))
    assert found("I2", f"seat {seat('hall-A-1').pk} is on 2 live lines")
    assert found("I2", f"seat {seat('hall-B-1').pk}", "its live line to None")


def test_i2_a_seat_whose_inventory_names_another_reservation_than_its_line() -> None:
    stranger = owner_of("hall-B-1")
    SeatInventory.objects.filter(seat__guid="hall-A-1").update(reservation_id=stranger.pk)
    assert found("I2", f"seat {seat('hall-A-1').pk}", f"belongs to {stranger.pk}")


def test_i2_a_held_seat_without_an_owner() -> None:
    drop("seatinventory", "seat_inventory_held_has_reservation")
    SeatInventory.objects.filter(seat__guid="hall-D-1").update(status=1)
    assert found("I2", f"seat {seat('hall-D-1').pk} (status 1) belongs to None")
    assert found("I1", "concert/hall", "held 3 against 2")


def test_i2_a_line_for_a_seat_that_does_not_exist() -> None:
    """There is no foreign key in the hottest table: the auditor looks for orphans instead."""
    ReservationLine.objects.filter(seat=seat("hall-B-1")).update(seat_id=999_999_999)
    assert found("I2", "seat 999999999")


@pytest.mark.parametrize(("taken", "words"), [(1, "taken 1 against 2"), (3, "taken 3 against 2")])
def test_i3_a_count_that_is_not_what_its_lines_say(taken: int, words: str) -> None:
    GeneralAdmissionInventory.objects.update(taken=taken)
    assert found("I3", "general admission", words)


def test_i3_a_count_above_the_capacity() -> None:
    drop("generaladmissioninventory", "general_admission_never_oversold")
    GeneralAdmissionInventory.objects.update(taken=11)
    assert found("I3", "taken 11 against 2", "capacity 10")


def test_i3_more_sold_and_blocked_than_there_is_although_the_lines_agree() -> None:
    drop("generaladmissioninventory", "general_admission_never_oversold")
    GeneralAdmissionInventory.objects.update(blocked=9)
    assert found("I3", "taken 2 against 2", "blocked 9, capacity 10")


def test_i3_a_negative_count() -> None:
    drop("generaladmissioninventory", "general_admission_never_negative")
    drop("generaladmissioninventory", "reservations_generaladmissioninventory_taken_check")
    GeneralAdmissionInventory.objects.update(taken=-1)
    assert found("I3", "taken -1 against 2")


def test_i5_two_live_reservations_of_one_admission() -> None:
    drop_index("reservation_one_live_per_admission")
    one, other = owner_of("hall-A-1"), owner_of("hall-B-1")
    Reservation.objects.filter(pk=other.pk).update(entry=one.entry_id)
    assert found("I5", f"admission {one.entry_id} has 2 live reservations")


def test_i5_a_buyer_with_more_than_the_cap() -> None:
    one, other = owner_of("hall-A-1"), owner_of("hall-B-1")
    Reservation.objects.filter(pk=other.pk).update(buyer=one.buyer)
    assert found("I5", f"buyer {one.buyer} has 4 of at most 3")


def test_i5_an_address_with_more_than_the_cap() -> None:
    Reservation.objects.update(email="one@example.org")
    assert found("I5", "e-mail one@example.org has 5 of at most 3")


def test_i8_a_confirmation_that_is_not_in_the_ledger() -> None:
    owner = owner_of("hall-B-1")
    Reservation.objects.filter(pk=owner.pk).update(status="confirmed", confirmed_at=clock.now())
    SeatInventory.objects.filter(seat__guid="hall-B-1").update(status=2)
    assert found("I8", str(owner.pk), "is confirmed, the ledger says", "pending_payment")


def test_i8_a_canceled_reservation_that_was_confirmed_again() -> None:
    owner = owner_of("hall-C-1")
    for before, after in (("confirmed", "canceled"), ("canceled", "confirmed")):
        ReservationTransition.objects.create(
            reservation=owner, from_status=before, to_status=after, who="x", at=clock.now()
        )
    assert found("I8", str(owner.pk), "canceled → confirmed")


def test_i8_a_reservation_without_any_ledger() -> None:
    owner = owner_of("hall-B-1")
    run("SET CONSTRAINTS ALL IMMEDIATE")
    run("ALTER TABLE reservations_reservationtransition DISABLE TRIGGER reservation_transition_append_only")
    ReservationTransition.objects.filter(reservation=owner).delete()
    assert found("I8", str(owner.pk), "is pending_payment, the ledger says None")


def test_a_breach_in_one_event_is_named_by_its_event_and_the_others_stay_clean() -> None:
    opera = make_event("opera", venue="The Other Venue")
    hold(opera, join(opera), seats=["hall-A-1"])
    SeatInventory.objects.filter(event_id=opera.id, status=1).update(status=0, reservation_id=None)
    breaches = [breach for breach in audit_breaches() if not breach.startswith("I4")]
    assert breaches
    assert all("opera" in breach for breach in breaches)
    assert QueueEntry.objects.filter(event_id=opera.id).count() == 1
