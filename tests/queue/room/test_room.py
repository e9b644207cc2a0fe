"""A waiting room: it opens by itself, admits by number within its caps, and reports true positions and estimates."""

import dataclasses
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection

from apps.accounts.models import User
from apps.events.facade import EventView
from apps.kernel import clock, maintenance
from apps.kernel.db import transactions
from apps.kernel.http import problems
from apps.queue import errors, facade
from apps.queue.entries import positions
from apps.queue.models import AdmissionBatch, QueueEntry, RoomAct, WaitingRoom
from apps.queue.room import admission, operations
from apps.queue.room_row import Room, lock_room, save_room
from apps.queue.status import estimates
from apps.reservations.counts import supply_report
from tests.support.factories import assert_audit_clean, audit_breaches, hold, join, make_event
from tests.support.queue.rooms import (
    backdate_admissions,
    backdate_claims,
    backdate_tick,
    claim_or_get_entry,
    complete_admission,
    join_entries,
    join_waiting_entries,
    make_room,
    open_now,
    row,
    statuses,
    tick,
)
from tests.support.races import statements

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def event() -> EventView:
    return make_room()


def room() -> WaitingRoom:
    return WaitingRoom.objects.get()


def locked_room(event: EventView) -> Room:
    """The room as read under its lock, which is released at once."""
    with transactions.write(), connection.cursor() as cursor:
        return lock_room(cursor, event.id)


def visitor(name: str) -> facade.Caller:
    return facade.Caller(visitor_id=f"visitor-{name}")


def test_a_room_is_closed_until_the_on_sale_opens_and_then_opens_by_itself() -> None:
    later = make_room("later", opens_at=clock.now() + timedelta(hours=1))
    assert room().state == "closed"
    with pytest.raises(errors.NotOnSale) as refused:
        join(later)
    assert "opens_at" in refused.value.extra
    assert admission.due_rooms() == ([], [])
    assert admission.tick(later.id, 1) == 0
    assert room().state == "closed"
    sold = make_room("sold", venue="B")
    assert admission.due_rooms() == ([sold.id], [])
    admission.tick(sold.id, 1)
    assert WaitingRoom.objects.get(event_id=sold.id).state == "open"
    act = RoomAct.objects.get()
    assert (act.who, act.what, act.detail) == ("system", "state", "closed → open")
    assert admission.due_rooms() == ([], [])


def test_the_first_join_after_the_opening_opens_the_room_before_any_tick(event: EventView) -> None:
    assert join(event).is_ready
    assert room().state == "open"
    assert RoomAct.objects.get().detail == "closed → open"


def test_a_visitor_who_joins_an_empty_queue_is_admitted_at_once_until_the_cap_is_reached(event: EventView) -> None:
    entries = join_entries(event, 5)
    assert [entry.status for entry in entries] == ["ready"] * 3 + ["waiting"] * 2
    assert row(entries[0]).admission_expires_at is not None
    assert row(entries[0]).claim_expires_at is None
    batches = AdmissionBatch.objects.all()
    assert [(batch.reason, batch.count, batch.active_max) for batch in batches] == [("empty line", 1, 3)] * 3
    assert max(batch.active_count for batch in batches) == 3
    assert (room().head, room().next_number) == (3, 6)
    assert_audit_clean()


def test_no_visitor_overtakes_a_lower_number_that_waits(event: EventView) -> None:
    first, *_ = join_waiting_entries(event, 1)
    second = join(event)
    assert second.status == "waiting"
    assert tick(event) == 2
    assert row(first).ready_at == row(second).ready_at


