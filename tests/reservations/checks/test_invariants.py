"""The auditor finds each planted breach, after the constraint that prevents it is dropped where there is one."""

import uuid
from datetime import timedelta

import pytest

from apps.kernel import clock
from apps.kernel.checks import auditor
from apps.queue.models import QueueEntry
from apps.reservations.lifecycle.release import sweep_all
from apps.reservations.models import (
    GeneralAdmissionInventory,
    Reservation,
    ReservationLine,
    ReservationTransition,
    SeatInventory,
)
from tests.support.factories import assert_audit_clean, audit_breaches, backdate_deadline, hold, join, make_event
from tests.support.reservations.buyers import begin_payment, confirm, run_sql, seat

# Each test is rolled back with its transaction, the dropped constraints too.
pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _sale() -> None:
    """One event with a live reservation (hall-A-1 and two tickets), another buyer's (hall-B-1), and a sale (hall-C-1).
    The audit is clean."""
    event = make_event(general_admission=10, per_buyer_max=3)
    hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    hold(event, seats=["hall-B-1"])
    confirm(begin_payment(hold(event, seats=["hall-C-1"]).id).id, clock.now())
    assert_audit_clean(without_money=True)


def owner_of(guid: str) -> Reservation:
    return Reservation.objects.get(pk=seat(guid).reservation_id)


def drop(table: str, constraint: str) -> None:
    run_sql("SET CONSTRAINTS ALL IMMEDIATE")
    run_sql(f"ALTER TABLE reservations_{table} DROP CONSTRAINT {constraint}")


def drop_index(name: str) -> None:
    run_sql("SET CONSTRAINTS ALL IMMEDIATE")
    run_sql(f"DROP INDEX {name}")


def found(invariant: str, *words: str) -> bool:
    """Whether some breach of this invariant contains all these words."""
    return any(
        breach.startswith(f"{invariant}: ") and all(word in breach for word in words) for breach in audit_breaches()
    )


def test_i1_a_seat_without_its_inventory_row() -> None:
    SeatInventory.objects.filter(seat__guid="hall-E-9").delete()
    assert found("I1", "concert/hall", "capacity 50, 49 inventory rows")


def test_i1_a_held_seat_freed_without_its_reservation() -> None:
    SeatInventory.objects.filter(seat__guid="hall-A-1").update(status=0, reservation_id=None)
    assert found("I1", "concert/hall", "held 1 against 2 by lines")
    assert found("I2", str(seat("hall-A-1").pk))


def test_i1_a_sold_seat_with_status_held() -> None:
    SeatInventory.objects.filter(seat__guid="hall-C-1").update(status=1)
    assert found("I1", "sold 0 against 1")
    assert found("I2", str(seat("hall-C-1").pk), "confirmed")


def test_i1_an_ended_reservation_whose_lines_are_live() -> None:
    owner = owner_of("hall-B-1")
    Reservation.objects.filter(pk=owner.pk).update(status="canceled", ended_at=clock.now())
    assert found("I1", str(owner.pk), "is canceled with 1 of 1 lines live")
    assert found("I8", str(owner.pk), "its last ledger entry is")


def test_i1_a_live_reservation_whose_lines_hold_nothing() -> None:
    owner = owner_of("hall-B-1")
    ReservationLine.objects.filter(reservation=owner).update(live=False)
    assert found("I1", str(owner.pk), "is pending_payment with 0 of 1 lines live")


def test_i1_a_header_whose_counts_differ_from_its_lines() -> None:
    owner = owner_of("hall-B-1")
    Reservation.objects.filter(pk=owner.pk).update(seat_count=2)
    assert found("I1", str(owner.pk), "1 tickets against 2 in its header")


def test_i1_a_blocked_seat_without_a_reason() -> None:
    drop("seatinventory", "seat_inventory_blocked_says_why")
    SeatInventory.objects.filter(seat__guid="hall-D-1").update(status=3)
    assert found("I1", f"seat {seat('hall-D-1').pk} has status 3", "blocked for nothing")


