"""The demand of a hold's payload, for the gate: sections and seats, from the caches of this process.

Nothing here decides. A payload that is not plainly valid has no demand: `requests.resolve` reports its errors.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from apps.events import facade as events
from apps.kernel.db import reads, sql
from apps.reservations.holds import event_cache
from apps.reservations.holds.requests import FIELDS, EventLookup, code_of, is_count, resolve_best_available

# A replacement may use inventory that its own reservation holds, so only the ledger can judge it.
_FIELDS = FIELDS - {"replace"}


@dataclass(frozen=True, slots=True)
class HoldDemand:
    sections: tuple[int, ...]
    """All demanded sections; for seats of unknown section, every section with reserved seats."""
    named_seats: tuple[str, ...] = ()
    """In the order of the payload."""
    section_of: Mapping[str, int] = field(default_factory=dict)
    """The sections of the named seats, as far as known."""
    other_sections: tuple[int, ...] = ()
    """Sections demanded without naming seats."""
    has_code: bool = False
    lacks_code_for: tuple[str, ...] = ()
    """Public names of demanded sections that require an access code, if the payload has none."""
    is_any: bool = False
    """Whether one of the sections is enough."""

    @property
    def unknown_seats(self) -> list[str]:
        if not self.named_seats:
            return []
        return [guid for guid in self.named_seats if guid not in self.section_of]


class NotCached(Exception):
    """The event's sections must be read first, which waits for PostgreSQL."""


def parse_demand(event: events.EventView, payload: Any, *, reads: bool = True) -> HoldDemand | None:
    """Return the payload's demand; None if only the ledger can judge the payload. With `reads` it may block and is for
    threads; without, it is for the event loop and raises NotCached."""
    if not isinstance(payload, dict) or not _FIELDS.issuperset(payload):
        return None
    seating = event_cache.seating.read(event.id) if reads else event_cache.seating.peek(event.id)
    if seating is None:
        raise NotCached
    best = payload.get("best_available")
    if isinstance(best, dict) and (best.get("section") is None or best.get("price_max_minor") is not None):
        return _parse_areas(event, seating, payload, best)
    others: list[int] = []
    total = 0
    slug, quantity = payload.get("ga_section"), payload.get("ga_quantity")
    if slug is not None or quantity is not None:
        section = seating.sections.get(slug) if isinstance(slug, str) else None
        if section is None or not section.is_general_admission or not is_count(quantity):
            return None
        others.append(section.id)
        total += quantity
    if best is not None:
        slug = best.get("section") if isinstance(best, dict) else None
        section = seating.sections.get(slug) if isinstance(slug, str) else None
        quantity = best.get("quantity") if isinstance(best, dict) else None
        if section is None or section.is_general_admission or not is_count(quantity):
            return None
        others.append(section.id)
        total += quantity
    guids = payload.get("seats")
    if guids is None:
        guids = []
    if not isinstance(guids, list) or not all(isinstance(guid, str) and sql.is_text(guid) for guid in guids):
        return None
    seats_max = event.policy.seats_per_reservation_max
    if len(guids) > seats_max or len(set(guids)) != len(guids) or total + len(guids) > seats_max:
        return None
    code = code_of(payload.get("access_code"))
    return None if code is None else _build_demand(event, seating, guids, others, has_code=bool(code))


def _parse_areas(
    event: events.EventView, seating: event_cache.Seating, payload: Mapping[str, Any], best: Mapping[str, Any]
) -> HoldDemand | None:
    """Return the demand of a payload that asks for the best seats of several areas and for nothing else; else None."""
    wrong: dict[str, Any] = {}
    lookup = EventLookup(seating.sections, seating.categories, {}, seating.guarded, seating.areas)
    demand = resolve_best_available(event, lookup, best, wrong)
    code = code_of(payload.get("access_code"))
    if demand is None or code is None or not {"best_available", "access_code"}.issuperset(payload):
        return None
    if demand.quantity > event.policy.seats_per_reservation_max:
        return None
    sections = demand.areas.section_ids
    if not code:
        opened = tuple(section for section in sections if section not in seating.guarded)
        if not opened:
            return HoldDemand(sections, is_any=True, lacks_code_for=_sections_needing_code(seating, sections))
        sections = opened
    return HoldDemand(sections, is_any=True, has_code=bool(code))


def parse_general_admission_only(payload: Any) -> tuple[str, int] | None:
    """Return section and quantity of a payload that names nothing else, as a key of its demand; else None."""
    if type(payload) is not dict or len(payload) != 2:
        return None
    slug, quantity = payload.get("ga_section"), payload.get("ga_quantity")
    # `type` and not isinstance: True is not a quantity, but equals 1.
    return (slug, quantity) if type(slug) is str and type(quantity) is int else None


def locate_seats(event: events.EventView, demand: HoldDemand) -> HoldDemand | None:
    """Return the demand with the sections of its seats; None if a seat does not exist. For threads."""
    reads.run(event_cache.load_seats([(event.id, tuple(demand.unknown_seats))]))
    section_of = _known_sections(event, demand.named_seats)
    if len(section_of) < len(demand.named_seats):
        return None
    sections = _all(section_of.values(), demand.other_sections)
    lacking = () if demand.has_code else _sections_needing_code(event_cache.seating.read(event.id), sections)
    return replace(demand, sections=sections, section_of=section_of, lacks_code_for=lacking)


def _known_sections(event: events.EventView, guids: Iterable[str]) -> dict[str, int]:
    return {guid: seat.section_id for guid, seat in event_cache.cached_seats(event.id, guids).items()}


def _build_demand(
    event: events.EventView, seating: event_cache.Seating, guids: list[str], others: list[int], *, has_code: bool
) -> HoldDemand:
    section_of = _known_sections(event, guids)
    may_be_in = seating.reserved_ids if len(section_of) < len(guids) else ()
    lacking = () if has_code else _sections_needing_code(seating, (*section_of.values(), *others))
    sections = _all(section_of.values(), others, may_be_in)
    return HoldDemand(sections, tuple(guids), section_of, tuple(others), has_code, lacking)


def _sections_needing_code(seating: event_cache.Seating, sections: Iterable[int]) -> tuple[str, ...]:
    if not seating.guarded:
        return ()
    return tuple(seating.guarded[section] for section in sorted(seating.guarded.keys() & set(sections)))


def _all(*sections: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(section for some in sections for section in some))