def test_a_tick_admits_what_the_rate_has_allowed_and_carries_the_fraction() -> None:
    event = make_room(rate=10, active=100)
    join_waiting_entries(event, 30)
    start = clock.now()
    WaitingRoom.objects.update(budget=0, ticked_at=start)
    locked = locked_room(event)
    for tenths, whole in ((2.5, 2), (5, 5), (7.5, 5)):
        admission.refill(locked, start + timedelta(seconds=tenths / 10))
        assert int(locked.budget) == whole
    # A late tick has what the rate allows for the whole time since the tick before.
    admission.refill(locked, start + timedelta(seconds=2.25))
    assert locked.budget == 15
    # Half a second's worth and no more, however long no visitor was admitted while ticks were in time.
    admission.refill(locked, start + timedelta(seconds=2.5))
    assert locked.budget == 5
    # Two seconds' worth and no more, however late a tick is.
    admission.refill(locked, start + timedelta(hours=1))
    assert locked.budget == 20
    assert tick(event, seconds=3600) == 20
    assert tick(event, seconds=0) == 0
    assert statuses(event) == ["ready"] * 20 + ["waiting"] * 10
    assert_audit_clean()


def test_a_room_in_which_no_visitor_waited_has_a_burst_of_half_a_second() -> None:
    event = make_room(rate=10, active=100)
    join(event)
    backdate_tick(event, 3_600)
    assert join(event).is_ready
    assert room().budget == 5 - 1


def test_a_slow_rate_admits_one_at_a_time() -> None:
    event = make_room(rate=1, active=100)
    join_waiting_entries(event, 3)
    assert [tick(event), tick(event, seconds=0), tick(event, seconds=1)] == [1, 0, 1]


def test_the_cap_counts_admitted_visitors_who_have_not_arrived_yet(event: EventView) -> None:
    entries = join_waiting_entries(event, 6)
    assert tick(event) == 3
    assert tick(event) == 0
    assert claim_or_get_entry(entries[0]).is_ready
    assert tick(event) == 0
    positions.leave(event, facade.Caller(entry_id=entries[1].id))
    assert tick(event) == 1
    assert_audit_clean()


@pytest.mark.parametrize("end", ["completed", "expired", "left", "away", "removed"])
def test_each_end_of_an_admission_frees_its_slot(event: EventView, end: str) -> None:
    entries = join_waiting_entries(event, 4)
    assert tick(event) == 3
    mine = entries[0]
    if end == "away":
        backdate_claims(mine)
    else:
        claim_or_get_entry(mine)
    if end == "completed":
        complete_admission(mine.id)
    elif end == "expired":
        backdate_admissions(mine)
    elif end == "left":
        positions.leave(event, facade.Caller(entry_id=mine.id))
    elif end == "removed":
        assert operations.remove(mine.id, who="staff")
    assert tick(event) == 1
    assert row(mine).status == ("left" if end == "removed" else end)
    assert row(entries[3]).status == "ready"
    assert_audit_clean()


def test_a_live_reservation_keeps_the_slot_past_the_admission(event: EventView) -> None:
    entries = join_waiting_entries(event, 4)
    tick(event)
    hold(event, claim_or_get_entry(entries[0]), seats=["hall-A-1"])
    backdate_admissions(entries[0])
    assert tick(event) == 0
    # Checkout began at the last moment: its later deadline reaches the entry one commit later.
    QueueEntry.objects.filter(pk=entries[0].id).update(busy_until=clock.now())
    assert tick(event) == 0
    assert claim_or_get_entry(entries[0]).is_ready
    QueueEntry.objects.filter(pk=entries[0].id).update(busy_until=None)
    assert tick(event) == 1


def test_the_first_poll_after_the_turn_claims_the_admission(event: EventView) -> None:
    (entry,) = join_waiting_entries(event, 1)
    tick(event)
    waiting = row(entry)
    assert (waiting.status, waiting.admission_expires_at) == ("ready", None)
    assert waiting.claim_expires_at - waiting.ready_at == timedelta(seconds=120)  # type: ignore[operator]
    claimed = claim_or_get_entry(entry)
    assert claimed.admission_expires_at is not None
    assert claim_or_get_entry(entry).admission_expires_at == claimed.admission_expires_at, "claimed once"
    assert timedelta(seconds=299) < claimed.admission_expires_at - clock.now() <= timedelta(seconds=300)


