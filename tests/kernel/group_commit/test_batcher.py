"""Group commit: who waits, who is decided together, who goes away, and that nothing is left."""

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
    wait_until_queued,
    write_notes,
    written_notes,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_note_tables")]


class Held:
    """A batcher whose first batch, of one note, is under way until the test opens the gate."""

    def __init__(self) -> None:
        self.gate = Breakpoint()
        self.decider = Decider(before={1: lambda _: self.gate.arrive_and_wait()})

    def begin(self, target: Batcher[Note, int]) -> BackgroundCall:
        first = BackgroundCall(lambda: target.submit_sync(Note("first"), TIMEOUT_MS))
        self.gate.wait_until_reached()
        return first


def test_an_idle_batcher_commits_each_request_at_once_alone() -> None:
    decider = Decider()
    with batcher(decider) as target:
        assert [target.submit_sync(note, TIMEOUT_MS) for note in notes(3)] == [1, 2, 3]
    assert decider.batches == [["note 0"], ["note 1"], ["note 2"]]
    assert written_notes() == ["note 0", "note 1", "note 2"]


def test_nothing_runs_before_the_first_request() -> None:
    with batcher():
        assert threads_of("notes") == []
        assert sessions_of("notes") == []


def test_what_comes_during_a_commit_is_one_batch_in_arrival_order() -> None:
    """The first is under way; five arrive one after the other; the first commits; the five are one transaction."""
    held = Held()
    with batcher(held.decider) as target:
        first = held.begin(target)
        callers = submit_in_order(target, notes(5))
        held.gate.open()
        assert first.result() == 1
        assert [caller.result() for caller in callers] == [2, 3, 4, 5, 6]
    assert held.decider.batches == [["first"], [f"note {number}" for number in range(5)]]
    assert written_notes() == ["first", *(f"note {number}" for number in range(5))]


def test_no_batch_is_larger_than_its_limit_and_the_order_goes_on_in_the_next() -> None:
    held = Held()
    with batcher(held.decider, batch_max=2) as target:
        held.begin(target)
        callers = submit_in_order(target, notes(5))
        held.gate.open()
        assert [caller.result() for caller in callers] == [2, 3, 4, 5, 6]
    assert held.decider.batches == [["first"], ["note 0", "note 1"], ["note 2", "note 3"], ["note 4"]]


def test_two_committers_have_two_batches_under_way() -> None:
    gate = Breakpoint()
    decider = Decider(before={1: lambda _: gate.arrive_and_wait()})
    with batcher(decider, committers=2) as target:
        first = BackgroundCall(lambda: target.submit_sync(Note("slow"), TIMEOUT_MS))
        gate.wait_until_reached()
        assert target.submit_sync(Note("quick"), TIMEOUT_MS) == 1
        gate.open()
        assert first.result() == 2


async def test_one_more_than_may_wait_is_refused_at_once_and_told_when_to_come_back() -> None:
    held = Held()
    with batcher(held.decider, waiting_max=2) as target:
        first = held.begin(target)
        tasks = [asyncio.create_task(target.submit(note)) for note in notes(2)]
        await wait_until_queued(target, 2, tasks)
        with pytest.raises(problems.Busy) as refused:
            await target.submit(Note("one too many"))
        thread = BackgroundCall(lambda: target.submit_sync(Note("another"), TIMEOUT_MS))
        assert isinstance(thread.error(), problems.Busy)
        held.gate.open()
        assert await asyncio.gather(*tasks) == [2, 3]
        assert first.result() == 1
    assert refused.value.status == 503
    assert int(refused.value.headers()["Retry-After"]) >= 1
    assert written_notes() == ["first", "note 0", "note 1"]


async def test_a_canceled_caller_that_still_waits_changes_nothing() -> None:
    held = Held()
    with batcher(held.decider) as target:
        held.begin(target)
        tasks = [asyncio.create_task(target.submit(note)) for note in notes(3)]
        await wait_until_queued(target, 3, tasks)
        tasks[1].cancel()
        await asyncio.wait([tasks[1]], timeout=SECONDS_MAX)
        assert target.waiting_count == 2
        held.gate.open()
        assert [await tasks[0], await tasks[2]] == [2, 3]
        assert tasks[1].cancelled()
    assert written_notes() == ["first", "note 0", "note 2"]


