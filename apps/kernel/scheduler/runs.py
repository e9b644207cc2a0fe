"""The life of a run: started by one executor, ended with its effects, found again if its executor is lost.

The transaction that runs the handler has the run's row locked. It writes the run's end together with the handler's
effects, so that both are committed or neither. Lost executors are found by that lock: a run that has started and that
no transaction has locked has no effects, and may be started again.
"""

import json
import logging
import os
import socket
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db import IntegrityError, connection, transaction
from django.db.models import Exists, OuterRef, Q

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.scheduler import schedule_times, scheduler_metrics
from apps.kernel.scheduler.models import ScheduledTask, TaskFile, TaskRun
from apps.kernel.scheduler.registry import RESULT_CHARACTERS_MAX, Outcome, Run, Scope

logger = logging.getLogger(__name__)

KEPT_DAYS = 180
LOST_AFTER = timedelta(seconds=5)
"""From the start of a run to the lock of its row an executor needs milliseconds."""
LOSSES_MAX = 3
"""A run may itself be what ends its executors, so it is started three times at most."""
ATTEMPTS_MAX = 4
"""Of a run whose kind is idempotent. Counted anew, as losses are, when staff run it again."""
RETRY_AFTER = timedelta(seconds=5)
ERROR_CHARACTERS_MAX = 2_000
LOST = "its executor ended before the task did; nothing of it was changed"
_DELETED_MAX = 10_000

_start = sql.load("apps.kernel.scheduler", "start_next_run")
_lock = sql.load("apps.kernel.scheduler", "lock_run")
_end = sql.load("apps.kernel.scheduler", "end_run")
_take_lost = sql.load("apps.kernel.scheduler", "take_lost_runs")


class Attempt(NamedTuple):
    """An attempt that this executor has started."""

    run_id: int
    number: int
    """Of all attempts of the run; no other one has it."""
    number_since_asked: int
    """Of those since staff last ran it again."""
    losses: int
    """How many of those before it were lost."""
    kind: str


def executor_name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"[-80:]


def start_next(without: Sequence[str] = ()) -> Attempt | None:
    """Start the next run in the order of turns, and commit; None if none waits that can start. Runs of the kinds
    `without` are passed over."""
    while True:
        try:
            started, _ = transactions.write_batch([_start.call(executor=executor_name(), without=list(without))])[0]
        except IntegrityError as error:
            if transactions.violated_constraint(error) != "task_run_one_running_of_a_task":
                raise
            # Another executor has started a run of this task since the statement began. The next statement sees that,
            # and passes over this one.
            continue
        if not started:
            return None
        ((run_id, number, number_since_asked, losses, kind, waited_seconds),) = started
        scheduler_metrics.wait.observe(waited_seconds)
        return Attempt(run_id, number, number_since_asked, losses, kind)


def lock(attempt: Attempt) -> Run | None:
    """Lock the run's row until the end of the caller's transaction and return the run; None if the attempt was given
    up meanwhile."""
    transactions.require_transaction()
    with connection.cursor() as cursor:
        rows = _lock.rows(cursor, id=attempt.run_id, attempt=attempt.number)
    if not rows:
        return None
    ((scheduled_for, task_id, kind, params, event_id, organizer_id, who, account_id),) = rows
    # Django returns jsonb as text from a plain cursor.
    scope = Scope(event_id, organizer_id)
    return Run(attempt.run_id, task_id, kind, json.loads(params), scope, scheduled_for, who, account_id)


def succeed(attempt: Attempt, outcome: Outcome) -> None:
    """End the locked run, keep its file and set its task's next minute. Joins the transaction with the handler's
    effects."""
    _end_attempt(attempt, TaskRun.State.SUCCEEDED, result=outcome.text)
    if outcome.file is not None:
        file = outcome.file
        TaskFile.objects.create(
            run_id=attempt.run_id, name=file.name, content_type=file.content_type, content=file.content
        )


def fail(attempt: Attempt, error: str) -> None:
    """Record that the handler failed, unless the attempt was given up. Nothing of the handler was committed."""
    with transactions.write():
        _end_attempt(attempt, TaskRun.State.FAILED, error=error)


def retry(attempt: Attempt, error: str, *, retry_in: timedelta, is_lost: bool) -> None:
    """Let the run wait for another attempt, unless this one was given up. A run whose task is disabled is canceled."""
    with transactions.write():
        _end_attempt(attempt, TaskRun.State.PICKED, error=error, retry_in=retry_in, is_lost=is_lost)


