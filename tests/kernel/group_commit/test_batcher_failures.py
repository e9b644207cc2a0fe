"""Failures within a batch: each request is carried out exactly once, and a bad request fails alone."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import psycopg
import pytest
from django.db import connections

from apps.kernel.db import transactions
from apps.kernel.group_commit.batcher import Batcher, InvalidDecision, OutcomeUnknown, decide_finds_committed
from apps.kernel.http import problems
from tests.support.batches import (
    TIMEOUT_MS,
    Act,
    BackgroundCall,
    Breakpoint,
    Decider,
    Note,
    batcher,
    connect,
    find_notes,
    make_tables,
    notes,
    run_sql,
    sessions_of,
    submit_in_order,
    wait_until,
    write_notes,
    written_notes,
)
from tests.support.servers import temporary_server_folder
from ticketing.devserver import postgres
from ticketing.devserver.data_folder import ServerFolder

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("_note_tables")]

Connection = psycopg.Connection[Any]
POISON = "\u0000"


def submit_as_one_batch(target: Batcher[Note, int], gate: Breakpoint, requests: Sequence[Note]) -> list[BackgroundCall]:
    """Submit the requests while a first batch runs, so that they form one batch in this order."""
    first = BackgroundCall(lambda: target.submit_sync(Note("first"), TIMEOUT_MS))
    gate.wait_until_reached()
    callers = submit_in_order(target, requests)
    gate.open()
    assert first.result() == 1
    return callers


def gated(**acts: dict[int, Act]) -> tuple[Breakpoint, Decider]:
    """Return a decider whose first batch waits at the gate; the acts belong to the attempts after that one, from 1."""
    gate, later = Breakpoint(), {when: {n + 1: act for n, act in of.items()} for when, of in acts.items()}
    return gate, Decider(**{**later, "before": {1: lambda _: gate.arrive_and_wait(), **later.get("before", {})}})


def kill(pid: int) -> None:
    assert run_sql("SELECT pg_terminate_backend(%s, 10000)", [pid]) == [(True,)]


def kill_connection(connection: Connection) -> None:
    kill(connection.info.backend_pid)


def lose_connection(connection: Connection) -> None:
    """Break the connection as when the network loses the response: everything sent so far has been executed."""
    kill_connection(connection)
    connection.execute("SELECT 1")


# --- poison ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [0, 1, 3, 6])
def test_a_poisoned_request_fails_alone_and_the_others_keep_their_order(at: int) -> None:
    requests = notes(7)
    requests[at] = Note(POISON)
    gate, decider = gated()
    with batcher(decider) as target:
        callers = submit_as_one_batch(target, gate, requests)
        assert isinstance(callers[at].error(), psycopg.DataError)
        numbers = [caller.result() for number, caller in enumerate(callers) if number != at]
    assert numbers == [2, 3, 4, 5, 6, 7]
    assert written_notes() == ["first", *(note.text for note in requests if note.text != POISON)]


def test_every_poisoned_request_gets_its_own_exception() -> None:
    gate, decider = gated()
    with batcher(decider) as target:
        callers = submit_as_one_batch(target, gate, [Note(POISON), Note("a"), Note(POISON), Note(POISON), Note("b")])
        errors = [callers[at].error() for at in (0, 2, 3)]
        assert [callers[1].result(), callers[4].result()] == [2, 3]
    assert len({id(error) for error in errors}) == 3
    assert all(isinstance(error, psycopg.DataError) for error in errors)
    assert written_notes() == ["first", "a", "b"]


def test_an_exception_of_decide_over_one_request_reaches_its_caller_unchanged() -> None:
    def refuse(connection: Connection, requests: Sequence[Note]) -> list[int]:
        if any(note.text == "bad" for note in requests):
            raise problems.Invalid("bad")
        return write_notes(connection, requests)

    target: Batcher[Note, int] = Batcher("raising", refuse, find_committed=find_notes)
    try:
        with pytest.raises(problems.Invalid):
            target.submit_sync(Note("bad"), TIMEOUT_MS)
        assert target.submit_sync(Note("good"), TIMEOUT_MS) == 1
    finally:
        target.close()


def test_system_exit_in_decide_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    def leave(_: Connection) -> None:
        raise SystemExit

    decider = Decider(before={1: leave})
    with batcher(decider) as target:
        with pytest.raises(OutcomeUnknown):
            target.submit_sync(Note("last words"), TIMEOUT_MS)
        assert target.submit_sync(Note("next"), TIMEOUT_MS) == 1
    assert "a batch of 1 failed" in caplog.text


@pytest.mark.parametrize("count", [0, 2])
def test_a_wrong_number_of_outcomes_fails_the_batch_and_nothing_is_decided_twice(count: int) -> None:
    """The batch is committed by then: deciding it again would write it twice."""
    calls: list[int] = []

    def miscount(connection: Connection, requests: Sequence[Note]) -> list[int]:
        calls.append(len(requests))
        write_notes(connection, requests)
        return [1] * count

    target: Batcher[Note, int] = Batcher("miscounting", miscount, find_committed=decide_finds_committed)
    try:
        with pytest.raises(InvalidDecision, match=f"{count} outcomes for 1"):
            target.submit_sync(Note("x"), TIMEOUT_MS)
    finally:
        target.close()
    assert calls == [1]
    assert written_notes() == ["x"]


# --- locks ----------------------------------------------------------------------------------------------------------


def test_a_batch_that_times_out_on_a_lock_is_retried_once() -> None:
    """A rival holds the row: the first attempt times out after 200 ms; the rival commits; the second gets the lock."""
    with connect() as rival:
        rival.execute("BEGIN")
        rival.execute("SELECT value FROM batch_counter FOR NO KEY UPDATE")
        decider = Decider(before={2: lambda _: rival.execute("COMMIT")})
        with batcher(decider) as target:
            assert target.submit_sync(Note("patient"), TIMEOUT_MS) == 1
    assert decider.batches == [["patient"], ["patient"]]
    assert decider.lookups == [["patient"]]
    assert written_notes() == ["patient"]


def test_a_lock_that_is_never_released_is_busy_for_each_request_and_changes_nothing() -> None:
    gate, decider = gated()
    with batcher(decider) as target, connect() as rival:
        first = BackgroundCall(lambda: target.submit_sync(Note("first"), TIMEOUT_MS))
        gate.wait_until_reached()
        callers = submit_in_order(target, notes(3))
        decider.before[2] = lambda _: rival.execute("BEGIN; SELECT value FROM batch_counter FOR NO KEY UPDATE")
        gate.open()
        assert first.result() == 1
        errors = [caller.error() for caller in callers]
        rival.execute("ROLLBACK")
        assert target.submit_sync(Note("after"), TIMEOUT_MS) == 2
    assert [type(error) for error in errors] == [problems.Busy] * 3
    assert len({id(error) for error in errors}) == 3
    assert len(decider.batches) == 4
    assert written_notes() == ["first", "after"]


def test_the_victim_of_a_deadlock_is_decided_again() -> None:
    """The batch has locked the counter and waits for the notes, which a rival has locked; the rival then wants the
    counter.

    PostgreSQL cancels the transaction that first detects the deadlock after a second of waiting: the batch. On a busy
    machine it may be the rival; the round is then repeated.
    """
    attempts: list[str] = []

    def cross(connection: Connection, requests: Sequence[Note]) -> list[int]:
        attempts.append(requests[0].text)
        if attempts.count(requests[0].text) == 1:
            with transactions.write_on(connection, lock_ms=TIMEOUT_MS) as cursor:
                cursor.execute("SELECT value FROM batch_counter FOR NO KEY UPDATE")
                cursor.execute("LOCK TABLE batch_note")
        return write_notes(connection, requests, lock_ms=TIMEOUT_MS)

    target: Batcher[Note, int] = Batcher("crossing", cross, find_committed=find_notes)
    try:
        for note in notes(5):
            with connect() as rival, suppress(psycopg.errors.DeadlockDetected), rival.transaction():
                rival.execute("LOCK TABLE batch_note")
                caller = BackgroundCall(lambda note=note: target.submit_sync(note, TIMEOUT_MS))
                wait_until(
                    lambda: run_sql(_WAITING_FOR_LOCK, ["fairgate crossing"]) == [(1,)], "the batch waits for the rival"
                )
                rival.execute("SELECT value FROM batch_counter FOR NO KEY UPDATE")
            assert caller.result() == len(set(attempts))
            if attempts.count(note.text) == 2:
                break
        assert attempts[-2:] == [note.text] * 2
    finally:
        target.close()
    assert len(written_notes()) == len(set(attempts))


_WAITING_FOR_LOCK = (
    "SELECT count(*) FROM pg_stat_activity"
    " WHERE datname = current_database() AND application_name = %s AND wait_event_type = 'Lock'"
)


def fail_with(error: type[psycopg.Error]) -> Act:
    def fail(_: Connection) -> None:
        raise error

    return fail


TRANSIENT = [
    psycopg.errors.QueryCanceled,
    psycopg.errors.DeadlockDetected,
    psycopg.errors.TooManyConnections,
    psycopg.errors.DiskFull,
    psycopg.errors.ReadOnlySqlTransaction,
]


@pytest.mark.parametrize("error", TRANSIENT)
def test_a_transient_failure_is_retried_once_by_the_whole_batch(error: type[psycopg.Error]) -> None:
    gate, decider = gated(at_commit={1: fail_with(error)})
    with batcher(decider) as target:
        assert [caller.result() for caller in submit_as_one_batch(target, gate, notes(3))] == [2, 3, 4]
    assert [len(batch) for batch in decider.batches] == [1, 3, 3]


@pytest.mark.parametrize("error", TRANSIENT)
def test_a_repeated_transient_failure_is_busy_for_each_request_and_splits_no_batch(error: type[psycopg.Error]) -> None:
    gate, decider = gated(at_commit={1: fail_with(error), 2: fail_with(error)})
    with batcher(decider) as target:
        assert [type(caller.error()) for caller in submit_as_one_batch(target, gate, notes(3))] == [problems.Busy] * 3
    assert [len(batch) for batch in decider.batches] == [1, 3, 3]
    assert written_notes() == ["first"]


# --- connections ----------------------------------------------------------------------------------------------------


def test_a_session_killed_while_idle_does_not_fail_the_next_request() -> None:
    decider = Decider()
    with batcher(decider) as target:
        assert target.submit_sync(Note("before"), TIMEOUT_MS) == 1
        for pid in sessions_of("notes"):
            kill(pid)
        assert target.submit_sync(Note("after"), TIMEOUT_MS) == 2
    assert decider.batches == [["before"], ["after"]], "no attempt was lost"


def test_a_batch_is_retried_if_its_session_is_killed_before_the_first_write() -> None:
    gate, decider = gated(before={1: kill_connection})
    with batcher(decider) as target:
        callers = submit_as_one_batch(target, gate, notes(3))
        assert [caller.result() for caller in callers] == [2, 3, 4]
    assert decider.lookups == [["note 0", "note 1", "note 2"]]
    assert written_notes() == ["first", "note 0", "note 1", "note 2"]


@pytest.mark.parametrize("count", [1, 3])
def test_a_batch_is_retried_if_its_session_is_killed_before_its_commit(count: int) -> None:
    """All rows are written; the session dies; COMMIT fails. The lookup finds nothing, so the batch is decided again."""
    gate, decider = gated(at_commit={1: kill_connection})
    with batcher(decider) as target:
        callers = submit_as_one_batch(target, gate, notes(count))
        assert [caller.result() for caller in callers] == list(range(2, count + 2))
    assert (len(decider.batches), len(decider.lookups)) == (3, 1)
    assert len(written_notes()) == count + 1


@pytest.mark.parametrize("count", [1, 3])
def test_a_commit_whose_response_was_lost_is_found_and_not_repeated(count: int) -> None:
    gate, decider = gated(after={1: lose_connection})
    with batcher(decider) as target:
        callers = submit_as_one_batch(target, gate, notes(count))
        assert [caller.result() for caller in callers] == list(range(2, count + 2))
    assert len(decider.batches) == 2, "the first batch and this one, which was not decided again"
    assert len(decider.lookups) == 1
    assert len(written_notes()) == count + 1


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_commit_that_becomes_visible_after_the_lookup_is_still_found(count: int) -> None:
    """The connection breaks while the old session has yet to commit: the lookup finds nothing; then the old session
    commits; the retry violates the unique keys, splits, looks up again and finds every outcome. No caller gets an error
    about a duplicate."""
    slow: list[Connection] = []

    def write_elsewhere_and_die(connection: Connection) -> None:
        old = connect()
        slow.append(old)
        old.execute("BEGIN")
        for number, note in enumerate(requests):
            statement = "INSERT INTO batch_note (id, text, number) VALUES (%s, %s, %s)"
            old.execute(statement, [note.id, note.text, number + 2])
        lose_connection(connection)

    def commit_late(_: Connection) -> None:
        slow[0].execute("UPDATE batch_counter SET value = value + %s", [count])
        slow[0].execute("COMMIT")

    requests = notes(count)
    gate, decider = gated(before={1: write_elsewhere_and_die, 2: commit_late})
    with batcher(decider) as target:
        callers = submit_as_one_batch(target, gate, requests)
        assert [caller.result() for caller in callers] == list(range(2, count + 2))
    slow[0].close()
    assert written_notes() == ["first", *(note.text for note in requests)]


def test_a_connection_lost_twice_leaves_the_outcome_unknown_and_the_batcher_usable() -> None:
    gate, decider = gated(before={1: kill_connection, 2: kill_connection})
    with batcher(decider) as target:
        callers = submit_as_one_batch(target, gate, notes(2))
        assert [type(caller.error()) for caller in callers] == [OutcomeUnknown] * 2
        assert target.submit_sync(Note("next"), TIMEOUT_MS) == 2
    assert written_notes() == ["first", "next"]


def test_a_decide_that_fails_in_its_second_transaction_does_not_repeat_the_first() -> None:
    """One transaction writes the short notes, the next the long ones and the poison. A retry finds the short notes."""
    batches: list[list[str]] = []
    gate = Breakpoint()

    def in_two(connection: Connection, requests: Sequence[Note]) -> list[int]:
        batches.append([note.text for note in requests])
        if len(batches) == 1:
            gate.arrive_and_wait()
        numbers: dict[Note, int] = {}
        for part in (
            [note for note in requests if len(note.text) == 1 and note.text != POISON],
            [note for note in requests if len(note.text) > 1 or note.text == POISON],
        ):
            if part:
                numbers |= dict(zip(part, write_notes(connection, part), strict=True))
        return [numbers[note] for note in requests]

    target: Batcher[Note, int] = Batcher("twofold", in_two, find_committed=find_notes)
    try:
        callers = submit_as_one_batch(target, gate, [Note("a"), Note("long"), Note(POISON), Note("b")])
        assert [callers[number].result() for number in (0, 3, 1)] == [2, 3, 4]
        assert isinstance(callers[2].error(), psycopg.DataError)
    finally:
        target.close()
    assert batches[:2] == [["first"], ["a", "long", POISON, "b"]]
    assert batches[2:] == [["long"], [POISON]], "the requests that the first transaction committed were found"
    assert written_notes() == ["first", "a", "b", "long"]


# --- the database restarts ------------------------------------------------------------------------------------------


@pytest.fixture
def folder() -> Iterator[ServerFolder]:
    folder, end = temporary_server_folder()
    yield folder
    end()


@pytest.mark.slow
def test_the_database_restarts_during_a_batch_and_is_later_down_for_a_while(folder: ServerFolder) -> None:
    """The server restarts while a batch runs; the batch is decided once, on a new session. Later the server is down:
    the callers get DatabaseUnavailable, and nothing has changed. When it is up again, a retry succeeds."""

    def start(port: int | None = None) -> postgres.Postgres:
        passwords = {"password": "Secret1", "superuser_password": "Secret2"}
        return postgres.start(folder, **passwords, settings=postgres.DISPOSABLE, preferred_port=port)

    def restart(_: Connection) -> None:
        assert start(cluster.port).port == cluster.port

    cluster = start()
    database = {"PORT": cluster.port, "USER": postgres.OWNER, "PASSWORD": cluster.password, "NAME": postgres.OWNER}
    gate, decider = gated(at_commit={1: restart})
    with elsewhere(HOST="127.0.0.1", **database):
        make_tables()
        with batcher(decider, connect_ms=TIMEOUT_MS) as target:
            callers = submit_as_one_batch(target, gate, notes(3))
            assert [caller.result() for caller in callers] == [2, 3, 4]
        with batcher(connect_ms=1_000) as target:
            assert target.submit_sync(Note("before"), TIMEOUT_MS) == 5
            cluster.stop()
            with pytest.raises(problems.DatabaseUnavailable):
                target.submit_sync(Note("nothing there"), TIMEOUT_MS)
            start(cluster.port)
            assert submit_until_decided(target, Note("after")) == 6
        assert written_notes() == ["first", "note 0", "note 1", "note 2", "before", "after"]


@contextmanager
def elsewhere(**folder: Any) -> Iterator[None]:
    """Django's settings name another database for every connection that is made in the block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(connections.settings, "default", {**connections.settings["default"], **folder})
        yield


