"""Updates of events serve all listeners of a process."""

import asyncio
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from apps.kernel.fastpath import thread_pool
from apps.kernel.push.buffered_listener import QueuedListener
from apps.kernel.push.channel_names import topic_of
from apps.kernel.push.frames import frame
from apps.kernel.push.hub import Hub
from apps.queue import facade as queue
from apps.reservations.live import event_updates
from apps.reservations.live.event_updates import EventUpdates


async def test_updates_are_not_read_as_calls_of_the_client_that_listened_first() -> None:
    clients = []

    async def work() -> None:
        clients.append(thread_pool._client.get())

    async def first_listener() -> None:
        thread_pool.set_client("192.0.2.1")
        updates = EventUpdates(Hub())
        updates._start(work)
        await updates._running["work"]

    await asyncio.create_task(first_listener())
    assert clients == [""]


class _Progress:
    """Reads of queues' progress; a read takes a millisecond of the clock that passes measure."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.reads: list[int] = []
        monkeypatch.setattr(queue, "get_room_progress", self.read)
        monkeypatch.setattr(event_updates, "monotonic", lambda: self.now)

    async def read(self, event: Any) -> None:
        self.reads.append(event.id)
        self.now += 0.001


def followed_events(updates: EventUpdates, count: int) -> None:
    for event_id in range(count):
        feed = updates._by_id[event_id] = event_updates._EventFeed(SimpleNamespace(id=event_id), {})
        feed.queue_read_at = 98.0


def listen(updates: EventUpdates, event_id: int, times: int) -> None:
    for _ in range(times):
        updates.hub.listen(QueuedListener("stream"), [topic_of(event_id)])


async def test_a_queue_without_listeners_is_read_when_a_client_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, updates = _Progress(monkeypatch), EventUpdates(Hub())
    monkeypatch.setattr(updates, "_ensure_tasks", lambda: None)
    followed_events(updates, 1_500)
    listen(updates, 7, times=1)
    await updates._read_queues()
    assert progress.reads == [7]
    feed = updates._by_id[3]
    feed.latest[event_updates._STATE] = frame("state", {})
    await asyncio.gather(*(updates.follow_event(feed.event) for _ in range(5)))
    assert progress.reads == [7, 3], "concurrent clients share a read"
    progress.now += 2
    await updates.follow_event(feed.event)
    assert progress.reads == [7, 3, 3]


async def test_a_pass_is_short_and_begins_with_what_most_listeners_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, updates = _Progress(monkeypatch), EventUpdates(Hub())
    followed_events(updates, 1_000)
    for event_id in range(1_000):
        listen(updates, event_id, times=60 if event_id == 999 else 1)
    passes, busy_read_at = [], []
    for _ in range(20):
        progress.reads.clear()
        await updates._read_queues()
        passes.append(list(progress.reads))
        busy_read_at.append(updates._by_id[999].queue_read_at)
        progress.now += event_updates.TICK_SECONDS
    assert max(map(len, passes)) <= 502, "half a second, a millisecond each"
    assert max(later - earlier for earlier, later in pairwise(busy_read_at)) < 2
    assert progress.now - busy_read_at[-1] < 2
    assert set().union(*passes) == set(range(1_000))
