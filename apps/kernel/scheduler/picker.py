"""Pickers: find tasks two minutes ahead of their minute, and hand runs to executors when their minute has come.

Any number of pickers run at the same time. One is a thread of each `gatekeeper`; `manage.py pick_tasks` is another.
Each round takes bounded batches with SKIP LOCKED, so a picker waits for no other, and what a killed one leaves undone
is done by the next round of another.
"""

import logging
import threading
from collections.abc import Callable, Sequence
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
HAND_OVER_MAX = 20
"""Runs of one message to an executor, which runs them one after the other."""
AGAIN_AFTER = timedelta(seconds=10)
"""A run that was handed over and has not started by then is handed over again."""
HERE_AFTER_SECONDS = 15.0
"""A run that waits for this long is also executed in this process: the workers are stopped, or have too much to do."""
TICK_SECONDS = 0.5
ROUND_SECONDS_MAX = 60.0
PLAN_SECONDS = 60.0

_pick = sql.load("apps.kernel.scheduler", "pick_tasks")
_take_due = sql.load("apps.kernel.scheduler", "take_due_runs")

HandOver = Callable[[Sequence[int]], bool]
"""Sends run ids to an executor. Returns False if none can be reached; then this process executes them."""
_hand_over: list[HandOver] = []
local = LocalExecutor()
"""Executes runs in this process while no worker takes them."""


def register_hand_over(hand_over: HandOver) -> None:
    """Send runs to executors by `hand_over`. A message may be lost: the run is handed over again."""
    _hand_over[:] = [hand_over]


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


def take_due(limit: int) -> list[tuple[int, float]]:
    """Return up to `limit` runs to be handed over now, with the seconds for which each has waited, and record that, in
    a transaction of its own."""
    with transactions.write(), connection.cursor() as cursor:
        return [(run_id, seconds) for run_id, seconds in _take_due.rows(cursor, limit=limit, again_after=AGAIN_AFTER)]


def hand_over_due() -> int:
    """Hand the due runs to executors, and return how many. Nothing is sent before the commit that records it."""
    count = 0
    for _ in range(BATCHES_MAX):
        taken = take_due(HAND_OVER_MAX)
        if not taken:
            break
        count += len(taken)
        run_ids = [run_id for run_id, _ in taken]
        is_sent = any(hand_over(run_ids) for hand_over in _hand_over)
        local.add(run_id for run_id, seconds in taken if not is_sent or seconds >= HERE_AFTER_SECONDS)
    scheduler_metrics.handed_over.inc(count)
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
    """Run one round: hand over, pick, recover runs of lost executors. Return how many rows it has changed.

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

    handed = take(hand_over_due)
    found = take(pick_all) + take(lambda: runs.recover_lost(BATCH_MAX))
    if found:
        # Minutes that were missed, and runs that wait again, are due already.
        handed += take(hand_over_due)
    if errors:
        raise ExceptionGroup("steps of this round failed", errors)
    return handed + found


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