def test_joining_again_claims_the_admission_too(event: EventView) -> None:
    open_now(event)
    WaitingRoom.objects.update(state="paused")
    first = positions.join(event, visitor("ann"))
    WaitingRoom.objects.update(state="open")
    tick(event)
    again = positions.join(event, visitor("ann"))
    assert again.id == first.id
    assert again.admission_expires_at is not None


def test_an_unclaimed_admission_allows_no_hold(event: EventView) -> None:
    (entry,) = join_waiting_entries(event, 1)
    tick(event)
    found = row(entry)
    state = facade.EntryState(found.pk, found.status, found.admission_expires_at, None, None, "", event.id)
    assert isinstance(state.refusal(clock.now()), errors.NotAdmitted)


def test_a_no_show_loses_the_slot_not_the_number_and_is_next_on_return(event: EventView) -> None:
    entries = join_waiting_entries(event, 8)
    tick(event)
    backdate_claims(entries[1])
    assert tick(event) == 1
    assert row(entries[1]).status == "away"
    head = room().head
    back = claim_or_get_entry(entries[1])
    assert (back.status, back.number) == ("waiting", entries[1].number)
    assert estimates.estimate(back).ahead == 0
    assert tick(event) == 0, "no slot is free"
    positions.leave(event, facade.Caller(entry_id=entries[0].id))
    assert tick(event) == 1
    assert row(entries[1]).status == "ready"
    assert room().head == head, "it had passed this number before"
    assert row(entries[4]).status == "waiting"
    assert_audit_clean()


def test_an_arrival_just_after_the_deadline_and_before_the_sweep_is_next_too(event: EventView) -> None:
    (entry,) = join_waiting_entries(event, 1)
    tick(event)
    backdate_claims(entry)
    assert claim_or_get_entry(entry).status == "waiting"
    assert tick(event) == 1
    assert claim_or_get_entry(entry).is_ready


@pytest.mark.parametrize("noticed", [True, False])
def test_after_a_quarter_of_an_hour_the_number_is_lost_too(event: EventView, noticed: bool) -> None:
    (entry,) = join_waiting_entries(event, 1)
    tick(event)
    backdate_claims(entry, seconds=admission.RETURN_SECONDS + 1)
    if noticed:
        admission.expire_admissions()
        assert row(entry).status == "expired"
    assert claim_or_get_entry(entry).status == "expired"
    again = positions.join(event, facade.Caller(entry_id=entry.id))
    assert (again.number, again.status) == (2, "ready")


@pytest.mark.parametrize("end", ["left", "completed", "expired"])
def test_joining_again_after_an_end_is_last(event: EventView, end: str) -> None:
    entries = join_waiting_entries(event, 5)
    QueueEntry.objects.filter(pk=entries[0].id).update(status=end, ended_at=clock.now())
    again = positions.join(event, facade.Caller(entry_id=entries[0].id))
    assert (again.number, again.status) == (6, "waiting")
    assert again.visitor_id == entries[0].visitor_id


def test_many_joins_in_one_transaction_each_have_their_own_outcome(event: EventView) -> None:
    other = make_event("other", venue="B")
    later = make_room("later", venue="C", opens_at=clock.now() + timedelta(hours=1))
    account = User.objects.create_user("ann").pk
    old = positions.join(event, visitor("old"))
    requests = [
        facade.JoinRequest(event, visitor("one")),
        facade.JoinRequest(event, facade.Caller(account_id=account, visitor_id="visitor-one")),
        facade.JoinRequest(event, visitor("one")),
        facade.JoinRequest(later, visitor("one")),
        facade.JoinRequest(event, facade.Caller()),
        facade.JoinRequest(event, facade.Caller(entry_id=uuid4())),
        facade.JoinRequest(event, facade.Caller(entry_id=old.id)),
        facade.JoinRequest(other, visitor("one")),
        facade.JoinRequest(event, visitor("two")),
    ]
    with statements() as seen:
        outcomes: list[Any] = facade.join_many(requests)
    assert seen.count("lock_live_entries") == 1
    kinds = [outcome if isinstance(outcome, facade.EntryView) else type(outcome) for outcome in outcomes]
    assert kinds[3:6] == [errors.NotOnSale, problems.TokenMissing, problems.TokenInvalid]
    one, ann, same, *_, mine, elsewhere, two = outcomes
    assert [entry.number for entry in (old, one, ann, two)] == [1, 2, 3, 4]
    assert (one.id, ann.id) == (requests[0].entry_id, requests[1].entry_id)
    assert (same, mine.id) == (one, old.id)
    assert [entry.status for entry in (one, ann, two, elsewhere)] == ["ready", "ready", "waiting", "ready"]
    assert (elsewhere.event_id, elsewhere.number) == (other.id, 1)
    assert_audit_clean()


