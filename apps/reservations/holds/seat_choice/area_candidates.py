"""Proposals for best-available requests that may sit in several areas, without reading every area.

One statement counts the free seats of all areas for all requests of one quantity. The counts alone decide whether a
request can be met: it is refused only if no section has enough free seats. Areas with enough are then read in the order
of preference. If the first FIRST_MAX have no seats side by side, one statement finds which of the next ones do, and
only those are read: where tens of thousands of single seats are free, to read more areas first costs several times as
much as to examine them.

So a party sits side by side wherever that is possible, with two limits: a request reads at most READS_MAX areas, which
matters only if so many of them have just lost their adjacent seats, and that statement examines at most
EXAMINED_SEATS_MAX free seats, the preferred areas first. Beyond them, or if no seats are side by side, the party sits
in the section where it is split least, out of the first SCATTERED_SECTIONS that have enough seats.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from apps.kernel.db import sql
from apps.reservations.holds.seat_choice import longest_runs
from apps.reservations.holds.seat_choice.areas import Areas
from apps.reservations.holds.seat_choice.best_available import BestAvailable, count_groups
from apps.reservations.holds.seat_choice.candidates import Proposal, SectionProposer
from apps.reservations.holds.seat_choice.free_runs import FreeSeat

FIRST_MAX = 1
# After those, the statement examines 16 areas, then 64, 256 and so on: as far as needed, in few statements.
EXAMINED_MIN = 16
EXAMINED_FACTOR = 4
EXAMINED_SEATS_MAX = 10_000
"""The most free seats that these statements examine for one kind of request."""
READS_MAX = 20
"""The most areas that one request reads for seats side by side, besides those read for earlier requests; and the most
sections for seats apart."""
SCATTERED_SECTIONS = 2
"""A party that sits together nowhere is offered the least scattered seats of so many sections."""
COUNTED_EACH_MAX = 3
"""A section with more areas is counted in one pass: counting one area passes over the free seats of the others."""

_free_areas = sql.load("apps.reservations", "free_areas")
_adjacent_areas = sql.load("apps.reservations", "adjacent_areas")

Choice = tuple[FreeSeat, ...]


class _Free(NamedTuple):
    """How many free seats an area or a section has for a party."""

    usable: int = 0
    accessible: int = 0

    def fitting_count(self, demand: BestAvailable) -> int:
        """Return how many of them fit the request: at least its quantity if it can sit here."""
        if self.accessible < demand.accessible_count:
            # Without an accessible seat for each member who needs one, the other free seats are of no use to the party.
            return min(self.accessible, demand.quantity - 1)
        return self.usable


_NONE_FREE = _Free()


class _Candidate(NamedTuple):
    """An area, or several areas of one section."""

    section_id: int
    category_ids: tuple[int, ...]


@dataclass(slots=True)
class _Candidates:
    """Where requests of one kind may sit, in the order of preference. A candidate without a choice is removed: within
    one proposer, seats are only taken."""

    ready: list[_Candidate]
    """To be read."""
    rest: list[_Candidate]
    """To be examined first."""
    examined_max: int = EXAMINED_MIN
    seats_left: int = field(default_factory=lambda: EXAMINED_SEATS_MAX)


@dataclass(slots=True)
class _Search:
    areas: _Candidates
    spans: _Candidates
    """Sections with several areas."""
    sections: list[_Candidate]
    fitting_count: int
    """In the section in which most seats fit."""


@dataclass(slots=True)
class _Budget:
    """How many more candidates one request may read."""

    left: int = READS_MAX

    def allows(self, proposer: SectionProposer, one: BestAvailable) -> bool:
        """Return whether the request may choose from these seats; count the read unless they were read before."""
        if proposer.is_read(one):
            return True
        self.left -= 1
        return self.left >= 0


@dataclass(slots=True)
class Proposer(SectionProposer):
    """Proposes seats to one request after another. Every read of the free seats has a new one."""

    _free: dict[tuple[int, bool, frozenset[int]], dict[tuple[int, int], _Free]] = field(default_factory=dict)
    """By the quantity up to which seats were counted, whether accessible ones count, and seats that do not."""
    _searches: dict[tuple[Areas, int, bool, int], _Search] = field(default_factory=dict)

    def propose(
        self, demand: BestAvailable, own: Mapping[int, FreeSeat], named: Collection[int] = frozenset()
    ) -> Proposal:
        """Return the best seats for the request, or how many fit in one section. Seats of its `own` are free for this
        request alone. Seats that the request has `named` itself are not counted."""
        if not demand.areas:
            return self.propose_in_section(demand, own, named)
        search = self._search(demand, own, frozenset(named))
        budget = _Budget()
        for candidates, spans in ((search.areas, False), (search.spans, True)):
            chosen = next(self._propose_together(candidates, demand, own, budget, spans=spans), None)
            if chosen is not None:
                return Proposal(chosen, len(chosen))
        chosen = self._propose_scattered(search.sections, demand, own)
        return Proposal(chosen, search.fitting_count if chosen is None else len(chosen))

    def propose_by_area(self, demand: BestAvailable, own: Mapping[int, FreeSeat]) -> Iterator[Choice]:
        """Yield the best seats side by side for a request with several areas, one choice of each area that has any, in
        the order of the areas. They stay free until they are taken."""
        return self._propose_together(self._search(demand, own).areas, demand, own, _Budget(), spans=False)

    def _propose_together(
        self,
        candidates: _Candidates,
        demand: BestAvailable,
        own: Mapping[int, FreeSeat],
        budget: _Budget,
        *,
        spans: bool,
    ) -> Iterator[Choice]:
        at = 0
        while True:
            while at == len(candidates.ready):
                if not candidates.rest:
                    return
                self._examine(candidates, demand, own, spans=spans)
            one = demand.in_section(*candidates.ready[at])
            if not budget.allows(self, one):
                return
            chosen = self.propose_in_section(one, own, together=True).seats
            if chosen is None:
                del candidates.ready[at]
            else:
                yield chosen
                at += 1

    def _examine(
        self, candidates: _Candidates, demand: BestAvailable, own: Mapping[int, FreeSeat], *, spans: bool
    ) -> None:
        """Make the next candidates ready to be read, those with seats side by side."""
        examined, candidates.rest = (
            candidates.rest[: candidates.examined_max],
            candidates.rest[candidates.examined_max :],
        )
        candidates.examined_max *= EXAMINED_FACTOR
        if demand.accessible:
            # Seats for an accessible request are close to each other, not side by side.
            candidates.ready += examined
            return
        mine = {seat.section_id for seat in own.values()}
        unknown: list[_Candidate] = []
        for candidate in examined:
            seats = longest_runs.seats_without(*candidate, demand.quantity)
            if seats is None or candidate.section_id in mine:
                unknown.append(candidate)
            else:
                candidates.seats_left -= seats
        found = self._find_adjacent(candidates, unknown, demand.quantity, spans=spans)
        candidates.ready += [one for one in unknown if one in found or one.section_id in mine]
        if candidates.seats_left <= 0:
            candidates.rest = []

    def _find_adjacent(
        self, candidates: _Candidates, examined: list[_Candidate], quantity: int, *, spans: bool
    ) -> set[_Candidate]:
        """Return which of these candidates have so many seats side by side, as far as the limit allows."""
        if not examined or candidates.seats_left <= 0:
            return set()
        rows = _adjacent_areas.rows(
            self.cursor,
            section_ids=list(dict.fromkeys(candidate.section_id for candidate in examined)),
            category_ids=list({category_id for candidate in examined for category_id in candidate.category_ids}),
            spans=spans,
            excluded_ids=list(self.taken),
            limit=candidates.seats_left,
        )
        by_row = {(one.section_id, 0 if spans else one.category_ids[0]): one for one in examined}
        longest_of = {
            by_row[section_id, category_id]: (longest, seats)
            for section_id, category_id, seats, longest in rows
            if (section_id, category_id) in by_row
        }
        seats_read = sum(seats for _, _, seats, _ in rows)
        candidates.seats_left -= seats_read
        if seats_read >= longest_runs.SEATS_MIN:
            for candidate, (longest, seats) in longest_of.items():
                longest_runs.keep(*candidate, longest, seats)
        return {candidate for candidate, (longest, _) in longest_of.items() if longest >= quantity}

    def _propose_scattered(
        self, sections: list[_Candidate], demand: BestAvailable, own: Mapping[int, FreeSeat]
    ) -> Choice | None:
        """Return the least scattered of the best seats of the first sections that have enough."""
        budget = _Budget()
        found: list[Choice] = []
        while len(found) < min(SCATTERED_SECTIONS, len(sections)):
            one = demand.in_section(*sections[len(found)])
            if not budget.allows(self, one):
                break
            chosen = self.propose_in_section(one, own).seats
            if chosen is None:
                del sections[len(found)]
            else:
                found.append(chosen)
        return min(found, key=count_groups, default=None)

    def _search(
        self, demand: BestAvailable, own: Mapping[int, FreeSeat], named: frozenset[int] = frozenset()
    ) -> _Search:
        if own or named:
            return self._begin_search(demand, own, named)
        key = (demand.areas, demand.quantity, demand.accessible, demand.companions)
        if key not in self._searches:
            self._searches[key] = self._begin_search(demand, own, named)
        return self._searches[key]

    def _begin_search(self, demand: BestAvailable, own: Mapping[int, FreeSeat], named: frozenset[int]) -> _Search:
        free = self._count(demand, named)
        mine = [
            seat
            for seat in own.values()
            if seat.seat_id not in named and (demand.accessible or not (seat.accessible or seat.companion))
        ]
        if mine:
            free = dict(free)
            for seat in mine:
                pair = (seat.section_id, seat.category_id)
                free[pair] = _sum([free.get(pair, _NONE_FREE), _Free(1, int(seat.accessible))])
        areas = [
            _Candidate(section_id, (category_id,))
            for section_id, category_id, _ in demand.areas
            if free[section_id, category_id].fitting_count(demand) >= demand.quantity
        ]
        sections: list[_Candidate] = []
        most = 0
        for section_id, category_ids in demand.areas.category_ids_by_section.items():
            fitting = _sum([free[section_id, one] for one in category_ids]).fitting_count(demand)
            most = max(most, fitting)
            if fitting >= demand.quantity:
                sections.append(_Candidate(section_id, category_ids))
        spans = [candidate for candidate in sections if len(candidate.category_ids) > 1]
        return _Search(
            _Candidates(areas[:FIRST_MAX], areas[FIRST_MAX:]),
            _Candidates(spans[:FIRST_MAX], spans[FIRST_MAX:]),
            sections,
            most,
        )

    def _count(self, demand: BestAvailable, named: frozenset[int]) -> Mapping[tuple[int, int], _Free]:
        """Return how many seats are free in each area of the request, and maybe in others, by section and category."""
        key = (demand.quantity, demand.accessible, named)
        counted = self._free.setdefault(key, {})
        missing = [area for area in demand.areas if area[:2] not in counted]
        if missing:
            by_section = Areas(missing).category_ids_by_section
            each = [area for area in missing if len(by_section[area.section_id]) <= COUNTED_EACH_MAX]
            rows = _free_areas.rows(
                self.cursor,
                section_ids=[area.section_id for area in each],
                category_ids=[area.category_id for area in each],
                whole_section_ids=[one for one, categories in by_section.items() if len(categories) > COUNTED_EACH_MAX],
                accessible=demand.accessible,
                excluded_ids=list(named),
                limit=demand.quantity,
            )
            counted |= dict.fromkeys((area[:2] for area in missing), _NONE_FREE)
            counted |= {(section_id, category_id): _Free(*counts) for section_id, category_id, *counts in rows}
        return counted


def _sum(counts: Iterable[_Free]) -> _Free:
    usable = accessible = 0
    for count in counts:
        usable += count.usable
        accessible += count.accessible
    return _Free(usable, accessible)