def test_i1_a_free_seat_with_a_reason_for_blocking() -> None:
    drop("seatinventory", "seat_inventory_blocked_says_why")
    SeatInventory.objects.filter(seat__guid="hall-D-1").update(blocked_for="house")
    assert found("I1", f"seat {seat('hall-D-1').pk} has status 0", "blocked for house")


def test_i1_a_free_seat_with_an_owner() -> None:
    drop("seatinventory", "seat_inventory_held_has_reservation")
    owner = owner_of("hall-A-1")
    SeatInventory.objects.filter(seat__guid="hall-D-1").update(reservation_id=owner.pk)
    assert found("I1", f"seat {seat('hall-D-1').pk} has status 0", f"reservation {owner.pk}")


def test_i1_a_seat_with_an_unknown_status() -> None:
    drop("seatinventory", "seat_inventory_held_has_reservation")
    SeatInventory.objects.filter(seat__guid="hall-D-1").update(status=4)
    assert found("I1", f"seat {seat('hall-D-1').pk} has status 4")
    assert found("I1", "concert/hall: capacity 50, 50 inventory rows, 46 available, 0 blocked")


def test_i1_a_seat_counted_in_another_section() -> None:
    row, floor = seat("hall-D-1"), GeneralAdmissionInventory.objects.get().section_id
    SeatInventory.objects.filter(pk=row.pk).update(section_id=floor)
    assert found("I1", f"its section is {floor}, the plan's {row.section_id}")
    assert found("I1", "concert/hall: capacity 50, 49 inventory rows")


def test_i1_a_general_admission_section_without_its_row() -> None:
    GeneralAdmissionInventory.objects.all().delete()
    assert found("I1", "concert: general admission floor: no inventory row")


def test_i1_a_capacity_that_differs_from_the_published_one() -> None:
    GeneralAdmissionInventory.objects.update(capacity=12)
    assert found("I1", "general admission floor: capacity 12, published 10")


def test_i1_more_house_seats_than_blocked_ones() -> None:
    drop("generaladmissioninventory", "general_admission_house_is_blocked")
    GeneralAdmissionInventory.objects.update(blocked=1, house=2)
    assert found("I1", "house seats 2 of 1 blocked")


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
    """The busiest table has no foreign key: the auditor looks for orphans instead."""
    ReservationLine.objects.filter(seat=seat("hall-B-1")).update(seat_id=999_999_999)
    assert found("I2", "seat 999999999")


@pytest.mark.parametrize(("taken", "words"), [(1, "taken 1 against 2"), (3, "taken 3 against 2")])
def test_i3_a_count_that_differs_from_its_lines(taken: int, words: str) -> None:
    GeneralAdmissionInventory.objects.update(taken=taken)
    assert found("I3", "general admission", words)


def test_i3_a_count_above_the_capacity() -> None:
    drop("generaladmissioninventory", "general_admission_never_oversold")
    GeneralAdmissionInventory.objects.update(taken=11)
    assert found("I3", "taken 11 against 2", "capacity 10")


def test_i3_more_sold_and_blocked_than_the_capacity_although_the_lines_agree() -> None:
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


def test_i5_a_buyer_above_the_cap() -> None:
    one, other = owner_of("hall-A-1"), owner_of("hall-B-1")
    Reservation.objects.filter(pk=other.pk).update(buyer=one.buyer)
    assert found("I5", f"buyer {one.buyer} has 4 of at most 3")


def test_i5_an_address_above_the_cap() -> None:
    Reservation.objects.update(email="one@example.org")
    assert not found("I5", "email"), "unpaid seats of several buyers do not count together"
    Reservation.objects.filter(status="confirmed").update(seat_count=4)
    assert found("I5", "email one@example.org has 4 of at most 3")


def test_i8_a_confirmation_that_is_not_in_the_ledger() -> None:
    owner = owner_of("hall-B-1")
    Reservation.objects.filter(pk=owner.pk).update(status="confirmed", confirmed_at=clock.now())
    SeatInventory.objects.filter(seat__guid="hall-B-1").update(status=2)
    assert found("I8", str(owner.pk), "is confirmed, its last ledger entry is", "pending_payment")


