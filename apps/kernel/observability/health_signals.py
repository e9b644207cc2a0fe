"""Vital signs: measured where the work is done, known to every process that can reach PostgreSQL.

A sign is declared once, by whoever judges it, and observed by whoever does the work. Observing only appends to a
bounded window in memory: nothing in it can slow or fail the request that is measured. A thread beside the requests
writes what each window comes to into one row per sign and process, about each second and only while there is news. A
process that measures nothing writes nothing, so its row grows old, and old rows say nothing.
"""

import atexit
import logging
import math
import os
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
"""Measurements of one sign that a process remembers: above some 200 a second the window gets shorter, not larger."""
NAME_MAX = 40
CONNECT_MS = 1_000
LOCK_MS = 500
STATEMENT_MS = 1_000
KEPT_SECONDS = 3_600

Statistic = Callable[[Sequence[float]], float]

_package = "apps.kernel"
_report = sql.load(_package, "report_signs")
_latest = sql.load(_package, "latest_signs")
_forget = sql.load(_package, "forget_signs")
_count_lock_waits = sql.load(_package, "count_lock_waits")


def percentile_95(values: Sequence[float]) -> float:
    """The smallest of the values that 95 % of them do not exceed."""
    return sorted(values)[math.ceil(len(values) * 0.95) - 1]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


@dataclass(frozen=True, slots=True)
class Reading:
    """What a process reported of a sign, and of how many measurements."""

    value: float
    count: int
    process: str


class Reporter:
    """One process's reports. Nothing is written before `begin()`: who serves reports, a command or a test does not."""

    def __init__(self, *, interval_seconds: float = INTERVAL_SECONDS, connect_ms: int = CONNECT_MS) -> None:
        self._interval_seconds = interval_seconds
        self._connect_ms = connect_ms
        self._signs: dict[str, HealthSignal] = {}
        self._reports = False
        self._has_database = True
        self._pool: ConnectionPool[Connection[Any]] | None = None
        self._reset()
        _reporters.add(self)

    def _reset(self) -> None:
        self._changing = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._news = threading.Event()

    def add(self, sign: "HealthSignal") -> None:
        if sign.name in self._signs:
            raise ValueError(f"sign {sign.name} is declared twice")
        self._signs[sign.name] = sign

    def begin(self) -> None:
        """From now on this process reports what it measures. Its thread begins with the first measurement, so a server
        may begin before it forks."""
        self._reports = True
        if self._news.is_set():
            self._start_thread()

    def note(self) -> None:
        """There is something to report. In the request's path: it never raises."""
        if self._news.is_set():
            return
        self._news.set()
        if self._reports and self._thread is None:
            self._start_thread()

    def _start_thread(self) -> None:
        with self._changing:
            if self._thread is not None or self._stopping.is_set():
                return
            thread = threading.Thread(target=self._run, name="vital-signs", daemon=True)
            try:
                thread.start()
            except RuntimeError as error:  # No thread can be had, at the end of the process for one.
                logger.warning("vital signs are not reported: %s", error)
                return
            self._thread = thread
            atexit.register(self.close)

    def _run(self) -> None:
        stopping, news = self._stopping, self._news
        while not stopping.is_set():
            news.wait()
            self.report()
            stopping.wait(self._interval_seconds)

    def report(self) -> int:
        """What was measured since the last report is in PostgreSQL, or lost if that is away; how many signs. Never
        raises, and says an outage once."""
        # Before the windows are read: what is observed from here on is news again.
        self._news.clear()
        measured = [sign.take() for sign in list(self._signs.values())]
        news = [one for one in measured if one is not None]
        if not news:
            return 0
        try:
            self._write(news)
        except (psycopg.Error, PoolTimeout, PoolClosed) as error:
            if self._has_database:
                logger.warning(
                    "vital signs are dropped until the database answers: %s", log_context.summarize_error(error)
                )
            self._has_database = False
            return 0
        except Exception:
            logger.exception("vital signs: this report failed")
            return 0
        if not self._has_database:
            logger.warning("vital signs are reported again")
        self._has_database = True
        return len(news)

    def _write(self, news: list[tuple[str, float, int]]) -> None:
        if self._pool is None:
            self._pool = pools.create_pool("vital signs", size_max=1, connect_ms=self._connect_ms)
            self._pool.open()
        names, values, counts = (list(column) for column in zip(*news, strict=True))
        process = f"{socket.gethostname()}:{os.getpid()}"[-80:]
        with (
            self._pool.connection() as on,
            transactions.write_on(on, lock_ms=LOCK_MS, statement_ms=STATEMENT_MS) as cursor,
        ):
            _report.count(cursor, process=process, names=names, values=values, counts=counts)

    def close(self) -> None:
        """No thread and no connection are left, and nothing is reported before the next `begin()`."""
        self._reports = False
        self._stopping.set()
        self._news.set()
        thread = self._thread
        self._reset()
        if thread is not None:
            thread.join(timeout=5)
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()
        atexit.unregister(self.close)

    def after_fork(self) -> None:
        """In the child: nothing of the parent's is here but what it measured, and that is the parent's to report."""
        if self._pool is not None:
            # Kept and never touched, as in group_commit.batcher: collected, it would say goodbye over the parent's
            # socket.
            self._pool._closed = True
            _inherited.append(self._pool)
            self._pool = None
        self._reset()
        for sign in self._signs.values():
            sign.forget()


