"""The orchestrator: how many executors the next ten minutes need, and a warning if a burst will start late.

An executor runs one task at a time. A minute's runs all start in time if the executors get through them in
START_SECONDS less the time to the first start. How long a run takes is the mean of its kind's latest runs; of a kind
that has not run, the mean of all kinds.
"""

import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import takewhile

from django.db import connection

from apps.kernel import clock
from apps.kernel.db import sql
from apps.kernel.observability.health_signals import HealthSignal
from apps.kernel.scheduler import schedule_times
from apps.kernel.scheduler.models import ScheduledTask, TaskRun

logger = logging.getLogger(__name__)

AHEAD_MINUTES = 10
START_SECONDS = 30
"""A run starts this long after its minute at most."""
FIRST_START_SECONDS = 3
"""From the minute to the first start: a picker's round, and its message to a worker."""
RUN_SECONDS_DEFAULT = 0.0028
"""Of each kind before any has run: the median of a light one (docs/performance.md)."""
OVERHEAD_SECONDS = 0.0023
"""For which a run occupies its executor besides: the two commits. Measured there, too."""
SIGNAL = "executors"
EXECUTORS_AGE_SECONDS_MAX = 60
TASKS_MAX = 100_000
REPORT_SECONDS = 10.0

_run_seconds = sql.load("apps.kernel.scheduler", "run_seconds")
_count_executors = sql.load("apps.kernel.scheduler", "count_executors")


def _latest(values: Sequence[float]) -> float:
    return values[-1]


_executors = HealthSignal(SIGNAL, _latest, window_seconds=60)
_reported = {"at": float("-inf")}


def report_executors(count: int) -> None:
    """Report that this worker has so many executors. Called often; writes every REPORT_SECONDS."""
    if time.monotonic() - _reported["at"] >= REPORT_SECONDS:
        _reported["at"] = time.monotonic()
        _executors.observe(float(count))


@dataclass(frozen=True, slots=True)
class Minute:
    at: datetime
    run_count: int
    work_seconds: float
    """How long one executor would need for them."""

    @property
    def executors_needed(self) -> int:
        return math.ceil(self.work_seconds / (START_SECONDS - FIRST_START_SECONDS))


@dataclass(frozen=True, slots=True)
class Plan:
    """The next ten minutes. Runs that are overdue count for the first one."""

    minutes: tuple[Minute, ...]
    executors: int
    """Executors of the workers that have reported in the last minute."""

    @property
    def executors_needed(self) -> int:
        return max((minute.executors_needed for minute in self.minutes), default=0)

    @property
    def late(self) -> tuple[Minute, ...]:
        """The minutes of which runs will start too late."""
        return tuple(minute for minute in self.minutes if minute.executors_needed > self.executors)


def count_executors() -> int:
    """Return the executors of the workers that have reported in the last minute."""
    with connection.cursor() as cursor:
        ((executors,),) = _count_executors.rows(cursor, name=SIGNAL, age_seconds_max=EXECUTORS_AGE_SECONDS_MAX)
    return int(executors)


def read_plan() -> Plan:
    """Return the plan, from the tasks and runs that are stored now."""
    now = clock.now()
    first = schedule_times.whole_minute(now)
    until = first + timedelta(minutes=AHEAD_MINUTES)
    with connection.cursor() as cursor:
        measured = [(kind, float(seconds), count) for kind, seconds, count in _run_seconds.rows(cursor)]
    seconds_of = {kind: seconds for kind, seconds, _ in measured}
    run_count = sum(count for _, _, count in measured)
    mean = sum(seconds * count for _, seconds, count in measured) / run_count if run_count else RUN_SECONDS_DEFAULT
    counts: Counter[datetime] = Counter()
    work: defaultdict[datetime, float] = defaultdict(float)
    for kind, at in _planned(first, until):
        counts[at] += 1
        work[at] += OVERHEAD_SECONDS + seconds_of.get(kind, mean)
    minutes = (first + timedelta(minutes=number) for number in range(AHEAD_MINUTES))
    return Plan(tuple(Minute(at, counts[at], work[at]) for at in minutes), count_executors())


def _planned(first: datetime, until: datetime) -> Iterator[tuple[str, datetime]]:
    """Yield kind and minute of the runs before `until`: those that wait, and those that tasks will have."""
    runs = TaskRun.objects.filter(state=TaskRun.State.PICKED, due_at__lt=until).order_by("due_at")
    tasks = ScheduledTask.objects.filter(next_run_at__lt=until).order_by("next_run_at")
    for kind, moment, cron, time_zone in (
        *runs.values_list("task__kind", "due_at", "task__cron", "task__time_zone")[:TASKS_MAX],
        *tasks.values_list("kind", "next_run_at", "cron", "time_zone")[:TASKS_MAX],
    ):
        assert moment is not None
        minute = max(first, schedule_times.whole_minute(moment))
        yield kind, minute
        if cron:
            later = schedule_times.minutes(cron, time_zone, minute)
            # The end of its run disables a task whose schedule cannot be kept.
            with suppress(schedule_times.InvalidSchedule):
                yield from ((kind, at) for at in takewhile(lambda at: at < until, later))


def describe(plan: Plan) -> str:
    """Return the warning for staff; empty if all runs will start in time."""
    if not plan.late:
        return ""
    worst = max(plan.late, key=lambda minute: minute.executors_needed)
    return (
        f"{worst.run_count:,} tasks at {worst.at:%H:%M} UTC need {worst.executors_needed} executors to start within "
        f"{START_SECONDS} s; {plan.executors} {'runs' if plan.executors == 1 else 'run'} now"
    )


def watch(planned: float, every_seconds: float) -> float:
    """Log a warning if a burst is ahead that will start late. `planned` is when that was last checked, on the process's
    monotonic clock; returns the time of the latest check."""
    now = time.monotonic()
    if planned and now - planned < every_seconds:
        return planned
    warning = describe(read_plan())
    if warning:
        logger.warning("scheduler: %s", warning)
    return now
