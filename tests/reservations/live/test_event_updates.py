"""Updates of events serve all listeners of a process."""

import asyncio

from apps.kernel.fastpath import thread_pool
from apps.kernel.push.hub import Hub
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
