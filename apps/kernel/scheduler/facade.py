"""Schedules tasks, changes and cancels them, and runs failed ones again: the interface for the apps above.

The kind of a task checks its parameters; whether a person may schedule it is checked by the page, and again at each
run, by the account that the page names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db import OperationalError
from django.db.models import QuerySet
from psycopg import errors

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.http import problems
from apps.kernel.scheduler import schedule_times
from apps.kernel.scheduler.models import ScheduledTask, TaskRun
from apps.kernel.scheduler.orchestrator import Plan, describe, read_plan
from apps.kernel.scheduler.picker import register_wake
from apps.kernel.scheduler.registry import (
    File,
    Outcome,
    Run,
    Scope,
    TaskFailed,
    TaskKind,
    TaskParams,
    check_params,
    find_kind,
    get_kind,
    kinds,
    register_permission_check,
    register_task,
)

__all__ = [
    "SCHEDULED_BY_CODE",
    "File",
    "NotRunnable",
    "Outcome",
    "Plan",
    "Run",
    "RunStarting",
    "Schedule",
    "Scope",
    "TaskFailed",
    "TaskKind",
    "TaskParams",
    "add_task",
    "apply_change",
    "apply_enabling",
    "cancel_task",
    "change_task",
    "describe",
    "enable_task",
    "ensure_registered",
    "ensure_task",
    "find_kind",
    "get_kind",
    "kinds",
    "read_plan",
    "register_permission_check",
    "register_recurring",
    "register_task",
    "register_wake",
    "run_again",
    "schedule_task",
]

SCHEDULED_BY_CODE = "scheduler"
TIMES_YEARS_MAX = 10
_CONTENT = ("kind", "params", "event_id", "once_at", "cron", "time_zone")
EARLIER_MAX = 20
"""Earlier attempts that a run keeps."""


_recurring: dict[str, tuple[str, Mapping[str, Any], str]] = {}
"""Kind, parameters and cron expression (UTC) of the tasks of code, by key."""


class TaskNotFound(problems.NotFound):
    title = "There is no such task."


class NotRunnable(problems.StaffProblem):
    """Only a failed run can be run again."""

    type, status, title = "not-runnable", 409, "Only a failed run can be run again."


class RunStarting(problems.StaffProblem):
    """A run of the task has become due and is being started by an executor."""

    type, status, title = "run-starting", 409, "The task is being started right now. Try again."


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a task runs: at `once_at`, or at the minutes of `cron` in `time_zone`."""

    once_at: datetime | None = None
    cron: str = ""
    time_zone: str = "UTC"

    def first_minute(self, now: datetime) -> datetime:
        """Return its first minute: of a task that runs once, this minute, the last or a later one. Raises Invalid."""
        if (self.once_at is None) == (not self.cron):
            raise problems.Invalid({"schedule": "give a time or a cron expression"})
        if not schedule_times.is_zone(self.time_zone):
            raise problems.Invalid({"time_zone": "is not an IANA time zone such as Europe/Berlin"})
        if self.once_at is None:
            try:
                return schedule_times.require_cron(self.cron, self.time_zone, now)
            except schedule_times.InvalidSchedule as error:
                raise problems.Invalid({"cron": str(error)}) from error
        minute = schedule_times.whole_minute(self.once_at)
        if minute != self.once_at:
            raise problems.Invalid({"once_at": "must be a whole minute"})
        # A form that offers this minute may arrive in the next one.
        if minute < schedule_times.whole_minute(now) - timedelta(minutes=1):
            raise problems.Invalid({"once_at": "is in the past"})
        if minute > now + timedelta(days=366 * TIMES_YEARS_MAX):
            raise problems.Invalid({"once_at": f"is more than {TIMES_YEARS_MAX} years ahead"})
        return minute


def schedule_task(
    kind: str, params: Mapping[str, Any], schedule: Schedule, *, scope: Scope, who: str, account_id: int | None = None
) -> int:
    """Schedule a task and return its id. Raises Invalid, which names each wrong parameter."""
    with transactions.write():
        return add_task(kind, params, schedule, scope=scope, who=who, account_id=account_id)