_reporters: weakref.WeakSet[Reporter] = weakref.WeakSet()
_inherited: list[object] = []


def _after_fork() -> None:
    for reporter in _reporters:
        reporter.after_fork()


os.register_at_fork(after_in_child=_after_fork)
_of_this_process = Reporter()


class HealthSignal:
    """One vital sign: its latest measurements in this process, and what they come to."""

    def __init__(
        self,
        name: str,
        statistic: Statistic,
        *,
        window_seconds: float = WINDOW_SECONDS,
        reporter: Reporter = _of_this_process,
    ) -> None:
        if not 0 < len(name) <= NAME_MAX:
            raise ValueError(f"a sign's name has 1 to {NAME_MAX} characters")
        self.name = name
        self._statistic = statistic
        self._window_seconds = window_seconds
        self._reporter = reporter
        self.forget()
        reporter.add(self)

    def forget(self) -> None:
        """As if nothing had been measured."""
        self._lock = threading.Lock()
        self._window: deque[tuple[float, float]] = deque(maxlen=WINDOW_MAX)
        self._has_news = False

    def observe(self, value: float) -> None:
        """One more measurement, from any thread. A microsecond at most, and it never raises."""
        with self._lock:
            self._window.append((time.monotonic(), value))
            self._has_news = True
        self._reporter.note()

    def take(self) -> tuple[str, float, int] | None:
        """The name, what the window comes to and of how many measurements; None if there was none since last time."""
        with self._lock:
            if not self._has_news:
                return None
            self._has_news = False
            window = list(self._window)  # No more than this with the lock: requests wait for it.
        begun = time.monotonic() - self._window_seconds
        values = [value for at, value in window if at >= begun and math.isfinite(value)]
        # A float in any case: PostgreSQL takes no array of mixed numbers, and all signs go in one.
        return (self.name, float(self._statistic(values)), len(values)) if values else None


def begin() -> None:
    """This process reports its vital signs from now on."""
    _of_this_process.begin()


def end() -> None:
    """This process reports nothing any more, and its thread and its connection are gone."""
    _of_this_process.close()


def report() -> int:
    """What this process has measured is reported now, without waiting for its thread; how many signs."""
    return _of_this_process.report()


def latest(*, max_age_seconds: float, count_min: int = 1) -> dict[str, Reading]:
    """By sign, the worst that a process reported of late; without those of which nobody did."""
    with connection.cursor() as cursor:
        rows = _latest.rows(cursor, max_age_seconds=max_age_seconds, count_min=count_min)
    return {name: Reading(value, count, process) for name, value, count, process in rows}


def count_lock_waits(*, longer_than_ms: int) -> int:
    """How many sessions of our database have been waiting longer than this for somebody else's lock."""
    with connection.cursor() as cursor:
        ((count,),) = _count_lock_waits.rows(cursor, longer_than_ms=longer_than_ms)
    return count


def forget_old() -> int:
    """Rows of processes that are gone are gone too; how many."""
    with transactions.write(), connection.cursor() as cursor:
        return _forget.count(cursor, kept_seconds=KEPT_SECONDS)
