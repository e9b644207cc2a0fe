"""Group commit: queueing, batching, cancellation and closing, after which no thread or session is left."""

import asyncio
import os
import threading
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry

from apps.kernel.group_commit.batcher import METRICS, Batcher, InvalidDecision, OutcomeUnknown, decide_finds_committed
from apps.kernel.http import problems
from tests.support.batches import (
    SECONDS_MAX,
    TIMEOUT_MS,
    BackgroundCall,
    Breakpoint,
    Decider,
    Note,
    batcher,
    find_notes,
    notes,
    run_sql,
    sessions_of,
    submit_in_order,
    threads_of,
    wait_until,
    wait_until_exited,
    wait_until_queued,
    write_notes,
    written_notes,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_note_tables")]


class HeldFirstBatch:
    """A decider whose first batch, of one note, runs until the test opens the gate."""

    def __init__(self) -> None:
        self.gate = Breakpoint()
        self.decider = Decider(before={1: lambda _: self.gate.arrive_and_wait()})

    def begin(self, target: Batcher[Note, int]) -> BackgroundCall:
        first = BackgroundCall(lambda: target.submit_sync(Note("first"), TIMEOUT_MS))
        self.gate.wait_until_reached()
        return first


def test_an_idle_batcher_commits_each_request_immediately_and_alone() -> None:
    decider = Decider()
    with batcher(decider) as target:
        assert [target.submit_sync(note, TIMEOUT_MS) for note in notes(3)] == [1, 2, 3]
    assert decider.batches == [["note 0"], ["note 1"], ["note 2"]]
    assert written_notes() == ["note 0", "note 1", "note 2"]


def test_no_thread_or_session_exists_before_the_first_request() -> None:
    with batcher():
        assert threads_of("notes") == []
        assert sessions_of("notes") == []


def test_requests_that_arrive_during_a_commit_form_one_batch_in_arrival_order() -> None:
    """The first batch is running; five requests arrive one by one; the first commits; the five are one transaction."""
    first_batch = HeldFirstBatch()
    with batcher(first_batch.decider) as target:
        first = first_batch.begin(target)
        callers = submit_in_order(target, notes(5))
        first_batch.gate.open()
        assert first.result() == 1
        assert [caller.result() for caller in callers] == [2, 3, 4, 5, 6]
    assert first_batch.decider.batches == [["first"], [f"note {number}" for number in range(5)]]
    assert written_notes() == ["first", *(f"note {number}" for number in range(5))]


def test_no_batch_exceeds_its_limit_and_the_next_batch_continues_in_order() -> None:
    first_batch = HeldFirstBatch()
    with batcher(first_batch.decider, batch_max=2) as target:
        first_batch.begin(target)
        callers = submit_in_order(target, notes(5))
        first_batch.gate.open()
        assert [caller.result() for caller in callers] == [2, 3, 4, 5, 6]
    assert first_batch.decider.batches == [["first"], ["note 0", "note 1"], ["note 2", "note 3"], ["note 4"]]


def test_two_committers_run_two_batches_at_once() -> None:
    gate = Breakpoint()
    decider = Decider(before={1: lambda _: gate.arrive_and_wait()})
    with batcher(decider, committers=2) as target:
        first = BackgroundCall(lambda: target.submit_sync(Note("slow"), TIMEOUT_MS))
        gate.wait_until_reached()
        assert target.submit_sync(Note("quick"), TIMEOUT_MS) == 1
        gate.open()
        assert first.result() == 2


async def test_a_request_beyond_the_queue_limit_is_refused_immediately_with_a_retry_after() -> None:
    first_batch = HeldFirstBatch()
    with batcher(first_batch.decider, waiting_max=2) as target:
        first = first_batch.begin(target)
        tasks = [asyncio.create_task(target.submit(note)) for note in notes(2)]
        await wait_until_queued(target, 2, tasks)
        with pytest.raises(problems.Busy) as refused:
            await target.submit(Note("one too many"))
        thread = BackgroundCall(lambda: target.submit_sync(Note("another"), TIMEOUT_MS))
        assert isinstance(thread.error(), problems.Busy)
        first_batch.gate.open()
        assert await asyncio.gather(*tasks) == [2, 3]
        assert first.result() == 1
    assert refused.value.status == 503
    assert int(refused.value.headers()["Retry-After"]) >= 1
    assert written_notes() == ["first", "note 0", "note 1"]


async def test_a_request_canceled_while_it_waits_changes_nothing() -> None:
    first_batch = HeldFirstBatch()
    with batcher(first_batch.decider) as target:
        first_batch.begin(target)
        tasks = [asyncio.create_task(target.submit(note)) for note in notes(3)]
        await wait_until_queued(target, 3, tasks)
        tasks[1].cancel()
        await asyncio.wait([tasks[1]], timeout=SECONDS_MAX)
        assert target.waiting_count == 2
        first_batch.gate.open()
        assert [await tasks[0], await tasks[2]] == [2, 3]
        assert tasks[1].cancelled()
    assert written_notes() == ["first", "note 0", "note 2"]


async def test_a_caller_canceled_while_its_batch_runs_only_loses_its_response() -> None:
    """Submitted; taken by the batch; canceled; committed. The next request gets its own outcome, the event loop logs no
    error."""
    gate, loop_errors = Breakpoint(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: loop_errors.append(context))
    decider = Decider(before={1: lambda _: gate.arrive_and_wait()})
    with batcher(decider) as target:
        task = asyncio.create_task(target.submit(Note("gone")))
        await asyncio.to_thread(gate.wait_until_reached)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open()
        assert await target.submit(Note("stays")) == 2
    assert written_notes() == ["gone", "stays"]
    assert loop_errors == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_a_thread_that_times_out_before_its_batch_is_refused_and_changes_nothing() -> None:
    first_batch = HeldFirstBatch()
    with batcher(first_batch.decider) as target:
        first = first_batch.begin(target)
        with pytest.raises(problems.Busy) as late:
            target.submit_sync(Note("impatient"), 1)
        assert not isinstance(late.value, OutcomeUnknown)
        assert target.waiting_count == 0
        first_batch.gate.open()
        assert first.result() == 1
        assert target.submit_sync(Note("next"), TIMEOUT_MS) == 2
    assert written_notes() == ["first", "next"]


def test_a_thread_that_times_out_during_its_commit_gets_outcome_unknown() -> None:
    gate = Breakpoint()
    decider = Decider(before={1: lambda _: gate.arrive_and_wait()})
    with batcher(decider) as target:
        # The test triggers the timeout by hand, so that the batch has certainly taken the request by then.
        timed_out: list[threading.Event] = []
        real = threading.Event.wait

        def wait(event: threading.Event, timeout: float | None = None) -> bool:
            if timeout == TIMEOUT_MS / 1_000 + 1:
                gate.wait_until_reached()
                timed_out.append(event)
                return False
            return real(event, timeout)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Event, "wait", wait)
            with pytest.raises(OutcomeUnknown) as late:
                target.submit_sync(Note("impatient"), TIMEOUT_MS + 1_000)
        assert len(timed_out) == 1
        gate.open()
        assert target.submit_sync(Note("next"), TIMEOUT_MS) == 2
    assert (late.value.status, late.value.type) == (503, "busy")
    assert written_notes() == ["impatient", "next"]


