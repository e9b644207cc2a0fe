"""Coroutines that run without a task: results, exceptions and cancellation reach the caller as those of a task do."""

import asyncio
import gc
import types
from collections.abc import Coroutine, Generator
from typing import Any

import pytest

from apps.kernel.fastpath import eager
from tests.support.event_loops import run_loop_once

SECONDS_MAX = 20


def start(coroutine: Coroutine[Any, Any, Any]) -> "asyncio.Future[Any]":
    """Start the coroutine and return a future of its end, which is done if the coroutine did not wait."""
    end: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def on_end(result: Any, error: BaseException | None) -> None:
        if isinstance(error, asyncio.CancelledError):
            end.cancel()
        elif error is not None:
            end.set_exception(error)
        else:
            end.set_result(result)

    result = eager.start(coroutine)
    if isinstance(result, eager.Waiting):
        result.resume_later(on_end)
    else:
        on_end(result, None)
    return end


def make_future() -> "asyncio.Future[Any]":
    return asyncio.get_running_loop().create_future()


@types.coroutine
def next_step() -> Generator[None, None, None]:
    """Wait for the loop's next step, without a future."""
    yield


async def wait_for(future: "asyncio.Future[Any]") -> Any:
    return await future


async def test_a_coroutine_that_never_waits_returns_its_result() -> None:
    async def outer() -> int:
        return await inner() + 1

    async def inner() -> int:
        return 1

    assert eager.start(outer()) == 2


async def test_a_coroutine_that_waits_several_times_needs_no_task() -> None:
    async def waits(first: "asyncio.Future[str]", second: "asyncio.Future[str]") -> tuple[str, list[str]]:
        await next_step()
        return await first, await asyncio.gather(wait_for(first), wait_for(second))

    first, second = make_future(), make_future()
    tasks = asyncio.all_tasks()
    end = start(waits(first, second))
    await run_loop_once()
    assert asyncio.all_tasks() == tasks
    first.set_result("x")
    await run_loop_once()
    second.set_result("y")
    assert await asyncio.wait_for(end, SECONDS_MAX) == ("x", ["x", "y"])


async def test_a_future_that_is_done_before_the_coroutine_resumes_is_waited_for_like_any_other() -> None:
    future = make_future()
    end = start(wait_for(future))
    future.set_result("x")
    assert await asyncio.wait_for(end, SECONDS_MAX) == "x"


async def test_several_coroutines_and_a_task_wait_for_one_future() -> None:
    """A waiting coroutine marks its future; a second one that finds the mark fails."""
    future = make_future()
    task = asyncio.create_task(wait_for(future))
    ends = [start(wait_for(future)) for _ in range(3)]
    await run_loop_once()
    ends.append(start(wait_for(future)))
    future.set_result("x")
    assert await asyncio.wait_for(asyncio.gather(task, *ends), SECONDS_MAX) == ["x"] * 5


async def test_an_exception_before_the_first_wait_is_raised_and_a_later_one_is_passed_on() -> None:
    async def fails() -> int:
        raise KeyError("at once")

    async def fails_later() -> int:
        await next_step()
        raise KeyError("later")

    with pytest.raises(KeyError, match="at once"):
        eager.start(fails())
    with pytest.raises(KeyError, match="later"):
        await asyncio.wait_for(start(fails_later()), SECONDS_MAX)


async def test_the_exception_of_the_awaited_future_can_be_caught_and_waiting_goes_on() -> None:
    first, second = make_future(), make_future()

    async def catches() -> str:
        try:
            await first
        except ValueError as error:
            return f"{error} {await second}"
        return "nothing"

    end = start(catches())
    first.set_exception(ValueError("caught"))
    await run_loop_once()
    second.set_result("x")
    assert await asyncio.wait_for(end, SECONDS_MAX) == "caught x"


async def test_a_canceled_future_cancels_the_coroutine() -> None:
    future, ended = make_future(), []

    async def waits() -> None:
        try:
            await future
        except asyncio.CancelledError:
            ended.append("canceled")
            raise

    end = start(waits())
    future.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(end, SECONDS_MAX)
    assert ended == ["canceled"]


def test_a_coroutine_whose_loop_ends_is_closed() -> None:
    ended = []

    async def waits() -> int:
        try:
            return int(await make_future())
        finally:
            ended.append("closed")

    async def begin() -> None:
        waiting = eager.start(waits())
        assert isinstance(waiting, eager.Waiting)
        waiting.resume_later(lambda result, error: pytest.fail("its loop has ended"))

    asyncio.run(begin())
    gc.collect()
    assert ended == ["closed"]
