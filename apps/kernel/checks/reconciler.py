"""The reconciler: counters and copies against the rows they stand for. Apps register their checks, and how to repair.

Reports come first, all of them; then, if asked, each difference is repaired by its own app, which reads everything
again under its locks. What is gone by then is not called repaired, and what cannot be put right safely is left for a
person.
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
"""It was no more under the lock: somebody else had put it right, or it was ending anyway."""
NEEDS_MANUAL_REPAIR = "needs a person"


class ManualRepairRequired(Exception):
    """This difference cannot be put right without taking something from somebody; it says why."""


@dataclass(frozen=True, slots=True)
class Difference:
    kind: str
    """Stable: the label of its metric."""
    line: str
    """What a person reads: where, what one side says, what the other."""
    about: Any = None
    """What its repair needs to find it again."""
    manual_reason: str = ""
    """Why only a person can put it right, where that is known beforehand."""


Find = Callable[[int | None], Iterable[Difference]]
Repair = Callable[[Difference, str], str]


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    promise: str
    find: Find
    """Yields the differences of the part with this id (for all checks there are: an event), or of everything."""
    repair: Repair | None
    """Puts one difference right for whoever is named, in a transaction of its own; REPAIRED or GONE. Raises
    ManualRepairRequired."""
    kinds: tuple[str, ...]


@dataclass(slots=True)
class Outcome:
    """One difference, and what became of it."""

    difference: Difference
    state: str = REPORTED
    reason: str = ""

    @property
    def line(self) -> str:
        words = f"{self.difference.line}; {self.state}" if self.state != REPORTED else self.difference.line
        return f"{words}: {self.reason}" if self.reason else words


@dataclass(slots=True)
class Finding:
    name: str
    promise: str
    outcomes: list[Outcome] = field(default_factory=list)
    failure: str = ""
    """Why the check could not be made."""


_checks: dict[str, Check] = {}


def register(
    name: str, promise: str, find: Find, repair: Repair | None = None, *, kinds: tuple[str, ...] | None = None
) -> None:
    """From now on every reconciliation includes this check; checks run, and repair, in the order of registration.

    `kinds`: of the differences it may find; its name alone if it finds but one kind. Registering a name again replaces
    its check.
    """
    _checks[name] = Check(name, promise, find, repair, kinds or (name,))


def kinds() -> tuple[str, ...]:
    """Every kind of difference that may be found."""
    return tuple(kind for check in _checks.values() for kind in check.kinds)


def run(part: int | None = None, *, repair_by: str = "") -> list[Finding]:
    """Every check has reported; with `repair_by`, who is then named in the ledger, each difference was then repaired if
    that could be done safely. A check that fails leaves the others to their work and says so."""
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
            waits = difference.manual_reason != ""
            finding.outcomes.append(
                Outcome(difference, NEEDS_MANUAL_REPAIR if waits else REPORTED, difference.manual_reason)
            )
    except Exception as error:
        logger.exception("reconciliation: check %s failed", check.name)
        finding.failure = log_context.summarize_error(error)
    return finding


def _repair(check: Check, outcome: Outcome, by: str) -> None:
    if outcome.state != REPORTED:
        return
    if check.repair is None:
        outcome.state, outcome.reason = NEEDS_MANUAL_REPAIR, "nothing repairs this by itself"
        return
    try:
        outcome.state = check.repair(outcome.difference, by)
    except ManualRepairRequired as needs:
        outcome.state, outcome.reason = NEEDS_MANUAL_REPAIR, str(needs)
    except DatabaseError as error:
        # Somebody had what it needs locked for too long, or a constraint had the last word. Nothing was changed.
        logger.exception("reconciliation: a repair by %s failed", check.name)
        outcome.reason = f"not repaired: {log_context.summarize_error(error)}"


def run_and_record(part: int | None = None, *, repair_by: str = "") -> ReconcileRun:
    """A reconciliation has run, its result is kept and its differences are counted by kind; the oldest results beyond
    KEPT_RUNS are gone."""
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
    # In the order of kinds, so that two runs that end together never wait for each other in a circle.
    with transactions.write():
        ordered = sorted(found)
        ReconcileTotal.objects.bulk_create([ReconcileTotal(kind=kind) for kind in ordered], ignore_conflicts=True)
        for kind in ordered:
            ReconcileTotal.objects.filter(kind=kind).update(found_count=F("found_count") + found[kind])
