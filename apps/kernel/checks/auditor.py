"""The auditor checks invariants on a live system with plain SQL in short reads. Apps register their checks.

The sale continues during an audit, and two statements see two snapshots. So a check either decides within one
statement, or treats a finding from several statements as a suspicion and confirms it in one. Reads are short, because
an open snapshot prevents VACUUM from removing dead rows, which slows down every hold.

There are two kinds of audit. Every minute one checks what has changed since the last one, so its cost does not grow
with history. Beside it, `whole_audit.py` checks everything again and again, slowly. It alone finds what no transaction
of ours has written, such as a raw edit, and it alone runs the checks that need every row.

"Changed since" is a transaction horizon and not a time or an id: a transaction that commits late has an early time and
an early id. An audit stores the xmin of a snapshot that it takes before it reads. Every transaction below it has ended,
so its changes were visible to this audit. The next audit reads what transactions from this xmin on have written, some
of it twice. While an audit finds a breach or cannot check everything, the horizon stays: the next audit checks the same
changes again.
"""

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any, TypeVar

from django.db import DatabaseError, connection
from django.db.models import QuerySet

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.models import AuditRun
from apps.kernel.observability import log_context

logger = logging.getLogger(__name__)

KEPT_RUNS = 1_000
SHOWN_BREACHES_MAX = 50
STATEMENT_MS = 5_000
LIST_MAX = 100
"""Timeout of one statement. After it the check's result is unknown."""
PIECE_MAX = 2_000
PIECE_MIN = 100
LONG_SECONDS = 0.1
"""The batch size is halved after a batch that took longer than this, and doubled after a quicker one."""
ATTEMPTS_MAX = 2
LATE_SECONDS = 180
"""An audit of changes runs every minute. If the latest is older than this, the current state is unknown."""
WHOLE_LATE_SECONDS = 24 * 3_600
"""If the latest audit of everything is older than this, something prevents it."""

CHANGES_MAX = 50_000
"""Changes that one audit of changes reads; those of later transactions are left for the next one."""
REPEATS_MAX = 8
"""While breaches stand, each further audit reads so many changes more, up to this many times as many."""
CATCH_UP_SECONDS = 30.0
"""While changes are left, audits follow each other for this long."""
LAST = 2**63 - 1
"""No transaction has this id."""
_ALL_READ = "the audit has read all changes"

T = TypeVar("T")


def no_rest(worked_seconds: float) -> None:
    """Go on at once."""


@dataclass(frozen=True, slots=True)
class AuditContext:
    """One running audit: its scope, and the reads that its checks share."""

    only: str = ""
    """The slug of the one event to check; empty: all events."""
    since: int | None = None
    """Check what transactions from this id on have changed; None: everything."""
    until: int = LAST
    """Of these, check what transactions below this id have changed."""
    rest: Callable[[float], None] = no_rest
    """Called after each batch with the seconds that it took; it may wait."""
    _read: dict[Callable[..., Any], Any] = field(default_factory=dict)

    def once(self, read: "Callable[[AuditContext], T]") -> T:
        """Return the result of `read(self)`, called once per audit, so that several checks share one scan."""
        if read not in self._read:
            self._read[read] = read(self)
        result: T = self._read[read]
        return result

    @property
    def changes(self) -> dict[str, int | None]:
        """The parameters of a statement that reads what has changed."""
        return {"since": self.since, "until": self.until}


Find = Callable[[AuditContext], Iterable[str]]
"""Yields one readable line for each breach."""


@dataclass(frozen=True, slots=True)
class Check:
    invariant: str
    """I1 to I10, as docs/architecture.md numbers them."""
    promise: str
    find: Find
    needs_everything: bool = False
    """It cannot be limited to what has changed."""


@dataclass(frozen=True, slots=True)
class Finding:
    invariant: str
    promise: str
    breaches: tuple[str, ...] = ()
    unchecked: str = ""
    """Why the check could not run; its result is then unknown."""


_checks: list[Check] = []
_horizon = sql.load("apps.kernel", "audit_horizon")


def register(invariant: str, promise: str, find: Find, *, needs_everything: bool = False) -> None:
    """Add a check to every audit; registering the same invariant and promise again replaces it. One that
    `needs_everything` is left out of audits of changes."""
    check = Check(invariant, promise, find, needs_everything)
    _checks[:] = [known for known in _checks if (known.invariant, known.promise) != (invariant, promise)] + [check]