def add_task(
    kind: str,
    params: Mapping[str, Any],
    schedule: Schedule,
    *,
    scope: Scope,
    who: str,
    account_id: int | None = None,
    key: str | None = None,
) -> int:
    """Like `schedule_task`, in the caller's transaction. A second call with the same key adds nothing and returns the
    first one's task; with other content it raises Invalid."""
    transactions.require_transaction()
    _require_allowed(get_kind(kind), schedule)
    content = check_params(get_kind(kind), dict(params), scope)
    now = clock.now()
    task = ScheduledTask(
        kind=kind, params=content, event_id=scope.event_id, organizer_id=scope.organizer_id,
        once_at=schedule.once_at, cron=" ".join(schedule.cron.split()), time_zone=schedule.time_zone,
        next_run_at=schedule.first_minute(now), created_by=_author(who), account_id=account_id, created_at=now,
        key=key,
    )  # fmt: skip
    if key is None:
        task.save()
        return task.pk
    # The statement waits for another one that inserts the same key, and then inserts nothing.
    ScheduledTask.objects.bulk_create([task], ignore_conflicts=True)
    stored = ScheduledTask.objects.get(key=key)
    if any(getattr(stored, name) != getattr(task, name) for name in _CONTENT):
        raise problems.Invalid({"form": "was sent already with other values; open it again"})
    return stored.pk


def ensure_task(key: str, kind: str, params: Mapping[str, Any], cron: str, *, time_zone: str = "UTC") -> None:
    """Schedule a recurring task of the whole site under this key, unless it exists; an existing one is left as it is,
    also if staff have changed or disabled it."""
    with transactions.write():
        if ScheduledTask.objects.filter(key=key).exists():
            return
        content = check_params(get_kind(kind), dict(params), Scope())
        now = clock.now()
        task = ScheduledTask(
            key=key, kind=kind, params=content, cron=cron, time_zone=time_zone, created_by=SCHEDULED_BY_CODE,
            created_at=now, next_run_at=Schedule(cron=cron, time_zone=time_zone).first_minute(now),
        )  # fmt: skip
        # Two deployments at once: the key is unique.
        ScheduledTask.objects.bulk_create([task], ignore_conflicts=True)


def register_recurring(key: str, kind: str, cron: str, params: Mapping[str, Any] | None = None) -> None:
    """Have `ensure_registered` schedule this task of the whole site, in UTC. Registering a key again replaces it in
    this process, and changes no task that is scheduled already."""
    _recurring[key] = (kind, dict(params or {}), cron)


def ensure_registered() -> int:
    """Schedule the tasks that code has registered and that do not exist yet, and return how many are registered. A
    maintenance job: a new installation has them with its first `gatekeeper`."""
    for key, (kind, params, cron) in sorted(_recurring.items()):
        ensure_task(key, kind, params, cron)
    return len(_recurring)


def change_task(
    task_id: int, params: Mapping[str, Any], schedule: Schedule, *, who: str, account_id: int | None = None
) -> None:
    """Change what the task does and when, and enable it; it acts for this person from now on. A run that was picked and
    has not started is dropped: its minute counts again. A run that is under way ends as it began. Raises TaskNotFound,
    RunStarting, and Invalid, also for a minute in which the task has started already."""
    with transactions.write():
        apply_change(task_id, params, schedule, who=who, account_id=account_id)


def apply_change(
    task_id: int, params: Mapping[str, Any], schedule: Schedule, *, who: str, account_id: int | None = None
) -> None:
    """Like `change_task`, in the caller's transaction."""
    transactions.require_transaction()
    task = _lock(task_id)
    _require_allowed(get_kind(task.kind), schedule)
    content = check_params(get_kind(task.kind), dict(params), Scope(task.event_id, task.organizer_id))
    # Before the minute is checked: afterwards no run can start until the commit.
    _drop_waiting(task)
    task.params = content
    task.once_at, task.cron = schedule.once_at, " ".join(schedule.cron.split())
    task.time_zone, task.enabled = schedule.time_zone, True
    task.next_run_at = _require_unused(task, schedule.first_minute(clock.now()))
    task.created_by, task.account_id = _author(who), account_id
    task.save()


def cancel_task(task_id: int) -> bool:
    """Disable the task and cancel its runs that have not started; return whether it was enabled. A run that is under
    way ends as it began; if its executor is lost or the database refuses it, it is canceled, too. Raises TaskNotFound
    and RunStarting."""
    with transactions.write():
        task = _lock(task_id)
        was_enabled = task.enabled
        _lock_waiting(task).update(state=TaskRun.State.CANCELED, turn=None)
        task.enabled, task.next_run_at = False, None
        task.save(update_fields=["enabled", "next_run_at"])
        return was_enabled


