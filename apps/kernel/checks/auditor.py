"""The auditor checks invariants on a live system with plain SQL in short reads. Apps register their checks.

The sale continues during an audit, and two statements see two snapshots. So a check either decides within one
statement, or treats a finding from several statements as a suspicion and confirms it in one. Reads are short, because
an open snapshot prevents VACUUM from removing dead rows, which slows down every hold.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
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
"""Timeout of one statement. After it the check's result is unknown."""
PIECE_MAX = 2_000
PIECE_MIN = 100
LONG_SECONDS = 0.1
"""The batch size is halved after a batch that took longer than this, and doubled after a quicker one."""
ATTEMPTS_MAX = 2
LATE_SECONDS = 180
"""An audit runs every minute. If the latest is older than this, the current state is unknown."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AuditContext:
    """One running audit: its scope, and the reads that its checks share."""

    only: str = ""
    """The slug of the one event to check; empty: all events."""
    _read: dict[Callable[..., Any], Any] = field(default_factory=dict)

    def once(self, read: "Callable[[AuditContext], T]") -> T:
        """Return the result of `read(self)`, called once per audit, so that several checks share one scan."""
        if read not in self._read:
            self._read[read] = read(self)
        result: T = self._read[read]
        return result


Find = Callable[[AuditContext], Iterable[str]]
"""Yields one readable line for each breach."""


@dataclass(frozen=True, slots=True)
class Check:
    invariant: str
    """I1 to I10, as docs/architecture.md numbers them."""
    promise: str
    find: Find


@dataclass(frozen=True, slots=True)
class Finding:
    invariant: str
    promise: str
    breaches: tuple[str, ...] = ()
    unchecked: str = ""
    """Why the check could not run; its result is then unknown."""


_checks: list[Check] = []


def register(invariant: str, promise: str, find: Find) -> None:
    """Add a check to every audit; registering the same invariant and promise again replaces it."""
    check = Check(invariant, promise, find)
    _checks[:] = [known for known in _checks if (known.invariant, known.promise) != (invariant, promise)] + [check]


@contextmanager
def read_cursor() -> Iterator[Any]:
    """Yield a cursor for a few short reads. Each statement has its own snapshot and a timeout."""
    with transactions.write(statement_ms=STATEMENT_MS), connection.cursor() as cursor:
        yield cursor


def scan_in_batches(
    rows: QuerySet[Any], after: Any, check_batch: Callable[[Any, Any, Any], None], *, key: str = "pk", last: Any = None
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
        size = max(PIECE_MIN, size // 2) if time.monotonic() - begun > LONG_SECONDS else min(PIECE_MAX, size * 2)


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


def run(only: str = "") -> list[Finding]:
    """Run every registered check in the order of invariants, on all events or on the one with the slug `only`."""
    context = AuditContext(only)
    ordered = sorted(_checks, key=lambda check: (int(check.invariant.lstrip("I")), check.promise))
    return [_run_check(check, context) for check in ordered]


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


def audit(only: str = "") -> AuditRun:
    """Run an audit and return its result without storing it."""
    started_at, begun = clock.now(), time.monotonic()
    findings = run(only)
    return AuditRun(
        started_at=started_at,
        duration_ms=int((time.monotonic() - begun) * 1000),
        breach_count=sum(len(finding.breaches) for finding in findings),
        report=report(findings),
    )


@dataclass(frozen=True, slots=True)
class AuditStatus:
    """The latest audit, summarized for status pages."""

    latest: AuditRun | None
    is_late: bool
    """The auditor seems to have stopped; its last result does not describe the current state."""

    @property
    def color(self) -> str:
        """red if the latest audit found a breach, green if it is recent and clean, amber if the state is unknown."""
        if self.latest is not None and self.latest.breach_count:
            return "red"
        if self.latest is None or self.is_late or not self.latest.is_clean:
            return "amber"
        return "green"


def get_status() -> AuditStatus:
    """Return the latest audit and whether it is recent."""
    latest = AuditRun.objects.first()
    if latest is None:
        return AuditStatus(None, is_late=False)
    return AuditStatus(latest, is_late=clock.now() - latest.finished_at > timedelta(seconds=LATE_SECONDS))


def run_and_record() -> AuditRun:
    """Run an audit of all events and store its result; delete the oldest results beyond KEPT_RUNS."""
    result = audit()
    result.save()
    kept = AuditRun.objects.order_by("-started_at").values("pk")[:KEPT_RUNS]
    AuditRun.objects.exclude(pk__in=list(kept.values_list("pk", flat=True))).delete()
    return result
