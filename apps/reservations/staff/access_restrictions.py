"""Sections that nobody holds in without an access code: staff make one so, or open it to everybody, also while the sale
runs. Who holds there already stays.
"""

from apps.events import facade as events
from apps.kernel.db import sql
from apps.reservations.inventory.log import Change, record
from apps.reservations.models import InventoryChange
from apps.reservations.staff.selection import find_section
from apps.reservations.staff.stock import stock_transaction

_read_clock = sql.load("apps.reservations", "read_clock")
_ACCESS_LABELS = {True: "with an access code", False: "everybody"}


def guard(event: events.EventView, section: str, *, needs_access: bool, who: str, why: str = "") -> bool:
    """Who begins to hold in the section from the commit on needs an access code, or needs none any more; whether that
    is new. Processes know it within two seconds. Raises Invalid."""
    found = find_section(event, section)
    with stock_transaction() as cursor:
        ((now,),) = _read_clock.rows(cursor)
        if not events.set_section_access(found.id, needs_access=needs_access, now=now):
            return False
        kind = InventoryChange.Kind.GUARDED if needs_access else InventoryChange.Kind.OPENED
        change = Change(found.id, None, found.capacity, _ACCESS_LABELS[not needs_access], _ACCESS_LABELS[needs_access])
        record(cursor, event.id, kind, [change], who=who, why=why, now=now)
    return True
