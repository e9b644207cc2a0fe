"""Metrics of the scheduler: counters of this process, and the state of the tables."""

from dataclasses import dataclass

from django.db import connection
from prometheus_client import Counter, Histogram

from apps.kernel.db import sql

picked = Counter("fairgate_scheduler_picked", "Runs picked before their minute.", registry=None)
ended = Counter(
    "fairgate_scheduler_ended",
    "Ended attempts: succeeded, failed, retried (by itself), canceled (instead), lost (their executor ended).",
    ["kind", "how"],
    registry=None,
)
wait = Histogram(
    "fairgate_scheduler_wait_seconds",
    "Seconds from a run's minute, or the time of its retry, to its start.",
    buckets=(0.5, 1, 2, 5, 10, 20, 30, 60, 300, 3_600),
    registry=None,
)
run_time = Histogram(
    "fairgate_scheduler_run_seconds",
    "Seconds from the start of a run to its end.",
    ["kind"],
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300),
    registry=None,
)
METRICS = (picked, ended, wait, run_time)

_queue = sql.load("apps.kernel.scheduler", "queue_state")


@dataclass(frozen=True, slots=True)
class QueueState:
    due: int
    """Runs whose time has come and that no executor has started."""
    oldest_due_seconds: float
    running: int
    picker_lag_seconds: float
    """How long the first task that no picker has picked is past its minute; 0 if all are picked in time."""
    failed: int
    """Failed runs of the last day."""


def read_queue() -> QueueState:
    """Return the present state of the runs."""
    with connection.cursor() as cursor:
        ((due, oldest, running, lag, failed),) = _queue.rows(cursor)
    return QueueState(due, float(oldest), running, float(lag), failed)
