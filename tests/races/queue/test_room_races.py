"""Races for the slots of a room: the naive code loses each of them, ours none."""

from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.db.models import Q

from apps.events.facade import EventView
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.queue import errors, facade
from apps.queue.entries import join as queue_join
from apps.queue.entries import positions
from apps.queue.models import AdmissionBatch, QueueEntry, WaitingRoom
from apps.queue.room import admission, operations
from tests.support.factories import assert_audit_clean, audit_breaches, hold, join
from tests.support.queue.rooms import (
    EPOCH,
    backdate_admissions,
    backdate_claims,
    backdate_tick,
    claim_or_get_entry,
    join_entries,
    join_waiting_entries,
    make_room,
    open_now,
    row,
    statuses,
    tick,
)
from tests.support.races import ConcurrentCall, rival_at, rival_connection, rival_waiting_at, run_at, storm, values

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def event() -> EventView:
    return make_room()


def ready_count() -> int:
    return QueueEntry.objects.filter(status="ready").count()


def naive_tick(event: EventView) -> int:
    """Count, then admit; each right by itself, but without a lock on the room around both."""
    with transactions.write(), connection.cursor() as cursor:
        room = WaitingRoom.objects.get(event_id=event.id)
        ((active, *_),) = admission._count_active.rows(cursor, event_id=event.id)
        rows = admission._admit.rows(
            cursor, event_id=event.id, most=room.active_max - active, now=clock.now(), present=[],
            numbered_through=None, admission_seconds=300, claim_seconds=120, only_marked=False,
        )  # fmt: skip
        WaitingRoom.objects.filter(event_id=event.id, head__lt=max(number for _, number, _ in rows)).update(
            head=max(number for _, number, _ in rows)
        )
    return len(rows)


def test_control_two_gatekeepers_that_count_and_then_admit_fill_the_same_slots(event: EventView) -> None:
    """A: counts: none active, three may be admitted
    B: counts the same, admits 1, 2 and 3; COMMIT
    A: admits the next three: six active with a cap of three
    """
    join_waiting_entries(event, 10)
    with rival_at("count_active", "after", lambda: naive_tick(event)) as rival:
        assert naive_tick(event) == 3
    assert rival.result == 3
    assert ready_count() == 6
    assert audit_breaches() == ["I9: concert: 6 are active with a cap of 3"]


def test_two_concurrent_gatekeepers_keep_the_cap(event: EventView) -> None:
    """A: has the room locked, counts
    B: waits for the room
    A: admits three; COMMIT
    B: has the room locked, counts three active: admits none
    """
    join_waiting_entries(event, 10)
    backdate_tick(event)
    with rival_waiting_at("count_active", "after", lambda: admission.tick(event.id, EPOCH)) as rival:
        assert admission.tick(event.id, EPOCH) == 3
    assert rival.result() == 0
    assert ready_count() == 3
    assert_audit_clean()


def test_a_leader_that_stalled_is_refused_by_its_epoch(event: EventView) -> None:
    join_waiting_entries(event, 10)
    assert tick(event, epoch=2) == 3
    before = WaitingRoom.objects.values().get()
    with pytest.raises(errors.StaleLeader, match="epoch 1 is older than epoch 2"):
        admission.tick(event.id, 1)
    assert WaitingRoom.objects.values().get() == before
    assert {batch.epoch for batch in AdmissionBatch.objects.all()} == {2}


def test_a_leader_that_stalls_before_the_room_lock_is_refused_when_it_continues(event: EventView) -> None:
    """N: elected since; has the room locked and claims it
    O: the old leader, unaware of the election, waits for the room
    N: COMMIT
    O: has the room locked, reads a newer epoch: nothing is done
    """
    join_waiting_entries(event, 10)
    backdate_tick(event)
    with rival_waiting_at("count_active", "after", lambda: admission.tick(event.id, 1)) as old:
        assert admission.tick(event.id, 2) == 3
    with pytest.raises(errors.StaleLeader):
        old.result()
    assert ready_count() == 3


