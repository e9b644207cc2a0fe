"""Consistency check of the ledger, section by section: a gate is not opened without it."""

from dataclasses import dataclass

from django.db import connection

from apps.kernel.db import sql

_gate_sections = sql.load("apps.reservations", "gate_sections")


@dataclass(frozen=True, slots=True)
class SectionCheck:
    """The counts of one section: free, held, sold and blocked add up to its capacity unless there are `differences`."""

    section_id: int
    slug: str
    capacity: int
    free: int
    held: int
    sold: int
    blocked: int
    differences: tuple[str, ...]


def examine(event_id: int) -> list[SectionCheck]:
    """Return all sections of the event in plan order, compared with the lines of live and confirmed reservations.

    One statement reads one snapshot, so a concurrent sale causes no false difference.
    """
    with connection.cursor() as cursor:
        rows = _gate_sections.rows(cursor, event_id=event_id)
    checks = []
    for section_id, slug, is_general, capacity, total, free, held, sold, blocked, lines_held, lines_sold in rows:
        differences = []
        if total != capacity:
            what = "tickets" if is_general else "seats"
            differences.append(f"its capacity is {capacity:,}, its inventory has {total:,} {what}")
        if is_general:
            if held != lines_held + lines_sold:
                differences.append(f"{held:,} tickets are taken, reservations have {lines_held + lines_sold:,}")
            held, sold = held - lines_sold, lines_sold
        else:
            if held != lines_held:
                differences.append(f"{held:,} seats are held, live reservations have {lines_held:,}")
            if sold != lines_sold:
                differences.append(f"{sold:,} seats are sold, confirmed reservations have {lines_sold:,}")
        if not differences and free + held + sold + blocked != capacity:
            parts = f"{free:,} free, {held:,} held, {sold:,} sold and {blocked:,} blocked"
            differences.append(f"{parts} are not {capacity:,}")
        checks.append(SectionCheck(section_id, slug, capacity, free, held, sold, blocked, tuple(differences)))
    return checks
