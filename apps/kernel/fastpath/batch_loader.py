"""Batches reads: questions that arrive at the same time share one read of PostgreSQL or Redis.

While one batch is being read, further questions wait for the next one, as in group commit; there is no timer. If a
batch fails, all its questions fail, so a question must change nothing or be safe to repeat.
"""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Generic, ParamSpec, TypeVar

from apps.kernel.db import async_reader, reads
from apps.kernel.fastpath import thread_pool
from apps.kernel.http import problems

Question = TypeVar("Question")
Answer = TypeVar("Answer")
Params = ParamSpec("Params")
Value = TypeVar("Value")

GROUP_MAX = 256
WAITING_MAX = 5_000


class BatchLoader(Generic[Question, Answer]):
    """Calls `act` with a list of questions: a coroutine function on the event loop, a read (a generator function: see
    `apps.kernel.db.reads`) by `read_async`, others in a thread of the fast path. `act` returns one answer to each
    question, in order. An answer that is an exception is raised in the caller of that question."""

    def __init__(self, act: Callable[[list[Question]], Any]) -> None:
        self._act = act
        self._is_async = inspect.iscoroutinefunction(act)
        self._is_read = inspect.isgeneratorfunction(act)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[tuple[Question, asyncio.Future[Answer]]] = []
        self._busy = False
        self._task: asyncio.Task[None] | None = None

    async def ask(self, question: Question) -> Answer:
        """Return the answer to the question. Raises problems.Busy if too many wait, and the errors of `act`."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # Callers of a closed event loop can no longer be waiting.
            self._loop, self._waiting, self._busy = loop, [], False
        if len(self._waiting) >= WAITING_MAX:
            raise problems.Busy
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((question, future))
        if not self._busy:
            self._busy = True
            # The task begins in the loop's next step, so that the batch includes all questions of this step.
            self._task = asyncio.create_task(self._answer_all())
        try:
            return await future
        finally:
            # An exception refers to this frame, and the future to the exception. Without this, each refusal would wait
            # for the garbage collector.
            del future

    async def _answer_all(self) -> None:
        try:
            while self._waiting:
                group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
                # Skip questions whose callers have been canceled.
                group = [(question, future) for question, future in group if not future.done()]
                if group:
                    await self._answer(group)
        finally:
            # Reset in the same step of the loop that found the queue empty. The task's end is noticed later, and a
            # question submitted in between would find this loader busy and start no task.
            self._busy = False

    async def _act_on(self, questions: list[Question]) -> Sequence[Any]:
        if self._is_read:
            return await read_async(self._act, questions)
        answers: Sequence[Any] = await (
            self._act(questions) if self._is_async else thread_pool.run_in_thread(self._act, questions)
        )
        return answers

    async def _answer(self, group: list[tuple[Question, asyncio.Future[Answer]]]) -> None:
        try:
            answers = await self._act_on([question for question, _ in group])
        except Exception as error:  # noqa: BLE001 - Every caller receives the error.
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


async def read_async(begin: Callable[Params, reads.Read[Value]], *args: Params.args, **kwargs: Params.kwargs) -> Value:
    """Carry out the read that `begin` returns on the event loop or, if no connection is free there or it fails, in a
    thread. Return its value or raise its errors."""
    done = await async_reader.shared.run(begin(*args, **kwargs))
    if done is not None:
        value: Value = done.value
        return value
    return await thread_pool.run_in_thread(_read, begin, args, kwargs)


def _read(begin: Callable[..., reads.Read[Value]], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Value:
    return reads.run(begin(*args, **kwargs))


def _copy_error(error: Exception) -> Exception:
    """Return a copy where possible: one exception raised in two tasks would collect the tracebacks of both."""
    problem = problems.from_exception(error)
    return type(problem)() if isinstance(problem, (problems.Busy, problems.DatabaseUnavailable)) else error
