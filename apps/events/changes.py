"""What may still change of a published event: its prices, which seats have which, how many places a general-admission
section has, which sections want an access code, and whether it takes place at all.

Every function joins the transaction of the app above, which locks what is for sale and judges whether it may change.
Rows of this app are locked before any row of the inventory.
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
    """In the event's minor units; None: there was no such category."""
    after: int


def lock_plan(event_id: int) -> None:
    """Nobody else moves seats or adds prices of this event until the caller's transaction ends. A hold does not wait
    for it: its foreign keys share this lock."""
    transactions.require_transaction()
    list(Event.objects.select_for_update(no_key=True, of=("self",)).filter(pk=event_id).values_list("pk"))


def reprice_category(event_id: int, key: str, price_minor: int) -> PriceChange:
    """The category costs this from the commit on; what it cost before. Raises Invalid."""
    transactions.require_transaction()
    _require_price(price_minor)
    category = _find(event_id, key, lock=True)
    before = category.price_minor
    if before != price_minor:
        category.price_minor = price_minor
        category.save(update_fields=["price_minor"])
    return PriceChange(category.key, before, price_minor)


def add_category(event_id: int, name: str, price_minor: int, color: str = "") -> PriceChange:
    """The event has this price category too, last in its order and found in no section yet; one of this name and
    price that stands is left as it is. The caller has the plan locked. Raises Invalid."""
    transactions.require_transaction()
    _require_price(price_minor)
    name = name.strip()
    if not name or not name.isprintable() or len(name) > NAME_LENGTH_MAX:
        raise problems.Invalid({"category": f"a name of 1 to {NAME_LENGTH_MAX} characters is expected"})
    if color and not normal_color(color):
        raise problems.Invalid({"color": "a color as #rrggbb is expected"})
    theirs = Category.objects.filter(event_id=event_id)
    standing = theirs.filter(key=name).first()
    if standing is not None:
        if standing.price_minor != price_minor:
            raise problems.Invalid({"category": f"{name} stands already, at {standing.price_minor}"})
        return PriceChange(name, price_minor, price_minor)
    last = theirs.aggregate(last=Max("position"))["last"]
    position = 0 if last is None else min(last + 1, 32_767)
    Category.objects.create(
        event_id=event_id, key=name, name=name, color=category_color(color, theirs.count()), price_minor=price_minor,
        position=position,
    )  # fmt: skip
    return PriceChange(name, None, price_minor)


def category_id(event_id: int, key: str) -> int:
    """The id of the event's price category of this key. Raises Invalid naming those there are."""
    return _find(event_id, key).pk


def move_seats(event_id: int, seat_ids: Collection[int], to_category: int) -> None:
    """These seats are of that category, and their sections say which prices are found in them. The caller has the plan
    locked.

    The links between sections and categories are written anew: their ids rise with every move, and that is how
    `facade.plan_version` knows of it without looking through the seats.
    """
    transactions.require_transaction()
    with connection.cursor() as cursor:
        ids = sorted(seat_ids)
        if _move_seats.count(cursor, event_id=event_id, category_id=to_category, seat_ids=ids) != len(ids):
            raise RuntimeError("not all of these seats are the event's")
        _unlink_categories.count(cursor, seat_ids=ids)
        _link_categories.count(cursor, event_id=event_id)


def resize_section(section_id: int, capacity: int) -> None:
    """The general-admission section has this many places: what the public is told. Raises Invalid."""
    transactions.require_transaction()
    if not 1 <= capacity <= CAPACITY_MAX:
        raise problems.Invalid({"capacity": f"must be between 1 and {CAPACITY_MAX:,}"})
    resized = Section.objects.filter(pk=section_id, kind=Section.Kind.GENERAL_ADMISSION).update(capacity=capacity)
    if resized != 1:
        raise problems.Invalid({"section": "no general-admission section"})


def set_section_access(section_id: int, *, needs_access: bool, now: datetime) -> bool:
    """From `now` on nobody holds in the section without an access code, or everybody may again; whether that is new.
    Raises Invalid for no section at all."""
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
    theirs = Category.objects.filter(event_id=event_id)
    found = None
    if key.isprintable():
        rows = theirs.select_for_update(no_key=True, of=("self",)) if lock else theirs
        found = rows.filter(key=key).first()
    if found is None:
        there = ", ".join(f"“{name}”" for name in theirs.values_list("key", flat=True)[:20])
        raise problems.Invalid({"category": f"there is no {key[:80]!r}; there are {there}"})
    return found


def cancel_event(event_id: int) -> bool:
    """The published event is canceled and nothing of it is for sale, for good; whether it was not before. Joins the
    caller's transaction. Raises Invalid for a draft or no event at all."""
    transactions.require_transaction()
    event = Event.objects.select_for_update(no_key=True, of=("self",)).filter(pk=event_id).first()
    if event is None or event.status == Event.Status.DRAFT:
        raise problems.Invalid({"event": "only what was published can be canceled"})
    if event.status == Event.Status.CANCELED:
        return False
    event.status = Event.Status.CANCELED
    event.save(update_fields=["status"])
    return True
