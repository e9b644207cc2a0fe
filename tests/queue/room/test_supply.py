"""Admission follows the stock: no visitor is admitted for whom there is no ticket, and admission resumes once there
is."""

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
    """Four tickets, and no other cap."""
    return make_room(rows=1, seats_per_row=4, rate=100, active=100)


def report(event: EventView) -> tuple[int | None, int | None]:
    supply_report.report_supply()
    reported = WaitingRoom.objects.get(event_id=event.id)
    return reported.supply_available, reported.supply_held


def test_an_admitted_visitor_without_a_hold_reserves_a_ticket(event: EventView) -> None:
    join_waiting_entries(event, 9)
    assert report(event) == (4, 0)
    assert tick(event) == 4
    assert tick(event) == 0, "four free tickets, and four visitors who are choosing"
    assert statuses(event).count("ready") == 4
    assert_audit_clean()


def test_a_visitor_with_a_hold_reserves_no_other_ticket(event: EventView) -> None:
    entries = join_waiting_entries(event, 9)
    report(event)
    tick(event)
    hold(event, claim_or_get_entry(entries[0]), seats=["hall-A-1", "hall-A-2"])
    assert report(event) == (2, 2)
    assert tick(event) == 0, "two free tickets, and three visitors who are choosing"
    for entry in entries[1:3]:
        claim_or_get_entry(entry)
    backdate_admissions(*entries[1:3])
    assert tick(event) == 1, "two gave up, so one is choosing; the other ticket is for the next in line"
    assert_audit_clean()


def test_the_last_ticket_is_offered_to_one_visitor_even_if_visitors_buy_more_than_one(event: EventView) -> None:
    entries = join_waiting_entries(event, 3)
    facade.report_supplies({event.id: (1, 3)})
    assert tick(event) == 1
    assert tick(event) == 0
    backdate_admissions(claim_or_get_entry(entries[0]))
    assert tick(event) == 1


def test_when_holds_lapse_admission_resumes(event: EventView) -> None:
    first, *_ = join_waiting_entries(event, 3)
    report(event)
    WaitingRoom.objects.update(active_max=1)
    tick(event)
    held = hold(event, claim_or_get_entry(first), seats=[f"hall-A-{seat}" for seat in (1, 2, 3, 4)])
    WaitingRoom.objects.update(active_max=100)
    assert report(event) == (0, 4)
    assert tick(event) == 0
    assert WaitingRoom.objects.get().state == "open", "held tickets may be released"
    backdate_deadline(held.id)
    QueueEntry.objects.filter(pk=first.id).update(busy_until=clock.now() - timedelta(seconds=1))
    release.sweep_all(by="beat")
    assert report(event) == (4, 0)
    assert QueueEntry.objects.get(pk=first.id).busy_until is None
    assert tick(event) == 2, "all of them: four tickets, and one visitor who chooses again"
    assert_audit_clean()


def test_an_operators_number_is_limited_by_the_stock_too(event: EventView) -> None:
    join_waiting_entries(event, 9)
    report(event)
    assert operations.admit_now(event.id, 3, who="staff") == 3
    assert operations.admit_now(event.id, 3, who="staff") == 1
    assert operations.admit_now(event.id, 3, who="staff") == 0


def test_with_more_visitors_choosing_than_tickets_none_is_admitted_and_none_removed(event: EventView) -> None:
    join_waiting_entries(event, 6)
    report(event)
    tick(event)
    facade.report_supplies({event.id: (1, 3)})
    assert tick(event) == 0
    assert statuses(event).count("ready") == 4


def test_a_sale_frees_no_ticket_for_the_next_visitor_and_the_end_of_its_shopping_does_no_harm(event: EventView) -> None:
    entries = join_waiting_entries(event, 6)
    report(event)
    tick(event)
    complete_admission(claim_or_get_entry(entries[0]).id)
    facade.report_supplies({event.id: (3, 0)})
    assert tick(event) == 0, "three tickets, three visitors who are choosing"


def test_a_delayed_report_does_not_drain_a_room_with_a_newer_one(event: EventView) -> None:
    """A: reads that everything is sold; hangs
    B: reports two released tickets
    A: goes on: what it read is older
    """
    held_up = clock.now()
    facade.report_supplies({event.id: (2, 0)}, read_at=clock.now())
    WaitingRoom.objects.update(state="open")
    facade.report_supplies({event.id: (0, 0)}, read_at=held_up)
    assert (WaitingRoom.objects.get().state, WaitingRoom.objects.get().supply_available) == ("open", 2)
    WaitingRoom.objects.update(supply_at=clock.now() + timedelta(hours=1))
    facade.report_supplies({event.id: (1, 0)}, read_at=clock.now())
    assert WaitingRoom.objects.get().supply_available == 1, "a clock that was set back blocks no report"


def test_a_room_that_is_off_and_an_unreported_stock_limit_no_admission(event: EventView) -> None:
    join_waiting_entries(event, 6)
    assert tick(event) == 6
