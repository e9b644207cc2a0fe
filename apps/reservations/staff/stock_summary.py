"""An event's stock by section, and the latest changes to it, for staff."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection
from django.db.models import Max, Sum

from apps.events import facade as events
from apps.kernel.db import sql
from apps.kernel.formatting import format_money
from apps.reservations.models import BlockedFor, InventoryChange

_stock_of_sections = sql.load("apps.reservations", "stock_of_sections")

_Kind = InventoryChange.Kind


@dataclass(frozen=True, slots=True)
class SectionStock:
    """A section's counts. `capacity` is the sum of the five others."""

    section: events.SectionView
    capacity: int
    free: int
    held: int
    sold: int
    house: int
    out_of_use: int

    @property
    def blocked(self) -> int:
        return self.house + self.out_of_use

    @property
    def least(self) -> int:
        """The lowest possible capacity."""
        return self.held + self.sold + self.blocked


@dataclass(frozen=True, slots=True)
class ChangeSummary:
    """One change to the inventory, of one or more seats."""

    at: datetime
    who: str
    why: str
    words: str


def read_section_stock(event_id: int) -> list[SectionStock]:
    """Return the current counts of the event's sections, in the order of the plan."""
    sections = events.list_sections(event_id)
    with connection.cursor() as cursor:
        rows = _stock_of_sections.rows(cursor, section_ids=[section.id for section in sections])
    figures = {row[0]: row[1:] for row in rows}
    return [SectionStock(section, *figures.get(section.id, [0] * 6)) for section in sections]


def latest_changes(event: events.EventView, limit: int) -> list[ChangeSummary]:
    """Return the latest changes to the event's inventory, newest first."""
    # The rows of one change have the same time.
    acts = (
        InventoryChange.objects.filter(event_id=event.id)
        .values("at", "kind", "who", "why", "refusal", "section_id")
        .annotate(last=Max("id"), tickets=Sum("quantity"))
        .order_by("-last")[:limit]
    )
    found = list(acts)
    rows = InventoryChange.objects.in_bulk([act["last"] for act in found])
    slugs = {section.id: section.slug for section in events.list_sections(event.id)}
    with connection.cursor() as cursor:
        names = events.seat_guids(cursor, [row.seat_id for row in rows.values() if row.seat_id is not None])
    return [
        ChangeSummary(
            act["at"],
            act["who"],
            act["why"],
            _describe_change(act["tickets"], rows[act["last"]], event.currency, slugs, names),
        )
        for act in found
    ]


def _describe_change(
    tickets: int, row: InventoryChange, currency: str, slugs: Mapping[int, str], names: Mapping[int, str]
) -> str:
    detail = row.detail if isinstance(row.detail, dict) else {}
    before, after = detail.get("before"), detail.get("after")
    if row.refusal:
        return f"Refused: {row.get_kind_display()} ({after}). {row.refusal}"
    if row.kind == _Kind.REPRICED:
        was = "added at" if before is None else f"{format_money(before, currency)} →"
        return f"{detail.get('category', '')} {was} {format_money(after, currency)}"
    where = slugs.get(row.section_id or 0, "the event")
    if row.kind in (_Kind.GUARDED, _Kind.OPENED):
        return f"{where}: {row.get_kind_display()}"
    if isinstance(after, dict) and isinstance(before, dict):
        changed = [name for name in after if before.get(name) != after[name]]
        return f"{where}: {', '.join(f'{_reason(name)} {before.get(name)} → {after[name]}' for name in changed)}"
    what = names.get(row.seat_id or 0, where)
    if tickets != 1:
        what = f"{tickets:,} of {where}"
    if row.kind == _Kind.MOVED:
        return f"{what} to {after}"
    if row.kind == _Kind.BLOCKED:
        return f"{what}: {_reason(after)}"
    return f"{what}: {row.get_kind_display()}"


def _reason(name: Any) -> str:
    return str(BlockedFor(name).label) if name in BlockedFor.values else str(name)
