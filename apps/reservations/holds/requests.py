"""A hold request, validated and resolved to integers before it joins a batch.

Values that the database would reject are refused here, so that one invalid request never fails a batch.
"""

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from apps.events import facade as events
from apps.kernel import clock, random_bytes
from apps.kernel.codes import code_format
from apps.kernel.db import sql
from apps.kernel.http import idempotency, problems
from apps.queue import facade as queue
from apps.reservations.holds.seat_choice.areas import NO_AREAS, Area, Areas
from apps.reservations.holds.seat_choice.best_available import BestAvailable

FIELDS = frozenset({"seats", "ga_section", "ga_quantity", "best_available", "access_code", "replace"})
_BEST_FIELDS = frozenset({"section", "quantity", "category", "price_max_minor", "accessible", "companions"})
PRICE_MAX_MINOR = 10**12
AREA_CHOICES_MAX = 16
"""So many choices of an event's areas, by category and maximum price, are kept."""


def hold_scope(event_id: int, buyer: str) -> str:
    """Return the scope of the idempotency keys of this buyer's holds."""
    return f"hold:{event_id}:{buyer}"


@dataclass(frozen=True, slots=True)
class HoldRequest:
    """The request of one buyer, all or nothing. The reservation's id is generated here: after a lost connection it
    shows whether the commit succeeded."""

    reservation_id: uuid.UUID
    event: events.EventView
    entry_id: uuid.UUID
    buyer: str
    """The identity that purchase caps count."""
    idempotency_key: str
    fingerprint: str
    seats: Mapping[int, str] = field(default_factory=dict)
    """Seat id to public id, in the order of the request."""
    general_admission: Mapping[int, events.SectionView] = field(default_factory=dict)
    quantities: Mapping[int, int] = field(default_factory=dict)
    """Section id to quantity; the same keys as `general_admission`."""
    best: BestAvailable | None = None
    replaces: uuid.UUID | None = None
    """The live reservation that this hold replaces in the same transaction."""
    access_code: str = ""
    """In its stored form; empty: none."""
    guarded: Mapping[int, str] = field(default_factory=dict)
    """The event's sections behind an access code: id to public name."""

    @property
    def seat_count(self) -> int:
        return len(self.seats) + sum(self.quantities.values()) + (self.best.quantity if self.best else 0)

    @property
    def scope(self) -> str:
        """The scope within which the request's idempotency key is unique."""
        return hold_scope(self.event.id, self.buyer)


class EventAreas:
    """The areas of an event. They are sorted once, when its sections were read, and not for each of its requests."""

    def __init__(self, sections: Iterable[events.SectionView], category_ids: Mapping[str, int]) -> None:
        reserved = [section for section in sections if not section.is_general_admission]
        self._prices = {
            price.category: price for section in reserved for price in section.prices if price.category in category_ids
        }
        self._category_ids = category_ids
        found = [
            Area(section.id, category_ids[price.category], price.price_minor)
            for section in reserved
            for price in section.prices
            if price.category in category_ids
        ]
        self._all = Areas(sorted(found, key=lambda area: -area.price_minor))
        self._found: dict[frozenset[int], Areas] = {}

    def __len__(self) -> int:
        return len(self._all)

    def find(self, event: events.EventView, category: str | None, price_max_minor: int | None) -> Areas:
        """Return where seats of the category cost at most the maximum, with fee and tax; the highest price first, then
        the order of the sections. None: of any category, at any price. A category has one price in all sections."""
        if category is None and price_max_minor is None:
            return self._all
        wanted = frozenset(
            self._category_ids[key]
            for key, price in self._prices.items()
            if category in (None, key)
            and (
                price_max_minor is None
                or event.price_policy.place_total_minor(price.price_minor, price.tax_rate) <= price_max_minor
            )
        )
        found = self._found.get(wanted)
        if found is None:
            if len(self._found) >= AREA_CHOICES_MAX:
                self._found.clear()
            found = self._found[wanted] = Areas(area for area in self._all if area.category_id in wanted)
        return found


@dataclass(frozen=True, slots=True)
class EventLookup:
    """The objects that the names in a payload refer to, as read a moment ago."""

    sections: Mapping[str, events.SectionView]
    categories: Mapping[str, int]
    """Key to id."""
    seats: Mapping[str, int]
    """Public id to id, of the seats that the payload names and that exist."""
    guarded: Mapping[int, str] = field(default_factory=dict)
    """See `HoldRequest.guarded`."""
    areas: EventAreas | None = None
    """Of all sections, if they were found before."""


def guarded_of(sections: Iterable[events.SectionView]) -> dict[int, str]:
    """Return the sections behind an access code: id to public name."""
    return {section.id: section.slug for section in sections if section.needs_access}


def every_section(sections: Iterable[events.SectionView]) -> dict[int, str]:
    """Return all sections as behind an access code, as in a presale."""
    return {section.id: section.slug for section in sections}


