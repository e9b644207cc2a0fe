"""Turns of clients before the threads of the fast path."""

import asyncio

import pytest

from apps.kernel.fastpath import thread_pool
from apps.kernel.http import problems
from tests.support.event_loops import run_loop_once


class Requests:
    """Requests that stay in the block until the test ends them."""

    def __init__(self) -> None:
        self.running: list[str] = []
        self.may_end = asyncio.Event()

    def begin(self, address: str) -> "asyncio.Task[None]":
        return asyncio.create_task(self._run(address))

    async def _run(self, address: str) -> None:
        async with thread_pool.turn_of(address):
            self.running.append(address)
            await self.may_end.wait()


async def test_one_request_of_each_client_runs_at_a_time() -> None:
    requests = Requests()
    tasks = [
        requests.begin(address) for address in ("192.0.2.1",) * 3 + ("192.0.2.2", "2001:db8::1", "2001:db8:0:1::1")
    ]
    await run_loop_once()
    assert requests.running == ["192.0.2.1", "192.0.2.2", "2001:db8::1"], "a customer has all networks of a /48"
    requests.may_end.set()
    await asyncio.wait_for(asyncio.gather(*tasks), 20)
    assert len(requests.running) == 6
    assert thread_pool._turns == {}


async def test_few_requests_of_a_client_wait_and_canceled_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread_pool, "CLIENT_WAITING_MAX", 2)
    requests = Requests()
    first, second, third, fourth = (requests.begin("192.0.2.1") for _ in range(4))
    await run_loop_once()
    assert isinstance(fourth.exception(), problems.Busy)
    second.cancel()
    requests.may_end.set()
    await asyncio.wait_for(asyncio.gather(first, third), 20)
    assert len(requests.running) == 2
    assert thread_pool._turns == {}
