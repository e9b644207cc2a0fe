"""Callers spread over processes, as buyers are over the web processes of a house: one interpreter would be the limit.

Each process stays for the whole benchmark and does what it is told: so many callers, so many seconds, these numbers.
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
    """What a process of the crew can do, made in it. Numbers are buyers', each used once."""

    def thread(self, way: str) -> AbstractContextManager[Callable[[int], bool]]:
        """Entered in the thread of each caller: what it does for one number after the other. Whether it held."""
        ...

    def task(self, way: str) -> Callable[[int], Awaitable[bool]] | None:
        """The same for tasks of one event loop; None if the way is one for threads."""
        ...

    def note(self, way: str) -> float:
        """A figure that grows with the work of the way (batches so far), or nothing."""
        ...


@dataclass(frozen=True)
class WorkOrder:
    way: str
    callers: int
    seconds: float
    numbers: range
    until_refused: bool = False
    """A caller goes home with its first refusal, and nobody warms up."""


@dataclass
class Report:
    held: int
    refused: int
    warmed: int
    """Held by each caller's first call, which is not measured: whatever it needs at first it has then."""
    seconds: float
    latencies: list[float]
    noted: float


class WorkerPool:
    def __init__(self, members: Sequence[tuple[Any, Connection]]) -> None:
        self._members = members

    def carry_out(
        self, way: str, callers: int, seconds: float, begin: int, most: int, *, until_refused: bool = False
    ) -> list[Report]:
        """What each process saw: so many callers at once, each number from `begin` on given to one of them."""
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
    """`count` processes with Django set up as in this one; `make_ways(*settings)` is called in each."""
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
            assert pipe.recv() == "here"
        yield whole
    finally:
        whole.end()


def _receive_result(pipe: Connection) -> Any:
    said = pipe.recv()
    if isinstance(said, BaseException):
        raise said
    return said


def _serve(pipe: Connection, make_ways: Callable[..., Workloads], settings: Sequence[Any]) -> None:
    import django

    django.setup()
    ways = make_ways(*settings)
    pipe.send("here")
    while (order := pipe.recv()) is not None:
        try:
            pipe.send(_run_order(ways, order, pipe))
        except BaseException as error:  # noqa: BLE001 - Raised where the crew is led.
            pipe.send(error)


class _Numbers:
    """Each number once, to whoever asks next."""

    def __init__(self, numbers: range) -> None:
        self._numbers = iter(numbers)
        self._lock = threading.Lock()

    def next(self) -> int:
        with self._lock:
            number = next(self._numbers, None)
        if number is None:
            raise RuntimeError("more buyers are needed than were let in")
        return number


def _run_order(ways: Workloads, order: WorkOrder, pipe: Connection) -> Report:
    numbers = _Numbers(order.numbers)
    before = ways.note(order.way)
    by_tasks = _by_tasks if ways.task(order.way) is not None else _by_threads
    seconds, warmed, answers = by_tasks(ways, order, numbers, pipe)
    return Report(
        held=sum(held for held, _ in answers),
        refused=sum(not held for held, _ in answers),
        warmed=warmed,
        seconds=seconds,
        latencies=[taken for _, taken in answers],
        noted=ways.note(order.way) - before,
    )


Answers = list[tuple[bool, float]]


def _by_threads(ways: Workloads, order: WorkOrder, numbers: _Numbers, pipe: Connection) -> tuple[float, int, Answers]:
    start = threading.Barrier(order.callers + 1)
    answers: list[Answers] = [[] for _ in range(order.callers)]
    warmed: list[bool] = []
    errors: list[BaseException] = []
    end = 0.0

    def work(mine: Answers) -> None:
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
        except BaseException as error:  # noqa: BLE001 - Raised below.
            errors.append(error)
            start.abort()

    threads = [threading.Thread(target=work, args=(mine,)) for mine in answers]
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
        pass  # What broke it is raised below.
    for thread in threads:
        thread.join()
    if errors:
        raise next((error for error in errors if not isinstance(error, threading.BrokenBarrierError)), errors[0])
    return time.perf_counter() - begun, sum(warmed), [answer for mine in answers for answer in mine]


def _by_tasks(ways: Workloads, order: WorkOrder, numbers: _Numbers, pipe: Connection) -> tuple[float, int, Answers]:
    act = ways.task(order.way)
    assert act is not None
    answers: Answers = []

    async def caller(end: float) -> None:
        while (begun := time.perf_counter()) < end:
            held = await act(numbers.next())
            answers.append((held, time.perf_counter() - begun))
            if order.until_refused and not held:
                break

    async def all_of_them() -> tuple[float, int]:
        warmed: list[bool] = []
        if not order.until_refused:
            warmed = await asyncio.gather(*(act(numbers.next()) for _ in range(order.callers)))
        pipe.send("ready")
        assert pipe.recv() == "go"
        begun = time.perf_counter()
        await asyncio.gather(*(caller(begun + order.seconds) for _ in range(order.callers)))
        return time.perf_counter() - begun, sum(warmed)

    seconds, warmed = asyncio.run(all_of_them())
    return seconds, warmed, answers
