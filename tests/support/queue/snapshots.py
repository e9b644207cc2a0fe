"""Process caches in tests: made permanent, and of one process beside another."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from apps.events.event_views import event_cache
from apps.events.facade import EventView
from apps.kernel import redis
from apps.queue import facade
from apps.queue.snapshot import exceptions, room_snapshot
from apps.queue.snapshot.room_snapshot import RoomSnapshot
from apps.queue.status import status

NEVER_STALE_SECONDS = 3_600.0


def keep_caches_fresh(monkeypatch: pytest.MonkeyPatch, *, copy: bool = False) -> None:
    """Let no cached value expire; with `copy`, the copy in Redis does not expire either."""
    monkeypatch.setattr(room_snapshot, "CACHE_SECONDS", NEVER_STALE_SECONDS)
    monkeypatch.setattr(room_snapshot, "COPY_FRESH_SECONDS", NEVER_STALE_SECONDS if copy else 0.0)
    monkeypatch.setattr(room_snapshot, "COPY_TTL_MS", int(NEVER_STALE_SECONDS * 1_000))
    monkeypatch.setattr(exceptions, "FEED_SECONDS", NEVER_STALE_SECONDS)
    monkeypatch.setattr(event_cache, "fresh_seconds", NEVER_STALE_SECONDS)


def use_redis_copy_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cache nothing in processes, and let no copy in Redis expire."""
    monkeypatch.setattr(room_snapshot, "COPY_FRESH_SECONDS", NEVER_STALE_SECONDS)
    monkeypatch.setattr(room_snapshot, "COPY_TTL_MS", int(NEVER_STALE_SECONDS * 1_000))


@contextmanager
def fresh_process() -> Iterator[None]:
    """Run the block as in a process that has just started; afterwards restore the caches."""
    saved = [(module, name, getattr(module, name)) for module, name in PROCESS_CACHES]
    for module, name, _ in saved:
        setattr(module, name, {})
    redis.forget_outage()
    try:
        yield
    finally:
        for module, name, value in saved:
            setattr(module, name, value)


PROCESS_CACHES = ((room_snapshot, "_cache"), (exceptions, "_feeds"))


def caller_of_entry(entry: facade.EntryView) -> facade.Caller:
    """The caller that sends the queue token of this entry."""
    return facade.Caller(entry_id=entry.id, in_line=True, number=entry.number)


def poll_status(event: EventView, entry: facade.EntryView) -> status.QueueStatus:
    status_now = status.get_status(event, caller_of_entry(entry))
    assert status_now is not None
    return status_now


def status_from_database(event: EventView, entry: facade.EntryView) -> status.QueueStatus:
    """Return the status as read from PostgreSQL, without the snapshot."""
    status_now = status.get_status(event, facade.Caller(entry_id=entry.id))
    assert status_now is not None
    return status_now


def position(event: EventView, entry: facade.EntryView) -> int | None:
    return poll_status(event, entry).estimate.ahead


def read_redis_copy(event: EventView) -> RoomSnapshot | None:
    """Return the copy in Redis, if there is a valid one."""
    raw = redis.client().get(room_snapshot.key(event.id))
    return None if raw is None else room_snapshot.decode(bytes(raw), event.id)  # type: ignore[arg-type]
