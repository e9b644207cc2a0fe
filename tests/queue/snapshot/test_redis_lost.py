"""The loss of Redis: joins and polls continue from PostgreSQL, no position changes, the copy restores itself.

These tests kill a server, so each has one of its own.
"""

import os
import signal

import pytest
from django.core.management import CommandError, call_command

from apps.events.facade import EventView
from apps.kernel import redis
from apps.queue import facade
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.room import gatekeeper, operations
from apps.queue.snapshot import rebuild, room_snapshot
from tests.queue.room.test_gatekeeper import until
from tests.support.databases import database_url
from tests.support.factories import assert_audit_clean, join
from tests.support.own_redis import OwnRedis
from tests.support.queue.rooms import join_waiting_entries, make_room, open_now, tick
from tests.support.queue.snapshots import caller_of_entry, poll_status, position, read_redis_copy, use_redis_copy_only
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def event(monkeypatch: pytest.MonkeyPatch) -> EventView:
    use_redis_copy_only(monkeypatch)
    return make_room(rate=1_000, active=40)


def order(event: EventView) -> list[tuple[int, str]]:
    return list(QueueEntry.objects.filter(event_id=event.id).order_by("number").values_list("number", "visitor_id"))


@pytest.mark.parametrize("loss", ["killed", "flushed", "hanging"])
def test_concurrent_joins_and_polls_continue_through_the_loss_of_redis(
    loss: str, event: EventView, own_redis: OwnRedis
) -> None:
    """Eight visitors at a time join and poll; meanwhile Redis is killed, flushed or stops responding."""
    open_now(event)
    # Some wait to the end: without waiting entries the gatekeeper copies nothing.
    operations.set_limits(event.id, rate_per_second=1_000, active_max=20, who="staff")
    leader = gatekeeper.Gatekeeper(database_url())

    def lose() -> None:
        if loss == "killed":
            own_redis.kill()
        elif loss == "flushed":
            redis.client().flushall()
        else:
            os.kill(own_redis.server.pid, signal.SIGSTOP)

    def visit(number: int) -> list[tuple[facade.EntryView, list[int]]]:
        seen = []
        for turn in range(4):
            if (number, turn) == (0, 2):
                lose()
            entry = join(event)
            if number == 0:
                leader.run_once()
            ahead = [position(event, entry) for _ in range(3)]
            seen.append((entry, [at for at in ahead if at is not None]))
        return seen

    try:
        visits = [visit for visits in values(storm(8, visit)) for visit in visits]
        for entry, ahead in visits:
            assert len(ahead) == 3
            assert ahead == sorted(ahead, reverse=True), f"number {entry.number} fell back: {ahead}"
        assert sorted(entry.number or 0 for entry, _ in visits) == list(range(1, 33))
        before = order(event)
        if loss == "hanging":
            os.kill(own_redis.server.pid, signal.SIGCONT)
        elif loss == "killed":
            own_redis.return_empty()
        redis.forget_outage()

        def is_copied() -> bool:
            leader.run_once()
            shown = read_redis_copy(event)
            return shown is not None and shown.head == WaitingRoom.objects.get(event_id=event.id).head

        until(is_copied, "a copy of this moment by the gatekeeper")
        assert order(event) == before
    finally:
        if loss == "hanging":
            os.kill(own_redis.server.pid, signal.SIGCONT)
        leader.resign()
    assert_audit_clean()


def test_without_redis_operators_act_and_visitors_see_it(event: EventView, own_redis: OwnRedis) -> None:
    entries = join_waiting_entries(event, 3)
    own_redis.kill()
    operations.set_state(event.id, "paused", who="staff")
    assert poll_status(event, entries[2]).estimate.status == "paused"
    operations.set_state(event.id, "open", who="staff")
    tick(event)
    assert poll_status(event, entries[2]).is_ready
    assert_audit_clean()


def test_the_copy_is_restored_by_the_first_poll_without_a_gatekeeper(event: EventView, own_redis: OwnRedis) -> None:
    entries = join_waiting_entries(event, 3)
    own_redis.kill()
    assert [position(event, entry) for entry in entries] == [1, 2, 3]
    own_redis.return_empty()
    assert read_redis_copy(event) is None
    assert [position(event, entry) for entry in entries] == [1, 2, 3]
    assert read_redis_copy(event) is not None


def test_a_redis_that_returns_with_old_data_changes_no_position(
    event: EventView, own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = join_waiting_entries(event, 50)
    room_snapshot.copy_to_redis([event.id])
    long_ago = redis.client().get(room_snapshot.key(event.id))
    assert tick(event) == 40
    room_snapshot.copy_to_redis([event.id])
    assert position(event, entries[49]) == 10
    own_redis.kill()
    own_redis.return_empty()
    redis.client().set(room_snapshot.key(event.id), long_ago)  # type: ignore[arg-type]
    monkeypatch.setattr(room_snapshot, "COPY_FRESH_SECONDS", 1e-9)  # Any age is too old.
    assert position(event, entries[49]) == 10
    assert poll_status(event, entries[0]).is_ready


def test_rebuilding_by_hand_prints_what_it_wrote_and_that_the_order_is_unchanged(
    event: EventView, own_redis: OwnRedis, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rebuild, "CHUNK_MAX", 4)
    join_waiting_entries(event, 9)
    redis.client().set(room_snapshot.key(event.id), "garbage")
    call_command("rebuild_queue", event.slug)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("concert: room open, head 0, next number 10: ")
    assert " bytes written and read back in " in first
    assert "order of 9 entries identical before and after, sha256 " in second
    assert read_redis_copy(event) is not None


def test_rebuilding_detects_a_changed_entry(
    event: EventView, own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = join_waiting_entries(event, 3)
    real = room_snapshot.replace_copy

    def replace_with_a_change(event_id: int) -> tuple[room_snapshot.RoomSnapshot, int]:
        QueueEntry.objects.filter(pk=entries[1].id).update(number=400)
        QueueEntry.objects.filter(pk=entries[2].id).update(number=2)
        return real(event_id)

    monkeypatch.setattr(room_snapshot, "replace_copy", replace_with_a_change)
    with pytest.raises(CommandError, match="before: 3 entries"):
        call_command("rebuild_queue", event.slug)


def test_rebuilding_is_refused_in_one_line(event: EventView, own_redis: OwnRedis) -> None:
    with pytest.raises(CommandError, match="there is no published event"):
        call_command("rebuild_queue", "nowhere")
    own_redis.kill()
    with pytest.raises(CommandError, match="Redis is unavailable") as refused:
        call_command("rebuild_queue", event.slug)
    assert "\n" not in str(refused.value)


def test_a_token_works_in_a_process_with_empty_caches(event: EventView, own_redis: OwnRedis) -> None:
    (entry,) = join_waiting_entries(event, 1)
    own_redis.kill()
    assert caller_of_entry(entry).in_line
    assert poll_status(event, entry).estimate.ahead == 1
