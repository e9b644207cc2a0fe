"""Proposals for best-available requests that may sit in several areas, without reading every area.

The free seats of all areas are counted once for all requests (area_counts.py). The counts alone decide whether a
request can be met: it is refused only if no section has enough free seats. Areas with enough are then read in the order
of preference. If the first FIRST_MAX have no seats side by side, one statement finds which of the next ones do, and
only those are read: where tens of thousands of single seats are free, to read more areas first costs several times as
much as to examine them.

So a party sits side by side wherever that is possible, with two limits: a request reads at most READS_MAX areas, which
matters only if so many of them have just lost their adjacent seats, and that statement examines at most
EXAMINED_SEATS_MAX free seats, the preferred areas first. Beyond them, or if no seats are side by side, the party sits
in the section where it is split least, out of the first SCATTERED_SECTIONS that have enough seats.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from apps.kernel.db import sql
from apps.reservations.holds.seat_choice import longest_runs
from apps.reservations.holds.seat_choice.area_counts import AreaCounter, OwnCandidates, free_of_own
from apps.reservations.holds.seat_choice.areas import Areas, Candidate
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

_adjacent_areas = sql.load("apps.reservations", "adjacent_areas")

Choice = tuple[FreeSeat, ...]


@dataclass(slots=True)
class _Candidates:
    """Where requests of one kind may sit, in the order of preference. A candidate without a choice is removed: within
    one proposer, seats are only taken."""

    ready: list[Candidate]
    """To be read."""
    rest: list[Candidate]
    """To be examined first."""
    examined_max: int = EXAMINED_MIN
    seats_left: int = field(default_factory=lambda: EXAMINED_SEATS_MAX)


@dataclass(slots=True)
class _Search:
    areas: _Candidates
    spans: _Candidates
    """Sections with several areas."""
    sections: list[Candidate]


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

    named: frozenset[int] = frozenset()
    """Seats that requests for seats in several areas name besides: taken, but free for every other request that may
    take them."""
    _searches: dict[tuple[Areas, int, bool, int], _Search] = field(default_factory=dict)
    _counter: AreaCounter = field(init=False)

    def __post_init__(self) -> None:
        SectionProposer.__post_init__(self)
        quantity_max = max([demand.quantity for demand in self.demands if demand.areas], default=0)
        self._counter = AreaCounter(self.cursor, self.named, quantity_max)

    def propose(
        self, demand: BestAvailable, own: Mapping[int, FreeSeat], named: Collection[int] = frozenset()
    ) -> Proposal:
        """Return the best seats for the request, or how many fit in one section. Seats of its `own` are free for this
        request alone. Seats that the request has `named` itself are not counted."""
        if not demand.areas:
            return self.propose_in_section(demand, own, named)
        search = self._search(demand)
        added = free_of_own(demand, own, named)
        mine = self._counter.count(demand).find_own(demand, added) if added else OwnCandidates()
        budget = _Budget()
        for candidates, more, spans in ((search.areas, mine.areas, False), (search.spans, mine.spans, True)):
            chosen = next(self._propose_together(candidates, more, demand, own, budget, spans=spans), None)
            if chosen is not None:
                return Proposal(chosen, len(chosen))
        chosen = self._propose_scattered(search.sections, mine.sections, demand, own)
        if chosen is not None:
            return Proposal(chosen, len(chosen))
        return Proposal(None, self._counter.count(demand).most_fitting(demand, added, named))

    def propose_by_area(self, demand: BestAvailable, own: Mapping[int, FreeSeat]) -> Iterator[Choice]:
        """Yield the best seats side by side for a request with several areas, one choice of each area that has any, in
        the order of the areas. They stay free until they are taken."""
        areas = self._search(demand).areas
        mine = self._counter.count(demand).find_own(demand, free_of_own(demand, own, ()))
        return self._propose_together(areas, mine.areas, demand, own, _Budget(), spans=False)

    def _propose_together(
        self,
        candidates: _Candidates,
        mine: Sequence[Candidate],
        demand: BestAvailable,
        own: Mapping[int, FreeSeat],
        budget: _Budget,
        *,
        spans: bool,
    ) -> Iterator[Choice]:
        """Yield choices of the candidates that requests share and of those of this request alone (`mine`), merged in
        the order of preference."""
        mine = list(mine)
        at = 0
        while True:
            while at == len(candidates.ready) and candidates.rest and not _is_next(mine, candidates.rest[0]):
                self._examine(candidates, demand, spans=spans)
            shared = candidates.ready[at] if at < len(candidates.ready) else None
            candidate = mine.pop(0) if _is_next(mine, shared) else shared
            if candidate is None:
                return
            one = demand.in_section(candidate.section_id, candidate.category_ids)
            if not budget.allows(self, one):
                return
            chosen = self.propose_in_section(one, own, together=True).seats
            if chosen is not None:
                yield chosen
                at += candidate == shared
            elif candidate == shared:
                del candidates.ready[at]

    def _examine(self, candidates: _Candidates, demand: BestAvailable, *, spans: bool) -> None:
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
        unknown: list[Candidate] = []
        for candidate in examined:
            seats = longest_runs.seats_without(candidate.section_id, candidate.category_ids, demand.quantity)
            if seats is None:
                unknown.append(candidate)
            else:
                candidates.seats_left -= seats
        found = self._find_adjacent(candidates, unknown, demand.quantity, spans=spans)
        candidates.ready += [one for one in unknown if one in found]
        if candidates.seats_left <= 0:
            candidates.rest = []

    def _find_adjacent(
        self, candidates: _Candidates, examined: list[Candidate], quantity: int, *, spans: bool
    ) -> set[Candidate]:
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
                longest_runs.keep(candidate.section_id, candidate.category_ids, longest, seats)
        return {candidate for candidate, (longest, _) in longest_of.items() if longest >= quantity}

    def _propose_scattered(
        self, sections: list[Candidate], mine: Sequence[Candidate], demand: BestAvailable, own: Mapping[int, FreeSeat]
    ) -> Choice | None:
        """Return the least scattered of the best seats of the first sections that have enough."""
        mine = list(mine)
        at = 0
        budget = _Budget()
        found: list[Choice] = []
        while len(found) < SCATTERED_SECTIONS:
            shared = sections[at] if at < len(sections) else None
            candidate = mine.pop(0) if _is_next(mine, shared) else shared
            if candidate is None:
                break
            one = demand.in_section(candidate.section_id, candidate.category_ids)
            if not budget.allows(self, one):
                break
            chosen = self.propose_in_section(one, own).seats
            if chosen is not None:
                found.append(chosen)
                at += candidate == shared
            elif candidate == shared:
                del sections[at]
        return min(found, key=count_groups, default=None)

    def _search(self, demand: BestAvailable) -> _Search:
        key = (demand.areas, demand.quantity, demand.accessible, demand.companions)
        search = self._searches.get(key)
        if search is None:
            counts = self._counter.count(demand)
            least, quantity = demand.accessible_count, demand.quantity
            areas, sections = (
                [one for one, free in counted if free.usable >= quantity and free.accessible >= least]
                for counted in (counts.areas, counts.sections)
            )
            spans = [candidate for candidate in sections if len(candidate.category_ids) > 1]
            search = self._searches[key] = _Search(
                _Candidates(areas[:FIRST_MAX], areas[FIRST_MAX:]),
                _Candidates(spans[:FIRST_MAX], spans[FIRST_MAX:]),
                sections,
            )
        return search


def _is_next(mine: Sequence[Candidate], shared: Candidate | None) -> bool:
    """Return whether the first of the request's own candidates comes before the next one that requests share, or is the
    same."""
    return bool(mine) and (shared is None or mine[0] <= shared)
