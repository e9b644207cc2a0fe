"""Reads on the event loop: the same values as in a thread, and no value after any failure."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
from django.db.utils import DataError

from apps.kernel.db import async_reader, reads, roundtrip, sql
from apps.kernel.db.async_reader import AsyncReader, Done
from apps.kernel.fastpath.batch_loader import BatchLoader, read_async
from tests.support.event_loops import run_loop_once
from tests.support.races import rival_connection

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS_MAX = 20
ECHO = sql.Statement("echo", "SELECT %(word)s::text, %(words)s::text[], %(at)s::timestamptz, NULL")
PID = sql.Statement("pid", "SELECT pg_backend_pid()")
LONG = sql.Statement("long", "SELECT count(*) FROM generate_series(1, 1000000000000)")
DIVIDE = sql.Statement("divide", "SELECT 1 / %(by)s")
SESSIONS = "pg_stat_activity WHERE datname = current_database() AND application_name LIKE '% reads'"
ECHOED = {"word": "it's ö", "words": ["a,b", "c"], "at": datetime(2026, 11, 28, 12, tzinfo=UTC)}


@pytest.fixture(autouse=True)
def retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(async_reader, "RETRY_SECONDS", 0.0)


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> sql.Statement:
    """A statement that connections prepare from now on, with a list that is shorter than PostgreSQL expects."""
    text = "SELECT count(*) FROM pg_class WHERE oid = ANY(%(ids)s::oid[])"
    monkeypatch.setattr(roundtrip, "_prepared_texts", {"made_up": text})
    monkeypatch.setattr(roundtrip._Pooled, "seen", False)
    return sql.Statement("made_up", text, prepared=True)


@asynccontextmanager
async def started() -> AsyncIterator[AsyncReader]:
    reader = AsyncReader()
    async with asyncio.timeout(SECONDS_MAX):
        await reader.start()
        try:
            yield reader
        finally:
            await reader.close()
            await asyncio.to_thread(end_sessions)


def echo_twice() -> reads.Read[list[Any]]:
    first, empty = yield [ECHO.call(**ECHOED), sql.Statement("none", "SELECT 1 WHERE false").call()]
    assert (yield []) == []
    second = yield from reads.one(ECHO, **ECHOED)
    return [first, empty.rows, second]


def pid() -> reads.Read[int]:
    ((found,),) = yield from reads.one(PID)
    return int(found)


def long_read() -> reads.Read[None]:
    """Take longer than any test; `started` ends the session."""
    yield from reads.one(LONG)


def divide(by: int) -> reads.Read[int]:
    ((found,),) = yield from reads.one(DIVIDE, by=by)
    return int(found)


async def pid_on(reader: AsyncReader) -> int:
    """Return the session of the next read on the loop, once there is a connection for it."""
    while (done := await reader.run(pid())) is None:
        await run_loop_once()
    return int(done.value)


def end_sessions() -> None:
    """End the readers' sessions, also those whose closed connections have not yet been noticed by PostgreSQL."""
    with rival_connection() as rival, rival.cursor() as cursor:
        cursor.execute(f"SELECT pg_terminate_backend(pid, 10000) FROM {SESSIONS}")


def count_sessions() -> int:
    with rival_connection() as rival, rival.cursor() as cursor:
        cursor.execute(f"SELECT count(*) FROM {SESSIONS}")
        return int(cursor.fetchone()[0])


async def test_a_read_has_the_same_value_on_the_loop_as_in_a_thread() -> None:
    async with started() as reader:
        done = await reader.run(echo_twice())
    assert done == Done(await asyncio.to_thread(_in_thread))


def _in_thread() -> list[Any]:
    from django.db import connection

    try:
        return reads.run(echo_twice())
    finally:
        connection.close()


async def test_nothing_is_read_before_the_start_and_after_the_end() -> None:
    assert await AsyncReader().run(pid()) is None
    async with started() as reader:
        await pid_on(reader)
        assert await asyncio.to_thread(count_sessions) == 1
    assert await reader.run(pid()) is None
    assert await asyncio.to_thread(count_sessions) == 0


async def test_two_reads_at_once_have_a_connection_each_and_a_third_one_none() -> None:
    async with started() as reader:
        first = await pid_on(reader)
        long = asyncio.create_task(reader.run(long_read()))
        await run_loop_once()
        second = await pid_on(reader)
        assert second != first
        other = asyncio.create_task(reader.run(long_read()))
        await run_loop_once()
        assert await reader.run(pid()) is None
        assert len(reader._links) == async_reader.CONNECTIONS_MAX
        for task in (long, other):
            task.cancel()
        # What a canceled read has sent may still be answered, so no other read gets its connection.
        assert await pid_on(reader) not in (first, second)


