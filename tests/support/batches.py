"""Building blocks of group commit tests: numbered notes, a decide function that writes them, and breakpoints instead of
sleeps."""

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from django.db import connections

from apps.kernel.db import transactions
from apps.kernel.group_commit.batcher import Batcher

SECONDS_MAX = 20
TIMEOUT_MS = SECONDS_MAX * 1_000

Act = Callable[[psycopg.Connection[Any]], object]


@dataclass(frozen=True)
class Note:
    text: str
    id: uuid.UUID = field(default_factory=uuid.uuid4)


def notes(count: int) -> list[Note]:
    return [Note(f"note {number}") for number in range(count)]


def connect() -> psycopg.Connection[Any]:
    """Open a connection independent of Django's, also usable on an event loop's thread, where Django would refuse."""
    return psycopg.connect(**connections.create_connection("default").get_connection_params(), autocommit=True)


def run_sql(statement: str, params: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    with connect() as connection:
        cursor = connection.execute(statement, params)
        return cursor.fetchall() if cursor.description else []


def make_tables() -> None:
    """Create one hot row, the counter, and the table of the notes that it numbers."""
    run_sql("CREATE TABLE batch_counter (value integer NOT NULL)")
    run_sql("CREATE TABLE batch_note (id uuid PRIMARY KEY, text text NOT NULL, number integer NOT NULL UNIQUE)")
    run_sql("INSERT INTO batch_counter VALUES (0)")


def written_notes() -> list[str]:
    """Return the notes in the order of their numbers; assert that the counter equals their count and that no number is
    missing."""
    rows = run_sql("SELECT text, number FROM batch_note ORDER BY number")
    ((counted,),) = run_sql("SELECT value FROM batch_counter")
    assert [number for _, number in rows] == list(range(1, counted + 1))
    return [text for text, _ in rows]


def write_notes(
    connection: psycopg.Connection[Any],
    requests: Sequence[Note],
    *,
    lock_ms: int = 200,
    at_commit: Callable[[psycopg.Connection[Any]], object] = lambda _: None,
) -> list[int]:
    """Give every note the next number: one hot row, locked first, one aggregated update."""
    with transactions.write_on(connection, lock_ms=lock_ms) as cursor:
        cursor.execute("SELECT value FROM batch_counter FOR NO KEY UPDATE")
        ((value,),) = cursor.fetchall()
        numbers = list(range(value + 1, value + 1 + len(requests)))
        cursor.execute("UPDATE batch_counter SET value = value + %s", [len(requests)])
        assert cursor.rowcount == 1
        cursor.execute(
            "INSERT INTO batch_note (id, text, number) SELECT * FROM unnest(%s::uuid[], %s::text[], %s::integer[])",
            [[note.id for note in requests], [note.text for note in requests], numbers],
        )
        at_commit(connection)
    return numbers


def find_notes(connection: psycopg.Connection[Any], requests: Sequence[Note]) -> Mapping[int, int]:
    with transactions.write_on(connection) as cursor:
        cursor.execute("SELECT id, number FROM batch_note WHERE id = ANY(%s)", [[note.id for note in requests]])
        found = dict(cursor.fetchall())
    return {index: found[note.id] for index, note in enumerate(requests) if note.id in found}


class Breakpoint:
    """A line that a thread reaches and waits at until the test opens it."""

    def __init__(self) -> None:
        self._reached, self._opened = threading.Semaphore(0), threading.Semaphore(0)

    def arrive_and_wait(self) -> None:
        self._reached.release()
        assert self._opened.acquire(timeout=SECONDS_MAX), "the breakpoint was never opened"

    def wait_until_reached(self) -> None:
        assert self._reached.acquire(timeout=SECONDS_MAX), "no thread reached the breakpoint"

    def open(self) -> None:
        self._opened.release()


@dataclass
class Decider:
    """Writes notes, records the batches, and runs a test's act in its n-th attempt (from 1): `before` the transaction,
    `at_commit` when all but the COMMIT is done, or `after` the transaction."""

    before: dict[int, Act] = field(default_factory=dict)
    at_commit: dict[int, Act] = field(default_factory=dict)
    after: dict[int, Act] = field(default_factory=dict)
    batches: list[list[str]] = field(default_factory=list)
    lookups: list[list[str]] = field(default_factory=list)

    def __call__(self, connection: psycopg.Connection[Any], requests: Sequence[Note]) -> list[int]:
        self.batches.append([note.text for note in requests])
        number = len(self.batches)
        self.before.get(number, lambda _: None)(connection)
        numbers = write_notes(connection, requests, at_commit=self.at_commit.get(number, lambda _: None))
        self.after.get(number, lambda _: None)(connection)
        return numbers

    def find(self, connection: psycopg.Connection[Any], requests: Sequence[Note]) -> Mapping[int, int]:
        self.lookups.append([note.text for note in requests])
        return find_notes(connection, requests)


@contextmanager
def batcher(decider: Any = None, **limits: Any) -> Iterator[Batcher[Note, int]]:
    """Yield a batcher of notes; its threads and sessions have ended when the block ends."""
    decider = decider or Decider()
    created: Batcher[Note, int] = Batcher("notes", decider, find_committed=decider.find, **limits)
    try:
        yield created
    finally:
        created.close(drain=False)
        assert threads_of("notes") == []
        wait_until(lambda: not sessions_of("notes"), "its sessions are gone")


def threads_of(name: str) -> list[str]:
    return [thread.name for thread in threading.enumerate() if name in thread.name]


def sessions_of(name: str) -> list[int]:
    # Of this database: a parallel run has the same names in another database of the same server.
    of_here = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = %s"
    rows = run_sql(of_here, [f"fairgate {name}"])
    return [pid for (pid,) in rows]


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Return once `holds()` is true. Raises AssertionError if it never is."""
    deadline, pause = time.monotonic() + SECONDS_MAX, threading.Event()
    while not holds():
        assert time.monotonic() < deadline, f"never: {what}"
        pause.wait(0.002)


def wait_until_exited(threads: Collection[threading.Thread]) -> None:
    """Return once the system has ended these threads. Before Python 3.13, a join returns slightly earlier: the thread
    may still hold a lock of OpenSSL, whose copy in a process that is forked then is never released."""
    # A system without /proc has no such files, so there is nothing to wait for.
    tasks = [Path(f"/proc/self/task/{thread.native_id}") for thread in threads]
    wait_until(lambda: not any(task.exists() for task in tasks), f"{len(tasks)} threads have exited")


async def wait_until_queued(batcher: Batcher[Any, Any], count: int, tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Return once `count` requests wait in the batcher, while the event loop runs."""
    deadline = time.monotonic() + SECONDS_MAX
    while batcher.waiting_count != count:
        assert time.monotonic() < deadline, f"never {count} waiting, but {batcher.waiting_count}"
        await asyncio.wait(tasks, timeout=0.002)


class BackgroundCall:
    """A call running in its own thread, without any connection."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, args=(act,), name="aside", daemon=True)
        self._thread.start()

    def _run(self, act: Callable[[], Any]) -> None:
        try:
            self._value = act()
        except BaseException as error:  # Any exception is the outcome of the call.
            self._error = error

    def result(self) -> Any:
        self._thread.join(SECONDS_MAX)
        assert not self._thread.is_alive(), "still running"
        if self._error is not None:
            raise self._error
        return self._value

    def error(self) -> BaseException:
        self._thread.join(SECONDS_MAX)
        assert self._error is not None, f"it returned {self._value}"
        return self._error


def submit_in_order(
    batcher: Batcher[Note, int], requests: Sequence[Note], timeout_ms: int = TIMEOUT_MS
) -> list[BackgroundCall]:
    """Submit each request in its own thread, once the one before it is waiting."""
    callers = []
    for request in requests:
        waiting = batcher.waiting_count
        callers.append(BackgroundCall(lambda request=request: batcher.submit_sync(request, timeout_ms)))
        wait_until(lambda waiting=waiting: batcher.waiting_count == waiting + 1, f"{request.text} waits")
    return callers
