"""Aware of the stock: nobody is let in for whom there is nothing, and everybody again once there is."""

from datetime import timedelta

import pytest

from apps.events.facade import EventView
from apps.kernel import clock
from apps.queue import facade
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.room import operations
from apps.reservations.counts import supply_report
from apps.reservations.lifecycle import release
from tests.support.factories import assert_audit_clean, backdate_deadline, hold
from tests.support.queue.rooms import (
    backdate_admissions,
    claim_or_get_entry,
    complete_admission,
    join_waiting_entries,
    make_room,
    statuses,
    tick,
)

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def event() -> EventView:
    """Four places and no other cap in the way."""
    return make_room(rows=1, seats_per_row=4, rate=100, active=100)


def report(event: EventView) -> tuple[int | None, int | None]:
    supply_report.report_supply()
    told = WaitingRoom.objects.get(event_id=event.id)
    return told.supply_available, told.supply_held


def test_who_is_in_and_holds_nothing_yet_has_a_place_put_by(event: EventView) -> None:
    join_waiting_entries(event, 9)
    assert report(event) == (4, 0)
    assert tick(event) == 4
    assert tick(event) == 0, "four free places, and four who are choosing"
    assert statuses(event).count("ready") == 4
    assert_audit_clean()


def test_who_holds_something_counts_no_more_for_that_is_not_available(event: EventView) -> None:
    entries = join_waiting_entries(event, 9)
    report(event)
    tick(event)
    hold(event, claim_or_get_entry(entries[0]), seats=["hall-A-1", "hall-A-2"])
    assert report(event) == (2, 2)
    assert tick(event) == 0, "two free places, and three who are choosing"
    for entry in entries[1:3]:
        claim_or_get_entry(entry)
    backdate_admissions(*entries[1:3])
    assert tick(event) == 1, "two gave up, so one is choosing; the other place is for the next in line"
    assert_audit_clean()


def test_the_last_place_is_offered_to_somebody_even_if_people_buy_more_than_one(event: EventView) -> None:
    entries = join_waiting_entries(event, 3)
    facade.report_supply(event.id, available=1, held=3)
    assert tick(event) == 1
    assert tick(event) == 0
    backdate_admissions(claim_or_get_entry(entries[0]))
    assert tick(event) == 1


def test_when_holds_lapse_the_line_goes_on(event: EventView) -> None:
    first, *_ = join_waiting_entries(event, 3)
    report(event)
    WaitingRoom.objects.update(active_max=1)
    tick(event)
    held = hold(event, claim_or_get_entry(first), seats=[f"hall-A-{seat}" for seat in (1, 2, 3, 4)])
    WaitingRoom.objects.update(active_max=100)
    assert report(event) == (0, 4)
    assert tick(event) == 0
    assert WaitingRoom.objects.get().state == "open", "what is held may come back"
    backdate_deadline(held.id)
    QueueEntry.objects.filter(pk=first.id).update(busy_until=clock.now() - timedelta(seconds=1))
    release.sweep_all(by="beat")
    assert report(event) == (4, 0)
    assert QueueEntry.objects.get(pk=first.id).busy_until is None
    assert tick(event) == 2, "everybody: four places, and one who chooses again"
    assert_audit_clean()


def test_an_operator_s_number_is_bound_by_it_too(event: EventView) -> None:
    join_waiting_entries(event, 9)
    report(event)
    assert operations.admit_now(event.id, 3, who="staff") == 3
    assert operations.admit_now(event.id, 3, who="staff") == 1
    assert operations.admit_now(event.id, 3, who="staff") == 0


def test_more_choosing_than_there_are_places_lets_nobody_in_and_puts_nobody_out(event: EventView) -> None:
    join_waiting_entries(event, 6)
    report(event)
    tick(event)
    facade.report_supply(event.id, available=1, held=3)
    assert tick(event) == 0
    assert statuses(event).count("ready") == 4


def test_a_sale_frees_no_place_for_the_next_but_its_end_of_shopping_does_no_harm(event: EventView) -> None:
    entries = join_waiting_entries(event, 6)
    report(event)
    tick(event)
    complete_admission(claim_or_get_entry(entries[0]).id)
    facade.report_supply(event.id, available=3, held=0)
    assert tick(event) == 0, "three places, three who are choosing"


def test_a_report_that_was_held_up_drains_no_room_that_knows_better(event: EventView) -> None:
    """A: reads that all is gone; hangs
    B: reports two places that came back
    A: goes on: what it read is older
    """
    held_up = clock.now()
    facade.report_supply(event.id, available=2, held=0, read_at=clock.now())
    WaitingRoom.objects.update(state="open")
    facade.report_supply(event.id, available=0, held=0, read_at=held_up)
    assert (WaitingRoom.objects.get().state, WaitingRoom.objects.get().supply_available) == ("open", 2)
    WaitingRoom.objects.update(supply_at=clock.now() + timedelta(hours=1))
    facade.report_supply(event.id, available=1, held=0, read_at=clock.now())
    assert WaitingRoom.objects.get().supply_available == 1, "a clock that was set back silences nobody"


def test_a_room_that_is_off_and_a_stock_that_nobody_reported_bind_nobody(event: EventView) -> None:
    join_waiting_entries(event, 6)
    assert tick(event) == 6