async def test_a_thread_with_a_running_event_loop_may_not_submit_synchronously() -> None:
    with batcher() as target, pytest.raises(RuntimeError, match="await submit"):
        target.submit_sync(Note("blocking"), TIMEOUT_MS)


def test_a_closed_event_loop_does_not_lose_other_callers_outcomes() -> None:
    """An event loop is stopped and closed while a batch runs; its request and a thread's are in the next batch, and the
    thread gets its outcome."""
    first_batch = HeldFirstBatch()
    with batcher(first_batch.decider) as target:
        first_batch.begin(target)
        loop = asyncio.new_event_loop()
        task = loop.create_task(target.submit(Note("loopless")))
        loop.call_later(0, loop.stop)
        loop.run_forever()
        waiting = submit_in_order(target, [Note("thread")])
        task._log_destroy_pending = False  # The test destroys a pending task on purpose.
        loop.close()
        first_batch.gate.open()
        assert waiting[0].result() == 3
    assert written_notes() == ["first", "loopless", "thread"]


def test_closing_with_drain_decides_waiting_requests_and_refuses_new_ones() -> None:
    first_batch = HeldFirstBatch()
    with batcher(first_batch.decider) as target:
        first = first_batch.begin(target)
        callers = submit_in_order(target, notes(2))
        closing = BackgroundCall(target.close)
        wait_until(lambda: target._closing, "the batcher is closing")
        with pytest.raises(problems.Busy):
            target.submit_sync(Note("too late"), TIMEOUT_MS)
        first_batch.gate.open()
        closing.result()
        assert [first.result(), *(caller.result() for caller in callers)] == [1, 2, 3]
        target.close()
    assert written_notes() == ["first", "note 0", "note 1"]


def test_closing_without_drain_refuses_waiting_requests_and_finishes_the_running_batch() -> None:
    first_batch = HeldFirstBatch()
    with batcher(first_batch.decider) as target:
        first = first_batch.begin(target)
        callers = submit_in_order(target, notes(2))
        closing = BackgroundCall(lambda: target.close(drain=False))
        assert [type(caller.error()) for caller in callers] == [problems.Busy, problems.Busy]
        first_batch.gate.open()
        closing.result()
        assert first.result() == 1
    assert written_notes() == ["first"]