def _end_attempt(
    attempt: Attempt,
    state: TaskRun.State,
    *,
    result: str = "",
    error: str = "",
    retry_in: timedelta = timedelta(),
    is_lost: bool = False,
) -> None:
    transactions.require_transaction()
    with connection.cursor() as cursor:
        rows = _end.rows(
            cursor,
            id=attempt.run_id,
            attempt=attempt.number,
            state=str(state),
            result=_storable(result)[:RESULT_CHARACTERS_MAX],
            error=_storable(error)[:ERROR_CHARACTERS_MAX],
            retry_in=retry_in,
            lost=int(is_lost),
        )
    if not rows:
        return
    ((task_id, minute, ended, seconds, is_recurring),) = rows
    if is_recurring and ended in (TaskRun.State.SUCCEEDED, TaskRun.State.FAILED):
        rearm(task_id, minute)
    how = "retried" if ended == TaskRun.State.PICKED else ended
    _count_after_commit(attempt.kind, how, seconds)


def _count_after_commit(kind: str, how: str, seconds: float) -> None:
    def count() -> None:
        scheduler_metrics.ended.labels(kind, how).inc()
        if how in (TaskRun.State.SUCCEEDED, TaskRun.State.FAILED):
            scheduler_metrics.run_time.labels(kind).observe(seconds)

    transaction.on_commit(count, robust=True)


def _storable(text: str) -> str:
    return "".join(one if sql.is_text(one) else "�" for one in text)


def rearm(task_id: int, minute: datetime) -> None:
    """Set the next minute of a recurring task whose run for `minute` has ended: the first one after now, so that missed
    minutes are not made up for. A task whose schedule has no further minute, or that this version does not understand,
    is disabled. Joins the caller's transaction.

    The task's row is locked last, after the run's. While another run of the task waits or runs, that run's end sets it:
    of two ends at once the second one waits here for the commit of the first.
    """
    transactions.require_transaction()
    task = ScheduledTask.objects.select_for_update(no_key=True).get(pk=task_id)
    if not task.enabled or task.next_run_at is not None or not task.cron:
        return
    if TaskRun.objects.filter(task=task, state__in=[TaskRun.State.PICKED, TaskRun.State.RUNNING]).exists():
        return
    try:
        task.next_run_at = schedule_times.require_cron(task.cron, task.time_zone, max(minute, clock.now()))
    except schedule_times.InvalidSchedule as error:
        # It was checked when it was stored, by other versions of the zones and the parser. Raised here, the error would
        # end the picker's round, and undo the run.
        logger.error("task %s (%s) is disabled, since its schedule cannot be kept: %s", task_id, task.kind, error)
        task.enabled = False
    task.save(update_fields=["enabled", "next_run_at"])


def recover_lost(limit: int) -> int:
    """Let runs of lost executors wait again; a run that has lost too many has failed, and that of a disabled task is
    canceled. Return how many were found."""
    with transactions.write():
        with connection.cursor() as cursor:
            found = _take_lost.rows(cursor, grace=LOST_AFTER, limit=limit, losses_max=LOSSES_MAX, error=LOST)
        for _, task_id, minute, state in sorted(found):
            if state == TaskRun.State.FAILED:
                rearm(task_id, minute)
    for run_id, _, _, state in found:
        scheduler_metrics.ended.labels("", "lost").inc()
        logger.warning("run %s: %s (%s)", run_id, LOST, state)
    return len(found)


def delete_old() -> int:
    """Delete ended and canceled runs older than KEPT_DAYS, and return how many. The latest run of each task is kept."""
    before = clock.now() - timedelta(days=KEPT_DAYS)
    with transactions.write():
        is_old = Q(finished_at__lt=before) | Q(state=TaskRun.State.CANCELED, picked_at__lt=before)
        old = TaskRun.objects.select_for_update(no_key=True, skip_locked=True).filter(is_old)
        newer = TaskRun.objects.filter(task=OuterRef("task"), scheduled_for__gt=OuterRef("scheduled_for"))
        ids = list(old.filter(Exists(newer)).order_by("pk").values_list("pk", flat=True)[:_DELETED_MAX])
        TaskRun.objects.filter(pk__in=ids).delete()
    return len(ids)
