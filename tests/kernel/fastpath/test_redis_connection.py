"""Redis on the event loop: replies come in order; without Redis no caller waits for longer than the timeout."""

import asyncio
from typing import Any

import pytest

from apps.kernel import redis
from apps.kernel.fastpath.redis_connection import ROUND_TRIPS_MAX, AsyncRedis, Command
from tests.support.event_loops import run_loop_once
from tests.support.own_redis import OwnRedis

SECONDS_MAX = 20
SILENT = [("BLPOP", "a list that is never written", 0)]


async def send(client: AsyncRedis, commands: list[Command]) -> list[Any] | None:
    return await asyncio.wait_for(client.execute(commands), SECONDS_MAX)


async def test_each_batch_gets_its_own_replies_and_errors() -> None:
    client = AsyncRedis()
    assert await send(client, [("PING",)]) is None, "there is no connection yet"
    assert await client.wait_until_connected()
    batches = [send(client, [("ECHO", str(number)), ("ECHO", "ä" * 70_000)]) for number in range(5)]
    replies = await asyncio.gather(*batches)
    assert replies == [[str(number).encode(), ("ä" * 70_000).encode()] for number in range(5)]
    (refused, fine) = await send(client, [("EVALSHA", "0" * 40, 0), ("PING",)]) or ()
    assert isinstance(refused, Exception)
    assert (fine, str(refused)[:8]) == (b"PONG", "NOSCRIPT")
    client.close()


async def test_batches_under_way_have_no_result_when_redis_dies(own_redis: OwnRedis) -> None:
    client = AsyncRedis()
    assert await client.wait_until_connected()
    batches = asyncio.gather(*(send(client, SILENT) for _ in range(ROUND_TRIPS_MAX)))
    await run_loop_once()
    assert await send(client, [("PING",)]) is None, "the number of batches under way is limited"
    own_redis.kill()
    assert await asyncio.wait_for(batches, SECONDS_MAX) == [None] * ROUND_TRIPS_MAX
    assert await send(client, [("PING",)]) is None
    own_redis.return_empty()
    client._not_before = 0.0  # The pause between attempts is over too.
    assert await client.wait_until_connected()
    assert await send(client, [("PING",)]) == [b"PONG"]
    client.close()


async def test_a_timeout_pauses_redis_for_the_whole_process(
    own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "OUTAGE_PAUSE_SECONDS", 3_600.0)
    client = AsyncRedis()
    assert await client.wait_until_connected()
    assert await send(client, SILENT) is None
    assert redis.is_paused()
    assert await send(client, [("PING",)]) is None
    assert not await client.wait_until_connected()


@pytest.mark.parametrize("address", ["redis://:wrong@{host}", "rediss://{host}", "redis://127.0.0.1:1/0"])
async def test_other_kinds_of_connection_are_left_to_threads(own_redis: OwnRedis, settings: Any, address: str) -> None:
    (default,) = settings.CACHES.values()
    host = own_redis.server.url.rpartition("@")[2]
    settings.CACHES = {"default": {**default, "LOCATION": address.format(host=host)}}
    client = AsyncRedis()
    assert not await client.wait_until_connected()
    assert await send(client, [("PING",)]) is None


def test_a_connection_ends_with_its_loop_and_another_loop_has_its_own() -> None:
    client = AsyncRedis()

    async def connected() -> Any:
        assert await client.wait_until_connected()
        assert await send(client, [("PING",)]) == [b"PONG"]
        return client._connection

    first, second = asyncio.run(connected()), asyncio.run(connected())
    assert first is not second
    assert first.is_over
    assert second.is_over