def enable_task(task_id: int) -> bool:
    """Enable a disabled task; return whether it was disabled. Raises TaskNotFound, and Invalid after its time, if it
    has started in its minute already, or for an unknown kind."""
    with transactions.write():
        return apply_enabling(task_id)


def apply_enabling(task_id: int) -> bool:
    """Like `enable_task`, in the caller's transaction."""
    transactions.require_transaction()
    task = _lock(task_id)
    if task.enabled:
        return False
    schedule = Schedule(task.once_at, task.cron, task.time_zone)
    _require_allowed(get_kind(task.kind), schedule)
    task.enabled, task.next_run_at = True, _require_unused(task, schedule.first_minute(clock.now()))
    task.save(update_fields=["enabled", "next_run_at"])
    return True


def run_again(run_id: int, *, who: str, account_id: int | None = None) -> None:
    """Let a failed run start again at once, with the task's present parameters. Its earlier attempts stay recorded.
    Raises TaskNotFound and NotRunnable, also for the second of two clicks."""
    with transactions.write():
        run = TaskRun.objects.select_for_update(no_key=True, of=("self",)).filter(pk=run_id).first()
        if run is None:
            raise TaskNotFound
        if run.state != TaskRun.State.FAILED:
            raise NotRunnable
        attempt = {
            "started_at": run.started_at and clock.iso(run.started_at), "error": run.error, "asked_by": run.asked_by,
            "attempts": run.attempts,
        }  # fmt: skip
        run.earlier = [*run.earlier, attempt][-EARLIER_MAX:]
        run.state, run.due_at, run.finished_at = TaskRun.State.PICKED, clock.now(), None
        run.losses, run.error, run.asked_by, run.asked_account_id = 0, "", _author(who), account_id
        run.save()


def _require_allowed(kind: TaskKind, schedule: Schedule) -> None:
    """Raise Invalid for a cron schedule of a kind that runs once only."""
    if kind.once_only and schedule.cron:
        raise problems.Invalid({"cron": "this task runs once only; give a time instead"})


def _lock(task_id: int) -> ScheduledTask:
    """Lock the task's row, and with it its schedule. A run under way locks it only when it ends."""
    task = ScheduledTask.objects.select_for_update(no_key=True).filter(pk=task_id).first()
    if task is None:
        raise TaskNotFound
    return task


def _lock_waiting(task: ScheduledTask) -> QuerySet[TaskRun]:
    """Lock the runs that wait of the task, whose row is locked, and return their query. Raises RunStarting if another
    transaction has one locked.

    It does not wait for that: the executor locks the rows of the run, of its event and of the task in this order, and
    would wait for the caller.
    """
    waiting = TaskRun.objects.filter(task=task, state=TaskRun.State.PICKED)
    try:
        ids = list(waiting.select_for_update(no_key=True, nowait=True).values_list("pk", flat=True))
    except OperationalError as error:
        if isinstance(error.__cause__, errors.LockNotAvailable):
            raise RunStarting from error
        raise
    return TaskRun.objects.filter(pk__in=ids)


def _drop_waiting(task: ScheduledTask) -> None:
    """Delete the task's runs that never started, and cancel those that wait for another attempt. Raises RunStarting."""
    waiting = _lock_waiting(task)
    # `delete` would read the runs first, because of their files. A run that never started has none.
    waiting.filter(attempts=0)._raw_delete(using="default")
    waiting.update(state=TaskRun.State.CANCELED, turn=None)


def _require_unused(task: ScheduledTask, minute: datetime) -> datetime:
    """Return the minute. Raises Invalid if the task, whose row is locked, has started in it: it would not be picked for
    it again."""
    open_states = [TaskRun.State.PICKED, TaskRun.State.CANCELED]
    if TaskRun.objects.filter(task=task, scheduled_for=minute).exclude(state__in=open_states).exists():
        raise problems.Invalid({"once_at": "This task has already started in that minute; choose a later one."})
    return minute


def _author(who: str) -> str:
    if not who or not sql.is_text(who):
        raise problems.Invalid({"who": "a task needs an author's name"})
    return who[:150]
