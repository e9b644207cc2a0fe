"""Execution of one batch: attempts and retries until every call has its answer. batcher.py forms the batches and runs
the threads."""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic

import psycopg
from prometheus_client import Counter
from psycopg import Connection
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from apps.kernel.db import roundtrip, transactions
from apps.kernel.group_commit.pending import Call, Outcome, Request, refuse, wake
from apps.kernel.http import problems

logger = logging.getLogger(__name__)

Decide = Callable[[Connection[Any], list[Request]], Sequence[Outcome] | Iterator[Mapping[int, Outcome]]]
"""The function that decides a batch: see batcher.py."""

happened = Counter(
    "fairgate_batch_happenings",
    "refused (full or closed), dropped (the caller no longer waited), retried, split, faulted, undecided.",
    ["batcher", "what"],
    registry=None,
)


class OutcomeUnknown(problems.Busy):
    """The request may have succeeded: its answer was late or lost. Sending it again with the same idempotency key
    returns the answer."""

    title = "The result is not known yet. Send the same request again."


class InvalidDecision(RuntimeError):
    """`decide` broke its contract: a wrong number of outcomes, or a transaction left open. A fault of the code."""


class _DatabaseUnavailable(Exception):
    """There is no connection; nothing was begun."""


@dataclass(frozen=True, slots=True)
class _Segment(Generic[Request, Outcome]):
    """Calls that are decided together, and the history of their attempts."""

    calls: Sequence[Call[Request, Outcome]]
    again: bool = False
    """An attempt was made before; the next one first looks up what it committed."""
    retried: bool = False
    lost: bool = False
    """A connection was lost during an attempt, whose COMMIT may still succeed."""
    rechecked: bool = False


