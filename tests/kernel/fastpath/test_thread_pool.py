"""The order in which calls get the threads of the fast path."""

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from apps.kernel.fastpath import thread_pool
from apps.kernel.fastpath.cache import RefreshingCache
from apps.kernel.http import problems
from tests.support.event_loops import run_loop_once


class Calls:
    """Calls that end one after the other, and the order in which they began. The first occupies the only thread."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_end = threading.Event()

    def begin(self, client: str, name: str) -> "asyncio.Task[None]":
        """Begin a call of this client, or a shared one."""

        async def call() -> None:
            thread_pool.set_client(client)
            run = thread_pool.run_for_client if client else thread_pool.run_in_thread
            await run(self._act, name)

        return asyncio.create_task(call())

    def _act(self, name: str) -> None:
        self.begun.append(name)
        assert self.may_end.wait(20)


@pytest.fixture
def calls(settings: Any) -> Iterator[Calls]:
    settings.LANE_THREADS = 1
    thread_pool.close()
    calls = Calls()
    yield calls
    calls.may_end.set()
    thread_pool.close()


async def test_clients_take_turns_and_shared_calls_go_first(calls: Calls) -> None:
    order = [("192.0.2.1", "a1"), ("192.0.2.1", "a2"), ("192.0.2.1", "a3"), ("192.0.2.2", "b1"), ("192.0.2.2", "b2"),
             ("2001:db8::1", "c1"), ("2001:db8:0:1::1", "c2"), ("", "shared")]  # fmt: skip
    tasks = [calls.begin(client, name) for client, name in order]
    await run_loop_once()
    calls.may_end.set()
    await asyncio.wait_for(asyncio.gather(*tasks), 20)
    assert calls.begun == ["a1", "shared", "a2", "b1", "c1", "a3", "b2", "c2"], "a customer has all networks of a /48"
    assert (thread_pool._threads.running, thread_pool._threads.waiting, thread_pool._threads.lines) == (0, 0, {})


async def test_a_value_is_read_in_the_turn_of_the_first_client_that_has_one(calls: Calls) -> None:
    """A has many calls, and begins to read the value
    B needs the value, and gets it in its own turn, as does A then
    """
    cache = cache_of(calls)
    tasks = [calls.begin("192.0.2.1", name) for name in ("a1", "a2", "a3")]
    await run_loop_once()
    first, second = ask(cache, "192.0.2.1", 7), ask(cache, "192.0.2.2", 7)
    for _ in range(3):
        await run_loop_once()
    calls.may_end.set()
    assert await asyncio.wait_for(asyncio.gather(first, second), 20) == ["value 7", "value 7"]
    await asyncio.wait_for(asyncio.gather(*tasks), 20)
    assert calls.begun == ["a1", "a2", "7", "a3"]
    assert (thread_pool._threads.running, thread_pool._threads.waiting, thread_pool._threads.lines) == (0, 0, {})


async def test_a_client_that_reads_many_values_delays_no_other_client(calls: Calls) -> None:
    cache = cache_of(calls)
    tasks = [calls.begin("192.0.2.1", "a1")]
    await run_loop_once()
    tasks += [ask(cache, "192.0.2.1", number) for number in range(4)]
    for _ in range(3):
        await run_loop_once()
    tasks.append(calls.begin("192.0.2.2", "b"))
    await run_loop_once()
    calls.may_end.set()
    await asyncio.wait_for(asyncio.gather(*tasks), 20)
    assert calls.begun == ["a1", "0", "b", "1", "2", "3"]


async def test_a_client_with_a_full_line_gets_what_another_one_reads(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_pool, "CLIENT_WAITING_MAX", 1)
    cache = cache_of(calls)
    tasks = [calls.begin("192.0.2.1", name) for name in ("a1", "a2")]
    await run_loop_once()
    refused = ask(cache, "192.0.2.1", 8)
    second, first = ask(cache, "192.0.2.2", 7), ask(cache, "192.0.2.1", 7)
    for _ in range(3):
        await run_loop_once()
    assert isinstance(refused.exception(), problems.Busy)
    calls.may_end.set()
    assert await asyncio.wait_for(asyncio.gather(first, second), 20) == ["value 7", "value 7"]
    await asyncio.wait_for(asyncio.gather(*tasks), 20)


async def test_the_calls_of_a_shared_task_are_those_of_no_client(calls: Calls) -> None:
    tasks = [calls.begin("192.0.2.1", name) for name in ("a1", "a2")]
    await run_loop_once()

    async def begin_by_the_busy_client() -> None:
        thread_pool.set_client("192.0.2.1")
        await thread_pool.create_shared_task(thread_pool.run_for_client(calls._act, "shared"))

    first = asyncio.create_task(begin_by_the_busy_client())
    await run_loop_once()
    await run_loop_once()
    calls.may_end.set()
    await asyncio.wait_for(asyncio.gather(*tasks, first), 20)
    assert calls.begun == ["a1", "shared", "a2"]


def cache_of(calls: Calls) -> RefreshingCache[int, str]:
    def read(key: int) -> str:
        calls.begun.append(str(key))
        return f"value {key}"

    return RefreshingCache(read, fresh_seconds=60, stale_seconds=0, most=10)


def ask(cache: RefreshingCache[int, str], client: str, key: int) -> "asyncio.Task[str]":
    async def request() -> str:
        thread_pool.set_client(client)
        return await cache.get(key)

    return asyncio.create_task(request())


async def test_few_calls_of_a_client_wait_and_canceled_ones_take_no_turn(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(thread_pool, "CLIENT_WAITING_MAX", 2)
    tasks = [calls.begin("192.0.2.1", str(number)) for number in range(4)]
    await run_loop_once()
    assert isinstance(tasks[3].exception(), problems.Busy)
    other = calls.begin("192.0.2.2", "other")
    tasks[1].cancel()
    await run_loop_once()
    calls.may_end.set()
    await asyncio.wait_for(asyncio.gather(tasks[0], tasks[2], other), 20)
    assert calls.begun == ["0", "other", "2"], "the canceled one has used a turn"
    assert (thread_pool._threads.running, thread_pool._threads.waiting, thread_pool._threads.lines) == (0, 0, {})


def test_calls_of_an_ended_event_loop_are_forgotten(calls: Calls) -> None:
    async def leave_waiting() -> None:
        calls.begin("192.0.2.1", "first")
        calls.begin("192.0.2.1", "second")
        await run_loop_once()

    asyncio.run(leave_waiting())
    calls.may_end.set()

    async def call() -> None:
        await asyncio.wait_for(calls.begin("192.0.2.1", "third"), 20)

    asyncio.run(call())
    assert calls.begun[-1] == "third"
