"""Reading in groups: what many ask at once is asked of PostgreSQL or Redis once.

While one group is answered the next gathers, as in group commit, and nothing waits for a timer. For questions that
change nothing, or nothing that matters whether it happens twice: a group that fails fails for all who asked in it.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from apps.kernel.fastpath import thread_pool
from apps.kernel.http import problems

Question = TypeVar("Question")
Answer = TypeVar("Answer")

GROUP_MAX = 256
WAITING_MAX = 5_000


class BatchLoader(Generic[Question, Answer]):
    """`act` is given a list of questions, in a thread of the lane, and returns one answer to each, in order: a value,
    or an exception that is raised for whoever asked."""

    def __init__(self, act: Callable[[list[Question]], Sequence[Any]]) -> None:
        self._act = act
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[tuple[Question, asyncio.Future[Answer]]] = []
        self._busy = False
        self._task: asyncio.Task[None] | None = None

    async def ask(self, question: Question) -> Answer:
        """The answer to this question. Raises problems.Busy when too many wait, and what `act` raised."""
        return await self.put(question)

    def put(self, question: Question, future: "asyncio.Future[Answer] | None" = None) -> "asyncio.Future[Answer]":
        """The question is asked; where its answer will be, in that future if one is given. Raises problems.Busy when
        too many wait."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # Of a loop that has ended nobody waits any more.
            self._loop, self._waiting, self._busy = loop, [], False
        if len(self._waiting) >= WAITING_MAX:
            raise problems.Busy
        if future is None:
            future = loop.create_future()
        self._waiting.append((question, future))
        if not self._busy:
            self._busy = True
            self._task = asyncio.create_task(self._answer_all())
        return future

    async def _answer_all(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
                # Whoever has gone meanwhile need not be asked for.
                group = [(question, future) for question, future in group if not future.done()]
                if group:
                    await self._answer(group)
        finally:
            # In the very step in which nothing waited any more: by the task's end, which others hear of later, somebody
            # may have asked and found us busy.
            self._busy = False

    async def _answer(self, group: list[tuple[Question, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await thread_pool.run_in_thread(self._act, [question for question, _ in group])
        except Exception as error:  # noqa: BLE001 - Each who asked is told.
            for _, future in group:
                if not future.done():
                    future.set_exception(_copy_error(error))
            return
        except BaseException:
            for _, future in group:
                future.cancel()
            raise
        for (_, future), answer in zip(group, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)


def _copy_error(error: Exception) -> Exception:
    """One exception raised in two tasks would gather both their traces."""
    problem = problems.from_exception(error)
    return type(problem)() if isinstance(problem, (problems.Busy, problems.DatabaseUnavailable)) else error