def is_presale(event: events.EventView, entry: queue.EntryView) -> bool:
    """Return whether a hold of this entry must meet the condition of the event's presale, unless its visitor came by a
    VIP link. A code is judged like that of a section, under its lock."""
    if event.policy.presale is None or entry.is_priority:
        return False
    return event.presale_at(clock.process_now()) is not None


def _needs_presale_code(event: events.EventView, entry: queue.EntryView) -> bool:
    """Return whether the presale asks for a code. Raises PresaleOnly for an entry without the account it asks for."""
    presale = event.policy.presale
    assert presale is not None
    if presale.condition != "code" and entry.account_id is None:
        raise queue.presale_refusal(presale, clock.process_now())
    return presale.condition == "code"


def presale_guard(
    event: events.EventView, entry: queue.EntryView, sections: Iterable[events.SectionView]
) -> dict[int, str]:
    """Return the sections that need a code because of the event's presale: all, or none. Raises PresaleOnly."""
    if not is_presale(event, entry) or queue.has_vip_link(entry.id) or not _needs_presale_code(event, entry):
        return {}
    return every_section(sections)


def read_lookup(event: events.EventView, payload: Any) -> EventLookup:
    """Read the objects that the payload names from PostgreSQL."""
    best = payload.get("best_available") if isinstance(payload, dict) else None
    wants_category = isinstance(best, dict) and any(
        (best.get("section") is None, best.get("category") is not None, best.get("price_max_minor") is not None)
    )
    sections = events.list_sections(event.id)
    return EventLookup(
        sections={section.slug: section for section in sections},
        categories={one.key: one.id for one in events.list_categories(event.id)} if wants_category else {},
        seats={guid: seat.id for guid, seat in events.seats_by_guid(event.id, named_seats(event, payload)).items()},
        guarded=guarded_of(sections),
    )


def named_seats(event: events.EventView, payload: Any) -> list[str]:
    """Return the seats that the payload names; none if the list is invalid, which `resolve` reports."""
    guids = payload.get("seats") if isinstance(payload, dict) else None
    return guids if isinstance(guids, list) and _seat_list_error(event, guids) is None else []


def resolve(
    event: events.EventView,
    entry: queue.EntryView,
    payload: Any,
    idempotency_key: str,
    lookup: EventLookup | None = None,
    *,
    is_invited: bool = False,
) -> HoldRequest:
    """Return the request that the body describes. `is_invited`: the visitor came by a VIP link, so a presale wants no
    code. Raises Invalid with every field that is wrong."""
    if not isinstance(payload, dict):
        raise problems.Invalid("a JSON object is expected")
    if lookup is None:
        lookup = read_lookup(event, payload)
    wrong: dict[str, Any] = {str(name)[:80]: "unknown field" for name in payload if name not in FIELDS}
    seats = _seats(event, payload.get("seats"), lookup, wrong)
    general_admission = _general_admission(lookup.sections, payload, wrong)
    best = resolve_best_available(event, lookup, payload.get("best_available"), wrong)
    replaces = _reservation_id(payload.get("replace"), wrong)
    access_code = _access_code(payload.get("access_code"), wrong)
    if wrong:
        raise problems.Invalid(wrong)
    section, quantity = general_admission or (None, 0)
    request = HoldRequest(
        reservation_id=random_bytes.new_uuid7(),
        event=event,
        entry_id=entry.id,
        buyer=entry.buyer,
        idempotency_key=idempotency.check_key(idempotency_key),
        fingerprint=idempotency.fingerprint(payload),
        seats=seats,
        general_admission={section.id: section} if section else {},
        quantities={section.id: quantity} if section else {},
        best=best,
        replaces=replaces,
        access_code=access_code,
        guarded=every_section(lookup.sections.values())
        if not is_invited and is_presale(event, entry) and _needs_presale_code(event, entry)
        else lookup.guarded,
    )
    most = event.policy.seats_per_reservation_max
    if request.seat_count == 0:
        raise problems.Invalid("choose seats, a quantity of general admission, or best_available")
    if request.seat_count > most:
        raise problems.Invalid(f"at most {most} tickets per reservation")
    return request


def code_of(asked: Any) -> str | None:
    """Return the access code in its stored form, empty for none; None if it cannot be a code."""
    if asked is None or asked == "":
        return ""
    if not isinstance(asked, str) or not sql.is_text(asked):
        return None
    try:
        return code_format.normal_code(asked)
    except code_format.InvalidCode:
        return None


def _access_code(asked: Any, wrong: dict[str, Any]) -> str:
    code = code_of(asked)
    if code is None:
        wrong["access_code"] = f"at most {code_format.LENGTH_MAX} printable characters"
    return code or ""