async def test_a_session_that_ends_between_two_reads_is_replaced() -> None:
    async with started() as reader:
        process = await pid_on(reader)
        await asyncio.to_thread(end_sessions)
        assert await pid_on(reader) != process


async def test_a_session_that_ends_during_a_read_leaves_it_to_a_thread() -> None:
    async with started() as reader:
        process = await pid_on(reader)
        under_way = asyncio.create_task(reader.run(long_read()))
        await run_loop_once()
        await asyncio.to_thread(end_sessions)
        assert await under_way is None
        assert await pid_on(reader) != process


async def test_a_failing_statement_leaves_the_read_to_a_thread_and_the_connection_to_the_next_read() -> None:
    async with started() as reader:
        process = await pid_on(reader)
        assert await reader.run(divide(0)) is None
        assert await reader.run(reads.one(ECHO, **ECHOED | {"word": "a\x00b"})) is None
        assert await reader.run(divide(1)) == Done(1)
        assert await pid_on(reader) == process


async def test_a_prepared_statement_is_planned_once_until_plans_are_discarded(
    prepared: sql.Statement, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = sql.Statement("plans", "SELECT generic_plans, custom_plans FROM pg_prepared_statements")

    def count_six_times() -> reads.Read[list[Any]]:
        counted = []
        for _ in range(6):
            counted += yield from reads.one(prepared, ids=[1259])
        return [*counted, *(yield from reads.one(plans))]

    async with started() as reader:
        await pid_on(reader)
        assert await reader.run(count_six_times()) == Done([(1,)] * 6 + [(6, 0)])
        monkeypatch.setattr(roundtrip, "PLANS_SECONDS", 0.0)
        assert await reader.run(count_six_times()) == Done([(1,)] * 6 + [(12, 0)])


async def test_a_prepared_statement_that_is_gone_is_sent_as_text_from_then_on(prepared: sql.Statement) -> None:
    """As behind a pooler in transaction mode that hands out a server connection without our prepared statements."""
    async with started() as reader:
        process = await pid_on(reader)
        await reader.run(reads.one(sql.Statement("deallocate", "DEALLOCATE ALL")))
        assert await reader.run(reads.one(prepared, ids=[1259])) is None
        assert await reader.run(reads.one(prepared, ids=[1259])) == Done([(1,)])
        assert await pid_on(reader) == process


async def test_an_error_of_the_read_itself_is_raised_and_frees_the_connection() -> None:
    def failing() -> reads.Read[None]:
        yield [PID.call()]
        raise LookupError("no such row")

    async with started() as reader:
        process = await pid_on(reader)
        with pytest.raises(LookupError):
            await reader.run(failing())
        assert await pid_on(reader) == process


async def test_a_read_without_results_in_time_is_left_to_a_thread(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with started() as reader:
        process = await pid_on(reader)
        monkeypatch.setattr(async_reader, "GRACE_SECONDS", 0.0)
        settings.DATABASE_STATEMENT_TIMEOUT_MS = 200
        (link,) = reader._links
        if link._timer is not None:
            link._timer.cancel()
            link._timer = None
        assert await reader.run(long_read()) is None
        assert await pid_on(reader) != process


async def test_a_statement_larger_than_the_socket_s_buffer_is_sent_in_parts() -> None:
    word = "x" * 8_000_000
    async with started() as reader:
        assert await reader.run(reads.one(ECHO, **ECHOED | {"word": word})) == Done(
            [(word, *list(ECHOED.values())[1:], None)]
        )


async def test_a_loader_carries_out_reads_on_the_loop_or_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def square(numbers: list[int]) -> reads.Read[list[int]]:
        rows = yield from reads.one(
            sql.Statement("square", "SELECT n * n FROM unnest(%(numbers)s::int[]) n"), numbers=numbers
        )
        return [found for (found,) in rows]

    loader: BatchLoader[int, int] = BatchLoader(square)
    assert await asyncio.gather(*map(loader.ask, (2, 3))) == [4, 9]
    with pytest.raises(DataError, match="division by zero"):
        await read_async(divide, 0)
    async with started() as reader:
        monkeypatch.setattr(async_reader, "shared", reader)
        await pid_on(reader)
        monkeypatch.setattr(reads, "run", None)  # No thread reads.
        assert await asyncio.gather(*map(loader.ask, (2, 3))) == [4, 9]
        assert await read_async(divide, 1) == 1
