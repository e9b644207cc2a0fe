"""Health signals: measurements of each process, shared with the others through PostgreSQL.

A signal is declared once, by the module that evaluates it, and observed where the work is done. An observation is
appended to a bounded window in memory and can neither slow down the measured request nor make it fail. A background
thread writes the statistic of each window into one row per signal and process, about once a second and only after new
measurements. The row of a process that measures nothing grows old, and old rows are ignored.
"""

import atexit
import heapq
import logging
import math
import os
import socket
import threading
import time
import weakref
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import psycopg
from django.db import connection
from psycopg import Connection
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from apps.kernel.db import pools, sql, transactions
from apps.kernel.observability import log_context

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
WINDOW_SECONDS = 10.0
WINDOW_MAX = 2_048
"""Measurements of one signal that a process keeps. Beyond about 200 a second, its window covers less time."""
SUBJECTS_MAX = 100
"""Subjects of one signal that a process reports."""
NAME_MAX = 40
CONNECT_MS = 1_000
LOCK_MS = 500
STATEMENT_MS = 1_000
KEPT_SECONDS = 3_600

Statistic = Callable[[Sequence[float]], float]

_report = sql.load("apps.kernel", "store_signals")
_latest = sql.load("apps.kernel", "latest_signals")
_forget = sql.load("apps.kernel", "delete_old_signals")
_count_lock_waits = sql.load("apps.kernel", "count_lock_waits")


def percentile_95(values: Sequence[float]) -> float:
    """Return the smallest value that at least 95 % of the values do not exceed."""
    return sorted(values)[math.ceil(len(values) * 0.95) - 1]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


@dataclass(frozen=True, slots=True)
class Reading:
    """A process's report of one signal: its statistic, and the number of measurements."""

    value: float
    count: int
    process: str


class Reporter:
    """Reports the signals of one process. Nothing is written before `begin()`: servers call it, commands do not."""

    def __init__(self, *, interval_seconds: float = INTERVAL_SECONDS, connect_ms: int = CONNECT_MS) -> None:
        self._interval_seconds = interval_seconds
        self._connect_ms = connect_ms
        self._signals: dict[str, HealthSignal] = {}
        self._is_reporting = False
        self._has_database = True
        self._pool: ConnectionPool[Connection[Any]] | None = None
        self._reset()
        _reporters.add(self)

    def _reset(self) -> None:
        self._changing = threading.Lock()
        self._forget_thread()

    def _forget_thread(self) -> None:
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._news = threading.Event()

    def add(self, signal: "HealthSignal") -> None:
        if signal.name in self._signals:
            raise ValueError(f"signal {signal.name} is declared twice")
        self._signals[signal.name] = signal

    def begin(self) -> None:
        """Start reporting. The thread starts with the first measurement, so a server may call this before it forks."""
        self._is_reporting = True
        if self._news.is_set():
            self._start_thread()

    def note(self) -> None:
        """Schedule a report of new measurements. Called while a request is served; never raises."""
        if self._news.is_set():
            return
        self._news.set()
        if self._is_reporting and self._thread is None:
            self._start_thread()

    def _start_thread(self) -> None:
        with self._changing:
            if self._thread is not None or not self._is_reporting:  # close() may have run since the caller looked.
                return
            thread = threading.Thread(
                target=self._run, args=(self._stopping, self._news), name="health-signals", daemon=True
            )
            try:
                thread.start()
            except RuntimeError as error:  # For example, no thread can start while the process is ending.
                logger.warning("health signals are not reported: %s", error)
                return
            self._thread = thread
            atexit.register(self.close)

    def _run(self, stopping: threading.Event, news: threading.Event) -> None:
        while not stopping.is_set():
            news.wait()
            self.report()
            stopping.wait(self._interval_seconds)

    def report(self) -> int:
        """Write the measurements since the last report to PostgreSQL, and return the number of signals.

        They are dropped while PostgreSQL is unavailable, which is logged once. Never raises.
        """
        # Cleared before the windows are read: later observations set it again.
        self._news.clear()
        measured = [measurement for signal in list(self._signals.values()) for measurement in signal.take()]
        if not measured:
            return 0
        try:
            self._write(measured)
        except (psycopg.Error, PoolTimeout, PoolClosed) as error:
            if self._has_database:
                logger.warning(
                    "health signals are dropped until the database answers: %s", log_context.summarize_error(error)
                )
            self._has_database = False
            return 0
        except Exception:
            logger.exception("health signals were not reported")
            return 0
        if not self._has_database:
            logger.warning("health signals are reported again")
        self._has_database = True
        return len(measured)

    def _write(self, measured: list[tuple[str, float, int]]) -> None:
        if self._pool is None:
            self._pool = pools.create_pool("health signals", size_max=1, connect_ms=self._connect_ms)
            self._pool.open()
        names, values, counts = (list(column) for column in zip(*measured, strict=True))
        process = f"{socket.gethostname()}:{os.getpid()}"[-80:]
        with (
            self._pool.connection() as on,
            transactions.write_on(on, lock_ms=LOCK_MS, statement_ms=STATEMENT_MS) as cursor,
        ):
            _report.count(cursor, process=process, names=names, values=values, counts=counts)

    def close(self) -> None:
        """Stop the thread and close the connection; nothing is reported before the next `begin()`."""
        with self._changing:
            self._is_reporting = False
            self._stopping.set()
            self._news.set()
            thread = self._thread
            self._forget_thread()
        if thread is not None:
            thread.join(timeout=5)
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
        atexit.unregister(self.close)

    def after_fork(self) -> None:
        """Reset the child after a fork: the parent's measurements, thread and connection belong to the parent."""
        if self._pool is not None:
            # Kept unused, as in group_commit.batcher: the pool's destructor would close the parent's connection.
            self._pool._closed = True
            _inherited.append(self._pool)
            self._pool = None
        self._reset()
        for signal in self._signals.values():
            signal.forget()


