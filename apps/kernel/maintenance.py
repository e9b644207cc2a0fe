"""The loop that needs nothing but PostgreSQL: jobs that must run even with the broker and Redis gone.

Apps register bounded jobs; the process that runs the loop knows none of them. Every job takes its own locks
(SKIP LOCKED), so any number of loops may run at once.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from django.db import close_old_connections

from apps.kernel.observability.repeated_errors import RepeatedErrors

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.25


@dataclass(slots=True)
class Job:
    name: str
    interval_seconds: float
    run: Callable[[], object]
    due_at: float = field(default=0.0)
    """On the process's monotonic clock."""


_jobs: dict[str, Job] = {}
_repeated_errors = RepeatedErrors(logger)


def register(name: str, interval_seconds: float, run: Callable[[], object]) -> None:
    """From now on the loop calls `run` about every `interval_seconds`. Registering a name again replaces it."""
    _jobs[name] = Job(name, interval_seconds, run)


def jobs() -> tuple[str, ...]:
    return tuple(_jobs)


def run_due(monotonic: float) -> int:
    """Every job that is due has run once; how many ran. One job's failure is logged and delays no other."""
    ran = 0
    for job in list(_jobs.values()):
        if job.due_at > monotonic:
            continue
        job.due_at = monotonic + job.interval_seconds
        ran += 1
        failing = f"maintenance job {job.name} failed; it runs again in {job.interval_seconds} s"
        try:
            job.run()
            _repeated_errors.over(failing)
        except Exception as error:  # noqa: BLE001 - A safety net outlives whatever one job meets (a restarted database).
            _repeated_errors.record_failure(failing, error)
        finally:
            close_old_connections()
    return ran


def loop(stopping: threading.Event) -> None:
    """Runs until `stopping` is set."""
    while not stopping.is_set():
        run_due(time.monotonic())
        stopping.wait(TICK_SECONDS)
