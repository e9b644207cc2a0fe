"""Executors: run the handlers of runs whose time has come, each with its end in one transaction.

An executor may be killed at any point. Before the start of a run nothing has happened; between start and commit the
transaction is rolled back by the database; after the commit the run has ended. Executors start runs by themselves, in
the order of turns, each run one of them.
"""

import logging
import threading
import time

from django.db import connections

from apps.kernel.db import transactions
from apps.kernel.heavy_work import slow_slot
from apps.kernel.http import problems
from apps.kernel.observability import log_context
from apps.kernel.scheduler import runs
from apps.kernel.scheduler.registry import (
    FILE_BYTES_MAX,
    Outcome,
    TaskFailed,
    TaskKind,
    find_kind,
    require_permitted,
    slow_kinds,
)
from apps.kernel.scheduler.runs import Attempt

logger = logging.getLogger(__name__)

EXITS = (KeyboardInterrupt, SystemExit, GeneratorExit)
LOCAL_THREADS_MAX = 4
SHARE_SECONDS = 1.0
"""A worker's process serves other queues, too, after it has started runs for so long."""


def execute_due(seconds_max: float = SHARE_SECONDS) -> int:
    """Execute runs, one after the other in the order of their turns, until none waits or `seconds_max` have passed;
    return how many."""
    deadline = time.monotonic() + seconds_max
    count = 0
    while execute_next():
        count += 1
        if time.monotonic() >= deadline:
            break
    return count


def execute_next(*, with_slow: bool = True) -> bool:
    """Start the next run and execute it; return whether there was one. Runs of slow kinds are passed over while another
    process of this worker executes one, and without `with_slow`.

    Afterwards it has succeeded with all effects of its handler, or none of them is committed. A failure of the handler
    is recorded, not raised. Raises errors of the database from outside the handler; the run is then found again.
    """
    if not with_slow:
        attempt = runs.start_next(slow_kinds())
        return attempt is not None and _execute(attempt, find_kind(attempt.kind))
    with slow_slot.take() as slot:
        attempt = runs.start_next(() if slot.is_taken else slow_kinds())
        if attempt is None:
            return False
        kind = find_kind(attempt.kind)
        if kind is None or not kind.is_slow:
            slot.release()
        return _execute(attempt, kind)


def _execute(attempt: Attempt, kind: TaskKind | None) -> bool:
    try:
        if kind is None:
            raise TaskFailed(f"this version has no task {attempt.kind!r}")
        _run_handler(attempt, kind)
    except EXITS:
        raise
    except BaseException as error:  # noqa: BLE001 - also a library's panic is a failure of the handler
        _record_failure(attempt, kind, error)
    return True


def _run_handler(attempt: Attempt, kind: TaskKind) -> None:
    with transactions.write(lock_ms=kind.lock_ms, statement_ms=kind.statement_ms):
        run = runs.lock(attempt)
        if run is None:
            return
        require_permitted(run, kind)
        result = kind.handler(run)
        outcome = result if isinstance(result, Outcome) else Outcome(result or "")
        if outcome.file is not None and len(outcome.file.content) > FILE_BYTES_MAX:
            raise TaskFailed(f"the file has more than {FILE_BYTES_MAX:,} bytes")
        runs.succeed(attempt, outcome)


def _record_failure(attempt: Attempt, kind: TaskKind | None, error: BaseException) -> None:
    if transactions.is_transient(error):
        # The database refused (a lock, a deadlock, a time limit) and rolled everything back: as for a lost executor.
        _retry_or_fail(attempt, error, can_retry=attempt.losses + 1 < runs.LOSSES_MAX, is_lost=True)
        return
    # A refusal would be the same at the next attempt.
    is_refusal = isinstance(error, TaskFailed) or (isinstance(error, problems.Problem) and error.status < 500)
    if not is_refusal:
        logger.error("run %s (%s) failed", attempt.run_id, attempt.kind, exc_info=error)
    is_repeatable = kind is not None and kind.idempotent and not is_refusal
    can_retry = is_repeatable and attempt.number_since_asked < runs.ATTEMPTS_MAX
    _retry_or_fail(attempt, error, can_retry=can_retry, is_lost=False)


def _retry_or_fail(attempt: Attempt, error: BaseException, *, can_retry: bool, is_lost: bool) -> None:
    text = describe(error)
    if can_retry:
        runs.retry(attempt, text, retry_in=runs.RETRY_AFTER * attempt.number_since_asked, is_lost=is_lost)
    else:
        runs.fail(attempt, text)


def describe(error: BaseException) -> str:
    """Return the error for staff, in one line. Messages of the database may contain values of rows, so only the name of
    such an error is shown."""
    if isinstance(error, TaskFailed | problems.Problem):
        return str(error)
    if isinstance(error, transactions.FAILURES):
        return f"the database refused it: {type(error.__cause__ or error).__name__}"
    return log_context.summarize_error(error)


class LocalExecutor:
    """Executes runs in a few threads of this process. Used while no worker takes them."""

    def __init__(self, threads_max: int = LOCAL_THREADS_MAX) -> None:
        self._threads_max = threads_max
        self._changed = threading.Lock()
        self._threads = 0

    def start(self, run_count: int, *, with_slow: bool = True) -> None:
        """Have up to `run_count` more threads execute runs until none waits, and return at once. `with_slow`: also runs
        of slow kinds, one at a time."""
        with self._changed:
            for _ in range(min(run_count, self._threads_max - self._threads)):
                threading.Thread(target=self._run, args=[with_slow], name="task-executor", daemon=True).start()
                self._threads += 1

    def is_idle(self) -> bool:
        return not self._threads

    def _run(self, with_slow: bool) -> None:
        try:
            while execute_next(with_slow=with_slow):
                pass
        except BaseException as error:  # noqa: BLE001 - a restarted database, or a handler that calls sys.exit()
            # The run is found again, and the picker's next round starts another thread.
            logger.warning("a run is tried again later: %s", log_context.summarize_error(error))
        finally:
            connections.close_all()
            with self._changed:
                self._threads -= 1
