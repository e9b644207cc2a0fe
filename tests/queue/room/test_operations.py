"""The operator's acts: a message, one visitor let through, one removed, limits; each within the caps and recorded."""

from datetime import timedelta

import pytest

from apps.events.models import Event, OnSale
from apps.kernel import clock
from apps.queue.entries import positions
from apps.queue.errors import ActRefused
from apps.queue.fairness import published
from apps.queue.models import AdmissionBatch, QueueEntry, RoomAct, WaitingRoom
from apps.queue.room import operations
from apps.queue.status.estimates import estimate
from tests.support.factories import assert_audit_clean, join, make_event
from tests.support.queue.rooms import (
    backdate_claims,
    claim_or_get_entry,
    join_waiting_entries,
    make_room,
    open_now,
    row,
    tick,
)
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db


def acts(what: str) -> list[tuple[str, str, str]]:
    return [(act.who, act.detail, act.why) for act in RoomAct.objects.filter(what=what).order_by("id")]


def room() -> WaitingRoom:
    return WaitingRoom.objects.get()


def test_setting_changing_and_clearing_a_message_are_recorded() -> None:
    event = make_room()
    assert operations.set_message(event.id, "  The till is slow. \r\n We go on at 8. ", who="boss", why="calm")
    assert room().message == "The till is slow.\nWe go on at 8."
    assert room().message_at is not None
    assert not operations.set_message(event.id, "The till is slow.\nWe go on at 8.", who="boss")
    assert operations.set_message(event.id, " ", who="boss")
    assert (room().message, room().message_at) == ("", None)
    assert acts("message") == [("boss", "The till is slow.\nWe go on at 8.", "calm"), ("boss", "cleared", "")]


@pytest.mark.parametrize("text", ["x" * 281, "nul\0", "bell\a", "turn\u202eed"])
def test_a_message_is_plain_text_of_limited_length(text: str) -> None:
    event = make_room()
    with pytest.raises(ActRefused):
        operations.set_message(event.id, text, who="boss")
    assert not RoomAct.objects.filter(what="message").exists()


def test_a_visitor_let_through_is_admitted_at_once_if_a_slot_is_free_and_the_head_does_not_move() -> None:
    event = make_room(active=3)
    waiting = join_waiting_entries(event, 5)
    assert operations.let_through(waiting[3].id, who="boss", why="the drummer's mother")
    assert [claim_or_get_entry(entry).status for entry in waiting] == [
        "waiting",
        "waiting",
        "waiting",
        "ready",
        "waiting",
    ]
    assert row(waiting[3]).marked == "operator"
    assert room().head == 0
    (batch,) = AdmissionBatch.objects.all()
    assert (batch.reason, batch.from_number, batch.count) == ("marked", 4, 1)
    assert acts("let in") == [("boss", "number 4", "the drummer's mother")]
    assert tick(event) == 2, "it counts against the cap"
    assert_audit_clean()


def test_without_a_free_slot_a_visitor_let_through_is_first_at_the_next_tick() -> None:
    event = make_room(active=1)
    waiting = join_waiting_entries(event, 4)
    assert tick(event) == 1
    assert not operations.let_through(waiting[3].id, who="boss")
    assert row(waiting[3]).status == "waiting"
    assert tick(event) == 0
    positions.leave(event, positions.Caller(entry_id=waiting[0].id))
    assert tick(event) == 1
    assert [row(entry).status for entry in waiting] == ["left", "waiting", "waiting", "ready"]
    assert room().head == 1
    assert_audit_clean()


def test_in_a_paused_room_an_operator_may_let_one_visitor_through_and_no_other_enters() -> None:
    event = make_room(active=3)
    waiting = join_waiting_entries(event, 3)
    operations.set_state(event.id, "paused", who="boss")
    assert operations.let_through(waiting[2].id, who="boss")
    assert [row(entry).status for entry in waiting] == ["waiting", "waiting", "ready"]


def test_a_marked_entry_has_none_ahead_from_the_marking_on_also_after_a_missed_turn() -> None:
    event = make_room(active=1)
    waiting = join_waiting_entries(event, 5)
    assert tick(event) == 1
    assert estimate(claim_or_get_entry(waiting[4])).ahead == 4
    assert not operations.let_through(waiting[4].id, who="boss")
    assert estimate(claim_or_get_entry(waiting[4])).ahead == 0
    positions.leave(event, positions.Caller(entry_id=waiting[0].id))
    assert tick(event) == 1
    backdate_claims(waiting[4])
    missed = claim_or_get_entry(waiting[4])
    assert (missed.status, estimate(missed).ahead) == ("waiting", 0)


def test_an_operator_can_readmit_a_visitor_who_missed_the_turn() -> None:
    event = make_room(active=1)
    waiting = join_waiting_entries(event, 2)
    tick(event)
    backdate_claims(waiting[0])
    assert tick(event) == 1
    assert row(waiting[0]).status == "away"
    assert not operations.let_through(waiting[0].id, who="boss")
    assert (row(waiting[0]).status, row(waiting[0]).marked) == ("waiting", "operator")
    positions.leave(event, positions.Caller(entry_id=waiting[1].id))
    assert tick(event) == 1
    assert claim_or_get_entry(waiting[0]).is_ready


