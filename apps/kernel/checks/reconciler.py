"""The reconciler compares counters and copies with the rows they are derived from. Apps register checks and repairs.

All checks report first. Then, if requested, each difference is repaired by its app, which reads everything again under
its locks. A difference that has disappeared by then does not count as repaired, and one that cannot be repaired safely
is left to an operator.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db import DatabaseError
from django.db.models import F

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.models import ReconcileRun, ReconcileTotal
from apps.kernel.observability import log_context

logger = logging.getLogger(__name__)

KEPT_RUNS = 1_000
SHOWN_DIFFERENCES_MAX = 50

REPORTED = "reported"
REPAIRED = "repaired"
GONE = "gone"
"""The difference no longer existed under the lock: another process repaired it, or its rows had changed."""
NEEDS_MANUAL_REPAIR = "needs manual repair"


class ManualRepairRequired(Exception):
    """The difference cannot be repaired without taking seats or money from a buyer; the message says why."""


@dataclass(frozen=True, slots=True)
class Difference:
    kind: str
    """The label of its metric, which must never change."""
    line: str
    """A readable line with the location and the two values that differ."""
    about: Any = None
    """Identifies the difference for its repair."""
    manual_reason: str = ""
    """Why only an operator can repair it, if the check already knows that."""


Find = Callable[[int | None], Iterable[Difference]]
Repair = Callable[[Difference, str], str]


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    promise: str
    find: Find
    """Yields the differences of the event with the given id, or of all events for None."""
    repair: Repair | None
    """Repairs one difference on behalf of the named operator, in its own transaction; returns REPAIRED or GONE. Raises
    ManualRepairRequired."""
    kinds: tuple[str, ...]


@dataclass(slots=True)
class Outcome:
    """One difference and its state after the run."""

    difference: Difference
    state: str = REPORTED
    reason: str = ""

    @property
    def line(self) -> str:
        line = f"{self.difference.line}; {self.state}" if self.state != REPORTED else self.difference.line
        return f"{line}: {self.reason}" if self.reason else line


@dataclass(slots=True)
class Finding:
    name: str
    promise: str
    outcomes: list[Outcome] = field(default_factory=list)
    failure: str = ""
    """Why the check could not run."""


_checks: dict[str, Check] = {}


def register(
    name: str, promise: str, find: Find, repair: Repair | None = None, *, kinds: tuple[str, ...] | None = None
) -> None:
    """Add a check to every reconciliation. Checks run, and repair, in the order of registration.

    `kinds` are the kinds of differences that the check may find; by default its name is the only one. Registering a
    name again replaces its check.
    """
    _checks[name] = Check(name, promise, find, repair, kinds or (name,))


def kinds() -> tuple[str, ...]:
    """Return all kinds of differences that the registered checks may find."""
    return tuple(kind for check in _checks.values() for kind in check.kinds)


def run(part: int | None = None, *, repair_by: str = "") -> list[Finding]:
    """Run every check; with `repair_by`, then repair each difference that can be repaired safely.

    `repair_by` is the operator's name that is recorded in the ledger. A check that fails reports its error and does not
    stop the others.
    """
    findings = [_report(check, part) for check in _checks.values()]
    if repair_by:
        for check, finding in zip(_checks.values(), findings, strict=True):
            for outcome in finding.outcomes:
                _repair(check, outcome, repair_by)
    return findings


def _report(check: Check, part: int | None) -> Finding:
    finding = Finding(check.name, check.promise)
    try:
        for difference in check.find(part):
            state = NEEDS_MANUAL_REPAIR if difference.manual_reason else REPORTED
            finding.outcomes.append(Outcome(difference, state, difference.manual_reason))
    except Exception as error:
        logger.exception("reconciliation: check %s failed", check.name)
        finding.failure = log_context.summarize_error(error)
    return finding


def _repair(check: Check, outcome: Outcome, by: str) -> None:
    if outcome.state != REPORTED:
        return
    if check.repair is None:
        outcome.state, outcome.reason = NEEDS_MANUAL_REPAIR, "there is no automatic repair"
        return
    try:
        outcome.state = check.repair(outcome.difference, by)
    except ManualRepairRequired as reason:
        outcome.state, outcome.reason = NEEDS_MANUAL_REPAIR, str(reason)
    except DatabaseError as error:
        # A lock timed out, or a constraint refused the change. Nothing was changed.
        logger.exception("reconciliation: a repair by %s failed", check.name)
        outcome.reason = f"not repaired: {log_context.summarize_error(error)}"


def run_and_record(part: int | None = None, *, repair_by: str = "") -> ReconcileRun:
    """Run a reconciliation, store its result and count its differences by kind; delete the oldest results beyond
    KEPT_RUNS."""
    started_at, begun = clock.now(), time.monotonic()
    findings = run(part, repair_by=repair_by)
    outcomes = [outcome for finding in findings for outcome in finding.outcomes]
    result = ReconcileRun.objects.create(
        started_at=started_at,
        duration_ms=int((time.monotonic() - begun) * 1000),
        part=part,
        repair_by=repair_by[:120],
        difference_count=len(outcomes),
        repaired_count=sum(outcome.state == REPAIRED for outcome in outcomes),
        gone_count=sum(outcome.state == GONE for outcome in outcomes),
        failure_count=sum(bool(finding.failure) for finding in findings),
        report=[
            {
                "check": finding.name,
                "promise": finding.promise,
                "difference_count": len(finding.outcomes),
                "differences": [
                    {"kind": outcome.difference.kind, "state": outcome.state, "line": outcome.line}
                    for outcome in finding.outcomes[:SHOWN_DIFFERENCES_MAX]
                ],
                "failure": finding.failure,
            }
            for finding in findings
        ],
    )
    _count(outcomes)
    kept = ReconcileRun.objects.order_by("-started_at").values("pk")[:KEPT_RUNS]
    ReconcileRun.objects.exclude(pk__in=list(kept.values_list("pk", flat=True))).delete()
    return result


def _count(outcomes: Iterable[Outcome]) -> None:
    found = Counter(outcome.difference.kind for outcome in outcomes)
    if not found:
        return
    # Updated in the order of kinds, so that two runs that end at the same time cannot deadlock.
    with transactions.write():
        ordered = sorted(found)
        ReconcileTotal.objects.bulk_create([ReconcileTotal(kind=kind) for kind in ordered], ignore_conflicts=True)
        for kind in ordered:
            ReconcileTotal.objects.filter(kind=kind).update(found_count=F("found_count") + found[kind])
