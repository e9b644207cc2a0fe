"""Deliberate races: many threads behind a barrier, and a rival that acts at a named line.

Every wait is bounded: a race that hangs fails with the names of the threads that hang.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

from apps.kernel.db import sql

STORM_SECONDS_MAX = 60
RIVAL_SECONDS_MAX = 10


@dataclass(frozen=True)
class Outcome:
    """The outcome of one thread of a storm: its value, or the exception that ended it."""

    number: int
    value: Any = None
    error: BaseException | None = None


def storm(n: int, act: Callable[[int], Any], *, seconds_max: float = STORM_SECONDS_MAX) -> list[Outcome]:
    """Call `act(0)` … `act(n - 1)` at the same moment, each in a thread with its own connections.

    Return one outcome per thread in order; an exception is an outcome. Raises AssertionError if a thread has not
    finished after `seconds_max`. Each thread opens its connection before the barrier, so that connecting does not
    spread the start.
    """
    barrier = threading.Barrier(n)
    outcomes: list[Outcome | None] = [None] * n

    def take_part(number: int) -> None:
        has_started = False
        try:
            connections["default"].ensure_connection()
            barrier.wait(timeout=seconds_max)
            has_started = True
            outcomes[number] = Outcome(number, value=act(number))
        except BaseException as error:  # Any exception is the outcome of the thread.
            outcomes[number] = Outcome(number, error=error)
            if not has_started:
                # The others must not wait for it. Past the barrier, this would also break the wait of threads that the
                # barrier has released but that have not run since.
                barrier.abort()
        finally:
            connections.close_all()

    threads = [
        threading.Thread(target=take_part, args=(number,), name=f"storm-{number}", daemon=True) for number in range(n)
    ]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds_max
    for thread in threads:
        thread.join(timeout=max(0.0, deadline - time.monotonic()))
    hanging = [thread.name for thread in threads if thread.is_alive()]
    assert not hanging, f"still running after {seconds_max} s: {hanging}"
    return [outcome for outcome in outcomes if outcome is not None]


def values(outcomes: list[Outcome]) -> list[Any]:
    """Return what the threads returned; raise the first exception if any thread ended with one."""
    for outcome in outcomes:
        if outcome.error is not None:
            raise outcome.error
    return [outcome.value for outcome in outcomes]


@contextmanager
def rival_connection() -> Iterator[BaseDatabaseWrapper]:
    """Yield a second connection, for statements of its own; it is closed afterwards."""
    rival = connections.create_connection("default")
    try:
        yield rival
    finally:
        rival.close()


def in_another_connection(act: Callable[[], Any], *, seconds_max: float = STORM_SECONDS_MAX) -> Any:
    """Run `act` to its end in a thread with its own connections; return its value or raise its exception.

    This is how a rival commits in the middle of another transaction.
    """
    return values(storm(1, lambda _: act(), seconds_max=seconds_max))[0]


@dataclass
class Rival:
    """A rival act that waits for its moment. `has_run` is true once it has started; `result` is what the act
    returned."""

    has_run: bool = False
    result: Any = None


@contextmanager
def rival_at(statement: str, moment: Literal["before", "after"], act: Callable[[], Any]) -> Iterator[Rival]:
    """Run a rival act, in another connection and to its end, right before or after the named SQL file first runs.

    Only the thread that opens the block is watched, so the rival may run the same statement itself. Fails at the end of
    the block if the statement never ran: such a test would show nothing. A rival that waits for a lock of this thread
    would never end; it fails after RIVAL_SECONDS_MAX, or sooner by its own lock timeout.
    """
    rival, watched = Rival(), threading.get_ident()

    def observer(name: str, when: str) -> None:
        if threading.get_ident() != watched or rival.has_run or (name, when) != (statement, moment):
            return
        rival.has_run = True
        rival.result = in_another_connection(act, seconds_max=RIVAL_SECONDS_MAX)

    with sql.observe(observer):
        yield rival
    assert rival.has_run, f"{statement}.sql never ran, so the rival did not run"


@contextmanager
def run_at(statement: str, moment: Literal["before", "after"], act: Callable[[], Any]) -> Iterator[None]:
    """Run `act` in this thread right before or after the named SQL file first runs, for example to start a rival that
    will have to wait for this thread. Fails at the end of the block if the statement never ran."""
    has_run, watched = False, threading.get_ident()

    def observer(name: str, when: str) -> None:
        nonlocal has_run
        if threading.get_ident() != watched or has_run or (name, when) != (statement, moment):
            return
        has_run = True
        act()

    with sql.observe(observer):
        yield
    assert has_run, f"{statement}.sql never ran, so the act did not run"


class ConcurrentCall:
    """An act running in a thread with its own connections, which may have to wait for this thread's locks."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._outcome: Outcome | None = None
        self._connected = threading.Event()
        self._pid = 0
        self._thread = threading.Thread(target=self._run, args=(act,), name="beside", daemon=True)
        self._thread.start()
        assert self._connected.wait(timeout=RIVAL_SECONDS_MAX), "the rival could not connect"

    def _run(self, act: Callable[[], Any]) -> None:
        try:
            connections["default"].ensure_connection()
            self._pid = connections["default"].connection.info.backend_pid
            self._connected.set()
            self._outcome = Outcome(0, value=act())
        except BaseException as error:  # Any exception is the outcome of the call.
            self._outcome = Outcome(0, error=error)
        finally:
            connections.close_all()

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def wait_until_blocked(self) -> "ConcurrentCall":
        """Return itself as soon as PostgreSQL reports that it waits for another session's lock. Raises AssertionError
        if it ends without ever waiting."""
        deadline = time.monotonic() + RIVAL_SECONDS_MAX
        with rival_connection() as watcher, watcher.cursor() as cursor:
            while time.monotonic() < deadline:
                assert self._thread.is_alive(), f"it ended without waiting: {self._outcome}"
                cursor.execute("SELECT cardinality(pg_blocking_pids(%s))", [self._pid])
                if cursor.fetchone()[0]:
                    return self
                self._thread.join(timeout=0.002)
        raise AssertionError(f"it waited for no lock within {RIVAL_SECONDS_MAX} s")

    def outcome(self) -> Outcome:
        """Return its outcome. Raises AssertionError if it does not end in time."""
        self._thread.join(timeout=RIVAL_SECONDS_MAX)
        assert self._outcome is not None, f"still running after {RIVAL_SECONDS_MAX} s"
        return self._outcome

    def result(self) -> Any:
        """Return its value, or raise the exception that ended it."""
        return values([self.outcome()])[0]


class WaitingRival:
    """A rival that started at its moment and has to wait for this thread; read its result after the commit."""

    def __init__(self) -> None:
        self.beside: ConcurrentCall | None = None

    def result(self) -> Any:
        """Return its value, or raise the exception that ended it."""
        assert self.beside is not None, "the rival has not started yet"
        return self.beside.result()


@contextmanager
def rival_waiting_at(
    statement: str, moment: Literal["before", "after"], act: Callable[[], Any]
) -> Iterator[WaitingRival]:
    """Start a rival right before or after the named SQL file first runs; this thread continues once the rival waits for
    its lock."""
    rival = WaitingRival()

    def start_rival() -> None:
        rival.beside = ConcurrentCall(act).wait_until_blocked()

    with run_at(statement, moment, start_rival):
        yield rival


@contextmanager
def statements() -> Iterator[list[str]]:
    """Yield the names of the SQL files that this thread runs in the block, in order: for tests of shape."""
    seen: list[str] = []
    watched = threading.get_ident()

    def observer(name: str, when: str) -> None:
        if when == "before" and threading.get_ident() == watched:
            seen.append(name)

    with sql.observe(observer):
        yield seen
