"""The schedule of all actors: one heap, so that a waiting actor costs an entry in it and no task."""

import asyncio
import heapq
import itertools
from typing import Protocol


class Actor(Protocol):
    """An actor of the run. `act` does one thing and returns the seconds until it is due again, or None at the end."""

    keeps_open: bool
    """Whether the run waits until this actor is done."""

    async def act(self, late_seconds: float) -> float | None: ...


class Agenda:
    """Runs actors when they are due, at most `slots` at the same time, in the order of their due times."""

    def __init__(self, slots: int) -> None:
        self._slots = asyncio.Semaphore(slots)
        self._heap: list[tuple[float, int, Actor]] = []
        self._count = itertools.count()
        self._changed = asyncio.Event()
        self._under_way: set[asyncio.Task[None]] = set()
        self._open = 0
        self._stopped = False
        self._failure: BaseException | None = None
        self._clock = asyncio.get_running_loop().time
        self.late_seconds_max = 0.0
        """The longest delay of an actor. If it is long, the simulator was too slow to judge the site."""

    def add(self, in_seconds: float, actor: Actor) -> None:
        """Schedule the actor for the first time, in this many seconds."""
        self._open += actor.keeps_open
        self._push(in_seconds, actor)

    def hurry(self) -> None:
        """Make all actors due now."""
        now = self._clock()
        # With equal times the counts decide the order, and a sorted list is a heap.
        self._heap = sorted((now, count, actor) for _, count, actor in self._heap)
        self._changed.set()

    def stop(self) -> None:
        """Start no more actors; those that run may finish."""
        self._stopped = True
        self._changed.set()

    async def run(self) -> None:
        """Run until every actor that keeps the run open is done, or `stop` is called. Raises the error of an actor.
        Actors handle refusals, so an error is a fault of the simulator's own code."""
        try:
            while self._open and not self._stopped:
                await self._next()
        finally:
            while self._under_way:
                await asyncio.wait(self._under_way)
        if self._failure is not None:
            raise self._failure

    async def _next(self) -> None:
        now = self._clock()
        if not self._heap or self._heap[0][0] > now:
            pause = self._heap[0][0] - now if self._heap else None
            self._changed.clear()
            try:
                async with asyncio.timeout(pause):
                    await self._changed.wait()
            except TimeoutError:
                pass
            return
        await self._slots.acquire()
        if self._stopped:
            self._slots.release()
            return
        due, _, actor = heapq.heappop(self._heap)
        task = asyncio.create_task(self._act(due, actor))
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def _act(self, due: float, actor: Actor) -> None:
        try:
            late = max(0.0, self._clock() - due)
            self.late_seconds_max = max(self.late_seconds_max, late)
            again = await actor.act(late)
        except BaseException as error:  # noqa: BLE001 - it ends the run, which raises it
            self._failure = self._failure or error
            self.stop()
            return
        finally:
            self._slots.release()
        if again is None:
            self._open -= actor.keeps_open
            self._changed.set()
        else:
            self._push(again, actor)

    def _push(self, in_seconds: float, actor: Actor) -> None:
        heapq.heappush(self._heap, (self._clock() + max(0.0, in_seconds), next(self._count), actor))
        self._changed.set()
