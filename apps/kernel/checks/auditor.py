"""The auditor: invariants checked on a live system with plain SQL in short reads. Apps register their checks.

A sale goes on meanwhile, and two statements see two moments. So a check either judges within one statement, or counts
what it found in several as a suspicion and asks again in one. And nothing is read for long: a snapshot that stays open
keeps the database from clearing away what the sale has changed since, and slows every hold down.
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

from django.db import DatabaseError, connection

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.models import AuditRun
from apps.kernel.observability import log_context

logger = logging.getLogger(__name__)

KEPT_RUNS = 1_000
SHOWN_BREACHES_MAX = 50
STATEMENT_MS = 5_000
"""A statement that has not ended by then never was a short read; what it would have told is then not known."""
PIECE_MAX = 2_000
PIECE_MIN = 100
LONG_SECONDS = 0.1
"""A piece that takes longer is followed by one of half the size; pieces grow again as they get quick."""
ATTEMPTS_MAX = 2
LATE_SECONDS = 180
"""An audit runs every minute. When the latest is older than this, nobody knows how things are now."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AuditContext:
    """One audit under way: what it is about, and what its checks have read together."""

    only: str = ""
    """The public name of the one thing to look at, as the apps understand it; empty: everything."""
    _read: dict[Callable[..., Any], Any] = field(default_factory=dict)

    def once(self, read: "Callable[[AuditContext], T]") -> T:
        """What `read_cursor(self)` returned the first time: several checks judge what one walk has seen."""
        if read not in self._read:
            self._read[read] = read(self)
        found: T = self._read[read]
        return found


Find = Callable[[AuditContext], Iterable[str]]
"""Yields one readable line per breach."""


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
    """Why it could not be checked this time; then nothing is known of it."""


_checks: list[Check] = []


def register(invariant: str, promise: str, find: Find) -> None:
    """From now on every audit includes this check."""
    check = Check(invariant, promise, find)
    _checks[:] = [known for known in _checks if (known.invariant, known.promise) != (invariant, promise)] + [check]


@contextmanager
def read_cursor() -> Iterator[Any]:
    """A cursor for a few short reads. Every statement has a snapshot of its own, which ends with it, and a limit."""
    with transactions.write(statement_ms=STATEMENT_MS), connection.cursor() as cursor:
        yield cursor


def scan_in_batches(
    ends: sql.Statement,
    after: Any,
    look: Callable[[Any, Any, Any], None],
    *,
    last: Any = None,
    **params: Any,
) -> Any:
    """`look(cursor, after, until)` was called for one piece after the other, each in a short transaction of its own.

    `ends`, which also gets `params`, gives the end of the piece of at most `limit` that begins after `after`, or no
    row; `last` ends the walk before that. Returns how far it came. What comes and goes meanwhile may not be seen, so a
    look judges its piece alone.
    """
    size = PIECE_MAX
    while True:
        begun = time.monotonic()
        with read_cursor() as cursor:
            found = ends.rows(cursor, after=after, limit=size, **params)
            until = found[0][0] if found and (last is None or found[0][0] <= last) else last
            if until is None or after == until:
                return after
            look(cursor, after, until)
        after = until
        size = max(PIECE_MIN, size // 2) if time.monotonic() - begun > LONG_SECONDS else min(PIECE_MAX, size * 2)


def run(only: str = "") -> list[Finding]:
    """Every registered check has run, in the order of its invariant; on everything, or on the one thing so named."""
    survey = AuditContext(only)
    ordered = sorted(_checks, key=lambda check: (int(check.invariant.lstrip("I")), check.promise))
    return [_run_check(check, survey) for check in ordered]


def _run_check(check: Check, survey: AuditContext) -> Finding:
    for attempt in range(ATTEMPTS_MAX):
        try:
            return Finding(check.invariant, check.promise, tuple(check.find(survey)))
        except DatabaseError as error:
            # Out of time on a busy machine, or rows that cannot be read at all: that is no breach, and no clean bill
            # either, and says nothing of what the other checks look at.
            if not transactions.is_transient(error):
                logger.exception("audit: %s could not be checked", check.invariant)
            if attempt == ATTEMPTS_MAX - 1 or not transactions.is_transient(error):
                return Finding(check.invariant, check.promise, unchecked=log_context.summarize_error(error))
    raise AssertionError("not reached")


def report(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """The findings as they are kept and printed."""
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
    """An audit has run. Its result is not kept."""
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
    """How things stand by the latest audit, for whoever must see it at a glance."""

    latest: AuditRun | None
    is_late: bool
    """The auditor seems to have stopped: what it found last says nothing about now."""

    @property
    def colour(self) -> str:
        """green: clean just now. red: a breach. amber: not known."""
        if self.latest is not None and self.latest.breach_count:
            return "red"
        if self.latest is None or self.is_late or not self.latest.is_clean:
            return "amber"
        return "green"


def get_status() -> AuditStatus:
    """What the latest audit found, and whether that was just now."""
    latest = AuditRun.objects.first()
    if latest is None:
        return AuditStatus(None, is_late=False)
    return AuditStatus(latest, is_late=clock.now() - latest.finished_at > timedelta(seconds=LATE_SECONDS))


def run_and_record() -> AuditRun:
    """An audit of everything has run and its result is kept; the oldest results beyond KEPT_RUNS are gone."""
    result = audit()
    result.save()
    kept = AuditRun.objects.order_by("-started_at").values("pk")[:KEPT_RUNS]
    AuditRun.objects.exclude(pk__in=list(kept.values_list("pk", flat=True))).delete()
    return result
