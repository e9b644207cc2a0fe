"""Prices that change during a sale: a category costs something else, or seats move to another category.

Who holds already pays what the hold said: a line carries its price. Only free and blocked seats move.
"""

from apps.events import facade as events
from apps.kernel.db import sql
from apps.reservations.inventory.log import Change, record
from apps.reservations.models import InventoryChange
from apps.reservations.staff.selection import Selection, find_seats
from apps.reservations.staff.stock import lock_seats, refusal, retry_after_sweep, stock_transaction

_PACKAGE = "apps.reservations"
_move_inventory = sql.load(_PACKAGE, "move_inventory")
_read_clock = sql.load(_PACKAGE, "read_clock")


def reprice(event: events.EventView, category: str, price_minor: int, *, who: str, why: str = "") -> events.PriceChange:
    """From the commit on a hold of the category pays this; the price before and after. Whoever holds already pays what
    they were told. Raises Invalid."""
    with stock_transaction() as cursor:
        changed = events.reprice_category(event.id, category, price_minor)
        if changed.before != changed.after:
            _record_price(cursor, event, changed, who=who, why=why)
    return changed


def add_price(
    event: events.EventView, name: str, price_minor: int, *, who: str, why: str = "", color: str = ""
) -> events.PriceChange:
    """The event has one price category more, for seats to move to; `before` is None. One that stands with this price
    stays as it is. Raises Invalid."""
    with stock_transaction() as cursor:
        events.lock_plan(event.id)
        added = events.add_category(event.id, name, price_minor, color)
        if added.before != added.after:
            _record_price(cursor, event, added, who=who, why=why)
    return added


def move_seats(event: events.EventView, selection: Selection, category: str, *, who: str, why: str = "") -> int:
    """All chosen seats are sold at that category's price from now on, or none moves; how many did. Raises Invalid,
    SeatsUnavailable naming those that are held or sold at another."""
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
            touched = _move_inventory.count(cursor, category_id=target, seat_ids=ids)
            assert touched == len(ids), f"{touched} of {len(ids)} locked seats moved"
            ((now,),) = _read_clock.rows(cursor)
            changes = [
                Change(state.section_id, state.seat_id, 1, keys[state.category_id], keys[target]) for state in wanted
            ]
            record(cursor, event.id, InventoryChange.Kind.MOVED, changes, who=who, why=why, now=now)
        return len(wanted)

    return retry_after_sweep(event, act)


def _record_price(
    cursor: sql.Cursor, event: events.EventView, changed: events.PriceChange, *, who: str, why: str
) -> None:
    ((now,),) = _read_clock.rows(cursor)
    change = Change(None, None, 0, changed.before, changed.after, about=changed.category)
    record(cursor, event.id, InventoryChange.Kind.REPRICED, [change], who=who, why=why, now=now)
