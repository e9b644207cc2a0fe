"""Questions asked in groups, and values remembered: what happens between one group and the next."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from apps.kernel import duty_cycle
from apps.kernel.fastpath import batch_loader, cache, thread_pool
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.kernel.fastpath.cache import BatchRefreshingCache, RefreshingCache
from apps.kernel.http import problems
from tests.support.event_loops import run_loop_once

SECONDS_MAX = 20


@pytest.fixture(autouse=True)
def told(monkeypatch: pytest.MonkeyPatch) -> "Threads":
    threads_told = Threads()
    monkeypatch.setattr(thread_pool, "run_in_thread", threads_told.ask)
    return threads_told


class Threads:
    """What is asked in threads is answered at once, or when the test says so."""

    def __init__(self) -> None:
        self.gate: asyncio.Event | None = None

    async def ask(self, act: Callable[..., Any], *args: Any) -> Any:
        if self.gate is not None:
            await self.gate.wait()
        return act(*args)


async def within(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, SECONDS_MAX)


async def until(holds: Callable[[], bool]) -> None:
    """Returns once it holds, while the loop turns."""
    async with asyncio.timeout(SECONDS_MAX):
        while not holds():
            await run_loop_once()


async def test_what_comes_while_a_group_is_answered_is_the_next_group(told: Threads) -> None:
    groups: list[list[int]] = []

    def act(questions: list[int]) -> list[int]:
        groups.append(questions)
        return [question * 10 for question in questions]

    gate = told.gate = asyncio.Event()
    gatherer: BatchLoader[int, int] = BatchLoader(act)
    first = asyncio.create_task(gatherer.ask(1))
    await run_loop_once()
    await run_loop_once()
    rest = [asyncio.create_task(gatherer.ask(number)) for number in range(2, 6)]
    await run_loop_once()
    rest[1].cancel()
    gate.set()
    assert await within(first) == 10
    assert await within(asyncio.gather(rest[0], *rest[2:])) == [20, 40, 50]
    assert groups == [[1], [2, 4, 5]]


async def test_who_asks_again_in_the_moment_of_the_answer_is_answered() -> None:
    gatherer: BatchLoader[int, int] = BatchLoader(lambda questions: questions)

    async def ask_on_and_on() -> int:
        return sum([await gatherer.ask(number) for number in range(100)])

    assert await within(ask_on_and_on()) == sum(range(100))


async def test_a_group_that_fails_fails_for_all_and_the_next_one_is_asked() -> None:
    fails = [True]

    def act(questions: list[int]) -> list[int]:
        if fails.pop() if fails else False:
            raise problems.DatabaseUnavailable
        return questions

    gatherer: BatchLoader[int, int] = BatchLoader(act)
    both = await within(asyncio.gather(gatherer.ask(1), gatherer.ask(2), return_exceptions=True))
    assert [type(one) for one in both] == [problems.DatabaseUnavailable] * 2
    assert both[0] is not both[1]
    assert await within(gatherer.ask(3)) == 3


async def test_one_question_may_be_refused_beside_others_that_are_answered() -> None:
    gatherer: BatchLoader[int, int] = BatchLoader(
        lambda asked: [problems.NotOwner() if one == 2 else one for one in asked]
    )
    answers = await within(asyncio.gather(*(gatherer.ask(number) for number in (1, 2, 3)), return_exceptions=True))
    assert [answers[0], type(answers[1]), answers[2]] == [1, problems.NotOwner, 3]


async def test_too_many_waiting_are_refused_at_once(monkeypatch: pytest.MonkeyPatch, told: Threads) -> None:
    monkeypatch.setattr(batch_loader, "WAITING_MAX", 2)
    gate = told.gate = asyncio.Event()
    gatherer: BatchLoader[int, int] = BatchLoader(lambda questions: questions)
    waiting = [asyncio.create_task(gatherer.ask(number)) for number in range(2)]
    await run_loop_once()
    await until(lambda: not gatherer._waiting)
    waiting += [asyncio.create_task(gatherer.ask(number)) for number in range(2, 4)]
    await run_loop_once()
    with pytest.raises(problems.Busy):
        await gatherer.ask(4)
    gate.set()
    assert await within(asyncio.gather(*waiting)) == [0, 1, 2, 3]


async def test_a_value_is_read_once_for_all_and_anew_beside_those_who_ask(
    monkeypatch: pytest.MonkeyPatch, told: Threads
) -> None:
    now = [100.0]
    monkeypatch.setattr(cache.time, "monotonic", lambda: now[0])
    read: list[str] = []

    def value(key: str) -> str:
        read.append(key)
        return f"{key}{len(read)}"

    remembered: RefreshingCache[str, str] = RefreshingCache(value, fresh_seconds=1, stale_seconds=1, most=2)
    assert await within(asyncio.gather(*(remembered.get("a") for _ in range(5)))) == ["a1"] * 5
    now[0] += 0.9
    assert await within(remembered.get("a")) == "a1"
    now[0] += 0.2
    # A little old: given at once, and read anew.
    assert await within(remembered.get("a")) == "a1"
    await until(lambda: len(read) == 2)
    assert await within(remembered.get("a")) == "a2"
    now[0] += 5
    # Too old: waited for.
    assert await within(remembered.get("a")) == "a3"


async def test_what_is_dear_to_read_is_read_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(cache.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(duty_cycle, "PAUSE_FACTOR", 3.0)
    read: list[float] = []

    def slowly(key: str) -> int:
        read.append(now[0])
        now[0] += 2.0
        return len(read)

    remembered: RefreshingCache[str, int] = RefreshingCache(slowly, fresh_seconds=0.2, stale_seconds=0.3, most=2)
    assert await within(remembered.get("a")) == 1
    now[0] = 105.9
    assert await within(remembered.get("a")) == 1
    assert read == [100.0]
    now[0] = 106.1
    # Read anew, for the next who asks.
    assert await within(remembered.get("a")) == 1
    await until(lambda: len(read) == 2)
    assert await within(remembered.get("a")) == 2


async def test_a_refusal_is_not_remembered_and_a_canceled_caller_ends_nothing_for_others(
    told: Threads,
) -> None:
    there: list[str] = []

    def value(key: str) -> str:
        if not there:
            raise problems.NotFound
        return there[0]

    remembered: RefreshingCache[str, str] = RefreshingCache(value, fresh_seconds=9, stale_seconds=9, most=2)
    with pytest.raises(problems.NotFound):
        await within(remembered.get("a"))
    there.append("found")
    gate = told.gate = asyncio.Event()
    first, second = (asyncio.create_task(remembered.get("a")) for _ in range(2))
    await run_loop_once()
    first.cancel()
    gate.set()
    assert await within(second) == "found"


async def test_what_is_asked_for_of_many_is_read_anew_for_all_of_them_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    moment, readings = [100.0], []

    def read(keys: Sequence[str]) -> dict[str, float]:
        readings.append(sorted(keys))
        return {key: moment[0] for key in keys if key != "gone"}

    monkeypatch.setattr(cache, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    values = BatchRefreshingCache(read, missing=KeyError, fresh_seconds=1.0, stale_seconds=1.0, most=10)
    for key in ("first", "second", "third"):
        await within(values.get(key))
    with pytest.raises(KeyError):
        await within(values.get("gone"))
    await within(values.get("second"))
    readings.clear()
    moment[0] = 101.1
    assert await within(values.get("first")) == 100, "a little old"
    await until(lambda: bool(readings))
    assert readings == [["first", "second"]], "of the third nobody has asked since"
    assert await within(values.get("second")) == 101.1


def test_threads_that_need_one_value_share_one_read() -> None:
    reads: list[str] = []
    begun = threading.Barrier(4)

    def read(key: str) -> str:
        reads.append(key)
        return f"{key}{len(reads)}"

    values: RefreshingCache[str, str] = RefreshingCache(read, fresh_seconds=60, stale_seconds=0, most=2)

    def read_value(_: int) -> str:
        begun.wait(timeout=10)
        return values.read("a")

    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(read_value, range(4))) == ["a1"] * 4
    assert reads == ["a"]


def test_clear_all_clears_every_registered_cache() -> None:
    values: RefreshingCache[str, str] = RefreshingCache(str.upper, fresh_seconds=60, stale_seconds=0, most=2)
    registered: dict[str, str] = cache.register({"a": "b"})
    values.read("a")
    cache.clear_all()
    assert not values._kept
    assert not registered
