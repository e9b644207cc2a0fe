"""Batched joins: few transactions, one entry per visitor, despite cancellation, kills and lost connections."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connections

from apps.accounts.models import User
from apps.events import facade as events
from apps.events.facade import EventView
from apps.events.models import OnSale
from apps.kernel import clock
from apps.kernel.db import sql
from apps.kernel.group_commit.batcher import Batcher, OutcomeUnknown
from apps.kernel.http import problems
from apps.queue import errors, facade, proofs
from apps.queue.entries import join as queue_join
from apps.queue.entries import positions
from apps.queue.models import AdmissionBatch, QueueEntry, WaitingRoom
from apps.queue.room import admission, operations
from tests.support.batches import TIMEOUT_MS, BackgroundCall, Breakpoint, run_sql, wait_until, wait_until_queued
from tests.support.factories import assert_audit_clean, join, join_directly, make_event
from tests.support.queue.rooms import EPOCH, join_waiting_entries, make_room, open_now, row
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)

Joins = Batcher[facade.JoinRequest, facade.JoinOutcome]
Connection = psycopg.Connection[Any]


@pytest.fixture
def event() -> EventView:
    return make_room(rate=1_000, active=5)


def visitor(name: object) -> facade.Caller:
    return facade.Caller(visitor_id=f"visitor-{name}")


class Decider:
    """The decision of joins. Records the size of each batch and runs the test's actions before, in and after it."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.gate = Breakpoint()
        self.lookup_count = 0
        self.after: dict[int, Any] = {}

    def __call__(self, connection: Connection, requests: list[facade.JoinRequest]) -> list[facade.JoinOutcome]:
        self.sizes.append(len(requests))
        if len(self.sizes) == 1:
            self.gate.arrive_and_wait()
        outcomes = queue_join._decide(connection, requests)
        self.after.get(len(self.sizes), lambda _: None)(connection)
        return outcomes

    def find(self, connection: Connection, requests: list[facade.JoinRequest]) -> Any:
        self.lookup_count += 1
        return queue_join._find_committed(connection, requests)


@contextmanager
def gated(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Decider, Joins]]:
    """All joins go through a batcher of the test, whose first batch waits at the gate."""
    decider = Decider()
    target: Joins = Batcher("gated joins", decider, find_committed=decider.find)
    monkeypatch.setattr(queue_join, "joins", target)
    try:
        yield decider, target
    finally:
        decider.gate.open()
        target.close()


def begin(decider: Decider, event: EventView) -> BackgroundCall:
    """Start a first batch, so that later joins gather behind it."""
    first = BackgroundCall(lambda: positions.join(event, visitor("first")))
    decider.gate.wait_until_reached()
    return first


def lose_connection(connection: Connection) -> None:
    """Lose the connection after the statement was executed and before its result arrives."""
    assert run_sql("SELECT pg_terminate_backend(%s, 10000)", [connection.info.backend_pid]) == [(True,)]
    connection.execute("SELECT 1")