@contextmanager
def read_cursor() -> Iterator[Any]:
    """Yield a cursor for a few short reads. Each statement has its own snapshot and a timeout."""
    with transactions.write(statement_ms=STATEMENT_MS), connection.cursor() as cursor:
        yield cursor


def lists_of(ids: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield these ids in lists of LIST_MAX, for one statement each: a transaction for each of an event's thousands of
    sections would take minutes on a busy machine."""
    for first in range(0, len(ids), LIST_MAX):
        yield ids[first : first + LIST_MAX]


@dataclass(frozen=True, slots=True)
class Batch:
    """The rows that one short transaction examines: those of a range of keys, or those with given keys."""

    keys: dict[str, Any]
    """`after` and `until`, or `ids`."""

    def rows(self, statement: sql.Statement, cursor: Any, **params: Any) -> Sequence[tuple[Any, ...]]:
        """Execute the statement, which is written for a range of keys, on these rows."""
        chosen = for_ids(statement) if "ids" in self.keys else statement
        return chosen.rows(cursor, **self.keys, **params)


_RANGE = re.compile(r"([\w.]+) > %\(after\)s\s+AND \1 <= %\(until\)s")


@cache
def for_ids(statement: sql.Statement) -> sql.Statement:
    """Return the statement with each range of keys, `key > %(after)s AND key <= %(until)s`, replaced by a list of
    keys, `%(ids)s`. So the audit of changes runs the same statements as the audit of everything."""
    text, count = _RANGE.subn(r"\1 = ANY(%(ids)s)", statement.text)
    assert count, f"{statement.name}: no range of keys"
    assert "%(after)s" not in text, f"{statement.name}: another range of keys"
    return sql.Statement(statement.name, text)


def scan(
    context: AuditContext,
    rows: QuerySet[Any],
    first: Any,
    check_batch: Callable[[Any, Batch], None],
    *,
    changed: Callable[[], Iterable[Any]],
    key: str = "pk",
) -> None:
    """Call `check_batch(cursor, batch)` for each batch of these rows, or in an audit of changes for each batch of the
    keys that `changed()` returns."""
    if context.since is None:
        scan_in_batches(
            rows,
            first,
            lambda cursor, after, until: check_batch(cursor, Batch({"after": after, "until": until})),
            key=key,
            rest=context.rest,
        )
        return
    keys = sorted(set(changed()))
    for start in range(0, len(keys), PIECE_MAX):
        with read_cursor() as cursor:
            check_batch(cursor, Batch({"ids": keys[start : start + PIECE_MAX]}))


def find(
    context: AuditContext,
    rows: QuerySet[Any],
    first: Any,
    statements: Sequence[sql.Statement],
    *,
    changed: Callable[[], Iterable[Any]],
    key: str = "pk",
    **params: Any,
) -> list[list[Sequence[Any]]]:
    """Scan these rows like `scan`, and return the list of rows that each statement has found."""
    found: list[list[Sequence[Any]]] = [[] for _ in statements]

    def check_batch(cursor: Any, batch: Batch) -> None:
        for breaches, statement in zip(found, statements, strict=True):
            breaches += batch.rows(statement, cursor, **params)

    scan(context, rows, first, check_batch, changed=changed, key=key)
    return found


def scan_in_batches(
    rows: QuerySet[Any],
    after: Any,
    check_batch: Callable[[Any, Any, Any], None],
    *,
    key: str = "pk",
    last: Any = None,
    rest: Callable[[float], None] = no_rest,
) -> Any:
    """Call `check_batch(cursor, after, until)` for each batch of these rows in the order of `key`, in a short
    transaction per batch.

    The first batch begins after the key `after`; with `last`, the scan ends at that key. Returns the end of the last
    batch. Rows that are inserted or deleted during the scan may be missed, so each batch must be checked independently.
    """
    size = PIECE_MAX
    while True:
        begun = time.monotonic()
        with read_cursor() as cursor:
            ahead = rows.filter(**{f"{key}__gt": after}).order_by(key).values_list(key, flat=True)
            end = ahead[size - 1 : size].first() or ahead.last()
            until = end if end is not None and (last is None or end <= last) else last
            if until is None or after == until:
                return after
            check_batch(cursor, after, until)
        after = until
        worked = time.monotonic() - begun
        size = max(PIECE_MIN, size // 2) if worked > LONG_SECONDS else min(PIECE_MAX, size * 2)
        rest(worked)


def collect(
    rows: QuerySet[Any], after: Any, statements: Sequence[sql.Statement], *, key: str = "pk", **params: Any
) -> list[list[Sequence[Any]]]:
    """Scan these rows in batches, and return the list of rows that each statement has found."""
    found: list[list[Sequence[Any]]] = [[] for _ in statements]

    def check_batch(cursor: Any, after: Any, until: Any) -> None:
        for breaches, statement in zip(found, statements, strict=True):
            breaches += statement.rows(cursor, after=after, until=until, **params)

    scan_in_batches(rows, after, check_batch, key=key)
    return found


def run(
    only: str = "", *, since: int | None = None, until: int = LAST, rest: Callable[[float], None] = no_rest
) -> list[Finding]:
    """Run every registered check in the order of invariants, on all events or on the one with the slug `only`; with
    `since`, on what transactions from this id on and below `until` have changed."""
    context = AuditContext(only, since, until, rest)
    ordered = sorted(_checks, key=lambda check: (int(check.invariant.lstrip("I")), check.promise))
    return [_run_check(check, context) for check in ordered if since is None or not check.needs_everything]


def _run_check(check: Check, context: AuditContext) -> Finding:
    for attempt in range(ATTEMPTS_MAX):
        try:
            return Finding(check.invariant, check.promise, tuple(check.find(context)))
        except DatabaseError as error:
            # A timeout on a busy machine and unreadable rows are neither a breach nor a clean result. The other checks
            # still run.
            if not transactions.is_transient(error):
                logger.exception("audit: %s could not be checked", check.invariant)
            if attempt == ATTEMPTS_MAX - 1 or not transactions.is_transient(error):
                return Finding(check.invariant, check.promise, unchecked=log_context.summarize_error(error))
    raise AssertionError("not reached")


def report(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return the findings in the form in which they are stored and printed."""
    return [
        {
            "invariant": finding.invariant,
            "promise": finding.promise,
            "breach_count": len(finding.breaches),
            "breaches": list(finding.breaches[:SHOWN_BREACHES_MAX]),
            "unchecked": finding.unchecked,
        }
        for finding in findings
    ]


def audit(
    only: str = "", *, since: int | None = None, until: int = LAST, rest: Callable[[float], None] = no_rest
) -> AuditRun:
    """Run an audit like `run` and return its result without storing it."""
    started_at, begun = clock.now(), time.monotonic()
    findings = run(only, since=since, until=until, rest=rest)
    return AuditRun(
        scope=AuditRun.Scope.EVERYTHING if since is None else AuditRun.Scope.CHANGES,
        started_at=started_at,
        duration_ms=int((time.monotonic() - begun) * 1000),
        breach_count=sum(len(finding.breaches) for finding in findings),
        report=report(findings),
    )


@dataclass(frozen=True, slots=True)
class AuditStatus:
    """The latest audits, summarized for status pages."""

    latest: AuditRun | None
    """The latest audit of changes or of everything; one with breaches comes first."""
    is_late: bool
    """The auditor seems to have stopped; its last result does not describe the current state."""
    whole: AuditRun | None = None
    """The latest audit of everything."""
    is_whole_late: bool = False
    """Nothing has checked everything for long."""

    @property
    def color(self) -> str:
        """red if the latest audit of either kind found a breach, green if both are recent and clean, amber if the state
        is unknown."""
        if self.latest is not None and self.latest.breach_count:
            return "red"
        is_unknown = self.latest is None or self.is_late or self.is_whole_late
        if is_unknown or not all(run.is_clean for run in (self.latest, self.whole) if run is not None):
            return "amber"
        return "green"


def get_status() -> AuditStatus:
    """Return the latest audits and whether they are recent."""
    by_scope = [AuditRun.objects.filter(scope=scope).first() for scope in AuditRun.Scope.values]
    runs = sorted((run for run in by_scope if run is not None), key=lambda run: run.started_at, reverse=True)
    if not runs:
        return AuditStatus(None, is_late=False)
    now = clock.now()
    whole = next((run for run in runs if run.scope == AuditRun.Scope.EVERYTHING), None)
    return AuditStatus(
        next((run for run in runs if run.breach_count), runs[0]),
        is_late=now - max(run.finished_at for run in runs) > timedelta(seconds=LATE_SECONDS),
        whole=whole,
        is_whole_late=whole is not None and now - whole.finished_at > timedelta(seconds=WHOLE_LATE_SECONDS),
    )


def run_and_record(rest: Callable[[float], None] = no_rest) -> AuditRun:
    """Run an audit of everything and store its result."""
    return _store(audit(rest=rest))


def run_on_changes_and_record() -> AuditRun:
    """Check what has changed since the last audit of changes, and store the result. After more than CHANGES_MAX changes
    only the first ones are checked, and the result says so. While breaches stand, the same changes are checked again
    and more with each audit, so that they do not hide what happens later.

    The first one, and the first after the database was restored into another cluster (whose transactions are counted
    anew), only sets the horizon: an audit of everything that begins later finds what was before.
    """
    cluster, horizon, next_id = _read_horizon()
    before = AuditRun.objects.filter(scope=AuditRun.Scope.CHANGES, cluster=cluster, horizon__lte=next_id).first()
    since = horizon if before is None or before.horizon is None else before.horizon
    limit = CHANGES_MAX * min(1 + _count_breached(cluster, since), REPEATS_MAX)
    until = min([max(find_end(since, limit), since + 1) for find_end in _ends], default=LAST)
    result = audit(since=since, until=until)
    reached = min(horizon, until) if result.is_clean else since
    result.cluster, result.horizon = cluster, reached
    if until < LAST:
        left = f"there are more than {limit:,}; the next audit goes on with transaction {reached}"
        result.report += report([Finding("all", _ALL_READ, unchecked=left)])
    for forget in _forgets:
        forget(reached)
    return _store(result)


def _count_breached(cluster: int, since: int) -> int:
    """Return how many audits of the changes from this transaction on have found breaches."""
    runs = AuditRun.objects.filter(scope=AuditRun.Scope.CHANGES, cluster=cluster, horizon=since)
    return runs.filter(breach_count__gt=0).count()


def catch_up() -> AuditRun:
    """Run audits of changes like `run_on_changes_and_record`, until one has checked all changes or made no progress,
    or CATCH_UP_SECONDS have passed; return the last."""
    deadline = time.monotonic() + CATCH_UP_SECONDS
    reached = None
    while True:
        run = run_on_changes_and_record()
        has_left = run.report[-1]["promise"] == _ALL_READ
        if not has_left or run.horizon == reached or time.monotonic() > deadline:
            return run
        reached = run.horizon


def _read_horizon() -> tuple[int, int, int]:
    """Return the cluster's identifier, the transaction below which all have ended, and the next transaction's id."""
    with read_cursor() as cursor:
        ((cluster, horizon, next_id),) = _horizon.rows(cursor)
    return cluster, horizon, next_id


_ends: list[Callable[[int, int], int]] = []
_forgets: list[Callable[[int], object]] = []


def register_changes(find_end: Callable[[int, int], int]) -> None:
    """Let audits of changes be limited by `find_end(since, limit)`, which returns the transaction with the first change
    after `limit` changes from transaction `since` on; LAST if there are no more."""
    if find_end not in _ends:
        _ends.append(find_end)


def read_end(statement: sql.Statement, since: int, limit: int) -> int:
    """Return the lowest transaction that the statement finds, for `register_changes`."""
    with read_cursor() as cursor:
        return min([end for (end,) in statement.rows(cursor, since=since, limit=limit)], default=LAST)


def register_forget(forget: Callable[[int], object]) -> None:
    """Call `forget(horizon)` after each audit of changes: no later one asks for changes of earlier transactions."""
    if forget not in _forgets:
        _forgets.append(forget)


def _store(result: AuditRun) -> AuditRun:
    """Store the result; delete the oldest of its scope beyond KEPT_RUNS."""
    result.save()
    of_scope = AuditRun.objects.filter(scope=result.scope)
    kept = of_scope.order_by("-started_at").values("pk")[:KEPT_RUNS]
    of_scope.exclude(pk__in=list(kept.values_list("pk", flat=True))).delete()
    return result