def test_an_act_that_cannot_be_done_gives_its_reason() -> None:
    event = make_room(active=1)
    waiting = join_waiting_entries(event, 3)
    tick(event)
    operations.let_through(waiting[1].id, who="boss")
    operations.remove(waiting[2].id, who="boss")
    for entry, why in zip(waiting, ("admitted already", "has priority already", "has ended: left"), strict=True):
        with pytest.raises(ActRefused, match=why):
            operations.let_through(entry.id, who="boss")
    operations.set_state(event.id, "drained", who="boss")
    with pytest.raises(ActRefused, match="drained"):
        operations.let_through(waiting[1].id, who="boss")
    assert len(acts("let in")) == 1


@pytest.mark.parametrize("identifier", ["", "x", "7", "1" * 40, "²", "00000000-0000-0000-0000-000000000000"])
def test_a_missing_entry_is_named(identifier: str) -> None:
    event = make_room()
    join(event)
    with pytest.raises(ActRefused):
        operations.find_entry_id(event.id, identifier)


def test_an_entry_is_found_by_number_and_by_id_in_its_own_room_only() -> None:
    event, other = make_room(), make_room("opera")
    own, foreign = join(event), join(other)
    assert operations.find_entry_id(event.id, "1") == operations.find_entry_id(event.id, str(own.id)) == own.id
    with pytest.raises(ActRefused):
        operations.find_entry_id(event.id, str(foreign.id))


def test_removing_an_entry_that_was_let_through_frees_its_slot() -> None:
    event = make_room(active=1)
    waiting = join_waiting_entries(event, 2)
    assert operations.let_through(waiting[1].id, who="boss")
    claim_or_get_entry(waiting[1])
    assert operations.remove(waiting[1].id, who="boss", why="not on the list")
    assert tick(event) == 1
    assert claim_or_get_entry(waiting[0]).is_ready
    assert acts("remove") == [("boss", "number 2, ready", "not on the list")]
    assert_audit_clean()


def test_limits_change_one_by_one_and_each_change_is_recorded() -> None:
    event = make_room(rate=10, active=3)
    assert operations.set_limits(event.id, rate_per_second=20, who="boss")
    assert not operations.set_limits(event.id, rate_per_second=20, who="boss")
    assert operations.set_limits(event.id, claim_seconds=60, who="boss", why="they dawdle")
    standing = room()
    assert (standing.rate_per_second, standing.active_max, standing.claim_seconds) == (20, 3, 60)
    assert acts("limits") == [
        ("boss", "10/s, 3 active → 20/s, 3 active", ""),
        ("boss", "20/s, 3 active → 20/s, 3 active; 60 s to claim, 300 s to start", "they dawdle"),
    ]
    for wrong in ({"rate_per_second": 0}, {"active_max": -1}, {"claim_seconds": 0}, {"admission_seconds": 10**9}):
        with pytest.raises(ActRefused):
            operations.set_limits(event.id, **wrong, who="boss")


@pytest.mark.django_db(transaction=True)
def test_concurrent_operators_never_admit_more_than_the_cap() -> None:
    """Ten operators concurrently let another visitor through while three slots are free: each reads the free slots
    under the room's lock, so three are admitted, and seven are marked and first for the slots that become free."""
    event = make_room(active=3)
    waiting = join_waiting_entries(event, 10)
    admitted = values(storm(10, lambda number: operations.let_through(waiting[number].id, who=f"hand {number}")))
    assert sum(admitted) == 3
    assert QueueEntry.objects.filter(status="ready").count() == 3
    assert QueueEntry.objects.filter(status="waiting", marked="operator").count() == 7
    assert len(acts("let in")) == 10
    assert_audit_clean()


def test_an_operator_named_system_is_recorded_as_an_operator_and_a_reason_cannot_break_the_record() -> None:
    event = make_room()
    open_now(event)
    operations.set_state(event.id, "paused", who="system", why="nul\0, half a character \ud800, \x1b[2J")
    assert acts("state")[-1] == ("operator system", "open → paused", "nul , half a character  ,  [2J")
    assert published.latest_acts(event.id, 1)[0]["by"] == "operator"


@pytest.mark.parametrize(("state", "why"), [("open", "sales have closed"), ("paused", "the event is canceled")])
def test_when_sales_are_over_waiting_visitors_are_notified_and_no_more_are_admitted(state: str, why: str) -> None:
    event = make_room(active=1)
    _, second = join_waiting_entries(event, 2)
    WaitingRoom.objects.update(state=state)
    assert operations.drain_ended_rooms() == 0
    if "canceled" in why:
        Event.objects.update(status="canceled")
    else:
        OnSale.objects.update(closes_at=clock.now())
    assert operations.drain_ended_rooms() == 1
    assert room().state == "drained"
    assert estimate(claim_or_get_entry(second)).status == "drained"
    assert tick(event) == 0
    assert acts("state")[-1] == ("system", f"{state} → drained", why)
    assert operations.drain_ended_rooms() == 0


def test_a_room_that_is_open_early_or_off_is_not_changed() -> None:
    off, early = make_event("off"), make_room("early", venue="B", opens_at=clock.now() + timedelta(hours=1))
    open_now(early)
    OnSale.objects.filter(event_id=off.id).update(closes_at=clock.now())
    assert operations.drain_ended_rooms() == 0
    assert set(WaitingRoom.objects.values_list("state", flat=True)) == {"off", "open"}