async def test_a_caller_canceled_while_its_batch_is_under_way_only_loses_the_answer() -> None:
    """Submitted; taken by the batch; canceled; committed. Its neighbour has its own answer, the loop no complaint."""
    gate, complaints = Breakpoint(), []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
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
    assert complaints == []
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_a_thread_that_waits_too_long_for_its_batch_is_refused_and_changes_nothing() -> None:
    held = Held()
    with batcher(held.decider) as target:
        first = held.begin(target)
        with pytest.raises(problems.Busy) as late:
            target.submit_sync(Note("impatient"), 1)
        assert not isinstance(late.value, OutcomeUnknown)
        assert target.waiting_count == 0
        held.gate.open()
        assert first.result() == 1
        assert target.submit_sync(Note("next"), TIMEOUT_MS) == 2
    assert written_notes() == ["first", "next"]


def test_a_thread_that_waits_too_long_for_its_commit_is_told_that_it_may_have_happened() -> None:
    gate = Breakpoint()
    decider = Decider(before={1: lambda _: gate.arrive_and_wait()})
    with batcher(decider) as target:
        # So that the batch has it for sure when its time is up, its clock runs out by hand.
        call_done: list[threading.Event] = []
        real = threading.Event.wait

        def wait(event: threading.Event, timeout: float | None = None) -> bool:
            if timeout == TIMEOUT_MS / 1_000 + 1:
                gate.wait_until_reached()
                call_done.append(event)
                return False
            return real(event, timeout)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Event, "wait", wait)
            with pytest.raises(OutcomeUnknown) as late:
                target.submit_sync(Note("impatient"), TIMEOUT_MS + 1_000)
        assert len(call_done) == 1
        gate.open()
        assert target.submit_sync(Note("next"), TIMEOUT_MS) == 2
    assert (late.value.status, late.value.type) == (503, "busy")
    assert written_notes() == ["impatient", "next"]


async def test_a_thread_with_a_running_loop_is_not_stopped_by_accident() -> None:
    with batcher() as target, pytest.raises(RuntimeError, match="await submit"):
        target.submit_sync(Note("blocking"), TIMEOUT_MS)


def test_a_loop_that_ended_takes_no_one_else_s_answer_with_it() -> None:
    """A loop is stopped and closed while its request is in a batch; the thread in the next batch is answered."""
    held = Held()
    with batcher(held.decider) as target:
        held.begin(target)
        loop = asyncio.new_event_loop()
        task = loop.create_task(target.submit(Note("loopless")))
        loop.call_later(0, loop.stop)
        loop.run_forever()
        waiting = submit_in_order(target, [Note("thread")])
        task._log_destroy_pending = False  # This is the very thing that the test does on purpose.
        loop.close()
        held.gate.open()
        assert waiting[0].result() == 3
    assert written_notes() == ["first", "loopless", "thread"]


def test_closing_with_drain_decides_what_waits_and_then_refuses() -> None:
    held = Held()
    with batcher(held.decider) as target:
        first = held.begin(target)
        callers = submit_in_order(target, notes(2))
        closing = BackgroundCall(target.close)
        wait_until(lambda: target._closing, "it closes")
        with pytest.raises(problems.Busy):
            target.submit_sync(Note("too late"), TIMEOUT_MS)
        held.gate.open()
        closing.result()
        assert [first.result(), *(caller.result() for caller in callers)] == [1, 2, 3]
        target.close()
    assert written_notes() == ["first", "note 0", "note 1"]


def test_closing_without_drain_refuses_what_waits_and_ends_what_is_under_way() -> None:
    held = Held()
    with batcher(held.decider) as target:
        first = held.begin(target)
        callers = submit_in_order(target, notes(2))
        closing = BackgroundCall(lambda: target.close(drain=False))
        assert [type(caller.error()) for caller in callers] == [problems.Busy, problems.Busy]
        held.gate.open()
        closing.result()
        assert first.result() == 1
    assert written_notes() == ["first"]


def test_closing_does_not_wait_for_ever_for_a_batch_that_hangs(caplog: pytest.LogCaptureFixture) -> None:
    held = Held()
    with batcher(held.decider) as target:
        first = held.begin(target)
        target.close(timeout_ms=1)
        assert "did not end within 1 ms" in caplog.text
        held.gate.open()
        assert first.result() == 1


def test_closing_before_the_first_request_is_fine() -> None:
    with batcher() as target:
        target.close()
        with pytest.raises(problems.Busy):
            target.submit_sync(Note("too late"), TIMEOUT_MS)


