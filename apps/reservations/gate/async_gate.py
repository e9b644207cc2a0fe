"""The gate on the event loop: refuses demand that cannot be met, and loads the queue entry of each hold that passes.

The gate is queried on the loop, in batches, so a refusal needs no PostgreSQL. Holds that pass read their entries and
seats, on the loop too. If the loop cannot query Redis, the gate is queried in a thread.
"""

from collections.abc import Sequence

from apps.kernel.db import reads
from apps.kernel.fastpath import thread_pool
from apps.kernel.fastpath.batch_loader import BatchLoader, read_async
from apps.kernel.fastpath.redis_connection import AsyncRedis
from apps.kernel.http import problems
from apps.queue import facade as queue
from apps.reservations.gate import gate
from apps.reservations.holds import event_cache

Answer = queue.LoadedEntry | None


class AsyncGate:
    """Used on one loop at a time."""

    def __init__(self, async_redis: AsyncRedis) -> None:
        self._redis = async_redis
        self._verdicts: BatchLoader[gate.Question, gate.Undecided | None] = BatchLoader(self._query)
        self._gate_and_entries: BatchLoader[gate.Question, Answer] = BatchLoader(_ask_and_load_entries)
        self._entries: BatchLoader[gate.Question, Answer] = BatchLoader(_load_entries)

    async def ask(self, question: gate.Question) -> Answer:
        """Return the entry as read now, None if there is none. Raises the gate's refusal, or problems.Busy if too many
        wait."""
        verdict = await self._verdicts.ask(question)
        return await (self._entries if verdict is None else self._gate_and_entries).ask(question)

    async def _query(self, questions: list[gate.Question]) -> Sequence[problems.Problem | gate.Undecided | None]:
        batch = gate.build_question_batch(questions)
        if batch is not None:
            replies = await self._redis.execute(batch.commands) if batch.commands else []
            if replies is not None:
                return batch.parse_answers(replies)
        return [gate.UNDECIDED] * len(questions)


async def _ask_and_load_entries(questions: list[gate.Question]) -> list[problems.Problem | Answer]:
    """Return the gate's refusal, or the entry, of each question."""
    answers: list[problems.Problem | Answer] = [*await thread_pool.run_in_thread(gate.refusals, questions)]
    let_through = [index for index, refusal in enumerate(answers) if refusal is None]
    if let_through:
        entries = await read_async(_load_entries, [questions[index] for index in let_through])
        for index, entry in zip(let_through, entries, strict=True):
            answers[index] = entry
    return answers


def _load_entries(questions: list[gate.Question]) -> reads.Read[list[Answer]]:
    entries = yield from queue.load_entries([question.entry_id for question in questions])
    # Each of these requests needs its seats next.
    yield from event_cache.cache_named_seats([(question.event, question.payload) for question in questions])
    return entries
