"""How many seats are free in each area and section, counted once for all requests of a batch.

Requests differ in the seats that they name besides the choice, which do not count for them, and in those of the
reservation that they replace, which count for them alone. Both are few, and are added in memory: to count thousands of
areas for each request would keep all other holds waiting.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from apps.kernel.db import sql
from apps.reservations.holds.seat_choice.areas import Areas, Candidate
from apps.reservations.holds.seat_choice.best_available import BestAvailable, is_ordinary
from apps.reservations.holds.seat_choice.free_runs import FreeSeat

COUNTED_EACH_MAX = 3
"""A section with more areas is counted in one pass: counting one area passes over the free seats of the others."""

_free_areas = sql.load("apps.reservations", "free_areas")

Pair = tuple[int, int]
"""A section and a category."""


class Free(NamedTuple):
    """How many free seats an area or a section has for a party."""

    usable: int = 0
    accessible: int = 0

    def fitting_count(self, demand: BestAvailable) -> int:
        """Return how many of them fit the request: at least its quantity if it can sit here."""
        if self.accessible < demand.accessible_count:
            # Without an accessible seat for each member who needs one, the other free seats are of no use to the party.
            return min(self.accessible, demand.quantity - 1)
        return self.usable


NONE_FREE = Free()


@dataclass(slots=True)
class OwnCandidates:
    """Where a request may sit with the seats that count for it alone, in the order of preference."""

    areas: list[Candidate] = field(default_factory=list)
    spans: list[Candidate] = field(default_factory=list)
    """Sections with several areas."""
    sections: list[Candidate] = field(default_factory=list)


@dataclass(slots=True)
class Counts:
    """The free seats of some areas, in the order of preference, and of their sections. Those that requests name are
    not counted, but listed."""

    areas: list[tuple[Candidate, Free]]
    sections: list[tuple[Candidate, Free]]
    named: Mapping[int, tuple[Pair, Free]]
    """By seat."""
    _area_at: Mapping[Pair, int]
    _section_at: Mapping[int, int]
    _totals: dict[int, Free] = field(default_factory=dict)
    """By section, with the seats that requests name."""
    _ranked: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)
    """By quantity and how many of it are accessible: how many seats fit in each section, and its id, the most first."""

    def find_own(self, demand: BestAvailable, own: Mapping[Pair, Free]) -> OwnCandidates:
        """Return which areas and sections of these `own` seats have enough for the request."""
        areas = [(self.areas[at], free) for pair, free in own.items() if (at := self._area_at.get(pair)) is not None]
        sections = [(self.sections[self._section_at[one]], free) for one, free in self._sum_own(own).items()]
        enough, wide_enough = (
            sorted(one for (one, free), more in found if _sum(free, more).fitting_count(demand) >= demand.quantity)
            for found in (areas, sections)
        )
        return OwnCandidates(enough, [one for one in wide_enough if len(one.category_ids) > 1], wide_enough)

    def most_fitting(self, demand: BestAvailable, own: Mapping[Pair, Free], named: Collection[int]) -> int:
        """Return how many seats fit in the section in which most do, with these `own` seats and without those that the
        request has `named`."""
        if not self._totals:
            of_named = _sum_by_section(self.named.values())
            self._totals = {
                one.section_id: _sum(free, of_named.get(one.section_id, NONE_FREE)) for one, free in self.sections
            }
        key = demand.quantity, demand.accessible_count
        if key not in self._ranked:
            fitting = [(free.fitting_count(demand), section_id) for section_id, free in self._totals.items()]
            self._ranked[key] = sorted(fitting, reverse=True)
        less = _sum_by_section(self.named[seat_id] for seat_id in named if seat_id in self.named)
        more = self._sum_own(own)
        changed = less.keys() | more.keys()
        most = next((count for count, section_id in self._ranked[key] if section_id not in changed), 0)
        for section_id in changed:
            total, gone = self._totals[section_id], less.get(section_id, NONE_FREE)
            left = Free(total.usable - gone.usable, total.accessible - gone.accessible)
            most = max(most, _sum(left, more.get(section_id, NONE_FREE)).fitting_count(demand))
        return most

    def _sum_own(self, own: Mapping[Pair, Free]) -> Mapping[int, Free]:
        return _sum_by_section((pair, free) for pair, free in own.items() if pair in self._area_at)


@dataclass(slots=True)
class AreaCounter:
    """Counts the free seats of areas: each area once, and once more if accessible seats count."""

    cursor: sql.Cursor
    named: Collection[int]
    """Seats that requests name besides the choice."""
    quantity_max: int
    """The seats of an area are counted up to so many: the most that one request wants."""
    _free: dict[bool, dict[Pair, Free]] = field(default_factory=dict)
    """By whether accessible seats count."""
    _named: dict[bool, dict[int, tuple[Pair, Free]]] = field(default_factory=dict)
    """The named seats that are free, as found by the statement that counted their area."""
    _counts: dict[tuple[Areas, bool], Counts] = field(default_factory=dict)

    def count(self, demand: BestAvailable) -> Counts:
        """Return how many seats are free in each area of the request, read without locks."""
        key = (demand.areas, demand.accessible)
        if key not in self._counts:
            self._read(demand.areas, accessible=demand.accessible)
            self._counts[key] = self._arrange(demand.areas, accessible=demand.accessible)
        return self._counts[key]

    def _read(self, areas: Areas, *, accessible: bool) -> None:
        counted, named = self._free.setdefault(accessible, {}), self._named.setdefault(accessible, {})
        missing = [area for area in areas if area[:2] not in counted]
        if not missing:
            return
        by_section = Areas(missing).category_ids_by_section
        each = [area for area in missing if len(by_section[area.section_id]) <= COUNTED_EACH_MAX]
        rows = _free_areas.rows(
            self.cursor,
            section_ids=[area.section_id for area in each],
            category_ids=[area.category_id for area in each],
            whole_section_ids=[one for one, categories in by_section.items() if len(categories) > COUNTED_EACH_MAX],
            accessible=accessible,
            named_ids=list(self.named),
            limit=self.quantity_max,
        )
        # One statement finds the named seats of an area and counts its other ones. Else a seat that is given back and
        # another that is taken in between would both be missed.
        now = dict.fromkeys((area[:2] for area in missing), NONE_FREE)
        for section_id, category_id, usable, accessible_count, seat_id in rows:
            pair, free = (section_id, category_id), Free(usable, accessible_count)
            if pair in now and seat_id is None:
                now[pair] = free
            elif pair in now:
                named[seat_id] = pair, free
        counted |= now

    def _arrange(self, areas: Areas, *, accessible: bool) -> Counts:
        counted = self._free[accessible]
        free = [counted[area[:2]] for area in areas]
        by_section = _sum_by_section((area[:2], one) for area, one in zip(areas, free, strict=True))
        return Counts(
            list(zip(areas.area_candidates, free, strict=True)),
            [(one, by_section[one.section_id]) for one in areas.section_candidates],
            {seat_id: found for seat_id, found in self._named[accessible].items() if found[0] in areas.area_at},
            areas.area_at,
            areas.section_at,
        )


def free_of_own(demand: BestAvailable, own: Mapping[int, FreeSeat], named: Collection[int]) -> Mapping[Pair, Free]:
    """Return how many seats of its `own`, except those that it has `named`, count for the request."""
    found: dict[Pair, Free] = {}
    for seat in own.values():
        if seat.seat_id not in named and (demand.accessible or is_ordinary(seat)):
            pair = (seat.section_id, seat.category_id)
            found[pair] = _sum(found.get(pair, NONE_FREE), Free(1, int(seat.accessible)))
    return found


def _sum_by_section(found: Iterable[tuple[Pair, Free]]) -> Mapping[int, Free]:
    by_section: dict[int, Free] = {}
    for (section_id, _), free in found:
        by_section[section_id] = _sum(by_section.get(section_id, NONE_FREE), free)
    return by_section


def _sum(*counts: Free) -> Free:
    usable = accessible = 0
    for count in counts:
        usable += count.usable
        accessible += count.accessible
    return Free(usable, accessible)
