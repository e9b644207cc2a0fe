"""The gate on the event loop: refuses demand that cannot be met, and loads the queue entry of each hold that passes.

The gate is queried on the loop, in batches: while one batch is queried the next one gathers. So a refusal needs no
thread and no PostgreSQL. Only holds that pass go on to a thread, and all of them if the loop cannot query Redis: then
the gate is queried in that thread.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from apps.kernel.fastpath.batch_loader import GROUP_MAX, WAITING_MAX, BatchLoader
from apps.kernel.fastpath.redis_connection import AsyncRedis
from apps.kernel.http import problems
from apps.queue import facade as queue
from apps.reservations.gate import gate
from apps.reservations.holds import event_cache

Answer = queue.LoadedEntry | None
_PendingQuestion = tuple[gate.Question, "asyncio.Future[Answer]"]


class AsyncGate:
    """Used on one loop at a time."""

    def __init__(self, async_redis: AsyncRedis) -> None:
        self._redis = async_redis
        self._loop: asyncio.AbstractEventLoop | None = None
        self._waiting: list[_PendingQuestion] = []
        self._is_asking = False
        self._gate_loader: BatchLoader[gate.Question, Answer] = BatchLoader(_ask_and_load_entries)
        self._entry_loader: BatchLoader[gate.Question, Answer] = BatchLoader(_load_entries)

    async def ask(self, question: gate.Question) -> Answer:
        """Return the entry as read now, None if there is none. Raises the gate's refusal, or problems.Busy if too many
        wait."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # Requests of a closed event loop can no longer be waiting.
            self._loop, self._waiting, self._is_asking = loop, [], False
        if len(self._waiting) >= WAITING_MAX:
            raise problems.Busy
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((question, future))
        if not self._is_asking:
            # In the loop's next step, so that requests of this step are in the batch too.
            self._is_asking = True
            loop.call_soon(self._ask_next)
        return await future

    def _ask_next(self) -> None:
        while self._waiting:
            group, self._waiting = self._waiting[:GROUP_MAX], self._waiting[GROUP_MAX:]
            # Canceled requests are skipped.
            group = [asked for asked in group if not asked[1].done()]
            if group and self._ask(group):
                return
        self._is_asking = False

    def _ask(self, group: list[_PendingQuestion]) -> bool:
        """Query the gate for this batch. Returns whether the query is under way: `_on_answer` follows."""
        try:
            asking = gate.build_question_batch([question for question, _ in group])
            if asking is not None and not asking.commands:
                self._resolve(group, asking.parse_answers([]))
                return False
            if asking is not None and self._redis.send(asking.commands, partial(self._on_answer, group, asking)):
                return True
        except Exception as error:  # noqa: BLE001 - raised in each request of the batch
            _fail(group, error)
            return False
        self._resolve(group, [gate.UNDECIDED] * len(group))
        return False

    def _on_answer(self, group: list[_PendingQuestion], asking: gate.QuestionBatch, found: list[Any] | None) -> None:
        try:
            self._resolve(group, [gate.UNDECIDED] * len(group) if found is None else asking.parse_answers(found))
        except Exception as error:  # noqa: BLE001 - as above
            _fail(group, error)
        self._ask_next()

    def _resolve(
        self, group: list[_PendingQuestion], answers: Sequence[problems.Problem | gate.Undecided | None]
    ) -> None:
        for (question, future), answer in zip(group, answers, strict=True):
            if future.done():
                continue
            if isinstance(answer, problems.Problem):
                future.set_exception(answer)
                continue
            try:
                (self._entry_loader if answer is None else self._gate_loader).put(question, future)
            except problems.Busy as busy:
                future.set_exception(busy)


def _fail(group: list[_PendingQuestion], error: Exception) -> None:
    for _, future in group:
        if not future.done():
            future.set_exception(error)


def _ask_and_load_entries(questions: list[gate.Question]) -> list[problems.Problem | Answer]:
    """Return the gate's refusal, or the entry, of each question."""
    answers: list[problems.Problem | Answer] = [*gate.refusals(questions)]
    let_through = [index for index, refusal in enumerate(answers) if refusal is None]
    if let_through:
        entries = _load_entries([questions[index] for index in let_through])
        for index, entry in zip(let_through, entries, strict=True):
            answers[index] = entry
    return answers


def _load_entries(questions: list[gate.Question]) -> list[Answer]:
    entries = queue.load_entries([question.entry_id for question in questions])
    # In the same thread: each of these requests needs its seats next.
    event_cache.cache_named_seats([(question.event, question.payload) for question in questions])
    return entries
