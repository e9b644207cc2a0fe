"""Price changes during a sale: a new price of a category, or seats moved to another category.

Existing holds keep their price, which is stored in their lines. Only free and blocked seats can be moved.
"""

from apps.events import facade as events
from apps.kernel.db import arrays, sql
from apps.reservations.inventory.log import Change, record
from apps.reservations.models import InventoryChange
from apps.reservations.staff.large_changes import changing_alone
from apps.reservations.staff.selection import Selection, find_seats
from apps.reservations.staff.stock import lock_seats, refusal, retry_after_sweep, stock_transaction

_move_inventory = sql.load("apps.reservations", "move_inventory")


def reprice(event: events.EventView, category: str, price_minor: int, *, who: str, why: str = "") -> events.PriceChange:
    """Set the category's price for new holds; return the price before and after. Existing holds keep theirs. Raises
    Invalid."""
    with stock_transaction() as cursor:
        return reprice_on(cursor, event, category, price_minor, who=who, why=why)


def reprice_on(
    cursor: sql.Cursor, event: events.EventView, category: str, price_minor: int, *, who: str, why: str = ""
) -> events.PriceChange:
    """Like `reprice`, in the transaction of this cursor."""
    changed = events.reprice_category(event.id, category, price_minor)
    if changed.before != changed.after:
        _record_price(cursor, event, changed, who=who, why=why)
    return changed


def add_price(
    event: events.EventView, name: str, price_minor: int, *, who: str, why: str = "", color: str = ""
) -> events.PriceChange:
    """Add a price category, to which seats can be moved; `before` is None. An existing one with this price is left
    unchanged. Raises Invalid."""
    with stock_transaction() as cursor:
        events.lock_plan(event.id)
        added = events.add_category(event.id, name, price_minor, color)
        if added.before != added.after:
            _record_price(cursor, event, added, who=who, why=why)
    return added


def move_seats(event: events.EventView, selection: Selection, category: str, *, who: str, why: str = "") -> int:
    """Move all selected seats to the category, or none; return how many moved. Raises Invalid, and SeatsUnavailable
    naming seats that are held or sold in another category."""
    names = find_seats(event, selection)

    def act() -> int:
        with stock_transaction() as cursor:
            events.lock_plan(event.id)
            target = events.category_id(event.id, category)
            keys = {tier.id: tier.key for tier in events.list_categories(event.id)}
            wanted = [state for state in lock_seats(event, cursor, names) if state.category_id != target]
            taken = [state for state in wanted if state.is_taken]
            if taken:
                raise refusal(taken, names, "Nothing was moved")
            if not wanted:
                return 0
            ids = [state.seat_id for state in wanted]
            events.move_seats(event.id, ids, target)
            touched = _move_inventory.count(cursor, category_id=target, seat_ids=arrays.numbers(ids))
            assert touched == len(ids), f"{touched} of {len(ids)} locked seats moved"
            changes = [
                Change(state.section_id, state.seat_id, 1, keys[state.category_id], keys[target]) for state in wanted
            ]
            record(cursor, event.id, InventoryChange.Kind.MOVED, changes, who=who, why=why)
        return len(wanted)

    with changing_alone(event.organizer_id, len(names)):
        return retry_after_sweep(event, act)


def _record_price(
    cursor: sql.Cursor, event: events.EventView, changed: events.PriceChange, *, who: str, why: str
) -> None:
    change = Change(None, None, 0, changed.before, changed.after, about=changed.category)
    record(cursor, event.id, InventoryChange.Kind.REPRICED, [change], who=who, why=why)
