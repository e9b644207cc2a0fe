"""The maintenance loop: jobs that need only PostgreSQL and must run even without the broker and Redis.

Apps register bounded jobs. Every job takes its own locks (SKIP LOCKED), so any number of loops may run at once.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from django.db import close_old_connections

from apps.kernel.observability import heartbeats
from apps.kernel.observability.repeated_errors import RepeatedErrors

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.25
JOB_SECONDS_MAX = 120.0
"""A job is bounded, and each of its statements has a time limit."""


@dataclass(slots=True)
class Job:
    name: str
    interval_seconds: float
    run: Callable[[], object]
    due_at: float = 0.0
    """A time on the process's monotonic clock."""


_jobs: dict[str, Job] = {}
_repeated_errors = RepeatedErrors(logger)


def register(name: str, interval_seconds: float, run: Callable[[], object]) -> None:
    """Call `run` about every `interval_seconds`. Registering a name again replaces its job."""
    _jobs[name] = Job(name, interval_seconds, run)


def jobs() -> tuple[str, ...]:
    return tuple(_jobs)


def run_due(monotonic: float) -> int:
    """Run every due job once and return how many ran. A job's failure is logged and does not stop the others."""
    ran = 0
    for job in list(_jobs.values()):
        if job.due_at > monotonic:
            continue
        job.due_at = monotonic + job.interval_seconds
        ran += 1
        heartbeats.beat("maintenance", JOB_SECONDS_MAX)
        failing = f"maintenance job {job.name} failed; it runs again in {job.interval_seconds} s"
        try:
            job.run()
            _repeated_errors.over(failing)
        except Exception as error:  # noqa: BLE001 - The loop must survive any error of a job (a restarted database).
            _repeated_errors.record_failure(failing, error)
        finally:
            close_old_connections()
    return ran


def loop(stopping: threading.Event) -> None:
    """Run due jobs until `stopping` is set."""
    while not stopping.is_set():
        heartbeats.beat("maintenance", JOB_SECONDS_MAX)
        run_due(time.monotonic())
        stopping.wait(TICK_SECONDS)
