"""The auditor: invariants checked on a live system with plain SQL in short reads. Apps register their checks."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ticketing.kernel import clock
from ticketing.kernel.models import AuditRun

KEPT_RUNS = 1_000
SHOWN_BREACHES_MAX = 50


@dataclass(frozen=True, slots=True)
class Check:
    invariant: str
    """I1 to I10, as docs/design.md numbers them."""
    promise: str
    find: Callable[[], Iterable[str]]
    """Yields one readable line per breach."""


@dataclass(frozen=True, slots=True)
class Finding:
    invariant: str
    promise: str
    breaches: tuple[str, ...]


_checks: list[Check] = []


def register(invariant: str, promise: str, find: Callable[[], Iterable[str]]) -> None:
    """From now on every audit includes this check."""
    check = Check(invariant, promise, find)
    _checks[:] = [known for known in _checks if (known.invariant, known.promise) != (invariant, promise)] + [check]


def run() -> list[Finding]:
    """Every registered check has run, in the order of its invariant."""
    ordered = sorted(_checks, key=lambda check: (int(check.invariant.lstrip("I")), check.promise))
    return [Finding(check.invariant, check.promise, tuple(check.find())) for check in ordered]


def run_and_record() -> AuditRun:
    """An audit has run and its result is kept; the oldest results beyond KEPT_RUNS are gone."""
    started_at, begun = clock.now(), time.monotonic()
    findings = run()
    result = AuditRun.objects.create(
        started_at=started_at,
        duration_ms=int((time.monotonic() - begun) * 1000),
        breach_count=sum(len(finding.breaches) for finding in findings),
        report=[
            {
                "invariant": finding.invariant,
                "promise": finding.promise,
                "breach_count": len(finding.breaches),
                "breaches": list(finding.breaches[:SHOWN_BREACHES_MAX]),
            }
            for finding in findings
        ],
    )
    kept = AuditRun.objects.order_by("-started_at").values("pk")[:KEPT_RUNS]
    AuditRun.objects.exclude(pk__in=list(kept.values_list("pk", flat=True))).delete()
    return result