def test_a_paused_room_takes_joins_and_admits_no_visitor(event: EventView) -> None:
    open_now(event)
    assert operations.set_state(event.id, "paused", who="staff", why="the till is down")
    assert not operations.set_state(event.id, "paused", who="staff")
    entry = join(event)
    assert entry.status == "waiting"
    assert estimates.estimate(entry).status == "paused"
    assert admission.due_rooms() == ([], [])
    assert tick(event) == 0
    operations.set_state(event.id, "open", who="staff")
    assert tick(event) == 1
    acts = RoomAct.objects.order_by("id")
    assert [(act.who, act.detail, act.why) for act in acts] == [
        ("staff", "open → paused", "the till is down"),
        ("staff", "paused → open", ""),
    ]


def test_a_room_that_is_switched_off_admits_every_visitor(event: EventView) -> None:
    join_waiting_entries(event, 8)
    operations.set_state(event.id, "off", who="staff")
    assert admission.due_rooms() == ([event.id], [])
    assert tick(event) == 8
    assert join(event).is_ready
    assert_audit_clean()


def test_a_room_switched_on_over_its_cap_admits_no_visitor_until_there_are_free_slots(event: EventView) -> None:
    operations.set_state(event.id, "off", who="staff")
    entries = join_entries(event, 5)
    operations.set_state(event.id, "open", who="staff")
    assert join(event).status == "waiting"
    assert tick(event) == 0
    assert_audit_clean()
    for entry in entries[:3]:
        complete_admission(entry.id)
    assert tick(event) == 1


@pytest.mark.parametrize(
    ("state", "to"), [("closed", "open"), ("open", "closed"), ("open", "lobby"), ("off", "drained")]
)
def test_invalid_state_changes_are_refused(event: EventView, state: str, to: str) -> None:
    WaitingRoom.objects.update(state=state)
    with pytest.raises(errors.ActRefused, match=f"{state} cannot become {to}"):
        operations.set_state(event.id, to, who="staff")
    assert not RoomAct.objects.exists()


def test_rate_and_cap_change_live_and_a_lower_cap_removes_no_visitor(event: EventView) -> None:
    join_waiting_entries(event, 9)
    tick(event)
    assert operations.set_limits(event.id, rate_per_second=100, active_max=5, who="staff")
    assert not operations.set_limits(event.id, rate_per_second=100, active_max=5, who="staff")
    assert tick(event) == 2
    operations.set_limits(event.id, rate_per_second=100, active_max=2, who="staff", why="calm")
    assert tick(event) == 0
    assert_audit_clean()
    assert RoomAct.objects.first().detail == "100/s, 5 active → 100/s, 2 active"  # type: ignore[union-attr]
    for rate, active in ((0, 1), (1, -1), (operations.RATE_MAX + 1, 1)):
        with pytest.raises(errors.ActRefused):
            operations.set_limits(event.id, rate_per_second=rate, active_max=active, who="staff")


