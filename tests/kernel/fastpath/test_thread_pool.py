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


@pytest.mark.parametrize("how", ["cache", "task"])
async def test_what_all_clients_need_does_not_wait_in_the_line_of_the_client_that_began_it(
    calls: Calls, how: str
) -> None:
    cache: RefreshingCache[int, str] = RefreshingCache(
        lambda key: calls.begun.append("shared") or f"value {key}", fresh_seconds=60, stale_seconds=0, most=1
    )
    tasks = [calls.begin("192.0.2.1", name) for name in ("a1", "a2", "a3")]
    await run_loop_once()

    async def begin_by_the_busy_client() -> None:
        thread_pool.set_client("192.0.2.1")
        if how == "cache":
            assert await cache.get(7) == "value 7"
        else:
            await thread_pool.create_shared_task(thread_pool.run_for_client(calls._act, "shared"))

    first = asyncio.create_task(begin_by_the_busy_client())
    await run_loop_once()
    await run_loop_once()
    calls.may_end.set()
    await asyncio.wait_for(asyncio.gather(*tasks, first), 20)
    assert calls.begun == ["a1", "shared", "a2", "a3"]


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