class Attempts(Generic[Request, Outcome]):
    """Executes the batches of one batcher."""

    def __init__(
        self,
        name: str,
        decide: Decide[Request, Outcome],
        find_committed: Callable[[Connection[Any], list[Request]], Mapping[int, Outcome]],
    ) -> None:
        self._name = name
        self._decide = decide
        self._find_committed = find_committed

    def carry_out(self, pool: ConnectionPool[Connection[Any]], calls: Sequence[Call[Request, Outcome]]) -> bool:
        """Answer every call. Return False if the database is unavailable: further batches would fail too.

        A transient failure (a deadlock, a lock timeout, a lost connection, a full disk) is retried once and never
        splits the batch: both halves would fail in the same way. Any other failure is attributed to one request: the
        batch is split until that request is alone. The left half is decided before the right one, so order is kept. No
        request is retried twice for a transient failure, so this terminates.
        """
        todo = [_Segment(calls)]
        while todo:
            segment = todo.pop()
            try:
                verdict = self._attempt(pool, segment)
            except _DatabaseUnavailable:
                for left in (segment, *reversed(todo)):
                    refuse(left.calls, OutcomeUnknown if left.again else problems.DatabaseUnavailable)
                return False
            todo += reversed(verdict)
        return True

    def _attempt(
        self, pool: ConnectionPool[Connection[Any]], segment: _Segment[Request, Outcome]
    ) -> list[_Segment[Request, Outcome]]:
        """Decide the segment, or return the segments to try instead, in order."""
        try:
            connection = pool.getconn()
        except (PoolTimeout, PoolClosed) as error:
            logger.warning("batcher %s: the database is unavailable: %s", self._name, error)
            raise _DatabaseUnavailable from error
        try:
            open_calls = self._answer_committed(connection, segment)
            if open_calls:
                self._decide_all(connection, open_calls)
        except Exception as error:  # noqa: BLE001 - It is retried, or raised in each caller.
            # The connection's state decides, not the error: a COMMIT sent over a connection that is now closed may have
            # succeeded, whatever was raised.
            lost = connection.closed
            if isinstance(error, psycopg.errors.InvalidSqlStatementName):
                roundtrip.disable_prepared()
            still_open = replace(segment, calls=[call for call in segment.calls if not call.answered], again=True)
            if lost:
                still_open = replace(still_open, lost=True)
            is_transient = lost or transactions.is_transient(error) or _is_server_error(error)
            return self._plan_retry(error, still_open, is_transient=is_transient) if still_open.calls else []
        finally:
            wake([call for call in segment.calls if call.answered])
            pool.putconn(connection)
        return []

    def _answer_committed(
        self, connection: Connection[Any], segment: _Segment[Request, Outcome]
    ) -> list[Call[Request, Outcome]]:
        """Answer what an earlier attempt committed; return the calls that are still open."""
        if segment.again:
            found = self._find_committed(connection, [call.request for call in segment.calls])
            self._require_idle(connection)
            for index, outcome in found.items():
                segment.calls[index].answer(outcome)
        return [call for call in segment.calls if not call.answered]

    def _decide_all(self, connection: Connection[Any], calls: list[Call[Request, Outcome]]) -> None:
        outcomes = self._decide(connection, [call.request for call in calls])
        if isinstance(outcomes, Iterator):
            self._answer_incrementally(connection, outcomes, calls)
            return
        self._require_idle(connection)
        if len(outcomes) != len(calls):
            raise InvalidDecision(f"{self._name}: {len(outcomes)} outcomes for {len(calls)} requests")
        for call, outcome in zip(calls, outcomes, strict=True):
            call.answer(outcome)

    def _answer_incrementally(
        self,
        connection: Connection[Any],
        outcomes: Iterator[Mapping[int, Outcome]],
        calls: list[Call[Request, Outcome]],
    ) -> None:
        for committed in outcomes:
            self._require_idle(connection)
            for index, outcome in committed.items():
                calls[index].answer(outcome)
            wake([calls[index] for index in committed])
        self._require_idle(connection)
        if any(not call.answered for call in calls):
            raise InvalidDecision(f"{self._name}: outcomes for only some of {len(calls)} requests")

    def _require_idle(self, connection: Connection[Any]) -> None:
        # The pool would roll an open transaction back, and the answer would be wrong.
        if connection.info.transaction_status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN):
            raise InvalidDecision(f"{self._name}: a transaction was left open")

    def _plan_retry(
        self, error: Exception, segment: _Segment[Request, Outcome], *, is_transient: bool
    ) -> list[_Segment[Request, Outcome]]:
        """Return the segments to try after a failed attempt, in order; none if the callers have been answered."""
        calls = segment.calls
        if isinstance(error, InvalidDecision):
            # It may have committed outcomes that it did not return, so it must not decide again.
            logger.error("batcher %s: %s", self._name, error, exc_info=error)
            refuse(calls, lambda: InvalidDecision(*error.args))
        elif is_transient and not segment.retried:
            logger.info("batcher %s: %s requests are retried after: %s", self._name, len(calls), error)
            self._note("retried")
            return [replace(segment, retried=True)]
        elif is_transient:
            logger.warning("batcher %s: %s requests gave up after: %s", self._name, len(calls), error)
            self._note("undecided", len(calls))
            refuse(calls, OutcomeUnknown if segment.lost else problems.Busy)
        elif len(calls) > 1:
            self._note("split")
            middle = len(calls) // 2
            return [replace(segment, calls=calls[:middle]), replace(segment, calls=calls[middle:])]
        elif segment.lost and not segment.rechecked:
            # The connection was lost at COMMIT, the look-up found no outcome, and then a unique key refused the second
            # attempt: the old session committed in between. A second look-up finds its outcome.
            return [replace(segment, rechecked=True)]
        else:
            self._note("faulted", len(calls))
            refuse(calls, lambda: error)
        return []

    def _note(self, what: str, count: int = 1) -> None:
        happened.labels(self._name, what).inc(count)


def _is_server_error(error: Exception) -> bool:
    """Return whether the server, not a request, caused the error: it is out of resources, shutting down or a stand-by
    that refuses writes, or the session lacks the prepared statements."""
    state = (error.sqlstate or "") if isinstance(error, psycopg.Error) else ""
    others = (psycopg.errors.ReadOnlySqlTransaction.sqlstate, psycopg.errors.InvalidSqlStatementName.sqlstate)
    return state.startswith(("53", "57", "58")) or state in others
