"""Comparison of the gate with the ledger: part of the reconciliation, and the last step of a preload."""

import time
from collections.abc import Iterator

from apps.events import facade as events
from apps.kernel.checks import reconciler
from apps.kernel.checks.reconciler import GONE, REPAIRED, Difference, ManualRepairRequired
from apps.reservations.gate import rebuild
from apps.reservations.inventory.availability import free_counts

RECHECK_SECONDS = 0.05


def register() -> None:
    """Add this check to every reconciliation."""
    reconciler.register("gate", "the gate has the counts of the ledger", _find, _repair)


def differences(event_id: int) -> list[str]:
    """Return the differences between an open gate and the ledger, one readable line each. A difference counts only if
    two reads in short succession find the same values, since a sale reaches one of the two before the other."""
    first = _compare(event_id)
    if not first:
        return []
    time.sleep(RECHECK_SECONDS)
    second = _compare(event_id)
    names = {section.id: section.slug for section in events.list_sections(event_id)}
    return [
        f"{names[section_id]}: the gate has {'no count' if left is None else f'{left:,} left'}, the ledger {free:,}"
        for section_id, (left, free) in sorted(second.items())
        if first.get(section_id) == (left, free)
    ]


def _compare(event_id: int) -> dict[int, tuple[int | None, int]]:
    """Return the differing sections with both counts. None: the gate has no count of the section."""
    counts = rebuild.counts_of(event_id)
    if counts is None:
        return {}
    free = free_counts(events.section_ids([event_id])[event_id])
    return {section: (counts.get(section), left) for section, left in free.items() if counts.get(section) != left}


def _find(part: int | None) -> Iterator[Difference]:
    for event_id in rebuild.gated_event_ids() if part is None else [part]:
        found = differences(event_id)
        slug = events.get_event_by_id(event_id).slug if found else ""
        for line in found:
            yield Difference("gate", f"{slug}/{line}", event_id)


def _repair(difference: Difference, by: str) -> str:
    """Reset the gate. The ledger is not changed, so `by` is not recorded."""
    if not differences(difference.about):
        return GONE
    outcome = rebuild.reset(difference.about)
    if outcome not in rebuild.OPENED:
        raise ManualRepairRequired(f"the gate was not reset ({outcome}); until it is, it refuses nothing")
    return REPAIRED