def _reservation_id(asked: Any, wrong: dict[str, Any]) -> uuid.UUID | None:
    if asked is None:
        return None
    try:
        # Accept only the form that responses use: Python also accepts braces and missing hyphens.
        if isinstance(asked, str) and str(found := uuid.UUID(asked)) == asked.lower():
            return found
    except ValueError:
        pass
    wrong["replace"] = "the id of a reservation is expected"
    return None


def _seats(event: events.EventView, asked: Any, lookup: EventLookup, wrong: dict[str, Any]) -> dict[int, str]:
    if asked is None:
        return {}
    why_not = _seat_list_error(event, asked)
    unknown = [] if why_not is not None else [guid for guid in asked if guid not in lookup.seats]
    if why_not is not None or unknown:
        wrong["seats"] = why_not or [f"no such seat: {guid}" for guid in unknown]
        return {}
    return {lookup.seats[guid]: guid for guid in asked}


def _seat_list_error(event: events.EventView, asked: Any) -> str | None:
    """Return the error of the list itself, without checking which seats exist; None if there is none."""
    if not isinstance(asked, list) or not all(isinstance(guid, str) and 0 < len(guid) <= 120 for guid in asked):
        return "a list of seat ids is expected"
    if len(asked) > event.policy.seats_per_reservation_max:
        return f"at most {event.policy.seats_per_reservation_max} in one reservation"
    if len(set(asked)) != len(asked):
        return "the same seat is named twice"
    return None if all(sql.is_text(guid) for guid in asked) else "no such seat"


def _general_admission(
    sections: Mapping[str, events.SectionView], payload: dict[str, Any], wrong: dict[str, Any]
) -> tuple[events.SectionView, int] | None:
    slug, quantity = payload.get("ga_section"), payload.get("ga_quantity")
    if slug is None and quantity in (None, 0) and not isinstance(quantity, bool):
        return None
    section = sections.get(slug) if isinstance(slug, str) else None
    if section is None or not section.is_general_admission:
        section, wrong["ga_section"] = None, "no such general-admission section"
    if not is_count(quantity):
        wrong["ga_quantity"] = "a whole number from 1 is expected"
        return None
    return (section, quantity) if section is not None else None


def resolve_best_available(
    event: events.EventView, lookup: EventLookup, asked: Any, wrong: dict[str, Any]
) -> BestAvailable | None:
    """Return the request for the best seats that this object describes; None if it is missing, or invalid, which is
    noted in `wrong`."""
    if asked is None:
        return None
    if not isinstance(asked, dict):
        wrong["best_available"] = "an object is expected"
        return None
    bad: dict[str, str] = {str(name)[:80]: "unknown field" for name in asked if name not in _BEST_FIELDS}
    slug, quantity = asked.get("section"), asked.get("quantity")
    accessible, companions = asked.get("accessible", False), asked.get("companions", 0)
    section = lookup.sections.get(slug) if isinstance(slug, str) else None
    if slug is not None and (section is None or section.is_general_admission):
        bad["section"] = "no such section with reserved seats"
    if not is_count(quantity):
        bad["quantity"] = "a whole number from 1 is expected"
    if not isinstance(accessible, bool):
        bad["accessible"] = "true or false is expected"
    if not _fits(companions, accessible, quantity):
        bad["companions"] = "with accessible seats, fewer than the quantity"
    category_id = None
    if asked.get("category") is not None:
        category_id = lookup.categories.get(asked["category"]) if isinstance(asked["category"], str) else None
        if category_id is None:
            bad["category"] = "no such category"
    price_max = asked.get("price_max_minor")
    if price_max is not None and not is_price(price_max):
        bad["price_max_minor"] = f"a whole number from 0 to {PRICE_MAX_MINOR} is expected"
    areas = NO_AREAS
    if not bad and (section is None or price_max is not None):
        found = lookup.areas if section is None else EventAreas([section], lookup.categories)
        if found is None:
            found = EventAreas(lookup.sections.values(), lookup.categories)
        areas = found.find(event, asked.get("category"), price_max)
        if not areas:
            bad["section" if price_max is None else "price_max_minor"] = (
                "no such seats" if price_max is None else "no seats cost that little"
            )
    if bad or not is_count(quantity):
        wrong["best_available"] = bad
        return None
    return BestAvailable(
        section_id=None if section is None else section.id,
        quantity=quantity,
        category_ids=() if category_id is None else (category_id,),
        accessible=accessible,
        companions=companions,
        areas=areas,
        has_price_max=price_max is not None,
    )


def is_price(value: Any) -> TypeGuard[int]:
    """Return whether this is an amount in minor units that any currency's prices may have."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= PRICE_MAX_MINOR


def _fits(companions: Any, accessible: Any, quantity: Any) -> bool:
    if isinstance(companions, bool) or not isinstance(companions, int) or companions < 0:
        return False
    return companions == 0 or (accessible is True and is_count(quantity) and companions < quantity)


def is_count(value: Any) -> TypeGuard[int]:
    """Return whether this is a whole number from 1 that fits any integer column; true and 2.0 are not."""
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 1_000_000
