"""Restricts a section to buyers with an access code, or opens it, also during the sale. Holds stay valid."""

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql
from apps.reservations.inventory.log import Change, record
from apps.reservations.models import InventoryChange
from apps.reservations.staff.selection import find_section
from apps.reservations.staff.stock import stock_transaction

_ACCESS_LABELS = {True: "with an access code", False: "open to all"}


def guard(event: events.EventView, section: str, *, needs_access: bool, who: str, why: str = "") -> bool:
    """Set whether new holds in the section need an access code; return whether that changed. All processes apply it
    within two seconds. Raises Invalid."""
    with stock_transaction() as cursor:
        return guard_on(cursor, event, section, needs_access=needs_access, who=who, why=why)


def guard_on(
    cursor: sql.Cursor, event: events.EventView, section: str, *, needs_access: bool, who: str, why: str = ""
) -> bool:
    """Like `guard`, in the transaction of this cursor."""
    found = find_section(event, section)
    if not events.set_section_access(found.id, needs_access=needs_access, now=clock.now()):
        return False
    kind = InventoryChange.Kind.GUARDED if needs_access else InventoryChange.Kind.OPENED
    change = Change(found.id, None, found.capacity, _ACCESS_LABELS[not needs_access], _ACCESS_LABELS[needs_access])
    record(cursor, event.id, kind, [change], who=who, why=why)
    return True