async def test_loops_and_threads_share_one_hot_row_and_every_sum_is_exact() -> None:
    """A hundred threads, a hundred tasks of this loop and a second loop with fifty, all at the same moment."""
    start = threading.Event()
    with batcher(batch_max=64) as target, ThreadPoolExecutor(101) as threads:

        def in_a_thread(number: int) -> int:
            assert start.wait(SECONDS_MAX)
            return target.submit_sync(Note(f"thread {number}"), TIMEOUT_MS)

        def in_another_loop() -> list[int]:
            async def crowd() -> list[int]:
                assert start.wait(SECONDS_MAX)
                return await asyncio.gather(*(target.submit(Note(f"other {number}")) for number in range(50)))

            return asyncio.run(crowd())

        from_threads = [threads.submit(in_a_thread, number) for number in range(100)]
        from_other = threads.submit(in_another_loop)
        start.set()
        numbers = await asyncio.gather(*(target.submit(Note(f"task {number}")) for number in range(100)))
        numbers += await asyncio.gather(*map(asyncio.wrap_future, from_threads))
        numbers += await asyncio.wrap_future(from_other)
        assert target.waiting_count == 0
    assert sorted(numbers) == list(range(1, 251))
    assert len(written_notes()) == 250
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_threads_sessions_and_callers_are_all_gone_after_it_is_closed() -> None:
    threads = set(threading.enumerate())
    with batcher(committers=2) as target:
        for note in notes(10):
            target.submit_sync(note, TIMEOUT_MS)
        assert 1 <= len(threads_of("batcher-notes")) <= 2
        assert 1 <= len(sessions_of("notes")) <= 2
    assert set(threading.enumerate()) == threads


def test_a_forked_child_has_threads_and_connections_of_its_own() -> None:
    """The parent has a batch under way and one waiting, so its lock, threads and socket are all in use; the child
    begins anew, shares no session, repeats nothing of the parent's, and the parent goes on as if nothing had been."""
    held = Held()
    with batcher(held.decider) as target:
        first = held.begin(target)
        waiting = submit_in_order(target, [Note("waiting")])
        (parents_session,) = sessions_of("notes")
        reading, writing = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Forking with threads is what this is about.
            child = os.fork()
        if child == 0:
            said = b"failed"
            try:
                number = target.submit_sync(Note("child"), TIMEOUT_MS)
                target.close()
                said = f"{number}".encode()
            except BaseException:
                said = traceback.format_exc().encode()[-4_000:]
            finally:
                os.write(writing, said)
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            assert answer.read() == b"1"
        os.waitpid(child, 0)
        assert sessions_of("notes") == [parents_session]
        held.gate.open()
        assert [first.result(), waiting[0].result()] == [2, 3]
    assert written_notes() == ["child", "first", "waiting"]


def test_a_child_forked_after_closing_serves() -> None:
    """As a server does that tries itself out, closes what it opened, and then forks its workers."""
    with batcher(connect_ms=TIMEOUT_MS) as target:
        target.submit_sync(Note("parent"), TIMEOUT_MS)
        target.close()
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            said = b"failed"
            try:
                number = target.submit_sync(Note("child"), TIMEOUT_MS)
                target.close()
                said = f"{number}".encode()
            except BaseException:
                said = traceback.format_exc().encode()[-4_000:]
            finally:
                os.write(writing, said)
                os._exit(0)
        os.close(writing)
        with os.fdopen(reading, "rb") as answer:
            assert answer.read() == b"2"
        os.waitpid(child, 0)
        with pytest.raises(problems.Busy):
            target.submit_sync(Note("too late"), TIMEOUT_MS)
    assert written_notes() == ["parent", "child"]