def test_an_entry_that_leaves_while_being_admitted_takes_no_slot(event: EventView) -> None:
    """L: has its entry locked, and leaves; not yet committed
    T: picks 1, 2 and 3, and waits for the first of them
    L: COMMIT
    T: 1 is no longer waiting: admits 2 and 3; the next tick fills the slot
    """
    entries = join_waiting_entries(event, 5)
    backdate_tick(event)
    with transaction.atomic():
        QueueEntry.objects.filter(pk=entries[0].id).update(status="left", ended_at=clock.now())
        ticker = ConcurrentCall(lambda: admission.tick(event.id, EPOCH)).wait_until_blocked()
    assert ticker.result() == 2
    assert tick(event) == 1
    assert statuses(event) == ["left", "ready", "ready", "ready", "waiting"]
    assert_audit_clean()


def test_an_entry_that_leaves_right_after_its_admission_frees_the_slot(event: EventView) -> None:
    """T: has admitted 1, 2 and 3; not yet committed
    L: 1 leaves: waits for its entry
    T: COMMIT
    L: reads ready under the lock: left, and the slot is free
    """
    entries = join_waiting_entries(event, 5)
    backdate_tick(event)
    leaver = facade.Caller(entry_id=entries[0].id)
    with rival_waiting_at("admit", "after", lambda: positions.leave(event, leaver)) as rival:
        assert admission.tick(event.id, EPOCH) == 3
    assert rival.result().status == "left"
    assert tick(event) == 1
    assert_audit_clean()


def test_a_pause_during_a_tick_waits_for_it_and_then_applies(event: EventView) -> None:
    entries = join_waiting_entries(event, 9)
    backdate_tick(event)
    with rival_waiting_at(
        "count_active", "after", lambda: operations.set_state(event.id, "paused", who="staff")
    ) as rival:
        assert admission.tick(event.id, EPOCH) == 3
    assert rival.result()
    positions.leave(event, facade.Caller(entry_id=entries[0].id))
    assert tick(event) == 0


def test_a_tick_that_waited_for_a_pause_admits_no_entry(event: EventView) -> None:
    join_waiting_entries(event, 9)
    assert admission.due_rooms() == ([event.id], [])
    with transaction.atomic():
        WaitingRoom.objects.update(state="paused")
        ticker = ConcurrentCall(lambda: admission.tick(event.id, EPOCH)).wait_until_blocked()
    assert ticker.result() == 0
    assert ready_count() == 0


def test_the_slot_of_a_marked_entry_that_leaves_goes_to_no_unmarked_entry(event: EventView) -> None:
    """O: the room is paused; one marked entry waits already, and O lets another through: two may be admitted
    L: the first of the two leaves; COMMIT
    O: admits the other, and no unmarked entry while the room is paused
    """
    entries = join_waiting_entries(event, 5)
    QueueEntry.objects.filter(pk=entries[4].id).update(marked="vip")
    WaitingRoom.objects.update(state="paused")
    with rival_at("admit", "before", lambda: positions.leave(event, facade.Caller(entry_id=entries[4].id))):
        assert operations.let_through(entries[3].id, who="staff")
    assert statuses(event) == ["waiting", "waiting", "waiting", "ready", "left"]
    assert_audit_clean()


def test_a_leader_that_hangs_during_a_tick_releases_the_room(event: EventView) -> None:
    """By shape: its transaction may idle for less time than a join's two attempts wait for the room."""
    found: list[str] = []

    def read_timeout() -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT setting FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'")
            found.extend(cursor.fetchone())

    join_waiting_entries(event, 5)
    with run_at("count_active", "after", read_timeout):
        admission.tick(event.id, EPOCH)
    assert found == [str(admission.TICK_IDLE_MS)]
    assert admission.TICK_IDLE_MS < 2 * queue_join.JOIN_LOCK_MS
    assert_audit_clean()


