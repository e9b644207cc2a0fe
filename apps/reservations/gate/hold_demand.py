"""The demand of a hold's payload, for the gate, as far as it is known without PostgreSQL.

Nothing here decides. A payload that is not clearly valid has no demand here; `requests.resolve` reports its errors.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from apps.events import facade as events
from apps.kernel.db import sql
from apps.reservations.holds.requests import FIELDS, code_of, guarded_of, is_count

GUARDED_SECONDS = 1.0
"""The delay until a section that no longer requires an access code is open."""
CACHE_SECONDS = 60.0
"""Sections of a published event hardly ever change; an outdated entry only sends more requests to the ledger."""
EVENTS_MAX = 1_000
SEATS_MAX = 100_000
"""Seats of one event whose section a process caches."""
# A replacement may reuse its own stock, which only the ledger can judge.
_FIELDS = FIELDS - {"replace"}


@dataclass(frozen=True, slots=True)
class HoldDemand:
    sections: tuple[int, ...]
    """The requested sections; for seats of unknown section, all sections that they may be in."""
    named_seats: tuple[str, ...] = ()
    """In the requested order."""
    section_of: Mapping[str, int] = field(default_factory=dict)
    """The section of each named seat, if known."""
    other_sections: tuple[int, ...] = ()
    """Sections requested without named seats."""
    has_code: bool = False
    lacks_code_for: tuple[str, ...] = ()
    """Slugs of the requested sections that require an access code, if the payload has none."""

    @property
    def unknown_seats(self) -> list[str]:
        if not self.named_seats:
            return []
        return [guid for guid in self.named_seats if guid not in self.section_of]


@dataclass(slots=True)
class _EventSections:
    """The cached sections of one event."""

    until: float
    """On the process's monotonic clock."""
    event: events.EventView
    general_admission: dict[str, int]
    reserved: dict[str, int]
    guarded: Mapping[int, str]
    """Slugs of the sections that require an access code."""
    section_of: dict[str, int] = field(default_factory=dict)
    """The sections of seats that were requested so far, by public id."""


_sections_by_slug: dict[str, _EventSections] = {}
"""By the event's slug."""


def clear_cache() -> None:
    """Clear the cache, as in a new process."""
    _sections_by_slug.clear()


def cached_event(event_slug: str) -> events.EventView | None:
    """Return the cached event, or None if it is not cached or has expired."""
    event_sections = _sections_by_slug.get(event_slug)
    return None if event_sections is None or time.monotonic() >= event_sections.until else event_sections.event


class NotCached(Exception):
    """The event's sections must be read from PostgreSQL first."""


def parse_demand(event: events.EventView, payload: Any, *, reads: bool = True) -> HoldDemand | None:
    """Return the payload's demand; None if the ledger must judge it. Without `reads`: raises NotCached."""
    if not isinstance(payload, dict) or not _FIELDS.issuperset(payload):
        return None
    event_sections = _load_sections(event, reads=reads)
    others: list[int] = []
    total = 0
    slug, quantity = payload.get("ga_section"), payload.get("ga_quantity")
    if slug is not None or quantity is not None:
        section = event_sections.general_admission.get(slug) if isinstance(slug, str) else None
        if section is None or not is_count(quantity):
            return None
        others.append(section)
        total += quantity
    best = payload.get("best_available")
    if best is not None:
        slug = best.get("section") if isinstance(best, dict) else None
        section = event_sections.reserved.get(slug) if isinstance(slug, str) else None
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
    seats_max = event.policy.seats_per_reservation_max
    if len(guids) > seats_max or len(set(guids)) != len(guids) or total + len(guids) > seats_max:
        return None
    code = code_of(payload.get("access_code"))
    return None if code is None else _build_demand(event_sections, guids, others, has_code=bool(code))


def parse_general_admission_only(payload: Any) -> tuple[str, int] | None:
    """Return section and quantity of a payload that has nothing else, None for any other: equal ones share a demand."""
    if type(payload) is not dict or len(payload) != 2:
        return None
    slug, quantity = payload.get("ga_section"), payload.get("ga_quantity")
    # `type`, not isinstance: True is not a quantity, but equals 1.
    return (slug, quantity) if type(slug) is str and type(quantity) is int else None


def locate_seats(event: events.EventView, demand: HoldDemand) -> HoldDemand | None:
    """Return the demand with the sections of all its seats; None if a seat does not exist."""
    event_sections, unknown = _load_sections(event), demand.unknown_seats
    found = {guid: seat.section_id for guid, seat in events.seats_by_guid(event.id, unknown).items()}
    if len(found) < len(unknown):
        return None
    if len(event_sections.section_of) < SEATS_MAX:
        event_sections.section_of |= found
    section_of = {**demand.section_of, **found}
    sections = _all(section_of.values(), demand.other_sections)
    lacking = () if demand.has_code else _sections_needing_code(event_sections, sections)
    return replace(demand, sections=sections, section_of=section_of, lacks_code_for=lacking)


def _build_demand(event_sections: _EventSections, guids: list[str], others: list[int], *, has_code: bool) -> HoldDemand:
    section_of = {guid: event_sections.section_of[guid] for guid in guids if guid in event_sections.section_of}
    may_be_in = event_sections.reserved.values() if len(section_of) < len(guids) else ()
    lacking = () if has_code else _sections_needing_code(event_sections, (*section_of.values(), *others))
    sections = _all(section_of.values(), others, may_be_in)
    return HoldDemand(sections, tuple(guids), section_of, tuple(others), has_code, lacking)


def _sections_needing_code(event_sections: _EventSections, sections: Iterable[int]) -> tuple[str, ...]:
    if not event_sections.guarded:
        return ()
    return tuple(event_sections.guarded[section] for section in sorted(event_sections.guarded.keys() & set(sections)))


def _all(*sections: Iterable[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(section for some in sections for section in some))


def _load_sections(event: events.EventView, *, reads: bool = True) -> _EventSections:
    event_sections = _sections_by_slug.get(event.slug)
    if event_sections is not None and event_sections.event.id != event.id:
        event_sections = None
    if event_sections is None or time.monotonic() >= event_sections.until:
        if not reads:
            raise NotCached
        sections = events.list_sections(event.id)
        guarded = guarded_of(sections)
        event_sections = _EventSections(
            # A refusal for a missing code must be current; a new requirement may be enforced by the ledger alone.
            until=time.monotonic() + (GUARDED_SECONDS if guarded else CACHE_SECONDS),
            event=event,
            general_admission={section.slug: section.id for section in sections if section.is_general_admission},
            reserved={section.slug: section.id for section in sections if not section.is_general_admission},
            guarded=guarded,
            section_of={} if event_sections is None else event_sections.section_of,
        )
        if len(_sections_by_slug) >= EVENTS_MAX:
            _sections_by_slug.clear()
        _sections_by_slug[event.slug] = event_sections
    return event_sections
