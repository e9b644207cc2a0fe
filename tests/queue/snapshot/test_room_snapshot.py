"""A room's snapshot: one small value, from PostgreSQL or from a copy that is trusted only while it is valid."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from redis import Redis

from apps.events.facade import EventView
from apps.kernel import clock, redis
from apps.kernel.observability import log_context
from apps.queue.models import WaitingRoom
from apps.queue.room import gatekeeper, operations
from apps.queue.snapshot import room_snapshot
from apps.queue.snapshot.room_snapshot import RoomSnapshot
from apps.queue.status import estimates
from tests.queue.room.test_gatekeeper import until
from tests.support.databases import database_url
from tests.support.factories import make_event
from tests.support.queue.rooms import join_waiting_entries, make_room, tick
from tests.support.queue.snapshots import (
    fresh_process,
    keep_caches_fresh,
    poll_status,
    position,
    read_redis_copy,
    use_redis_copy_only,
)
from tests.support.races import storm, values

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def event() -> EventView:
    return make_room()


def write_copy(event: EventView, value: bytes) -> None:
    redis.client().set(room_snapshot.key(event.id), value)


def test_a_snapshot_is_one_statement_and_less_than_a_kilobyte(event: EventView) -> None:
    WaitingRoom.objects.update(
        head=10**9, next_number=2 * 10**9, chain_head=b"x" * 32, message="m" * 280, supply_available=1, supply_held=2
    )
    with CaptureQueriesContext(connection) as captured:
        shown = room_snapshot.read_snapshot(event.id)
    assert len(captured) == 1
    assert shown.message == "m" * 280
    assert len(room_snapshot.encode(shown)) < 1_000
    assert room_snapshot.decode(room_snapshot.encode(shown), event.id) is None, "without copies none is fresh"


def test_a_process_reads_the_snapshot_once_for_all_callers(event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_caches_fresh(monkeypatch)
    reads: list[int] = []
    real = room_snapshot.read_snapshot
    monkeypatch.setattr(room_snapshot, "read_snapshot", lambda event_id: (reads.append(event_id), real(event_id))[1])
    snapshots = values(storm(8, lambda _: room_snapshot.get_snapshot(event.id)))
    assert len(set(map(id, snapshots))) == 1
    assert reads == [event.id]
    room_snapshot.invalidate(event.id)
    room_snapshot.get_snapshot(event.id)
    assert len(reads) == 2


def test_a_missing_room_has_no_snapshot() -> None:
    with pytest.raises(WaitingRoom.DoesNotExist):
        room_snapshot.get_snapshot(4_711)


def test_the_leader_copies_every_room_in_use_after_its_ticks(event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    use_redis_copy_only(monkeypatch)
    off = make_event("quiet", venue="Elsewhere")
    join_waiting_entries(event, 5)
    leader, stand_by = gatekeeper.Gatekeeper(database_url()), gatekeeper.Gatekeeper(database_url())
    try:
        assert leader.run_once() == 3
        shown = read_redis_copy(event)
        assert shown is not None
        assert (shown.head, shown.next_number, shown.state) == (3, 6, "open")
        assert read_redis_copy(off) is None
        redis.client().flushall()
        assert stand_by.run_once() == 0
        assert read_redis_copy(event) is None, "a stand-by copies nothing"
        until(lambda: leader.run_once() == 0 and read_redis_copy(event) is not None, "a copy by the next tick")
    finally:
        leader.resign()
        stand_by.resign()


def test_a_snapshot_comes_from_the_copy_without_a_query(event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    use_redis_copy_only(monkeypatch)
    room_snapshot.copy_to_redis([event.id])
    with CaptureQueriesContext(connection) as captured:
        assert room_snapshot.get_snapshot(event.id).state == "closed"
    assert len(captured) == 0


def test_an_operators_act_is_seen_by_every_process_at_once(event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    use_redis_copy_only(monkeypatch)
    (entry,) = join_waiting_entries(event, 1)
    room_snapshot.copy_to_redis([event.id])
    assert poll_status(event, entry).estimate.status == "waiting"
    with fresh_process():
        operations.set_state(event.id, "paused", who="staff")
    with CaptureQueriesContext(connection) as captured:
        assert room_snapshot.get_snapshot(event.id).state == "paused"
    assert len(captured) == 0, "it is in the copy"
    assert poll_status(event, entry).estimate.status == "paused"
    with fresh_process():
        operations.set_limits(event.id, rate_per_second=77, active_max=7, who="staff")
    assert (room_snapshot.get_snapshot(event.id).rate_ceiling, room_snapshot.get_snapshot(event.id).active_max) == (
        77,
        7,
    )


def test_a_process_that_writes_without_redis_reads_its_own_write(
    event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy is still open when the act is committed, and Redis accepts no new one."""
    keep_caches_fresh(monkeypatch, copy=True)
    (entry,) = join_waiting_entries(event, 1)
    assert poll_status(event, entry).estimate.status == "waiting"
    monkeypatch.setattr(room_snapshot, "_write_copies", lambda *args, **kwargs: None)
    operations.set_state(event.id, "paused", who="staff")
    assert poll_status(event, entry).estimate.status == "paused"


