"""Limits of the tasks that staff schedule. Code that schedules tasks has none of them."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django import forms
from django.db.models import Exists, OuterRef, Q

from apps.events import publication
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.http import problems
from apps.kernel.scheduler import facade as scheduler
from apps.kernel.scheduler import schedule_times
from apps.kernel.scheduler.models import ScheduledTask, TaskRun

TASKS_MAX = 50
"""Enabled tasks of an event that have a run ahead or under way. One that has run once needs no limit."""
GAP_MIN = timedelta(hours=1)
"""Between two runs of a task."""
_TOO_OFTEN = "this runs more often than once an hour; name one minute, as in “0 * * * *”"


def check_cron(cron: str, time_zone: str) -> None:
    """Raise ValidationError, for the form, unless the expression is valid and runs once an hour at most."""
    now = clock.now()
    try:
        schedule_times.require_cron(cron, time_zone, now)
        is_too_frequent = schedule_times.is_closer_than(cron, GAP_MIN, now)
    except schedule_times.InvalidSchedule as error:
        raise forms.ValidationError(str(error)) from error
    if is_too_frequent:
        raise forms.ValidationError(_TOO_OFTEN)


def schedule_task(
    kind: str,
    params: Mapping[str, Any],
    schedule: scheduler.Schedule,
    *,
    scope: scheduler.Scope,
    who: str,
    account_id: int,
    key: str | None = None,
) -> int:
    """Schedule a task of an event and return its id; of several calls with one key, as of a double click, only the
    first adds one. Raises Invalid, and Problem at TASKS_MAX."""
    assert scope.event_id is not None, "staff schedule tasks of events only"
    with transactions.write():
        publication.lock_event(scope.event_id)
        if key is None or not ScheduledTask.objects.filter(key=key).exists():
            _require_room(scope.event_id)
        return scheduler.add_task(kind, params, schedule, scope=scope, who=who, account_id=account_id, key=key)


def change_task(
    event_id: int,
    task_id: int,
    params: Mapping[str, Any],
    schedule: scheduler.Schedule,
    *,
    who: str,
    account_id: int,
) -> None:
    """Change and enable a task of this event. Raises TaskNotFound, Invalid, and Problem at TASKS_MAX."""
    with transactions.write():
        _require_room(event_id, task_id)
        scheduler.apply_change(task_id, params, schedule, who=who, account_id=account_id)


def enable_task(event_id: int, task_id: int) -> None:
    """Enable a task of this event. Raises TaskNotFound, Invalid, and Problem at TASKS_MAX."""
    with transactions.write():
        _require_room(event_id, task_id)
        cron = ScheduledTask.objects.filter(pk=task_id).values_list("cron", flat=True).first()
        if cron and schedule_times.is_closer_than(cron, GAP_MIN, clock.now()):
            raise problems.Invalid({"cron": _TOO_OFTEN})
        scheduler.apply_enabling(task_id)


def is_ahead() -> Q:
    """Return the condition of enabled tasks that wait for their minute, or whose run waits or is under way."""
    states = [TaskRun.State.PICKED, TaskRun.State.RUNNING]
    runs = TaskRun.objects.filter(task=OuterRef("pk"), state__in=states)
    return Q(enabled=True) & (Q(next_run_at__isnull=False) | Q(Exists(runs)))


def _require_room(event_id: int, task_id: int = 0) -> None:
    """Raise Problem if the event has TASKS_MAX tasks besides this one. Its row is locked first, and before the rows of
    tasks: of two additions at once the second one counts the first."""
    publication.lock_event(event_id)
    others = ScheduledTask.objects.filter(is_ahead(), event_id=event_id).exclude(pk=task_id)
    if others.count() >= TASKS_MAX:
        raise problems.Problem(f"An event has at most {TASKS_MAX} tasks ahead. Cancel one of them first.")