_reporters: weakref.WeakSet[Reporter] = weakref.WeakSet()
_inherited: list[object] = []


def _after_fork() -> None:
    for reporter in _reporters:
        reporter.after_fork()


os.register_at_fork(after_in_child=_after_fork)
_of_this_process = Reporter()


class HealthSignal:
    """One health signal: the latest measurements in this process, and their statistic."""

    def __init__(
        self,
        name: str,
        statistic: Statistic,
        *,
        window_seconds: float = WINDOW_SECONDS,
        reporter: Reporter = _of_this_process,
    ) -> None:
        if not 0 < len(name) <= NAME_MAX:
            raise ValueError(f"a signal's name must have 1 to {NAME_MAX} characters")
        self.name = name
        self._statistic = statistic
        self._window_seconds = window_seconds
        self._reporter = reporter
        self.forget()
        reporter.add(self)

    def forget(self) -> None:
        """Drop all measurements."""
        self._lock = threading.Lock()
        self._window: deque[tuple[float, float, str, str]] = deque(maxlen=WINDOW_MAX)
        self._has_news = False

    def observe(self, value: float, source: str = "", subject: str = "") -> None:
        """Add a measurement. Each subject, for example an event, has a statistic of its own (`name_of`). The
        measurements of one source, unless it is empty, count as one: their median. For any thread; costs a microsecond
        at most and never raises."""
        with self._lock:
            self._window.append((time.monotonic(), value, source, subject))
            self._has_news = True
        self._reporter.note()

    def name_of(self, subject: str) -> str:
        """Return the name under which the statistic of this subject is reported."""
        return f"{self.name} {subject}" if subject else self.name

    def take(self) -> list[tuple[str, float, int]]:
        """Return the name, the statistic and the number of measurements of each subject, of the SUBJECTS_MAX with the
        most measurements; nothing if there is no new measurement."""
        with self._lock:
            if not self._has_news:
                return []
            self._has_news = False
            window = list(self._window)  # Only the copy is made under the lock, since requests wait for it.
        begun = time.monotonic() - self._window_seconds
        of_subjects: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        for at, value, source, subject in window:
            if at >= begun and math.isfinite(value):
                of_subjects[subject].append((value, source))
        most = heapq.nlargest(SUBJECTS_MAX, of_subjects.items(), key=lambda one: len(one[1]))
        values = [(self.name_of(subject), _one_per_source(found)) for subject, found in most]
        # Always a float: all signals share one array, and PostgreSQL accepts no mixed array.
        return [(name, float(self._statistic(found)), len(found)) for name, found in values]


def _one_per_source(measurements: Iterable[tuple[float, str]]) -> list[float]:
    """Return the values without a source, and the median of each source."""
    values: list[float] = []
    of_sources: defaultdict[str, list[float]] = defaultdict(list)
    for value, source in measurements:
        (of_sources[source] if source else values).append(value)
    return values + [median(found) for found in of_sources.values()]


begin, end, report = _of_this_process.begin, _of_this_process.close, _of_this_process.report


def latest(*, max_age_seconds: float, count_min: int = 1) -> dict[str, Reading]:
    """Return, by signal, the worst report within `max_age_seconds` that has at least `count_min` measurements."""
    with connection.cursor() as cursor:
        rows = _latest.rows(cursor, max_age_seconds=max_age_seconds, count_min=count_min)
    return {name: Reading(value, count, process) for name, value, count, process in rows}


def count_lock_waits(*, longer_than_ms: int) -> int:
    """Return how many sessions of our database have waited longer than this for another session's lock."""
    with connection.cursor() as cursor:
        ((count,),) = _count_lock_waits.rows(cursor, longer_than_ms=longer_than_ms)
    return count


def forget_old() -> int:
    """Delete the rows of processes that have ended; return how many."""
    with transactions.write(), connection.cursor() as cursor:
        return _forget.count(cursor, kept_seconds=KEPT_SECONDS)