def test_closing_times_out_on_a_batch_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    first_batch = HeldFirstBatch()
    with batcher(first_batch.decider) as target:
        first = first_batch.begin(target)
        target.close(timeout_ms=1)
        assert "did not end within 1 ms" in caplog.text
        first_batch.gate.open()
        assert first.result() == 1


def test_a_batcher_can_be_closed_before_its_first_request() -> None:
    with batcher() as target:
        target.close()
        with pytest.raises(problems.Busy):
            target.submit_sync(Note("too late"), TIMEOUT_MS)


async def test_event_loops_and_threads_share_one_hot_row_and_every_sum_is_exact() -> None:
    """A hundred threads, a hundred tasks of this event loop and fifty of a second one, all at once."""
    start = threading.Event()
    with batcher(batch_max=64) as target, ThreadPoolExecutor(101) as threads:

        def in_a_thread(number: int) -> int:
            assert start.wait(SECONDS_MAX)
            return target.submit_sync(Note(f"thread {number}"), TIMEOUT_MS)

        def in_another_event_loop() -> list[int]:
            async def submit_all() -> list[int]:
                assert start.wait(SECONDS_MAX)
                return await asyncio.gather(*(target.submit(Note(f"other {number}")) for number in range(50)))

            return asyncio.run(submit_all())

        from_threads = [threads.submit(in_a_thread, number) for number in range(100)]
        from_other = threads.submit(in_another_event_loop)
        start.set()
        numbers = await asyncio.gather(*(target.submit(Note(f"task {number}")) for number in range(100)))
        numbers += await asyncio.gather(*map(asyncio.wrap_future, from_threads))
        numbers += await asyncio.wrap_future(from_other)
        assert target.waiting_count == 0
    assert sorted(numbers) == list(range(1, 251))
    assert len(written_notes()) == 250
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_no_thread_or_session_is_left_after_closing() -> None:
    threads = set(threading.enumerate())
    with batcher(committers=2) as target:
        for note in notes(10):
            target.submit_sync(note, TIMEOUT_MS)
        assert 1 <= len(threads_of("batcher-notes")) <= 2
        assert 1 <= len(sessions_of("notes")) <= 2
    assert set(threading.enumerate()) == threads


def test_a_forked_child_has_its_own_threads_and_connections() -> None:
    """The parent has a running batch and a waiting request, so its lock, threads and socket are all in use. The child
    starts afresh, shares no session and repeats none of the parent's requests; the parent continues undisturbed."""
    first_batch = HeldFirstBatch()
    with batcher(first_batch.decider) as target:
        first = first_batch.begin(target)
        waiting = submit_in_order(target, [Note("waiting")])
        (parents_session,) = sessions_of("notes")
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # The test forks with threads on purpose.
            child = os.fork()
        if child == 0:
            report = b"failed"
            try:
                number = target.submit_sync(Note("child"), TIMEOUT_MS)
                target.close()
                report = f"{number}".encode()
            except BaseException:
                report = traceback.format_exc().encode()[-4_000:]
            finally:
                os.write(writing, report)
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            assert answer.read() == b"1"
        os.waitpid(child, 0)
        assert sessions_of("notes") == [parents_session]
        first_batch.gate.open()
        assert [first.result(), waiting[0].result()] == [2, 3]
    assert written_notes() == ["child", "first", "waiting"]


def test_a_child_forked_after_closing_can_submit() -> None:
    """As a server does that warms up, closes what it opened, and then forks its workers."""
    with batcher(connect_ms=TIMEOUT_MS) as target:
        others = set(threading.enumerate())
        target.submit_sync(Note("parent"), TIMEOUT_MS)
        started = set(threading.enumerate()) - others
        target.close()
        wait_until_exited(started)
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            report = b"failed"
            try:
                number = target.submit_sync(Note("child"), TIMEOUT_MS)
                target.close()
                report = f"{number}".encode()
            except BaseException:
                report = traceback.format_exc().encode()[-4_000:]
            finally:
                os.write(writing, report)
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            assert answer.read() == b"2"
        os.waitpid(child, 0)
        with pytest.raises(problems.Busy):
            target.submit_sync(Note("too late"), TIMEOUT_MS)
    assert written_notes() == ["parent", "child"]