def submit_until_decided(target: Batcher[Note, int], note: Note) -> int:
    """Submit the note as a client does that retries while the database is unavailable."""
    for _ in range(20):
        try:
            return target.submit_sync(note, TIMEOUT_MS)
        except problems.DatabaseUnavailable:
            continue
    raise AssertionError("the batcher did not recover")


def test_while_the_database_is_down_all_waiting_requests_fail_together() -> None:
    """One timeout for all, not one for each batch; and no outcome is unknown."""
    decider, gate = Decider(), Breakpoint()

    class Slow(Batcher[Note, int]):
        def _dequeue(self, keys: Any, now: float) -> list[Any]:
            calls = super()._dequeue(keys, now)
            if calls:
                gate.arrive_and_wait()
            return calls

    target = Slow("away", decider, find_committed=decider.find, batch_max=1, connect_ms=500)
    try:
        with elsewhere(PASSWORD="wrong"):
            first = BackgroundCall(lambda: target.submit_sync(Note("first"), TIMEOUT_MS))
            gate.wait_until_reached()
        callers = [first, *submit_in_order(target, notes(3))]
        gate.open()
        errors = [caller.error() for caller in callers]
    finally:
        target.close()
    assert [type(error) for error in errors] == [problems.DatabaseUnavailable] * 4
    assert len({id(error) for error in errors}) == 4
    assert decider.batches == []
