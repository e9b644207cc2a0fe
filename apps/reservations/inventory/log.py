"""The record of what staff, a repair or a compensation did to the inventory. Written with the change, never after."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from apps.kernel.db import sql, transactions
from apps.reservations.models import InventoryChange

WHO_LENGTH_MAX = 120
WHY_LENGTH_MAX = 200

_insert_inventory_changes = sql.load("apps.reservations", "insert_inventory_changes")


@dataclass(frozen=True, slots=True)
class Change:
    section_id: int | None
    """None: it is about a price, not about a place."""
    seat_id: int | None
    quantity: int
    """Places it was about; a capacity that shrank is negative."""
    before: Any
    after: Any
    """What stood before and what stands now, as JSON has it."""
    about: str = ""
    """A price category's key, where it is about one."""


def record(
    cursor: sql.Cursor,
    event_id: int,
    kind: InventoryChange.Kind,
    changes: Sequence[Change],
    *,
    who: str,
    why: str,
    now: datetime,
) -> None:
    """Each change is on record with who, why and when. Joins the transaction of this cursor that made them."""
    transactions.require_transaction(cursor)
    _insert_inventory_changes.count(
        cursor,
        event_id=event_id,
        kind=str(kind),
        section_ids=[change.section_id for change in changes],
        seat_ids=[change.seat_id for change in changes],
        quantities=[change.quantity for change in changes],
        details=[_detail(change) for change in changes],
        who=_plain(who)[:WHO_LENGTH_MAX],
        why=_plain(why)[:WHY_LENGTH_MAX],
        now=now,
    )


def _detail(change: Change) -> str:
    said = {"before": change.before, "after": change.after}
    return json.dumps({"category": change.about, **said} if change.about else said)


def _plain(text: str) -> str:
    """One line that PostgreSQL can store."""
    return "".join(character if character.isprintable() else " " for character in text).strip()
