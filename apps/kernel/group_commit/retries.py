"""The carrying out of one batch: attempts, what they come to, and what is tried instead, until every call has its
answer. Who asks, how batches form and in which thread is batcher.py."""

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
"""What decides a batch: see batcher.py."""

happened = Counter(
    "fairgate_batch_happenings",
    "refused (full or closed), dropped (the caller went away first), retried, split, faulted, undecided.",
    ["batcher", "what"],
    registry=None,
)


class OutcomeUnknown(problems.Busy):
    """The request may have been carried out: its answer came too late or was lost. The same idempotency key tells."""

    title = "What became of this is not known yet; send the same request again."


class InvalidDecision(RuntimeError):
    """`decide` broke its word: a wrong number of outcomes, or a transaction left open. A fault of the code."""


class _DatabaseUnavailable(Exception):
    """No connection could be had; nothing was begun."""


@dataclass(frozen=True, slots=True)
class _Segment(Generic[Request, Outcome]):
    """Calls that are decided together, and what has befallen them."""

    calls: Sequence[Call[Request, Outcome]]
    again: bool = False
    """An attempt was made before: whatever it committed is looked for first."""
    retried: bool = False
    lost: bool = False
    """A connection was lost over it: what it had sent may yet be committed behind our back."""
    rechecked: bool = False


class Attempts(Generic[Request, Outcome]):
    """How the batches of one batcher are carried out."""

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
        """Every call has its answer. False if that is, for some, that there is no ledger: whoever comes now would only
        meet the same.

        What passes by itself (a deadlock, a lock, a lost connection, a full disk) is tried once more and is never
        split: the halves would only meet the same. Anything else is somebody's poison: the batch is split until it
        stands alone. The left half is decided before the right one is begun, so the neighbours keep their order. No
        request is tried again twice because of what passes, so this ends.
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
        """The segment is decided, or the segments that are to be tried instead, in order."""
        try:
            connection = pool.getconn()
        except (PoolTimeout, PoolClosed) as error:
            logger.warning("batcher %s: the ledger is away: %s", self._name, error)
            raise _DatabaseUnavailable from error
        try:
            open_calls = self._answer_committed(connection, segment)
            if open_calls:
                self._decide_all(connection, open_calls)
        except Exception as error:  # noqa: BLE001 - Each caller is given it, or the batch another attempt.
            # Asked of the connection and not of the error: whatever was raised, a COMMIT that was sent over a
            # connection that is gone may have been carried out.
            lost = connection.closed
            if isinstance(error, psycopg.errors.InvalidSqlStatementName):
                roundtrip.disable_prepared()
            still_open = replace(segment, calls=[call for call in segment.calls if not call.answered], again=True)
            if lost:
                still_open = replace(still_open, lost=True)
            passing = lost or transactions.is_transient(error) or _is_server_error(error)
            return self._plan_retry(error, still_open, passing=passing) if still_open.calls else []
        finally:
            wake([call for call in segment.calls if call.answered])
            pool.putconn(connection)
        return []

    def _answer_committed(
        self, connection: Connection[Any], segment: _Segment[Request, Outcome]
    ) -> list[Call[Request, Outcome]]:
        """What an earlier attempt committed is answered; the calls that are still open."""
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
        # An answer given out of an open transaction is a promise that the pool's rollback would break.
        if connection.info.transaction_status not in (TransactionStatus.IDLE, TransactionStatus.UNKNOWN):
            raise InvalidDecision(f"{self._name}: a transaction was left open")

    def _plan_retry(
        self, error: Exception, segment: _Segment[Request, Outcome], *, passing: bool
    ) -> list[_Segment[Request, Outcome]]:
        """An attempt failed: what is to be done instead, in order; nothing if the callers were told."""
        calls = segment.calls
        if isinstance(error, InvalidDecision):
            # It may have committed what it could not tell: deciding it again would be worse than not knowing.
            logger.error("batcher %s: %s", self._name, error, exc_info=error)
            refuse(calls, lambda: InvalidDecision(*error.args))
        elif passing and not segment.retried:
            logger.info("batcher %s: %s requests are tried once more after: %s", self._name, len(calls), error)
            self._note("retried")
            return [replace(segment, retried=True)]
        elif passing:
            logger.warning("batcher %s: %s requests gave up after: %s", self._name, len(calls), error)
            self._note("undecided", len(calls))
            refuse(calls, OutcomeUnknown if segment.lost else problems.Busy)
        elif len(calls) > 1:
            self._note("split")
            middle = len(calls) // 2
            return [replace(segment, calls=calls[:middle]), replace(segment, calls=calls[middle:])]
        elif segment.lost and not segment.rechecked:
            # Lost at COMMIT, then not found, then refused by a unique key: the old session committed in between, and
            # a second look finds it.
            return [replace(segment, rechecked=True)]
        else:
            self._note("faulted", len(calls))
            refuse(calls, lambda: error)
        return []

    def _note(self, what: str, count: int = 1) -> None:
        happened.labels(self._name, what).inc(count)


def _is_server_error(error: Exception) -> bool:
    """Out of resources, being shut down, failing, a stand-by that takes no writes, or a session that does not know what
    was prepared: no request is to blame."""
    state = (error.sqlstate or "") if isinstance(error, psycopg.Error) else ""
    others = (psycopg.errors.ReadOnlySqlTransaction.sqlstate, psycopg.errors.InvalidSqlStatementName.sqlstate)
    return state.startswith(("53", "57", "58")) or state in others
