"""Executors: run the handlers of runs whose time has come, each with its end in one transaction.

An executor may be killed at any point. Before the start of a run nothing has happened; between start and commit the
transaction is rolled back by the database; after the commit the run has ended. A run may be handed to several
executors: one of them starts it.
"""

import logging
import threading
from collections.abc import Iterable

from django.db import close_old_connections, connections

from apps.kernel.db import transactions
from apps.kernel.http import problems
from apps.kernel.observability import log_context
from apps.kernel.scheduler import runs
from apps.kernel.scheduler.registry import FILE_BYTES_MAX, Outcome, TaskFailed, TaskKind, find_kind, require_permitted
from apps.kernel.scheduler.runs import Attempt

logger = logging.getLogger(__name__)

EXITS = (KeyboardInterrupt, SystemExit, GeneratorExit)
LOCAL_THREADS_MAX = 4


def execute_all(run_ids: Iterable[int]) -> int:
    """Execute these runs one after the other; return how many this executor has started."""
    return sum(execute(run_id) for run_id in run_ids)


def execute(run_id: int) -> bool:
    """Start the run and execute it, unless another executor has it; return whether it was started here.

    Afterwards it has succeeded with all effects of its handler, or none of them is committed. A failure of the handler
    is recorded, not raised. Raises errors of the database from outside the handler; the run is then found again.
    """
    attempt = runs.start(run_id)
    if attempt is None:
        return False
    kind = find_kind(attempt.kind)
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
        self._waiting: dict[int, None] = {}
        """Run ids in their order."""
        self._threads = 0

    def add(self, run_ids: Iterable[int]) -> None:
        """Execute these runs after those that wait already, and return at once."""
        with self._changed:
            self._waiting |= dict.fromkeys(run_ids)
            while self._threads < min(self._threads_max, len(self._waiting)):
                self._threads += 1
                threading.Thread(target=self._run, name="task-executor", daemon=True).start()

    def is_idle(self) -> bool:
        return not self._threads

    def _run(self) -> None:
        while (run_id := self._next()) is not None:
            try:
                execute(run_id)
            except BaseException as error:  # noqa: BLE001 - a restarted database, or a handler that calls sys.exit()
                # The run is found again. The thread goes on: it is counted, and no other would be started for it.
                logger.warning("run %s is tried again later: %s", run_id, log_context.summarize_error(error))
            finally:
                close_old_connections()
        connections.close_all()

    def _next(self) -> int | None:
        """Return the next run; None if the thread is to end."""
        with self._changed:
            if not self._waiting:
                self._threads -= 1
                return None
            run_id = next(iter(self._waiting))
            del self._waiting[run_id]
            return run_id