def test_i8_a_canceled_reservation_that_was_confirmed_again() -> None:
    owner = owner_of("hall-C-1")
    for before, after in (("confirmed", "canceled"), ("canceled", "confirmed")):
        ReservationTransition.objects.create(
            reservation=owner, from_status=before, to_status=after, who="x", at=clock.now()
        )
    assert found("I8", str(owner.pk), "canceled → confirmed")


def test_i8_a_ledger_with_a_gap() -> None:
    """The final status of the reservation is right, but the transition to paying was not recorded."""
    owner = owner_of("hall-B-1")
    Reservation.objects.filter(pk=owner.pk).update(status="canceled", ended_at=clock.now())
    ReservationTransition.objects.create(
        reservation=owner, from_status="paying", to_status="canceled", who="x", at=clock.now()
    )
    assert found("I8", str(owner.pk), "was pending_payment", "its next ledger entry is paying → canceled")


def test_i8_a_ledger_in_which_a_canceled_reservation_lives_again() -> None:
    owner = owner_of("hall-B-1")
    for before, after in (("pending_payment", "canceled"), ("canceled", "pending_payment")):
        ReservationTransition.objects.create(
            reservation=owner, from_status=before, to_status=after, who="x", at=clock.now()
        )
    assert found("I8", str(owner.pk), "canceled → pending_payment")


def test_i8_a_reservation_without_any_ledger() -> None:
    owner = owner_of("hall-B-1")
    run_sql("SET CONSTRAINTS ALL IMMEDIATE")
    run_sql("ALTER TABLE reservations_reservationtransition DISABLE TRIGGER reservation_transition_append_only")
    ReservationTransition.objects.filter(reservation=owner).delete()
    assert found("I8", str(owner.pk), "is pending_payment, its last ledger entry is None")


def end_without_releasing(guid: str) -> Reservation:
    """End the reservation correctly in header and ledger, but leave its seats and lines."""
    owner = owner_of(guid)
    Reservation.objects.filter(pk=owner.pk).update(status="expired", ended_at=clock.now())
    ReservationTransition.objects.create(
        reservation=owner, from_status="pending_payment", to_status="expired", who="x", at=clock.now()
    )
    return owner


def test_i10_seats_and_lines_of_a_reservation_that_has_ended() -> None:
    owner = end_without_releasing("hall-A-1")
    assert found("I10", f"seat {seat('hall-A-1').pk} (status 1) is held by {owner.pk} (expired)")
    assert found("I10", f"reservation {owner.pk} is expired, 2 of its lines are live")
    assert not found("I8")


def test_i10_a_seat_of_an_unknown_reservation() -> None:
    stranger = uuid.uuid4()
    SeatInventory.objects.filter(seat__guid="hall-D-1").update(status=1, reservation_id=stranger)
    assert found("I10", f"seat {seat('hall-D-1').pk} (status 1) is held by {stranger} (unknown)")


def test_i10_tickets_taken_without_a_line() -> None:
    GeneralAdmissionInventory.objects.update(taken=5)
    assert found("I10", "general admission floor: 3 of 5 taken have no line")


def test_i10_tickets_held_for_a_missing_reservation() -> None:
    missing_id = "00000000-0000-4000-8000-000000000000"
    line = ReservationLine.objects.get(seat=None)
    line.pk, line.reservation_id = None, missing_id
    line.save()
    GeneralAdmissionInventory.objects.update(taken=4)
    assert found("I10", "a line holds 2 for reservation", missing_id, "does not exist")


def test_i1_tickets_in_a_reserved_section_or_of_another_event() -> None:
    hall = seat("hall-A-1").section_id
    elsewhere = make_event("elsewhere", general_admission=10)
    floor = GeneralAdmissionInventory.objects.get(event_id=elsewhere.id).section_id
    for section in (hall, floor):
        ReservationLine.objects.filter(seat=None).update(section_id=section)
        assert found("I1", "2 of 2 lines live", "1 lines are invalid")


