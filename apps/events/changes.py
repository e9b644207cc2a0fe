"""Changes to a published event: prices, categories of seats, general admission capacities, access codes, its report,
cancellation.

Every function joins the transaction of the app above, which locks the inventory and decides whether the change is
allowed. Rows of this app are locked before any inventory row.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from django.db import connection
from django.db.models import Max

from apps.events.models import Category, Event, Section
from apps.events.plans.colors import category_color, normal_color
from apps.kernel.db import sql, transactions
from apps.kernel.http import problems

PRICE_MINOR_MAX = 10**12
CAPACITY_MAX = 10_000_000
NAME_LENGTH_MAX = 80

_move_seats = sql.load("apps.events", "move_seats")
_unlink_categories = sql.load("apps.events", "unlink_categories")
_link_categories = sql.load("apps.events", "link_categories")


@dataclass(frozen=True, slots=True)
class PriceChange:
    category: str
    before: int | None
    """In the event's minor units; None for a new category."""
    after: int


def lock_plan(event_id: int) -> None:
    """Lock the event row, so that no other transaction moves its seats or adds prices until this one ends. Holds do not
    wait for it: their foreign keys take a compatible lock."""
    transactions.require_transaction()
    list(Event.objects.select_for_update(no_key=True, of=("self",)).filter(pk=event_id).values_list("pk"))


def reprice_category(event_id: int, key: str, price_minor: int) -> PriceChange:
    """Set the category's price and return the change. Raises Invalid."""
    transactions.require_transaction()
    _require_price(price_minor)
    category = _find(event_id, key, lock=True)
    before = category.price_minor
    if before != price_minor:
        category.price_minor = price_minor
        category.save(update_fields=["price_minor"])
    return PriceChange(category.key, before, price_minor)


def add_category(event_id: int, name: str, price_minor: int, color: str = "") -> PriceChange:
    """Add a price category as the event's last one, without sections yet. An existing one of this name and price is
    left unchanged. The caller has the plan locked. Raises Invalid."""
    transactions.require_transaction()
    _require_price(price_minor)
    name = name.strip()
    if not name or not name.isprintable() or len(name) > NAME_LENGTH_MAX:
        raise problems.Invalid({"category": f"must be a name of 1 to {NAME_LENGTH_MAX} characters"})
    if color and not normal_color(color):
        raise problems.Invalid({"color": "must be a color as #rrggbb"})
    categories = Category.objects.filter(event_id=event_id)
    existing = categories.filter(key=name).first()
    if existing is not None:
        if existing.price_minor != price_minor:
            raise problems.Invalid({"category": f"{name} already exists with the price {existing.price_minor}"})
        return PriceChange(name, price_minor, price_minor)
    last = categories.aggregate(last=Max("position"))["last"]
    position = 0 if last is None else min(last + 1, 32_767)
    Category.objects.create(
        event_id=event_id, key=name, name=name, color=category_color(color, categories.count()),
        price_minor=price_minor, position=position,
    )  # fmt: skip
    return PriceChange(name, None, price_minor)


def set_report(event_id: int, *, publishes: bool) -> bool:
    """Set whether a report of the event's sale may be published; return whether that changed."""
    transactions.require_transaction()
    return bool(
        Event.objects.filter(pk=event_id).exclude(publishes_report=publishes).update(publishes_report=publishes)
    )


def category_id(event_id: int, key: str) -> int:
    """Return the id of the event's price category with this key. Raises Invalid, which lists the known keys."""
    return _find(event_id, key).pk


def move_seats(event_id: int, seat_ids: Collection[int], to_category: int) -> None:
    """Move the seats to the category and relink their sections to the categories of their seats. The caller has the
    plan locked.

    The links between sections and categories are written anew. Their ids rise with every move, so that
    `facade.plan_version` changes without scanning the seats.
    """
    transactions.require_transaction()
    with connection.cursor() as cursor:
        ids = sorted(seat_ids)
        if _move_seats.count(cursor, event_id=event_id, category_id=to_category, seat_ids=ids) != len(ids):
            raise RuntimeError("not all of these seats are the event's")
        _unlink_categories.count(cursor, seat_ids=ids)
        _link_categories.count(cursor, event_id=event_id)


def resize_section(section_id: int, capacity: int) -> None:
    """Set the capacity of a general admission section, as shown to the public. Raises Invalid."""
    transactions.require_transaction()
    if not 1 <= capacity <= CAPACITY_MAX:
        raise problems.Invalid({"capacity": f"must be between 1 and {CAPACITY_MAX:,}"})
    resized = Section.objects.filter(pk=section_id, kind=Section.Kind.GENERAL_ADMISSION).update(capacity=capacity)
    if resized != 1:
        raise problems.Invalid({"section": "is not a general admission section"})


def set_section_access(section_id: int, *, needs_access: bool, now: datetime) -> bool:
    """Require an access code for holds in the section from `now` on, or stop requiring it. Return whether that is a
    change. Raises Invalid for an unknown section."""
    transactions.require_transaction()
    section = Section.objects.select_for_update(no_key=True, of=("self",)).filter(pk=section_id).first()
    if section is None:
        raise problems.Invalid({"section": "no such section"})
    if section.needs_access == needs_access:
        return False
    section.needs_access_since = now if needs_access else None
    section.save(update_fields=["needs_access_since"])
    return True


def _require_price(price_minor: int) -> None:
    if not 0 <= price_minor <= PRICE_MINOR_MAX:
        raise problems.Invalid({"price": f"must be between 0 and {PRICE_MINOR_MAX:,}, in the smallest unit"})


def _find(event_id: int, key: str, *, lock: bool = False) -> Category:
    categories = Category.objects.filter(event_id=event_id)
    found = None
    if key.isprintable():
        rows = categories.select_for_update(no_key=True, of=("self",)) if lock else categories
        found = rows.filter(key=key).first()
    if found is None:
        known = ", ".join(f"“{name}”" for name in categories.values_list("key", flat=True)[:20])
        raise problems.Invalid({"category": f"there is no {key[:80]!r}; the categories are {known}"})
    return found


def cancel_event(event_id: int) -> bool:
    """Cancel the published event permanently, which ends its sales. Return whether it was not canceled
    before. Joins the caller's transaction. Raises Invalid for a draft or an unknown event."""
    transactions.require_transaction()
    event = Event.objects.select_for_update(no_key=True, of=("self",)).filter(pk=event_id).first()
    if event is None or event.status == Event.Status.DRAFT:
        raise problems.Invalid({"event": "is not published, so it cannot be canceled"})
    if event.status == Event.Status.CANCELED:
        return False
    event.status = Event.Status.CANCELED
    event.save(update_fields=["status"])
    return True