@pytest.mark.parametrize("refused", ["notes-worker", "batcher-notes"])
def test_a_caller_is_refused_while_no_thread_can_be_started_and_the_next_is_served(
    refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection pool's thread, or the committer's, cannot be started at the first request; later it can."""
    real, cannot_start = threading.Thread.start, [True]

    def start(thread: threading.Thread) -> None:
        if cannot_start[0] and thread.name.startswith(refused):
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with batcher() as target:
        with pytest.raises(problems.Busy):
            target.submit_sync(Note("none"), TIMEOUT_MS)
        cannot_start[0] = False
        assert target.submit_sync(Note("some"), TIMEOUT_MS) == 1
    assert written_notes() == ["some"]


def test_a_batcher_s_connection_has_the_same_session_settings_as_django_s() -> None:
    """Parameters bound by the client, no prepared statements, in UTC; named so that an operator finds it."""
    shown = "SELECT current_setting('TimeZone'), current_setting('application_name')"
    seen: list[object] = []
    decider = Decider(before={1: lambda connection: seen.extend(connection.execute(shown).fetchone() or ())})
    with batcher(decider) as target:
        for note in notes(10):
            target.submit_sync(note, TIMEOUT_MS)
    assert seen == ["UTC", "fairgate notes"]
    assert run_sql("SELECT count(*) FROM pg_prepared_statements") == [(0,)]


def test_the_metrics_count_sizes_durations_and_refusals() -> None:
    registry = CollectorRegistry()
    for metric in METRICS:
        registry.register(metric)

    def sample(name: str, **labels: str) -> float:
        return registry.get_sample_value(f"fairgate_batch_{name}", {"batcher": "notes", **labels}) or 0

    names = ("size_count", "size_sum", "queued_seconds_count", "commit_seconds_count")
    before = {name: sample(name) for name in names}
    refused = sample("happenings_total", what="refused")
    first_batch = HeldFirstBatch()
    with batcher(first_batch.decider, waiting_max=3) as target:
        first_batch.begin(target)
        callers = submit_in_order(target, notes(3))
        assert sample("waiting_count") == 3
        with pytest.raises(problems.Busy):
            target.submit_sync(Note("one too many"), TIMEOUT_MS)
        first_batch.gate.open()
        assert [caller.result() for caller in callers] == [2, 3, 4]
    assert {name: sample(name) - before[name] for name in names} == dict(zip(names, (2, 4, 2, 2), strict=True))
    assert sample("waiting_count") == 0
    assert sample("happenings_total", what="refused") == refused + 1


def test_outcomes_of_an_open_transaction_are_not_returned() -> None:
    """The pool would roll that transaction back."""

    def leave_open(connection: object, requests: list[Note]) -> list[int]:
        connection.execute("BEGIN")  # type: ignore[attr-defined]
        return [1 for _ in requests]

    target: Batcher[Note, int] = Batcher("open", leave_open, find_committed=decide_finds_committed)
    try:
        with pytest.raises(RuntimeError, match="left open"):
            target.submit_sync(Note("x"), TIMEOUT_MS)
    finally:
        target.close()


class TwoTransactions:
    """Decides in two transactions: all but the first request, then the first, once the test opens the gate."""

    def __init__(self, *, omits_last: bool = False) -> None:
        self.gate, self.omits_last = Breakpoint(), omits_last

    def __call__(self, connection: psycopg.Connection[Any], requests: Sequence[Note]) -> Iterator[Mapping[int, int]]:
        if len(requests) > 1:
            numbers = write_notes(connection, requests[1:])
            yield {index + 1: number for index, number in enumerate(numbers)}
        self.gate.arrive_and_wait()
        if not self.omits_last:
            yield dict(enumerate(write_notes(connection, requests[:1])))

    def find(self, connection: psycopg.Connection[Any], requests: Sequence[Note]) -> Mapping[int, int]:
        return find_notes(connection, requests)


def submit_three_in_one_batch(target: Batcher[Note, int], decider: TwoTransactions) -> list[BackgroundCall]:
    first = BackgroundCall(lambda: target.submit_sync(Note("first"), TIMEOUT_MS))
    decider.gate.wait_until_reached()
    callers = submit_in_order(target, notes(3))
    decider.gate.open()
    first.result()
    decider.gate.wait_until_reached()
    return callers


def test_outcomes_of_one_transaction_are_returned_before_the_next_begins() -> None:
    decider = TwoTransactions()
    with batcher(decider) as target:
        callers = submit_three_in_one_batch(target, decider)
        assert [caller.result() for caller in callers[1:]] == [2, 3]
        assert callers[0]._thread.is_alive()
        decider.gate.open()
        assert callers[0].result() == 4


def test_a_request_without_an_outcome_gets_an_error() -> None:
    decider = TwoTransactions()
    with batcher(decider) as target:
        callers = submit_three_in_one_batch(target, decider)
        decider.omits_last = True
        decider.gate.open()
        assert isinstance(callers[0].error(), InvalidDecision)
        assert [caller.result() for caller in callers[1:]] == [2, 3]
