"""Whether the ledger agrees with itself, section by section: a gate is opened on nothing less."""

from dataclasses import dataclass

from django.db import connection

from apps.kernel.db import sql

_standing = sql.load("apps.reservations", "gate_standing")


@dataclass(frozen=True, slots=True)
class SectionCheck:
    """One section: free, held, sold and blocked make up its capacity, unless `differences` says what they do not."""

    section_id: int
    slug: str
    capacity: int
    free: int
    held: int
    sold: int
    blocked: int
    differences: tuple[str, ...]


def examine(event_id: int) -> list[SectionCheck]:
    """Every section of the event, in the order of the house, compared with the lines of its standing reservations.

    One statement, so of one moment: whatever is sold meanwhile, a difference is one.
    """
    with connection.cursor() as cursor:
        return [_examined(*row) for row in _standing.rows(cursor, event_id=event_id)]


def _examined(
    section_id: int,
    slug: str,
    is_general_admission: bool,
    capacity: int,
    total: int,
    free: int,
    held: int,
    sold: int,
    blocked: int,
    lines_held: int,
    lines_sold: int,
) -> SectionCheck:
    differences = []
    what = "places" if is_general_admission else "seats"
    if total != capacity:
        differences.append(f"its capacity is {capacity:,}, its inventory has {total:,} {what}")
    if is_general_admission:
        if held != lines_held + lines_sold:
            differences.append(f"{held:,} places are taken, standing reservations have {lines_held + lines_sold:,}")
        held, sold = held - int(lines_sold), int(lines_sold)
    else:
        if held != lines_held:
            differences.append(f"{held:,} seats are held, live reservations have {lines_held:,}")
        if sold != lines_sold:
            differences.append(f"{sold:,} seats are sold, confirmed reservations have {lines_sold:,}")
    if not differences and free + held + sold + blocked != capacity:
        differences.append(f"{free:,} free, {held:,} held, {sold:,} sold and {blocked:,} blocked are not {capacity:,}")
    return SectionCheck(section_id, slug, capacity, free, held, sold, blocked, tuple(differences))