def test_a_sum_that_overflows_every_column_is_a_breach_and_does_not_end_the_audit() -> None:
    ReservationLine.objects.filter(seat=None).update(price_minor=9 * 10**18)
    assert found("I1", "18000000000000005000 against 10000 to pay")


def test_i10_a_reservation_that_lapsed_longer_ago_than_a_sweep_may_take() -> None:
    """The limit is five seconds: one second late is no breach, six are; a payment's deadline counts once there is
    one."""
    pending, paying = owner_of("hall-A-1"), owner_of("hall-B-1")
    begin_payment(paying.pk)
    backdate_deadline(pending.pk, seconds=1)
    assert not found("I10", "overdue")
    backdate_deadline(pending.pk, seconds=6)
    Reservation.objects.filter(pk=paying.pk).update(expires_at=clock.now() - timedelta(seconds=6))
    assert found("I10", "overdue", str(pending.pk), "is pending_payment")
    assert not found("I10", "overdue", str(paying.pk))
    backdate_deadline(paying.pk, seconds=6)
    assert found("I10", "overdue", str(paying.pk), "is paying")
    sweep_all()
    assert_audit_clean(without_money=True)
    assert not found("I10")


@pytest.mark.parametrize("size", [1, 2, 7])
def test_an_audit_in_small_chunks_finds_the_same(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Rows on either side of a chunk's edge are read once, also the last seat and those beyond it."""
    monkeypatch.setattr(auditor, "PIECE_MAX", size)
    monkeypatch.setattr(auditor, "PIECE_MIN", 1)
    assert_audit_clean(without_money=True)
    SeatInventory.objects.filter(seat__guid__in=["hall-A-1", "hall-E-10"]).update(status=1, reservation_id=uuid.uuid4())
    ReservationLine.objects.filter(seat=seat("hall-B-1")).update(seat_id=999_999_999)
    lost = {int(breach.split("seat ")[1].split()[0]) for breach in audit_breaches() if breach.startswith("I2")}
    assert lost == {seat("hall-A-1").pk, seat("hall-E-10").pk, seat("hall-B-1").pk, 999_999_999}


def test_one_event_is_audited_alone_and_as_thoroughly() -> None:
    """The breaches of the event are found, and none of the other event's, whichever of them has the first seats."""
    opera = make_event("opera", venue="The Other Venue", general_admission=4)
    hold(opera, join(opera), seats=["hall-A-1"])
    hold(opera, join(opera), ga_section="floor", ga_quantity=1)
    SeatInventory.objects.filter(seat__guid="hall-A-1").update(status=0, reservation_id=None)
    GeneralAdmissionInventory.objects.update(taken=3)
    for slug, other in (("concert", "opera"), ("opera", "concert")):
        alone = [breach for finding in auditor.run(slug) for breach in finding.breaches]
        everything = [breach for finding in auditor.run() for breach in finding.breaches]
        assert alone == [breach for breach in everything if breach.startswith(slug)]
        assert len(alone) >= 4
        assert not any(breach.startswith(other) for breach in alone)


def test_an_event_without_a_seat_is_audited_alone() -> None:
    festival = make_event("festival", venue="A Field", rows=0, general_admission=9)
    hold(festival, ga_section="floor", ga_quantity=2)
    assert not [breach for finding in auditor.run("festival") for breach in finding.breaches]
    GeneralAdmissionInventory.objects.update(taken=1)
    assert any("taken 1 against 2" in breach for finding in auditor.run("festival") for breach in finding.breaches)


def test_a_breach_in_one_event_is_named_by_its_event_and_the_others_stay_clean() -> None:
    opera = make_event("opera", venue="The Other Venue")
    hold(opera, join(opera), seats=["hall-A-1"])
    SeatInventory.objects.filter(event_id=opera.id, status=1).update(status=0, reservation_id=None)
    breaches = [breach for breach in audit_breaches() if not breach.startswith("I4")]
    assert breaches
    assert all("opera" in breach for breach in breaches)
    assert QueueEntry.objects.filter(event_id=opera.id).count() == 1