def test_an_operator_admits_at_once_within_the_cap_and_the_rate_pays_for_it() -> None:
    event = make_room(rate=2, active=20)
    join_waiting_entries(event, 40)
    started_at = clock.now()
    WaitingRoom.objects.update(state="paused", budget=0, ticked_at=started_at)
    assert operations.admit_now(event.id, 10, who="staff") == 10
    assert operations.admit_now(event.id, 30, who="staff") == 10, "up to the cap"
    assert statuses(event)[:21] == ["ready"] * 20 + ["waiting"]
    assert [batch.reason for batch in AdmissionBatch.objects.all()] == ["operator", "operator"]
    assert -20 <= room().budget <= -20 + 2 * (clock.now() - started_at).total_seconds()
    WaitingRoom.objects.update(state="open", active_max=100)
    assert tick(event, seconds=4) == 0
    assert tick(event, seconds=4) == 0
    assert tick(event, seconds=3) >= 1
    assert [act.detail for act in RoomAct.objects.order_by("id")] == ["10 of 10", "10 of 30"]
    WaitingRoom.objects.update(state="drained")
    with pytest.raises(errors.ActRefused, match="drained"):
        operations.admit_now(event.id, 1, who="staff")
    with pytest.raises(errors.ActRefused):
        operations.admit_now(event.id, 0, who="staff")


def test_removing_an_entry_is_recorded_and_happens_once(event: EventView) -> None:
    (entry,) = join_waiting_entries(event, 1)
    assert operations.remove(entry.id, who="staff", why="a script")
    assert not operations.remove(entry.id, who="staff")
    assert claim_or_get_entry(entry).status == "left"
    act = RoomAct.objects.get()
    assert (act.who, act.what, act.detail, act.why) == ("staff", "remove", "number 1, waiting", "a script")
    with pytest.raises(errors.ActRefused):
        operations.remove(uuid4(), who="staff")


def test_no_visitor_is_admitted_while_nothing_is_available_and_admission_resumes_once_a_hold_lapses(
    event: EventView,
) -> None:
    join_waiting_entries(event, 3)
    facade.report_supplies({event.id: (0, 2)})
    assert tick(event) == 0
    assert room().state == "open"
    facade.report_supplies({event.id: (2, 0)})
    assert tick(event) == 2


def test_when_everything_is_sold_the_room_is_drained_and_reports_so(event: EventView) -> None:
    entries = join_waiting_entries(event, 4)
    tick(event)
    facade.report_supplies({event.id: (0, 0)})
    facade.report_supplies({event.id: (0, 0)})
    assert room().state == "drained"
    assert estimates.estimate(claim_or_get_entry(entries[3])).status == "drained"
    assert claim_or_get_entry(entries[0]).is_ready, "an admitted visitor stays admitted"
    for caller in (visitor("new"), facade.Caller(entry_id=entries[3].id)):
        with pytest.raises(errors.RoomDrained):
            positions.join(event, caller)
    assert positions.join(event, facade.Caller(entry_id=entries[0].id)).id == entries[0].id
    assert tick(event) == 0
    act = RoomAct.objects.get()
    assert (act.who, act.detail) == ("system", "open → drained")
    # Tickets were returned: an operator opens the room again.
    facade.report_supplies({event.id: (5, 0)})
    operations.set_state(event.id, "open", who="staff")
    assert tick(event) == 0
    positions.leave(event, facade.Caller(entry_id=entries[0].id))
    assert tick(event) == 1
    assert_audit_clean()


