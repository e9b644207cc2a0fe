"""A coroutine that is started eagerly behaves as in a task of its own."""

import asyncio
import types
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from apps.kernel.fastpath import eager
from tests.support.event_loops import run_loop_once

SECONDS_MAX = 20


def start_in_one_step(*coroutines: Coroutine[Any, Any, Any]) -> "asyncio.Future[list[Any]]":
    """Start these outside of any task, as a transport does. The result: what each start returned or raised."""
    loop = asyncio.get_running_loop()
    started: asyncio.Future[list[Any]] = loop.create_future()

    def act() -> None:
        found: list[Any] = []
        for coroutine in coroutines:
            try:
                found.append(eager.start(coroutine))
            except Exception as error:
                found.append(error)
        started.set_result(found)

    loop.call_soon(act)
    return started


@types.coroutine
def next_step() -> Generator[None, None, None]:
    """Wait for the loop's next step, without a future."""
    yield


async def wait_for(future: "asyncio.Future[Any]") -> Any:
    return await future


async def test_a_coroutine_that_never_waits_returns_its_result_without_a_task() -> None:
    async def outer() -> int:
        return await inner() + 1

    async def inner() -> int:
        return 1

    tasks = asyncio.all_tasks()
    assert await start_in_one_step(outer()) == [2]
    assert asyncio.all_tasks() == tasks


async def test_a_coroutine_that_waits_is_finished_by_a_task() -> None:
    async def waits(future: "asyncio.Future[str]") -> tuple[str, list[str]]:
        await next_step()
        first = await future
        async with asyncio.timeout(SECONDS_MAX):
            return first, await asyncio.gather(wait_for(future), wait_for(future))

    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    (task,) = await start_in_one_step(waits(future))
    future.set_result("x")
    assert await asyncio.wait_for(task, SECONDS_MAX) == ("x", ["x", "x"])


async def test_a_future_that_is_done_before_the_task_runs_is_waited_for_like_any_other() -> None:
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def sets() -> None:
        future.set_result("x")

    task, _ = await start_in_one_step(wait_for(future), sets())
    assert await asyncio.wait_for(task, SECONDS_MAX) == "x"


async def test_several_coroutines_wait_for_one_future() -> None:
    """A waiting coroutine marks its future; a second one that finds the mark fails."""
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    usual = asyncio.create_task(wait_for(future))
    tasks = await start_in_one_step(wait_for(future), wait_for(future), wait_for(future))
    await run_loop_once()
    future.set_result("x")
    assert await asyncio.wait_for(asyncio.gather(usual, *tasks), SECONDS_MAX) == ["x"] * 4


async def test_an_exception_before_the_first_wait_is_raised_and_a_later_one_is_the_task_s() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def fails() -> None:
        raise KeyError("at once")

    async def fails_later() -> None:
        await future
        raise KeyError("later")

    error, task = await start_in_one_step(fails(), fails_later())
    assert isinstance(error, KeyError)
    future.set_result(None)
    with pytest.raises(KeyError, match="later"):
        await asyncio.wait_for(task, SECONDS_MAX)


async def test_the_exception_of_the_awaited_future_can_be_caught_and_waiting_goes_on() -> None:
    first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    second: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def catches() -> str:
        try:
            await first
        except ValueError as error:
            return f"{error} {await second}"
        return "nothing"

    (task,) = await start_in_one_step(catches())
    first.set_exception(ValueError("caught"))
    await run_loop_once()
    await run_loop_once()
    second.set_result("x")
    assert await asyncio.wait_for(task, SECONDS_MAX) == "caught x"


async def test_cancellation_reaches_the_coroutine_and_the_future_that_it_awaits() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    ended = []

    async def waits() -> None:
        try:
            await future
        except asyncio.CancelledError:
            ended.append("canceled")
            raise

    (task,) = await start_in_one_step(waits())
    await run_loop_once()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, SECONDS_MAX)
    assert ended == ["canceled"]
    assert future.cancelled()
