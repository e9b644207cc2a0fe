"""Redis asked on the loop: heard in order, and where it dies, is silent or was never reached, nobody waits for it."""

import asyncio
from typing import Any

import pytest

from apps.kernel import redis
from apps.kernel.fastpath.redis_connection import ROUND_TRIPS_MAX, AsyncRedis, Command
from tests.support.event_loops import run_loop_once
from tests.support.own_redis import OwnRedis

SECONDS_MAX = 20
SILENT = [("BLPOP", "a list that nobody ever writes to", 0)]


async def ask(courier: AsyncRedis, commands: list[Command]) -> list[Any] | None:
    heard: asyncio.Future[list[Any] | None] = asyncio.get_running_loop().create_future()
    assert courier.send(commands, heard.set_result)
    return await asyncio.wait_for(heard, SECONDS_MAX)


async def test_each_hears_its_own_answers_and_redis_own_errors() -> None:
    courier = AsyncRedis()
    assert not courier.send([("PING",)], lambda _: None), "there is no connection yet"
    assert await courier.wait_until_connected()
    asked = [ask(courier, [("ECHO", str(number)), ("ECHO", "ä" * 70_000)]) for number in range(5)]
    heard = await asyncio.gather(*asked)
    assert heard == [[str(number).encode(), ("ä" * 70_000).encode()] for number in range(5)]
    (refused, fine) = await ask(courier, [("EVALSHA", "0" * 40, 0), ("PING",)]) or ()
    assert isinstance(refused, Exception)
    assert (fine, str(refused)[:8]) == (b"PONG", "NOSCRIPT")
    courier.close()


async def test_a_question_that_redis_dies_under_is_answered_by_nobody(own_redis: OwnRedis) -> None:
    courier = AsyncRedis()
    assert await courier.wait_until_connected()
    asked = asyncio.gather(*(ask(courier, SILENT) for _ in range(ROUND_TRIPS_MAX)))
    await run_loop_once()
    assert not courier.send([("PING",)], lambda _: None), "no more than so many are under way"
    own_redis.kill()
    assert await asyncio.wait_for(asked, SECONDS_MAX) == [None] * ROUND_TRIPS_MAX
    assert not courier.send([("PING",)], lambda _: None)
    own_redis.return_empty()
    courier._not_before = 0.0  # Its second of rest is over too.
    assert await courier.wait_until_connected()
    assert await ask(courier, [("PING",)]) == [b"PONG"]
    courier.close()


async def test_where_redis_is_silent_it_rests_for_everybody(
    own_redis: OwnRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis, "OUTAGE_PAUSE_SECONDS", 3_600.0)
    courier = AsyncRedis()
    assert await courier.wait_until_connected()
    assert await ask(courier, SILENT) is None
    assert redis.is_paused()
    assert not courier.send([("PING",)], lambda _: None)
    assert not await courier.wait_until_connected()


@pytest.mark.parametrize("address", ["redis://:wrong@{host}", "rediss://{host}", "redis://127.0.0.1:1/0"])
async def test_who_cannot_be_reached_so_is_asked_another_way(own_redis: OwnRedis, settings: Any, address: str) -> None:
    (default,) = settings.CACHES.values()
    host = own_redis.server.url.rpartition("@")[2]
    settings.CACHES = {"default": {**default, "LOCATION": address.format(host=host)}}
    courier = AsyncRedis()
    assert not await courier.wait_until_connected()
    assert not courier.send([("PING",)], lambda _: None)


def test_a_connection_ends_with_its_loop_and_another_loop_has_its_own() -> None:
    courier = AsyncRedis()

    async def connected() -> Any:
        assert await courier.wait_until_connected()
        assert await ask(courier, [("PING",)]) == [b"PONG"]
        return courier._connection

    first, second = asyncio.run(connected()), asyncio.run(connected())
    assert first is not second
    assert first.is_over
    assert second.is_over