@pytest.mark.parametrize("refused", ["notes-worker", "batcher-notes"])
def test_without_a_thread_to_be_had_a_caller_is_told_to_come_back_and_the_next_is_served(
    refused: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool's own thread, or the committer's, cannot be started at the first request; later it can."""
    real, is_short = threading.Thread.start, [True]

    def start(thread: threading.Thread) -> None:
        if is_short[0] and thread.name.startswith(refused):
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    with batcher() as target:
        with pytest.raises(problems.Busy):
            target.submit_sync(Note("none"), TIMEOUT_MS)
        is_short[0] = False
        assert target.submit_sync(Note("some"), TIMEOUT_MS) == 1
    assert written_notes() == ["some"]


def test_a_connection_of_its_own_reads_and_writes_as_django_s_does() -> None:
    """Bound by the client, nothing prepared, in UTC; named so that an operator finds it."""
    shown = "SELECT current_setting('TimeZone'), current_setting('application_name')"
    seen: list[object] = []
    decider = Decider(before={1: lambda connection: seen.extend(connection.execute(shown).fetchone() or ())})
    with batcher(decider) as target:
        for note in notes(10):
            target.submit_sync(note, TIMEOUT_MS)
    assert seen == ["UTC", "fairgate notes"]
    assert run_sql("SELECT count(*) FROM pg_prepared_statements") == [(0,)]


def test_the_figures_say_how_large_how_long_and_what_happened() -> None:
    registry = CollectorRegistry()
    for metric in METRICS:
        registry.register(metric)

    def figure(name: str, **labels: str) -> float:
        return registry.get_sample_value(f"fairgate_batch_{name}", {"batcher": "notes", **labels}) or 0

    names = ("size_count", "size_sum", "queued_seconds_count", "commit_seconds_count")
    before = {name: figure(name) for name in names}
    refused = figure("happenings_total", what="refused")
    held = Held()
    with batcher(held.decider, waiting_max=3) as target:
        held.begin(target)
        callers = submit_in_order(target, notes(3))
        assert figure("waiting_count") == 3
        with pytest.raises(problems.Busy):
            target.submit_sync(Note("one too many"), TIMEOUT_MS)
        held.gate.open()
        assert [caller.result() for caller in callers] == [2, 3, 4]
    assert {name: figure(name) - before[name] for name in names} == dict(zip(names, (2, 4, 2, 2), strict=True))
    assert figure("waiting_count") == 0
    assert figure("happenings_total", what="refused") == refused + 1


def test_an_answer_from_an_open_transaction_is_not_given() -> None:
    """It would be a promise that the pool takes back."""

    def leave_open(connection: object, requests: list[Note]) -> list[int]:
        connection.execute("BEGIN")  # type: ignore[attr-defined]
        return [1 for _ in requests]

    target: Batcher[Note, int] = Batcher("open", leave_open, find_committed=decide_finds_committed)
    try:
        with pytest.raises(RuntimeError, match="left open"):
            target.submit_sync(Note("x"), TIMEOUT_MS)
    finally:
        target.close()


class InParts:
    """Decides in two transactions: all but the first request, then the first, once the test opens the gate."""

    def __init__(self, *, forgets: bool = False) -> None:
        self.gate, self.forgets = Breakpoint(), forgets

    def __call__(self, connection: psycopg.Connection[Any], requests: Sequence[Note]) -> Iterator[Mapping[int, int]]:
        if len(requests) > 1:
            numbers = write_notes(connection, requests[1:])
            yield {index + 1: number for index, number in enumerate(numbers)}
        self.gate.arrive_and_wait()
        if not self.forgets:
            yield dict(enumerate(write_notes(connection, requests[:1])))

    def find(self, connection: psycopg.Connection[Any], requests: Sequence[Note]) -> Mapping[int, int]:
        return find_notes(connection, requests)


def three_in_one_batch(target: Batcher[Note, int], decider: InParts) -> list[BackgroundCall]:
    first = BackgroundCall(lambda: target.submit_sync(Note("first"), TIMEOUT_MS))
    decider.gate.wait_until_reached()
    callers = submit_in_order(target, notes(3))
    decider.gate.open()
    first.result()
    decider.gate.wait_until_reached()
    return callers


def test_what_one_transaction_settles_is_answered_before_the_next_one_is_begun() -> None:
    decider = InParts()
    with batcher(decider) as target:
        callers = three_in_one_batch(target, decider)
        assert [caller.result() for caller in callers[1:]] == [2, 3]
        assert callers[0]._thread.is_alive()
        decider.gate.open()
        assert callers[0].result() == 4


def test_who_is_left_out_of_the_parts_is_not_told_that_it_was_carried_out() -> None:
    decider = InParts()
    with batcher(decider) as target:
        callers = three_in_one_batch(target, decider)
        decider.forgets = True
        decider.gate.open()
        assert isinstance(callers[0].error(), InvalidDecision)
        assert [caller.result() for caller in callers[1:]] == [2, 3]
