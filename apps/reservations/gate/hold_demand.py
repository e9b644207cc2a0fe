"""What a hold's payload wants, as far as it can be told without PostgreSQL: for the gate, which answers in a moment.

Nothing here decides. A payload that is not plainly right is nobody's wish: `requests.resolve` says what is wrong.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from apps.events import facade as events
from apps.kernel.db import sql
from apps.reservations.holds.requests import FIELDS, code_of, guarded_of, is_count

GUARDED_SECONDS = 1.0
"""A section that wants no access code any more is open by then."""
CACHE_SECONDS = 60.0
"""Sections of a published event come and go hardly ever; what is out of date here only asks the ledger more often."""
EVENTS_MAX = 1_000
SEATS_MAX = 100_000
"""Seats of one event that a process remembers the section of."""
# Who replaces has places that are free for nobody else: that is for the ledger to weigh.
_FIELDS = FIELDS - {"replace"}


@dataclass(frozen=True, slots=True)
class HoldDemand:
    sections: tuple[int, ...]
    """Those it wants something of; of seats whose section is not known, all that they may be in."""
    named_seats: tuple[str, ...] = ()
    """In the order asked for."""
    section_of: Mapping[str, int] = field(default_factory=dict)
    """Named seats to the section each is in, where that is known."""
    other_sections: tuple[int, ...] = ()
    """Those wanted without naming seats."""
    has_code: bool = False
    lacks_code_for: tuple[str, ...] = ()
    """Of these sections those that want an access code, by public name, where it has none."""

    @property
    def unknown_seats(self) -> list[str]:
        if not self.named_seats:
            return []
        return [guid for guid in self.named_seats if guid not in self.section_of]


@dataclass(slots=True)
class _EventSections:
    """What this process knows of one event's sections."""

    until: float
    """On the process's monotonic clock."""
    event: events.EventView
    general_admission: dict[str, int]
    reserved: dict[str, int]
    guarded: Mapping[int, str]
    """Those that want an access code, by public name."""
    section_of: dict[str, int] = field(default_factory=dict)
    """Seats by public id, as they were asked for."""


_sections_by_slug: dict[str, _EventSections] = {}
"""By the event's public name."""


def clear_cache() -> None:
    """As in a process that has just started."""
    _sections_by_slug.clear()


def cached_event(event_slug: str) -> events.EventView | None:
    """The event as this process met it a moment ago; None if it has not, or not lately."""
    house = _sections_by_slug.get(event_slug)
    return None if house is None or time.monotonic() >= house.until else house.event


class NotCached(Exception):
    """This process has to read of the event's house first, which waits for PostgreSQL."""


def parse_demand(event: events.EventView, payload: Any, *, reads: bool = True) -> HoldDemand | None:
    """What the payload wants; None where it is for the ledger to say what it is. Without `reads`: raises NotCached."""
    if not isinstance(payload, dict) or not _FIELDS.issuperset(payload):
        return None
    house = _load_sections(event, reads=reads)
    others: list[int] = []
    total = 0
    slug, quantity = payload.get("ga_section"), payload.get("ga_quantity")
    if slug is not None or quantity is not None:
        section = house.general_admission.get(slug) if isinstance(slug, str) else None
        if section is None or not is_count(quantity):
            return None
        others.append(section)
        total += quantity
    best = payload.get("best_available")
    if best is not None:
        slug = best.get("section") if isinstance(best, dict) else None
        section = house.reserved.get(slug) if isinstance(slug, str) else None
        quantity = best.get("quantity") if isinstance(best, dict) else None
        if section is None or not is_count(quantity):
            return None
        others.append(section)
        total += quantity
    guids = payload.get("seats")
    if guids is None:
        guids = []
    if not isinstance(guids, list) or not all(isinstance(guid, str) and sql.is_text(guid) for guid in guids):
        return None
    most = event.policy.seats_per_reservation_max
    if len(guids) > most or len(set(guids)) != len(guids) or total + len(guids) > most:
        return None
    code = code_of(payload.get("access_code"))
    return None if code is None else _build_demand(house, guids, others, has_code=bool(code))


def parse_places_only(payload: Any) -> tuple[str, int] | None:
    """Section and quantity of a payload that names nothing else: two such want the same. None for any other."""
    if type(payload) is not dict or len(payload) != 2:
        return None
    slug, quantity = payload.get("ga_section"), payload.get("ga_quantity")
    # `type` and not isinstance: true is no quantity, and equal to one.
    return (slug, quantity) if type(slug) is str and type(quantity) is int else None


def locate_seats(event: events.EventView, wish: HoldDemand) -> HoldDemand | None:
    """The same wish, its seats found in the house; None where one does not exist."""
    house, unknown = _load_sections(event), wish.unknown_seats
    found = {guid: seat.section_id for guid, seat in events.seats_by_guid(event.id, unknown).items()}
    if len(found) < len(unknown):
        return None
    if len(house.section_of) < SEATS_MAX:
        house.section_of |= found
    section_of = {**wish.section_of, **found}
    sections = _all(section_of.values(), wish.other_sections)
    lacking = () if wish.has_code else _sections_needing_code(house, sections)
    return replace(wish, sections=sections, section_of=section_of, lacks_code_for=lacking)


def _build_demand(house: _EventSections, guids: list[str], others: list[int], *, has_code: bool) -> HoldDemand:
    section_of = {guid: house.section_of[guid] for guid in guids if guid in house.section_of}
    may_be_in = house.reserved.values() if len(section_of) < len(guids) else ()
    lacking = () if has_code else _sections_needing_code(house, (*section_of.values(), *others))
    sections = _all(section_of.values(), others, may_be_in)
    return HoldDemand(sections, tuple(guids), section_of, tuple(others), has_code, lacking)


def _sections_needing_code(house: _EventSections, sections: Iterable[int]) -> tuple[str, ...]:
    if not house.guarded:
        return ()
    return tuple(house.guarded[section] for section in sorted(house.guarded.keys() & set(sections)))


def _all(*sections: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(section for some in sections for section in some))


def _load_sections(event: events.EventView, *, reads: bool = True) -> _EventSections:
    house = _sections_by_slug.get(event.slug)
    if house is not None and house.event.id != event.id:
        house = None
    if house is None or time.monotonic() >= house.until:
        if not reads:
            raise NotCached
        sections = events.list_sections(event.id)
        guarded = guarded_of(sections)
        house = _EventSections(
            # Who is told to bring a code must need one; that others need one now, the ledger tells them.
            until=time.monotonic() + (GUARDED_SECONDS if guarded else CACHE_SECONDS),
            event=event,
            general_admission={section.slug: section.id for section in sections if section.is_general_admission},
            reserved={section.slug: section.id for section in sections if not section.is_general_admission},
            guarded=guarded,
            section_of={} if house is None else house.section_of,
        )
        if len(_sections_by_slug) >= EVENTS_MAX:
            _sections_by_slug.clear()
        _sections_by_slug[event.slug] = house
    return house
