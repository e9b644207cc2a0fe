"""The log of inventory changes by staff, repairs and compensations, written in the transaction of the change."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from apps.kernel.db import arrays, sql, transactions
from apps.reservations.models import InventoryChange

_read_clock = sql.load("apps.reservations", "read_clock")
_insert_inventory_changes = sql.load("apps.reservations", "insert_inventory_changes")


@dataclass(frozen=True, slots=True)
class Change:
    section_id: int | None
    """None for a change of a price."""
    seat_id: int | None
    quantity: int
    """The number of tickets; negative if a capacity was reduced."""
    before: Any
    after: Any
    """JSON values before and after the change."""
    about: str = ""
    """The key of the changed price category, if any."""


def record(
    cursor: sql.Cursor,
    event_id: int,
    kind: InventoryChange.Kind,
    changes: Sequence[Change],
    *,
    who: str,
    why: str,
    refusal: str = "",
) -> None:
    """Record the changes, all with the same operator, reason and time. Joins the transaction of the cursor, which made
    the changes. With `refusal`, they were refused for this reason."""
    transactions.require_transaction(cursor)
    ((now,),) = _read_clock.rows(cursor)
    details, which = _group_details(changes)
    _insert_inventory_changes.count(
        cursor,
        event_id=event_id,
        kind=str(kind),
        section_ids=arrays.numbers(change.section_id for change in changes),
        seat_ids=arrays.numbers(change.seat_id for change in changes),
        quantities=arrays.numbers(change.quantity for change in changes),
        details=details,
        which=arrays.numbers(which),
        who=plain_line(who)[:120],
        why=plain_line(why)[:200],
        refusal=plain_line(refusal)[:300],
        now=now,
    )


def _group_details(changes: Sequence[Change]) -> tuple[list[str], list[int]]:
    """Return the details as JSON, each once, and for each change the number of its detail, from 1. The seats of a large
    change have few."""
    numbers: dict[tuple[str, str, str], int] = {}
    details, which = list[str](), list[int]()
    for change in changes:
        key = (repr(change.before), repr(change.after), change.about)
        number = numbers.get(key)
        if number is None:
            details.append(_detail(change))
            number = numbers[key] = len(details)
        which.append(number)
    return details, which


def _detail(change: Change) -> str:
    values = {"before": change.before, "after": change.after}
    return json.dumps({"category": change.about, **values} if change.about else values)


def plain_line(text: str) -> str:
    """Return the text as one line that PostgreSQL can store."""
    return "".join(character if character.isprintable() else " " for character in text).strip()