def test_the_stock_is_reported_for_open_rooms() -> None:
    event = make_room(rows=1, seats_per_row=4, general_admission=3, active=10)
    make_event("quiet", venue="B")
    assert "report the supply to the waiting rooms" in maintenance.jobs()
    assert supply_report.report_supply() == 0, "closed: the stock is not needed yet"
    entry = join(event)
    hold(event, entry, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    assert supply_report.report_supply() == 1
    (reported,) = WaitingRoom.objects.filter(event_id=event.id)
    assert (reported.supply_available, reported.supply_held) == (4, 3)
    assert reported.supply_at is not None


def test_the_position_falls_and_the_estimate_is_a_range() -> None:
    event = make_room(rate=10, active=1000)
    entries = join_waiting_entries(event, 50)
    last = entries[-1]
    seen = estimates.estimate(last)
    assert (seen.status, seen.ahead, seen.wait_seconds) == ("waiting", 50, 5)
    assert seen.wait_range[0] < 5 < seen.wait_range[1]
    assert tick(event) == 5
    after = estimates.estimate(claim_or_get_entry(last))
    assert (after.ahead, after.wait_seconds) == (45, 5)
    tick(event)
    claim_or_get_entry(entries[0])
    assert estimates.estimate(claim_or_get_entry(entries[0])).ahead == 0


def test_while_every_slot_is_taken_the_estimate_follows_the_freed_slots() -> None:
    """Two slots: the twentieth visitor waits most of an hour if no slot is freed, however fast the room could admit."""
    event = make_room(rate=10, active=2)
    last = join_waiting_entries(event, 20)[-1]
    seen = estimates.estimate(last)
    # Two are admitted immediately; before anything is known, a slot is taken to last 90 seconds.
    assert (seen.wait_seconds, seen.rate) == (pytest.approx(810, abs=2), 0.02)
    assert tick(event) == 2
    assert estimates.estimate(last).wait_seconds == pytest.approx(seen.wait_seconds, rel=0.1)
    AdmissionBatch.objects.update(at=clock.now() - timedelta(seconds=500))
    slower = estimates.estimate(last)
    assert (slower.ahead, slower.rate) == (18, 0.01)
    assert slower.wait_seconds == pytest.approx(18 * (1_000 + 450) / (5 * 2), rel=0.02), "no slot was freed in 500 s"
    assert slower.wait_range[1] <= 3.1 * slower.wait_range[0]
    operations.set_limits(event.id, active_max=0, who="staff")
    assert estimates.estimate(last).wait_seconds == pytest.approx(2 * slower.wait_seconds, rel=0.02), (
        "a cap of 0 is estimated like a cap of 1"
    )


def test_an_entry_ahead_that_leaves_moves_none_behind_it_back(event: EventView) -> None:
    entries = join_waiting_entries(event, 10)
    for entry in entries[:9]:
        positions.leave(event, facade.Caller(entry_id=entry.id))
    assert estimates.estimate(entries[9]).ahead == 10
    assert tick(event) == 1
    assert room().head == 10


@pytest.mark.parametrize(("rate", "claim"), [(1, 120), (50, 120), (50, 1), (2000, 10)])
def test_visitors_farther_back_poll_later_and_never_too_late_for_their_turn(rate: int, claim: int) -> None:
    before = 0.0
    for ahead in (0, 1, 10, 100, 1_000, 100_000, 2_000_000):
        delays = [estimates.next_poll_ms(ahead, rate, claim) for _ in range(20)]
        soonest_ms = max(0.0, ahead - admission.burst(rate)) / rate * 1_000
        assert max(delays) <= soonest_ms + claim * 500
        assert max(delays) <= min(estimates.NEXT_POLL_MAX_MS, claim * 750), "those ahead may all leave at once"
        assert min(delays) > 0
        assert max(delays) >= before * (1 - estimates.JITTER) * 0.99
        before = max(delays)
    assert len({estimates.next_poll_ms(100_000, rate, claim) for _ in range(20)}) > 1, "spread over time"


def test_the_auditor_finds_a_skipped_number_an_exceeded_cap_and_a_second_entry(event: EventView) -> None:
    join_waiting_entries(event, 6)
    tick(event)
    assert_audit_clean()
    WaitingRoom.objects.update(head=4)
    assert audit_breaches() == ["I9: concert: number 4 is waiting with the head at 4, next number 7"]
    WaitingRoom.objects.update(head=3)
    QueueEntry.objects.filter(number=4).update(status="ready", ready_at=clock.now(), claim_expires_at=clock.now())
    assert audit_breaches() == [
        "I9: concert: number 4 is ready with the head at 3, next number 7",
        "I9: concert: 4 are active with a cap of 3",
    ]


def test_the_budget_is_never_counted_twice_when_the_clock_stands_still(event: EventView) -> None:
    join_waiting_entries(event, 3)
    backdate_tick(event, 1)
    now = clock.now()
    locked = locked_room(event)
    admission.refill(locked, now)
    budget = locked.budget
    admission.refill(locked, now - timedelta(seconds=1))
    admission.refill(locked, now)
    assert locked.budget == budget


def test_a_clock_that_was_set_back_stops_no_room(event: EventView) -> None:
    """Ticked by a clock that was an hour ahead: from the first tick after the correction on the rate counts again."""
    join_waiting_entries(event, 3)
    WaitingRoom.objects.update(ticked_at=clock.now() + timedelta(hours=1), budget=0)
    assert admission.tick(event.id, 1) == 0, "and the unknown time is not counted"
    assert tick(event, seconds=60) == 3
    assert WaitingRoom.objects.get().ticked_at <= clock.now()  # type: ignore[operator]


def test_the_auditor_finds_a_claim_taken_back(event: EventView) -> None:
    first, *_ = join_waiting_entries(event, 4)
    tick(event)
    claim_or_get_entry(first)
    QueueEntry.objects.filter(pk=first.id).update(status="away")
    assert audit_breaches() == ["I9: concert: number 1 has claimed its admission and is away again"]


def test_a_locked_room_is_the_whole_row_and_saving_it_changes_nothing_else(event: EventView) -> None:
    """In the order of the statement, which names every column except those of erasures and of screening."""
    fields = [field.name for field in dataclasses.fields(Room)]
    assert sorted([*fields, "erased_at", "networks_erased_at", "review_score", "screening"]) == sorted(
        column.attname for column in WaitingRoom._meta.concrete_fields
    )
    WaitingRoom.objects.update(
        erased_at=clock.now(),
        message="hello", message_at=clock.now(), supply_at=clock.now(), supply_held=3, chain_head=b"\x00\xff",
        lobby_opens_at=clock.now(), lobby_count=4, next_number=9, numbered_through=2, rate_now=2.5, rate_floor=1,
    )  # fmt: skip
    before = WaitingRoom.objects.values().get()
    with transactions.write(), connection.cursor() as cursor:
        locked = lock_room(cursor, event.id)
        assert [getattr(locked, name) for name in fields] == [before[name] for name in fields]
        save_room(cursor, locked)
    assert WaitingRoom.objects.values().get() == before
    with connection.cursor() as cursor:
        with pytest.raises(transactions.OutsideTransaction):
            lock_room(cursor, event.id)
        with transactions.write(), pytest.raises(WaitingRoom.DoesNotExist):
            lock_room(cursor, event.id + 1)


def test_the_effective_rate_is_the_one_that_the_health_of_the_system_allows() -> None:
    event = make_room(rate=10, active=100)
    join_waiting_entries(event, 30)
    WaitingRoom.objects.update(rate_now=4)
    assert locked_room(event).rate == 4
    assert tick(event) == 2, "half a second at the effective rate"
    operations.set_limits(event.id, rate_per_second=3, active_max=100, who="staff")
    assert locked_room(event).rate == 3, "never above the operator's rate"


def test_a_marked_entry_goes_first_within_the_caps_and_moves_no_head(event: EventView) -> None:
    entries = join_waiting_entries(event, 6)
    QueueEntry.objects.filter(number__in=(5, 6)).update(marked="vip")
    assert tick(event) == 3
    assert [row(entries[at]).status for at in (4, 5, 0, 1)] == ["ready", "ready", "ready", "waiting"]
    assert room().head == 1
    batches = AdmissionBatch.objects.order_by("id")
    assert [(batch.reason, batch.from_number, batch.to_number, batch.count) for batch in batches] == [
        ("marked", 5, 6, 2),
        ("tick", 1, 1, 1),
    ]
    assert [batch.active_count for batch in batches] == [2, 3]
    assert_audit_clean()
    QueueEntry.objects.filter(number=5).update(marked="")
    assert audit_breaches() == ["I9: concert: number 5 is ready with the head at 1, next number 7"]
