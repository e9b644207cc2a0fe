"""A room's board: one small value, from PostgreSQL or from a copy that is believed only while it is good."""

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


def lie(event: EventView, value: bytes) -> None:
    redis.client().set(room_snapshot.key(event.id), value)


def test_a_board_is_one_statement_and_less_than_a_kilobyte(event: EventView) -> None:
    WaitingRoom.objects.update(
        head=10**9, next_number=2 * 10**9, chain_head=b"x" * 32, message="m" * 280, supply_available=1, supply_held=2
    )
    with CaptureQueriesContext(connection) as captured:
        shown = room_snapshot.read_snapshot(event.id)
    assert len(captured) == 1
    assert shown.message == "m" * 280
    assert len(room_snapshot.encode(shown)) < 1_000
    assert room_snapshot.decode(room_snapshot.encode(shown), event.id) is None, "no copy is fresh where none is kept"


def test_a_process_reads_it_once_for_everybody(event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_caches_fresh(monkeypatch)
    reads: list[int] = []
    real = room_snapshot.read_snapshot
    monkeypatch.setattr(room_snapshot, "read_snapshot", lambda event_id: (reads.append(event_id), real(event_id))[1])
    boards = values(storm(8, lambda _: room_snapshot.get_snapshot(event.id)))
    assert len(set(map(id, boards))) == 1
    assert reads == [event.id]
    room_snapshot.invalidate(event.id)
    room_snapshot.get_snapshot(event.id)
    assert len(reads) == 2


def test_a_room_that_is_not_there_has_no_board() -> None:
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


def test_a_board_comes_from_the_copy_without_a_query(event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    use_redis_copy_only(monkeypatch)
    room_snapshot.copy_to_redis([event.id])
    with CaptureQueriesContext(connection) as captured:
        assert room_snapshot.get_snapshot(event.id).state == "closed"
    assert len(captured) == 0


def test_an_operator_s_act_is_seen_by_every_process_at_once(event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_who_writes_without_redis_reads_what_it_wrote(event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy still says open when the act is committed, and Redis takes no new one."""
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
def test_a_copy_that_lies_is_thrown_away_and_made_anew(
    forgery: str, event: EventView, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_redis_copy_only(monkeypatch)
    entries = join_waiting_entries(event, 2)
    lie(event, FORGERIES[forgery](room_snapshot.read_snapshot(event.id)))
    assert [position(event, entry) for entry in entries] == [1, 2]
    shown = read_redis_copy(event)
    assert shown is not None
    assert (shown.state, shown.next_number) == ("open", 3)


@pytest.mark.parametrize("put", ["hset", "rpush", "sadd"])
def test_a_key_of_another_kind_is_thrown_away(put: str, event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    use_redis_copy_only(monkeypatch)
    (entry,) = join_waiting_entries(event, 1)
    arguments: dict[str, tuple[Any, ...]] = {"hset": ("a", "b"), "rpush": ("a",), "sadd": ("a",)}
    getattr(redis.client(), put)(room_snapshot.key(event.id), *arguments[put])
    assert position(event, entry) == 1
    assert read_redis_copy(event) is not None


def test_a_copy_that_is_behind_what_was_seen_is_not_followed(event: EventView, monkeypatch: pytest.MonkeyPatch) -> None:
    """P: reads the board after a tick: position 1
    R: comes back with the board of before the tick, which still looks fresh
    P: would say position 4 now; the head cannot fall, so it asks PostgreSQL
    """
    use_redis_copy_only(monkeypatch)
    entries = join_waiting_entries(event, 4)
    before = room_snapshot.encode(room_snapshot.read_snapshot(event.id))
    tick(event)
    assert position(event, entries[3]) == 1
    lie(event, before)
    assert position(event, entries[3]) == 1


def test_a_board_is_never_older_than_the_shortest_wait_between_two_polls() -> None:
    """Whichever process answers: the head it shows was true no longer ago than the poll before."""
    shortest_ms = estimates.NEXT_POLL_MIN_MS * (1 - estimates.JITTER)
    assert (DEFAULTS["CACHE_SECONDS"] + DEFAULTS["COPY_FRESH_SECONDS"]) * 1_000 < shortest_ms
    assert DEFAULTS["COPY_TTL_MS"] <= DEFAULTS["COPY_FRESH_SECONDS"] * 1_000


DEFAULTS = {name: getattr(room_snapshot, name) for name in ("CACHE_SECONDS", "COPY_FRESH_SECONDS", "COPY_TTL_MS")}


def test_while_redis_is_away_it_is_asked_once_a_second_and_told_of_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def fail(client: Redis) -> None:
        asked.append("again")
        raise redis.RedisUnavailable("gone")

    # The house's own logger spares its reader; this one says everything.
    monkeypatch.setattr(redis, "logger", logging.getLogger("tests.outages"))
    monkeypatch.setattr(redis, "OUTAGE_PAUSE_SECONDS", 3_600.0)
    assert [redis.attempt(fail) for _ in range(5)] == [None] * 5
    assert len(asked) == 1
    monkeypatch.setattr(redis, "OUTAGE_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(redis._outage, "paused_until", 0.0)
    assert [redis.attempt(fail) for _ in range(2)] == [None] * 2
    assert redis.attempt(lambda client: client.ping()) is True
    assert [record.getMessage() for record in caplog.records if record.name == redis.logger.name] == [
        "Redis is unavailable (gone); PostgreSQL answers until it returns",
        "Redis is available again",
    ]


def test_an_error_that_redis_answers_is_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    redis.client().set("kind", "text")
    assert redis.attempt(lambda client: client.hgetall("kind")) is None
    assert redis.attempt(lambda client: client.get("kind")) == b"text"
    assert log_context.summarize_error(RuntimeError("one\ntwo")) == "one"


def test_the_board_tells_the_time_of_the_database(event: EventView) -> None:
    early = clock.now()
    shown = room_snapshot.read_snapshot(event.id)
    assert early <= shown.at <= clock.now()