async def test_five_hundred_concurrent_joins_take_three_transactions(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One batch is running; 500 joins arrive; they form two batches, of 256 and of 244. Every number is assigned once,
    in the order of arrival, and the cap holds."""
    with gated(monkeypatch) as (decider, target):
        first = await asyncio.to_thread(begin, decider, event)
        tasks = [asyncio.create_task(positions.join_async(event, visitor(number))) for number in range(500)]
        await wait_until_queued(target, 500, tasks)
        decider.gate.open()
        entries = await asyncio.gather(*tasks)
        assert (await asyncio.to_thread(first.result)).number == 1
    assert decider.sizes == [1, 256, 244]
    assert [entry.number for entry in entries] == list(range(2, 502))
    assert [entry.number for entry in entries if entry.is_ready] == [2, 3, 4, 5]
    await asyncio.to_thread(check_clean, 501)


def check_clean(next_number: int) -> None:
    try:
        assert WaitingRoom.objects.get().next_number == next_number + 1
        assert_audit_clean()
    finally:
        connections.close_all()


def test_many_threads_of_one_browser_get_one_entry_by_group_commit(event: EventView) -> None:
    join_waiting_entries(event, 7)
    outcomes = values(storm(24, lambda number: positions.join(event, visitor("same" if number % 2 else number))))
    assert len({place.id for place in outcomes[1::2]}) == 1
    assert len({place.id for place in outcomes}) == 13
    assert QueueEntry.objects.count() == 7 + 13
    assert_audit_clean()


def test_concurrent_joins_and_ticks_never_exceed_the_cap(event: EventView) -> None:
    def act(number: int) -> None:
        for step in range(4):
            if number < 2:
                admission.tick(event.id, EPOCH)
            else:
                positions.join(event, visitor(f"{number}-{step}"))

    values(storm(16, act))
    assert QueueEntry.objects.filter(status="ready").count() == 5
    assert sorted(QueueEntry.objects.values_list("number", flat=True)) == list(range(1, 57))
    assert all(batch.active_count <= 5 for batch in AdmissionBatch.objects.all())
    assert_audit_clean()


def test_a_join_whose_commit_result_was_lost_creates_no_second_entry(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of three commits; the connection dies before the result; the batcher reads again and finds all three.

    One of the joins had returned an existing entry: it is decided again, with the same result."""
    standing = join_directly(event, visitor("standing"))
    with gated(monkeypatch) as (decider, target):
        first = begin(decider, event)
        decider.after[2] = lose_connection
        callers = []
        for name in ("one", "standing", "two"):
            callers.append(BackgroundCall(lambda name=name: positions.join(event, visitor(name))))
            waiting(target, len(callers))
        decider.gate.open()
        first.result()
        one, again, two = [caller.result() for caller in callers]
    assert decider.sizes == [1, 3, 1]
    assert decider.lookup_count == 1
    assert again.id == standing.id
    assert (one.number, two.number) == (3, 4)
    assert QueueEntry.objects.count() == 4
    assert_audit_clean()


def waiting(target: Joins, count: int) -> None:
    wait_until(lambda: target.waiting_count == count, f"{count} wait")


def test_a_join_that_cannot_be_stored_is_refused_before_any_batch(event: EventView) -> None:
    """JSON allows a NUL, PostgreSQL refuses it: in a batch it would make the whole batch fall back to single joins."""
    for bad in ("nul-\x00-in-it", "line\nbreak", "x" * 65, "short", "ümlaut-here"):
        caller = facade.Caller(visitor_id=bad)
        with pytest.raises(problems.Invalid):
            positions.join(event, caller)
        (outcome,) = facade.join_many([facade.JoinRequest(event, caller)])
        assert isinstance(outcome, problems.Invalid)
    assert QueueEntry.objects.count() == 0


def test_a_join_for_a_deleted_account_is_refused_and_does_not_affect_its_batch(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gated(monkeypatch) as (decider, target):
        first = begin(decider, event)
        refused = BackgroundCall(lambda: positions.join(event, facade.Caller(account_id=4_711)))
        waiting(target, 1)
        fine = BackgroundCall(lambda: positions.join(event, visitor("fine")))
        waiting(target, 2)
        decider.gate.open()
        assert isinstance(refused.error(), problems.TokenInvalid)
        assert (first.result().number, fine.result().number) == (1, 2)
    assert_audit_clean()


async def test_too_many_waiting_joins_are_refused_with_retry_after(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gated(monkeypatch) as (decider, target):
        target._waiting_max = 1
        first = await asyncio.to_thread(begin, decider, event)
        second = asyncio.create_task(positions.join_async(event, visitor("second")))
        await wait_until_queued(target, 1, [second])
        with pytest.raises(problems.Busy) as refused:
            await positions.join_async(event, visitor("third"))
        decider.gate.open()
        assert (await second).number == 2
        await asyncio.to_thread(first.result)
    assert int(refused.value.headers()["Retry-After"]) >= 1


async def test_a_client_that_disconnects_before_the_batch_gets_no_entry(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gated(monkeypatch) as (decider, target):
        first = await asyncio.to_thread(begin, decider, event)
        canceled = asyncio.create_task(positions.join_async(event, visitor("gone")))
        await wait_until_queued(target, 1, [canceled])
        canceled.cancel()
        await asyncio.wait([canceled], timeout=TIMEOUT_MS / 1_000)
        decider.gate.open()
        await asyncio.to_thread(first.result)
        assert (await positions.join_async(event, visitor("next"))).number == 2
    await asyncio.to_thread(check_clean, 2)


def test_the_hash_chain_continues_over_joins_of_every_kind(event: EventView) -> None:
    open_now(event)
    join(event)
    positions.join(event, visitor("one"))
    facade.join_many([facade.JoinRequest(event, visitor(name)) for name in ("one", "two", "three")])
    head = proofs.genesis(event.slug)
    for entry in QueueEntry.objects.order_by("number"):
        assert len(entry.nonce) == 16
        head = proofs.link(head, entry.number or 0, proofs.leaf(entry.pk, bytes(entry.nonce)))
    assert WaitingRoom.objects.get().chain_head == head
    assert QueueEntry.objects.count() == 4


def test_a_batch_writes_each_table_once_and_locks_the_room_before_the_entries(event: EventView) -> None:
    standing = join_directly(event, visitor("standing"))
    QueueEntry.objects.filter(pk=standing.id).update(admission_expires_at=None, claim_expires_at=clock.now())
    seen: list[str] = []
    with sql.observe(lambda name, when: seen.append(name) if when == "after" else None):
        facade.join_many([facade.JoinRequest(event, visitor(name)) for name in ("standing", *range(20))])
    assert seen == [
        "lock_rooms", "lock_visitor_entries", "read_clock", "lowest_waiting",
        "save_arrivals", "insert_entries", "save_room",
    ]  # fmt: skip


# --- the lobby ------------------------------------------------------------------------------------------------------


@pytest.fixture
def lobby() -> EventView:
    """An event that sells in an hour, whose lobby is open."""
    event = make_room("evening", opens_at=clock.now() + timedelta(hours=1))
    WaitingRoom.objects.update(state="lobby")
    return event


def test_joining_a_lobby_creates_an_entry_without_a_number(lobby: EventView) -> None:
    entries = [positions.join(lobby, visitor(name)) for name in ("one", "two", "one")]
    assert entries[0] == entries[2]
    assert [(entry.number, entry.status) for entry in entries] == [(None, "waiting")] * 3
    room = WaitingRoom.objects.get()
    assert (room.lobby_count, room.next_number, room.head, bytes(room.chain_head)) == (2, 3, 0, b"")
    assert set(QueueEntry.objects.values_list("in_lobby", flat=True)) == {True}
    assert_audit_clean()


def test_a_visitor_who_leaves_the_lobby_and_returns_is_drawn_once(lobby: EventView) -> None:
    account = User.objects.create_user("ann").pk
    for caller in (visitor("one"), facade.Caller(account_id=account)):
        first = positions.join(lobby, caller)
        assert positions.leave(lobby, caller).status == "left"
        by_token, by_name = caller._replace(entry_id=first.id), caller
        again, later = facade.join_many([facade.JoinRequest(lobby, by_token), facade.JoinRequest(lobby, by_name)])
        assert isinstance(again, facade.EntryView)
        assert (again.id, again.status, later) == (first.id, "waiting", again)
        assert row(again).ended_at is None
    assert WaitingRoom.objects.get().lobby_count == QueueEntry.objects.count() == 2


def test_concurrent_joins_of_one_browser_in_the_lobby_create_one_entrant(lobby: EventView) -> None:
    def act(number: int) -> Any:
        if number % 3 == 0:
            positions.join(lobby, visitor("same"))
            return positions.leave(lobby, visitor("same"))
        return positions.join(lobby, visitor("same"))

    assert len({place.id for place in values(storm(12, act))}) == 1
    assert WaitingRoom.objects.get().lobby_count == QueueEntry.objects.count() == 1
    assert_audit_clean()


def test_after_the_lobby_has_closed_late_numbers_follow_the_draws_and_no_entry_is_admitted_yet(
    lobby: EventView,
) -> None:
    """Three entrants; the room is open and the draw has assigned no number yet: a late arrival gets number 4 and waits.
    A visitor who left the lobby and returns now is a late arrival too."""
    for name in ("one", "two", "three"):
        positions.join(lobby, visitor(name))
    positions.leave(lobby, visitor("two"))
    on_sale = make_on_sale(lobby)
    WaitingRoom.objects.update(state="open", numbered_through=0)
    late, back, known = (positions.join(on_sale, visitor(name)) for name in ("late", "two", "one"))
    assert [(entry.number, entry.status) for entry in (late, back, known)] == [
        (4, "waiting"), (5, "waiting"), (None, "waiting")
    ]  # fmt: skip
    assert_audit_clean()


def make_on_sale(event: EventView) -> EventView:
    OnSale.objects.update(opens_at=clock.now() - timedelta(minutes=1))
    return events.get_event(event.slug)


def test_a_lobby_refuses_joins_once_the_event_is_canceled(lobby: EventView) -> None:
    with pytest.raises(errors.NotOnSale, match="canceled"):
        positions.join(replace(lobby, status="canceled"), visitor("one"))


# --- after the sale -------------------------------------------------------------------------------------------------


def test_with_the_room_off_every_visitor_is_admitted_by_the_same_path() -> None:
    event = make_event("quiet")
    entries = values(storm(8, lambda number: positions.join(event, visitor(number))))
    assert {entry.status for entry in entries} == {"ready"}
    assert sorted(entry.number for entry in entries) == list(range(1, 9))
    assert_audit_clean()


def test_a_removed_visitor_joins_again_at_the_end(event: EventView) -> None:
    entries = join_waiting_entries(event, 3)
    operations.remove(entries[0].id, who="staff")
    assert positions.join(event, facade.Caller(entry_id=entries[0].id)).number == 4


@pytest.mark.slow
def test_a_join_result_that_comes_too_late_is_unknown_and_a_retry_finds_the_entry(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gated(monkeypatch) as (decider, _):
        # Long enough for the slowest machine to start the batch: a join of a batch that has not started is refused, not
        # unknown.
        monkeypatch.setattr(queue_join, "JOIN_TIMEOUT_MS", 3_000)
        caller = BackgroundCall(lambda: positions.join(event, visitor("one")))
        decider.gate.wait_until_reached()
        error = caller.error()
        assert isinstance(error, OutcomeUnknown)
        assert (error.status, error.type) == (503, "busy")
        decider.gate.open()
        monkeypatch.setattr(queue_join, "JOIN_TIMEOUT_MS", TIMEOUT_MS)
        assert positions.join(event, visitor("one")).number == 1
    assert QueueEntry.objects.count() == 1
