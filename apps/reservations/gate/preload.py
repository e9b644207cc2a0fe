"""The checked preload before an on-sale: the gate gets the counts of the ledger, or stays shut."""

from dataclasses import dataclass

from apps.reservations.gate import rebuild
from apps.reservations.gate.gate_reconciliation import differences
from apps.reservations.gate.ledger_check import SectionCheck, examine

ATTEMPTS_MAX = 50
"""The most resets of one preload: enough to mark five million holds."""


@dataclass(frozen=True, slots=True)
class PreloadResult:
    sections: tuple[SectionCheck, ...]
    before: dict[int, int] | None
    """The gate's previous counts by section id; None: it was not open."""
    after: dict[int, int] | None
    outcome: str
    """The outcome of the last reset; "differs" if Redis did not return what was written."""
    differences: tuple[str, ...]
    """The differences that were found, one line each."""

    @property
    def is_open(self) -> bool:
        return self.outcome in rebuild.OPENED


def preload(event_id: int) -> PreloadResult:
    """Open the event's gate with the counts of the ledger; shut and mark it if the ledger is inconsistent or Redis
    differs from it. Safe at any time, also during the sale."""
    before = rebuild.counts_of(event_id)
    sections = tuple(examine(event_id))
    found = [f"{section.slug}: {difference}" for section in sections for difference in section.differences]
    if found:
        rebuild.forbid_opening(event_id, found)
        return PreloadResult(sections, before, None, "refused", tuple(found))
    outcome = rebuild.reset(event_id)
    for _ in range(ATTEMPTS_MAX):
        if outcome not in ("catching_up", "lost", "late"):
            break
        outcome = rebuild.reset(event_id)
    if outcome in rebuild.OPENED:
        found = differences(event_id)
        if found:
            rebuild.forbid_opening(event_id, found)
            outcome = "differs"
    return PreloadResult(sections, before, rebuild.counts_of(event_id), outcome, tuple(found))
