"""Pickers: find tasks two minutes ahead of their minute, and wake executors when the minute of a run has come.

Any number of pickers run at the same time. One is a thread of each `gatekeeper`; `manage.py pick_tasks` is another.
Each round takes bounded batches with SKIP LOCKED, so a picker waits for no other, and what a killed one leaves undone
is done by the next round of another.
"""

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from django.db import close_old_connections, connection

from apps.kernel.db import sql, transactions
from apps.kernel.observability import heartbeats
from apps.kernel.observability.repeated_errors import RepeatedErrors
from apps.kernel.scheduler import orchestrator, runs, scheduler_metrics
from apps.kernel.scheduler.executor import LocalExecutor

logger = logging.getLogger(__name__)

AHEAD = timedelta(minutes=2)
BATCH_MAX = 50
"""Tasks that one transaction picks."""
BATCHES_MAX = 100
"""Batches of one round."""
TURNS_MAX = 500
"""Runs that get their turns in one transaction."""
COUNTED_MAX = 500
"""Runs that can start are counted up to this number; a picker wakes no more executors at once."""
HERE_AFTER_SECONDS = 15.0
"""When a run has waited for this long, runs are also executed in this process: the workers are stopped, or have too
much to do."""
TICK_SECONDS = 0.5
ROUND_SECONDS_MAX = 60.0
PLAN_SECONDS = 60.0

_pick = sql.load("apps.kernel.scheduler", "pick_tasks")
_give_turns = sql.load("apps.kernel.scheduler", "give_turns")
_waiting = sql.load("apps.kernel.scheduler", "waiting_runs")

Wake = Callable[[int], bool]
"""Wakes so many executors. Returns False if they cannot be reached; then this process executes runs."""
_wakes: list[Wake] = []
local = LocalExecutor()
"""Executes runs in this process while no worker takes them."""


def register_wake(wake: Wake) -> None:
    """Wake executors by `wake`. A message may be lost or doubled: executors are woken again while runs wait."""
    _wakes[:] = [wake]


def pick(limit: int = BATCH_MAX) -> int:
    """Pick up to `limit` tasks that are due in the next two minutes, and return how many. Their runs and the marks of
    the tasks are committed together."""
    with transactions.write():
        with connection.cursor() as cursor:
            picked = _pick.rows(cursor, limit=limit, ahead=AHEAD)
        for task_id, minute, has_run in sorted(picked):
            if not has_run:
                # The minute's run has ended already: wait for the next one.
                runs.rearm(task_id, minute)
    scheduler_metrics.picked.inc(len(picked))
    return len(picked)


def give_turns(limit: int = TURNS_MAX) -> int:
    """Give up to `limit` runs that have become due their turns, so that executors start them; return how many."""
    with transactions.write(), connection.cursor() as cursor:
        return _give_turns.count(cursor, limit=limit)


def start_due() -> int:
    """Give all due runs their turns and wake executors, if runs wait; return how many got a turn."""
    count = 0
    for _ in range(BATCHES_MAX):
        given = give_turns()
        count += given
        if given < TURNS_MAX:
            break
    with connection.cursor() as cursor:
        ((waiting_count, seconds),) = _waiting.rows(cursor, limit=COUNTED_MAX)
    if waiting_count:
        reported = orchestrator.count_executors()
        needed = min(waiting_count, max(1, reported))
        is_sent = any(wake(needed) for wake in _wakes)
        if not is_sent or seconds >= HERE_AFTER_SECONDS:
            # A slow run in this process would delay the admissions of all waiting rooms.
            local.start(waiting_count, with_slow=not reported)
    return count


def pick_all() -> int:
    """Pick tasks in batches until none is due in the next two minutes, and return how many."""
    count = 0
    for _ in range(BATCHES_MAX):
        picked = pick()
        count += picked
        if picked < BATCH_MAX:
            break
    return count


def run_once() -> int:
    """Run one round: start due runs, pick, recover runs of lost executors. Return how many rows it has changed.

    A step that fails does not keep the others from running: runs that are due start, whatever a row does to the picking
    of tasks. Their errors are raised at the end, as one ExceptionGroup.
    """
    errors: list[Exception] = []

    def take(step: Callable[[], int]) -> int:
        try:
            return step()
        except Exception as error:  # noqa: BLE001 - raised below
            errors.append(error)
            # The error may be the end of the connection.
            close_old_connections()
            return 0

    due = take(start_due)
    found = take(pick_all) + take(lambda: runs.recover_lost(BATCH_MAX))
    if found:
        # Minutes that were missed, and runs that wait again, are due already.
        due += take(start_due)
    if errors:
        raise ExceptionGroup("steps of this round failed", errors)
    return due + found


def loop(stopping: threading.Event) -> None:
    """Run rounds until `stopping` is set. Survives any error, and every minute compares the executors with the tasks
    ahead (`orchestrator`)."""
    errors = RepeatedErrors(logger)
    planned = 0.0
    while not stopping.is_set():
        heartbeats.beat("picker", ROUND_SECONDS_MAX)
        try:
            run_once()
            planned = orchestrator.watch(planned, PLAN_SECONDS)
            errors.over("scheduler: this round failed")
        except* Exception as failures:  # noqa: BLE001 - tasks depend on this loop
            for error in failures.exceptions:
                errors.record_failure("scheduler: this round failed", error)
        finally:
            close_old_connections()
        stopping.wait(TICK_SECONDS)
    heartbeats.end("picker")