def test_sixteen_tabs_of_one_browser_take_one_slot(event: EventView) -> None:
    caller = facade.Caller(visitor_id="a-visitor-of-the-line")
    entries = values(storm(16, lambda _: positions.join(event, caller)))
    assert len({entry.id for entry in entries}) == 1
    assert QueueEntry.objects.count() == ready_count() == 1
    assert_audit_clean()


def naive_numbered_join(connection: Any, event: EventView, visitor: str) -> None:
    """Insert an entry with a number from a sequence, which no lock guards and no rollback returns."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO queue_queueentry"
            " (id, event_id, number, visitor_id, status, joined_at, in_lobby, nonce, marked)"
            " VALUES (gen_random_uuid(), %s, nextval('naive_numbers'), %s, 'waiting', clock_timestamp(),"
            " false, '', '')",
            [event.id, visitor],
        )


def test_control_a_number_from_a_sequence_that_commits_late_waits_forever(event: EventView) -> None:
    """A: takes number 1; not yet committed
    B: takes number 2; COMMIT
    T: admits everything up to number 2: the head is 2, and number 1 is not visible
    A: COMMIT
    T: looks above the head, where number 1 will never be
    """
    open_now(event)

    def naive_head_tick() -> int:
        room = WaitingRoom.objects.get(event_id=event.id)
        due = QueueEntry.objects.filter(event_id=event.id, status="waiting", number__gt=room.head)
        last = due.order_by("-number").values_list("number", flat=True).first() or room.head
        count = due.filter(number__lte=last).update(
            status="ready", ready_at=clock.now(), claim_expires_at=clock.now() + timedelta(seconds=120)
        )
        WaitingRoom.objects.filter(event_id=event.id).update(head=last, next_number=last + 1)
        return count

    with connection.cursor() as cursor:
        cursor.execute("CREATE SEQUENCE naive_numbers")
    try:
        with rival_connection() as slow:
            slow.set_autocommit(False)
            naive_numbered_join(slow, event, "visitor-slow")
            naive_numbered_join(connection, event, "visitor-fast")
            assert naive_head_tick() == 1
            slow.commit()
        assert [naive_head_tick() for _ in range(3)] == [0, 0, 0]
    finally:
        with connection.cursor() as cursor:
            cursor.execute("DROP SEQUENCE naive_numbers")
    assert statuses(event) == ["waiting", "ready"]
    assert audit_breaches() == ["I9: concert: number 1 is waiting with the head at 2, next number 3"]


def test_a_number_is_taken_under_the_room_s_lock_so_none_commits_late(event: EventView) -> None:
    """A: has the room locked, takes number 1 and is admitted; not yet committed
    B: waits for the room
    A: COMMIT
    B: number 2
    """
    open_now(event)
    with rival_waiting_at("admit", "after", lambda: join(event)) as rival:
        first = join(event)
    assert (first.number, rival.result().number) == (1, 2)
    assert_audit_clean()


def test_control_a_lower_bound_skips_an_entry_that_returned(event: EventView) -> None:
    entries = join_waiting_entries(event, 5)
    tick(event)
    backdate_claims(entries[0])
    claim_or_get_entry(entries[0])
    room = WaitingRoom.objects.get()
    bounded = Q(event_id=event.id, status="waiting", number__gt=room.head)
    assert not QueueEntry.objects.filter(bounded, pk=entries[0].id).exists()
    assert tick(event) == 1
    assert row(entries[0]).status == "ready"
    assert row(entries[3]).status == "waiting"


def test_an_entry_that_returns_during_a_tick_is_admitted_within_the_cap(
    event: EventView,
) -> None:
    """T: has counted: one slot is free
    R: returns to number 1, below the head; COMMIT
    T: picks the lowest number: that one, and no other
    """
    entries = join_waiting_entries(event, 6)
    tick(event)
    backdate_claims(entries[0])
    admission.expire_admissions()
    backdate_tick(event)
    with rival_at("admit", "before", lambda: claim_or_get_entry(entries[0])) as rival:
        assert admission.tick(event.id, EPOCH) == 1
    assert rival.result.status == "waiting"
    assert row(entries[0]).status == "ready"
    assert ready_count() == 3
    assert_audit_clean()


def test_a_claim_concurrent_with_its_expiry_has_one_outcome(event: EventView) -> None:
    """C: in time by the clock read under its lock: claims; not yet committed
    T: the claim has expired by now, but the entry is locked: skipped, the slot stays taken
    C: COMMIT
    T: the entry is shopping
    """
    entries = join_waiting_entries(event, 5)
    tick(event)
    backdate_claims(entries[0])
    with rival_connection() as claimer:
        claimer.set_autocommit(False)
        with claimer.cursor() as cursor:
            cursor.execute(
                "UPDATE queue_queueentry SET admission_expires_at = clock_timestamp() + interval '5 min' WHERE id = %s",
                [entries[0].id],
            )
        assert tick(event) == 0
        claimer.commit()
    assert tick(event) == 0
    assert row(entries[0]).status == "ready"
    assert_audit_clean()


def test_a_hold_that_is_running_when_its_admission_ends_keeps_the_slot(event: EventView) -> None:
    """H: has the entry locked; its admission is valid
    T: the admission is over by now: the entry is locked, skipped; no entry is admitted
    H: COMMIT: busy until the reservation ends
    T: the slot is taken
    """
    entries = join_waiting_entries(event, 5)
    tick(event)
    claim_or_get_entry(entries[0])
    hold(event, claim_or_get_entry(entries[0]), seats=["hall-A-1"])
    backdate_admissions(entries[0])
    until = row(entries[0]).busy_until
    QueueEntry.objects.filter(pk=entries[0].id).update(busy_until=None)
    with rival_connection() as holder:
        holder.set_autocommit(False)
        with holder.cursor() as cursor:
            cursor.execute("UPDATE queue_queueentry SET busy_until = %s WHERE id = %s", [until, entries[0].id])
        assert tick(event) == 0
        holder.commit()
    assert tick(event) == 0
    assert_audit_clean()


def test_a_storm_of_all_operations_never_exceeds_the_cap() -> None:
    """Concurrent joins, ticks of several leaders, claims, leaves and staff admissions; the constraint on every batch
    and the auditor check the cap."""
    event = make_room(rate=1_000, active=7, rows=0, general_admission=500)
    early = join_waiting_entries(event, 20)

    def act(number: int) -> None:
        for step in range(6):
            kind = (number + step) % 6
            if kind == 0:
                admission.tick(event.id, EPOCH)
            elif kind == 1:
                join_entries(event, 2)
            elif kind == 2:
                claim_or_get_entry(early[(number * 3 + step) % 20])
            elif kind == 3:
                positions.leave(event, facade.Caller(entry_id=early[(number + step) % 20].id))
            elif kind == 4:
                operations.admit_now(event.id, 3, who="staff")
            else:
                backdate_claims(early[(number + 7 * step) % 20])

    values(storm(12, act))
    tick(event)
    assert ready_count() == 7
    assert all(batch.active_count <= 7 for batch in AdmissionBatch.objects.all())
    assert_audit_clean()


def test_concurrent_joins_take_every_number_once_and_only_the_cap_is_admitted() -> None:
    event = make_room(rate=1_000, active=5)

    def act(number: int) -> list[Any]:
        return facade.join_many(
            [facade.JoinRequest(event, facade.Caller(visitor_id=f"visitor-{number}-{one}")) for one in range(4)]
        )

    outcomes = [entry for entries in values(storm(12, act)) for entry in entries]
    assert sorted(entry.number for entry in outcomes) == list(range(1, 49))
    assert sorted(entry.number for entry in outcomes if entry.is_ready) == [1, 2, 3, 4, 5]
    assert_audit_clean()