FORGERIES: dict[str, Callable[[RoomSnapshot], bytes]] = {
    "empty": lambda _: b"",
    "no JSON": lambda _: b"\xff\xfe{",
    "null": lambda _: b"null",
    "a number": lambda _: b"17",
    "another version": lambda shown: room_snapshot.encode(shown).replace(b'"version":2', b'"version":1'),
    "a word for a number": lambda shown: room_snapshot.encode(shown).replace(b'"head":0', b'"head":"far"'),
    "a rate of nothing": lambda shown: room_snapshot.encode(replace(shown, rate=0.0)),
    "claims within nothing": lambda shown: room_snapshot.encode(replace(shown, claim_seconds=0)),
    "a state that there is not": lambda shown: room_snapshot.encode(replace(shown, state="ajar")),
    "another room's": lambda shown: room_snapshot.encode(replace(shown, event_id=shown.event_id + 1)),
    "a moment without a zone": lambda shown: room_snapshot.encode(replace(shown, at=shown.at.replace(tzinfo=None))),
    "of an hour ago": lambda shown: room_snapshot.encode(replace(shown, at=shown.at - timedelta(hours=2))),
    "of tomorrow": lambda shown: room_snapshot.encode(replace(shown, at=shown.at + timedelta(days=1))),
    "endless": lambda shown: room_snapshot.encode(shown) + b" " * room_snapshot.BYTES_MAX,
    "a field missing": lambda shown: msgspec.json.encode({"event_id": shown.event_id, "head": 10}),
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_an_invalid_copy_is_discarded_and_replaced(
    forgery: str, event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_redis_copy_only(monkeypatch)
    entries = join_waiting_entries(event, 2)
    write_copy(event, FORGERIES[forgery](room_snapshot.read_snapshot(event.id)))
    assert [position(event, entry) for entry in entries] == [1, 2]
    shown = read_redis_copy(event)
    assert shown is not None
    assert (shown.state, shown.next_number) == ("open", 3)


@pytest.mark.parametrize("put", ["hset", "rpush", "sadd"])
def test_a_key_of_another_type_is_discarded(put: str, event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    use_redis_copy_only(monkeypatch)
    (entry,) = join_waiting_entries(event, 1)
    arguments: dict[str, tuple[Any, ...]] = {"hset": ("a", "b"), "rpush": ("a",), "sadd": ("a",)}
    getattr(redis.client(), put)(room_snapshot.key(event.id), *arguments[put])
    assert position(event, entry) == 1
    assert read_redis_copy(event) is not None


def test_a_copy_older_than_the_last_read_is_not_used(event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    """P: reads the snapshot after a tick: position 1
    R: returns with the snapshot from before the tick, which still looks fresh
    P: would report position 4 now; the head cannot fall, so it asks PostgreSQL
    """
    use_redis_copy_only(monkeypatch)
    entries = join_waiting_entries(event, 4)
    before = room_snapshot.encode(room_snapshot.read_snapshot(event.id))
    tick(event)
    assert position(event, entries[3]) == 1
    write_copy(event, before)
    assert position(event, entries[3]) == 1


def test_a_snapshot_is_never_older_than_the_shortest_wait_between_two_polls() -> None:
    """Whichever process answers: the head in the snapshot was current no longer ago than the previous poll."""
    shortest_ms = estimates.NEXT_POLL_MIN_MS * (1 - estimates.JITTER)
    assert (DEFAULTS["CACHE_SECONDS"] + DEFAULTS["COPY_FRESH_SECONDS"]) * 1_000 < shortest_ms
    assert DEFAULTS["COPY_TTL_MS"] <= DEFAULTS["COPY_FRESH_SECONDS"] * 1_000


DEFAULTS = {name: getattr(room_snapshot, name) for name in ("CACHE_SECONDS", "COPY_FRESH_SECONDS", "COPY_TTL_MS")}


def test_without_redis_it_is_retried_once_a_second_and_logged_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[str] = []

    def fail(client: Redis) -> None:
        attempts.append("again")
        raise redis.RedisUnavailable("gone")

    # Our own logger limits repeated messages; this one records all of them.
    monkeypatch.setattr(redis, "logger", logging.getLogger("tests.outages"))
    monkeypatch.setattr(redis, "OUTAGE_PAUSE_SECONDS", 3_600.0)
    assert [redis.attempt(fail) for _ in range(5)] == [None] * 5
    assert len(attempts) == 1
    monkeypatch.setattr(redis, "OUTAGE_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(redis._outage, "paused_until", 0.0)
    assert [redis.attempt(fail) for _ in range(2)] == [None] * 2
    assert redis.attempt(lambda client: client.ping()) is True
    assert [record.getMessage() for record in caplog.records if record.name == redis.logger.name] == [
        "Redis is unavailable (gone); PostgreSQL answers until it returns",
        "Redis is available again",
    ]


def test_an_error_response_of_redis_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    redis.client().set("kind", "text")
    assert redis.attempt(lambda client: client.hgetall("kind")) is None
    assert redis.attempt(lambda client: client.get("kind")) == b"text"
    assert log_context.summarize_error(RuntimeError("one\ntwo")) == "one"


def test_the_snapshot_has_the_time_of_the_database(event: EventView) -> None:
    early = clock.now()
    shown = room_snapshot.read_snapshot(event.id)
    assert early <= shown.at <= clock.now()
