"""Batched loads and cached values: the order of batches, errors, limits and refreshes."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest

from apps.kernel.fastpath import batch_loader, cache, thread_pool
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.kernel.fastpath.cache import BatchRefreshingCache, RefreshingCache
from apps.kernel.heavy_work import duty_cycle
from apps.kernel.http import problems
from tests.support.event_loops import run_loop_once

SECONDS_MAX = 20


@pytest.fixture(autouse=True)
def fake_threads(monkeypatch: pytest.MonkeyPatch) -> "Threads":
    threads = Threads()
    monkeypatch.setattr(thread_pool, "run_in_thread", threads.ask)
    monkeypatch.setattr(thread_pool, "run_if_first", threads.ask_if_first)
    return threads


class Threads:
    """Calls in threads return at once, or when the test opens the gate."""

    def __init__(self) -> None:
        self.gate: asyncio.Event | None = None

    async def ask(self, act: Callable[..., Any], *args: Any) -> Any:
        if self.gate is not None:
            await self.gate.wait()
        return act(*args)

    async def ask_if_first(self, begin: Callable[[], bool], act: Callable[[], Any]) -> Any:
        return await self.ask(act) if begin() else None


async def within(awaitable: Any) -> Any:
    return await asyncio.wait_for(awaitable, SECONDS_MAX)


async def until(holds: Callable[[], bool]) -> None:
    """Return once the condition holds, while the event loop runs."""
    async with asyncio.timeout(SECONDS_MAX):
        while not holds():
            await run_loop_once()


async def test_questions_that_arrive_during_a_batch_form_the_next_batch(fake_threads: Threads) -> None:
    groups: list[list[int]] = []

    def act(questions: list[int]) -> list[int]:
        groups.append(questions)
        return [question * 10 for question in questions]

    gate = fake_threads.gate = asyncio.Event()
    loader: BatchLoader[int, int] = BatchLoader(act)
    first = asyncio.create_task(loader.ask(1))
    await run_loop_once()
    await run_loop_once()
    rest = [asyncio.create_task(loader.ask(number)) for number in range(2, 6)]
    await run_loop_once()
    rest[1].cancel()
    gate.set()
    assert await within(first) == 10
    assert await within(asyncio.gather(rest[0], *rest[2:])) == [20, 40, 50]
    assert groups == [[1], [2, 4, 5]]


async def test_a_question_submitted_while_the_last_batch_is_answered_is_answered_too() -> None:
    loader: BatchLoader[int, int] = BatchLoader(lambda questions: questions)

    async def ask_repeatedly() -> int:
        return sum([await loader.ask(number) for number in range(100)])

    assert await within(ask_repeatedly()) == sum(range(100))


async def test_a_failed_batch_fails_for_all_its_questions_and_the_next_batch_runs() -> None:
    fails = [True]

    def act(questions: list[int]) -> list[int]:
        if fails.pop() if fails else False:
            raise problems.DatabaseUnavailable
        return questions

    loader: BatchLoader[int, int] = BatchLoader(act)
    both = await within(asyncio.gather(loader.ask(1), loader.ask(2), return_exceptions=True))
    assert [type(one) for one in both] == [problems.DatabaseUnavailable] * 2
    assert both[0] is not both[1]
    assert await within(loader.ask(3)) == 3


async def test_one_question_of_a_batch_may_be_refused_while_others_are_answered() -> None:
    loader: BatchLoader[int, int] = BatchLoader(
        lambda questions: [problems.NotOwner() if one == 2 else one for one in questions]
    )
    answers = await within(asyncio.gather(*(loader.ask(number) for number in (1, 2, 3)), return_exceptions=True))
    assert [answers[0], type(answers[1]), answers[2]] == [1, problems.NotOwner, 3]


async def test_too_many_waiting_questions_are_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, fake_threads: Threads
) -> None:
    monkeypatch.setattr(batch_loader, "WAITING_MAX", 2)
    gate = fake_threads.gate = asyncio.Event()
    loader: BatchLoader[int, int] = BatchLoader(lambda questions: questions)
    waiting = [asyncio.create_task(loader.ask(number)) for number in range(2)]
    await run_loop_once()
    await until(lambda: not loader._waiting)
    waiting += [asyncio.create_task(loader.ask(number)) for number in range(2, 4)]
    await run_loop_once()
    with pytest.raises(problems.Busy):
        await loader.ask(4)
    gate.set()
    assert await within(asyncio.gather(*waiting)) == [0, 1, 2, 3]


async def test_a_value_is_read_once_for_all_callers_and_refreshed_in_the_background(
    monkeypatch: pytest.MonkeyPatch, fake_threads: Threads
) -> None:
    now = [100.0]
    monkeypatch.setattr(cache.time, "monotonic", lambda: now[0])
    read: list[str] = []

    def value(key: str) -> str:
        read.append(key)
        return f"{key}{len(read)}"

    values: RefreshingCache[str, str] = RefreshingCache(value, fresh_seconds=1, stale_seconds=1, most=2)
    assert await within(asyncio.gather(*(values.get("a") for _ in range(5)))) == ["a1"] * 5
    now[0] += 0.9
    assert await within(values.get("a")) == "a1"
    now[0] += 0.2
    # A little stale: returned at once, and refreshed.
    assert await within(values.get("a")) == "a1"
    await until(lambda: len(read) == 2)
    assert await within(values.get("a")) == "a2"
    now[0] += 5
    # Too stale: the caller waits.
    assert await within(values.get("a")) == "a3"


async def test_a_slow_value_is_read_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(cache.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(duty_cycle, "PAUSE_FACTOR", 3.0)
    read: list[float] = []

    def read_slowly(key: str) -> int:
        read.append(now[0])
        now[0] += 2.0
        return len(read)

    values: RefreshingCache[str, int] = RefreshingCache(read_slowly, fresh_seconds=0.2, stale_seconds=0.3, most=2)
    assert await within(values.get("a")) == 1
    now[0] = 105.9
    assert await within(values.get("a")) == 1
    assert read == [100.0]
    now[0] = 106.1
    # Refreshed for the next caller.
    assert await within(values.get("a")) == 1
    await until(lambda: len(read) == 2)
    assert await within(values.get("a")) == 2


async def test_a_refusal_is_not_cached_and_a_canceled_caller_does_not_affect_others(
    fake_threads: Threads,
) -> None:
    existing: list[str] = []

    def value(key: str) -> str:
        if not existing:
            raise problems.NotFound
        return existing[0]

    values: RefreshingCache[str, str] = RefreshingCache(value, fresh_seconds=9, stale_seconds=9, most=2)
    with pytest.raises(problems.NotFound):
        await within(values.get("a"))
    existing.append("found")
    gate = fake_threads.gate = asyncio.Event()
    first, second = (asyncio.create_task(values.get("a")) for _ in range(2))
    await run_loop_once()
    first.cancel()
    gate.set()
    assert await within(second) == "found"


async def test_recently_used_keys_are_refreshed_in_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert await within(values.get("first")) == 100, "a little stale"
    await until(lambda: bool(readings))
    assert readings == [["first", "second"]], "the third key has not been used since"
    assert await within(values.get("second")) == 101.1


async def test_a_large_value_is_read_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The read of the large value has begun and waits; one of another value is answered meanwhile."""
    moment, readings = [100.0], []

    def read(keys: Sequence[str]) -> dict[str, str]:
        readings.append(sorted(keys))
        return {key: key for key in keys}

    async def run(act: Callable[..., Any], *args: Any) -> Any:
        if act.__name__ == "<lambda>":  # The read of a large value.
            await may_read.wait()
        return act(*args)

    async def run_if_first(begin: Callable[[], bool], act: Callable[[], Any]) -> Any:
        return await run(act) if begin() else None

    may_read = asyncio.Event()
    monkeypatch.setattr(thread_pool, "run_in_thread", run)
    monkeypatch.setattr(thread_pool, "run_if_first", run_if_first)
    monkeypatch.setattr(cache, "time", SimpleNamespace(monotonic=lambda: moment[0]))
    values = BatchRefreshingCache(
        read,
        missing=KeyError,
        fresh_seconds=1.0,
        stale_seconds=1.0,
        most=10,
        is_large=lambda value: value == "large",
    )
    assert [await within(values.get(key)) for key in ("large", "small")] == ["large", "small"]
    readings.clear()
    moment[0] = 101.1
    assert [await within(values.get(key)) for key in ("large", "small")] == ["large", "small"], "a little stale"
    await until(lambda: bool(readings))
    assert readings == [["small"]]
    moment[0] = 110.0
    large = asyncio.create_task(values.get("large"))
    assert await within(values.get("small")) == "small"
    assert not large.done()
    may_read.set()
    assert await within(large) == "large"
    assert readings == [["small"], ["small"], ["large"]]


def test_threads_that_need_one_value_share_one_read() -> None:
    reads: list[str] = []
    barrier = threading.Barrier(4)

    def read(key: str) -> str:
        reads.append(key)
        return f"{key}{len(reads)}"

    values: RefreshingCache[str, str] = RefreshingCache(read, fresh_seconds=60, stale_seconds=0, most=2)

    def read_value(_: int) -> str:
        barrier.wait(timeout=10)
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
