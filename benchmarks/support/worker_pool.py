"""Callers spread over processes, as buyers are over `web` processes: a single interpreter would be the limit.

Each process lives for the whole benchmark and runs work orders: a number of callers, a time, and a range of numbers.
"""

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Protocol


class Workloads(Protocol):
    """The workloads of a process, created in it. Numbers identify buyers, each used once."""

    def thread(self, way: str) -> AbstractContextManager[Callable[[int], bool]]:
        """Return a context, entered in the thread of each caller, with the call for one number; it returns whether it
        held."""
        ...

    def task(self, way: str) -> Callable[[int], Awaitable[bool]] | None:
        """Return the same call for tasks of one event loop; None if the workload uses threads."""
        ...

    def note(self, way: str) -> float:
        """Return a counter of the workload (such as batches so far), or 0."""
        ...


@dataclass(frozen=True)
class WorkOrder:
    way: str
    callers: int
    seconds: float
    numbers: range
    until_refused: bool = False
    """A caller ends with its first refusal, and there is no warm-up."""


@dataclass
class Report:
    held: int
    refused: int
    warmed: int
    """Holds by each caller's first call, which is a warm-up and not measured."""
    seconds: float
    latencies: list[float]
    noted: float


class WorkerPool:
    def __init__(self, members: Sequence[tuple[Any, Connection]]) -> None:
        self._members = members

    def carry_out(
        self, way: str, callers: int, seconds: float, begin: int, most: int, *, until_refused: bool = False
    ) -> list[Report]:
        """Run the workload and return each process's report. Every number from `begin` on is used by one caller."""
        busy = self._members[: min(len(self._members), callers)]
        share = most // len(busy)
        for index, (_, pipe) in enumerate(busy):
            part = callers // len(busy) + (1 if index < callers % len(busy) else 0)
            numbers = range(begin + index * share, begin + (index + 1) * share)
            pipe.send(WorkOrder(way, part, seconds, numbers, until_refused))
        for _, pipe in busy:
            assert _receive_result(pipe) == "ready"
        for _, pipe in busy:
            pipe.send("go")
        return [_receive_result(pipe) for _, pipe in busy]

    def end(self) -> None:
        for process, pipe in self._members:
            pipe.send(None)
            process.join(timeout=30)
            if process.is_alive():
                process.kill()


@contextmanager
def start_worker_pool(count: int, make_ways: Callable[..., Workloads], *settings: Any) -> Iterator[WorkerPool]:
    """Start `count` processes with Django set up as in this one; each calls `make_ways(*settings)`."""
    spawn = multiprocessing.get_context("spawn")
    members = []
    for _ in range(count):
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=_serve, args=(theirs, make_ways, settings), daemon=True)
        process.start()
        members.append((process, ours))
    whole = WorkerPool(members)
    try:
        for _, pipe in members:
            assert pipe.recv() == "started"
        yield whole
    finally:
        whole.end()


def _receive_result(pipe: Connection) -> Any:
    result = pipe.recv()
    if isinstance(result, BaseException):
        raise result
    return result


def _serve(pipe: Connection, make_ways: Callable[..., Workloads], settings: Sequence[Any]) -> None:
    import django

    django.setup()
    ways = make_ways(*settings)
    pipe.send("started")
    while (order := pipe.recv()) is not None:
        try:
            pipe.send(_run_order(ways, order, pipe))
        except BaseException as error:  # noqa: BLE001 - raised by the caller
            pipe.send(error)


class _Numbers:
    """Returns each number once, over all callers."""

    def __init__(self, numbers: range) -> None:
        self._numbers = iter(numbers)
        self._lock = threading.Lock()

    def next(self) -> int:
        with self._lock:
            number = next(self._numbers, None)
        if number is None:
            raise RuntimeError("there are not enough admitted buyers")
        return number


def _run_order(ways: Workloads, order: WorkOrder, pipe: Connection) -> Report:
    numbers = _Numbers(order.numbers)
    before = ways.note(order.way)
    by_tasks = _by_tasks if ways.task(order.way) is not None else _by_threads
    seconds, warmed, results = by_tasks(ways, order, numbers, pipe)
    return Report(
        held=sum(held for held, _ in results),
        refused=sum(not held for held, _ in results),
        warmed=warmed,
        seconds=seconds,
        latencies=[taken for _, taken in results],
        noted=ways.note(order.way) - before,
    )


Results = list[tuple[bool, float]]


def _by_threads(ways: Workloads, order: WorkOrder, numbers: _Numbers, pipe: Connection) -> tuple[float, int, Results]:
    start = threading.Barrier(order.callers + 1)
    results: list[Results] = [[] for _ in range(order.callers)]
    warmed: list[bool] = []
    errors: list[BaseException] = []
    end = 0.0

    def work(mine: Results) -> None:
        try:
            with ways.thread(order.way) as act:
                if not order.until_refused:
                    warmed.append(act(numbers.next()))
                start.wait()
                start.wait()
                while (begun := time.perf_counter()) < end:
                    held = act(numbers.next())
                    mine.append((held, time.perf_counter() - begun))
                    if order.until_refused and not held:
                        break
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)
            start.abort()

    threads = [threading.Thread(target=work, args=(mine,)) for mine in results]
    for thread in threads:
        thread.start()
    begun = time.perf_counter()
    try:
        start.wait()
        pipe.send("ready")
        assert pipe.recv() == "go"
        begun = time.perf_counter()
        end = begun + order.seconds
        start.wait()
    except threading.BrokenBarrierError:
        pass  # The error that broke it is raised below.
    for thread in threads:
        thread.join()
    if errors:
        raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
    return time.perf_counter() - begun, sum(warmed), [result for mine in results for result in mine]


def _by_tasks(ways: Workloads, order: WorkOrder, numbers: _Numbers, pipe: Connection) -> tuple[float, int, Results]:
    act = ways.task(order.way)
    assert act is not None
    results: Results = []

    async def caller(end: float) -> None:
        while (begun := time.perf_counter()) < end:
            held = await act(numbers.next())
            results.append((held, time.perf_counter() - begun))
            if order.until_refused and not held:
                break

    async def run_all() -> tuple[float, int]:
        warmed: list[bool] = []
        if not order.until_refused:
            warmed = await asyncio.gather(*(act(numbers.next()) for _ in range(order.callers)))
        pipe.send("ready")
        assert pipe.recv() == "go"
        begun = time.perf_counter()
        await asyncio.gather(*(caller(begun + order.seconds) for _ in range(order.callers)))
        return time.perf_counter() - begun, sum(warmed)

    seconds, warmed = asyncio.run(run_all())
    return seconds, warmed, results
