"""Proposals for best-available requests, from one read of a section for a whole batch.

The read takes no lock and returns no more than needed: the best free seats; more if none of their rows has room for a
party; all of them only before a request is refused because too few are left.
"""

import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from apps.kernel.db import sql
from apps.reservations.holds.seat_choice.best_available import (
    Area,
    BestAvailable,
    FreeSeatPool,
    count_groups,
    fitting_count,
    is_adjacent,
)
from apps.reservations.holds.seat_choice.free_runs import FreeSeat

# The first read takes READ_MIN of the best free seats, or READ_TO_WANTED times the batch's quantity if that is more. If
# their rows have no room for a party, READ_FACTOR times as many are read, up to READ_ADJACENT_MAX: a party that does
# not fit side by side among ten thousand free seats sits close together. docs/performance.md measures these bounds.
READ_MIN = 400
READ_TO_WANTED = 2
READ_FACTOR = 5
READ_ADJACENT_MAX = 10_000
# The first read for accessible seats takes the free seats around this many of the best accessible ones.
READ_ACCESSIBLE = 24
# A party that sits together nowhere is offered the least scattered seats of this many sections.
SCATTERED_SECTIONS = 4

_free_seats = sql.load("apps.reservations", "free_seats")
_free_seats_accessible = sql.load("apps.reservations", "free_seats_accessible")
_free_areas = sql.load("apps.reservations", "free_areas")


class Proposal(NamedTuple):
    seats: tuple[FreeSeat, ...] | None
    """None: too little is left for the party."""
    fitting_count: int
    """How many free seats fit, including those that are reserved for others of the batch or locked by a rival."""


class _Kind(NamedTuple):
    """Requests of one kind choose from the same read."""

    section_id: int
    category_ids: tuple[int, ...]
    accessible: bool


@dataclass(slots=True)
class _Read:
    """The free seats of a section as far as they were read, and those left for requests that still choose."""

    seats: list[FreeSeat]
    limit: int | None
    """None: all were read."""
    pool: FreeSeatPool
    set_aside: bool = False
    """Some of the best choices are left to rivals; they are used after all if nothing else is left."""


@dataclass(slots=True)
class Proposer:
    """Proposes seats to one request after another. Every read of the free seats has a new one."""

    cursor: sql.Cursor
    demands: Iterable[BestAvailable]
    """All requests that will choose, so that one read is enough for them."""
    taken: set[int]
    """Seats that may not be chosen: named or chosen by another request, or locked by a rival."""
    alternatives: int = 1
    """The first choice is drawn from this many best ones; else all batches that lost one would next take the same."""
    _wanted: dict[_Kind, int] = field(default_factory=dict)
    _wanted_in_areas: int = 0
    """By requests that may sit in several areas; each of them may choose from any of these."""
    _reads: dict[_Kind, _Read] = field(default_factory=dict)
    _free_in_areas: dict[tuple[tuple[Area, ...], int], dict[Area, int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for demand in self.demands:
            if demand.areas:
                self._wanted_in_areas += demand.quantity
            else:
                self._wanted[_kind(demand)] = self._wanted.get(_kind(demand), 0) + demand.quantity

    def propose(
        self, demand: BestAvailable, own: Mapping[int, FreeSeat], named: Collection[int] = frozenset()
    ) -> Proposal:
        """Return the best seats for the request, or how many fit in one section. Seats of its `own` are free for this
        request alone. Seats that the request has `named` itself are not counted."""
        if demand.areas:
            return self._propose_in_areas(demand, own, named)
        return self._propose_in_section(demand, own, named)

    def propose_together(self, demand: BestAvailable, own: Mapping[int, FreeSeat]) -> Iterator[tuple[FreeSeat, ...]]:
        """Yield the best seats side by side for a request with several areas, one choice of each area that has any, in
        the order of the areas; last those that span areas of one section."""
        for area in demand.areas:
            chosen = self.propose_in_area(demand, area, own)
            if chosen is not None:
                yield chosen
        for one, count, area_count in _sections_of(demand, self._count_in_areas(demand, own)):
            if area_count > 1 and count >= demand.quantity:
                chosen = self._propose_in_section(one, own, together=True).seats
                if chosen is not None:
                    yield chosen

    def propose_in_area(
        self, demand: BestAvailable, area: Area, own: Mapping[int, FreeSeat]
    ) -> tuple[FreeSeat, ...] | None:
        """Return the best seats side by side in this area of the request; None if there are none."""
        if self._count_in_areas(demand, own)[area] < demand.quantity:
            return None
        one = demand.in_section(area.section_id, (area.category_id,))
        return self._propose_in_section(one, own, together=True).seats

    def propose_scattered(
        self, demand: BestAvailable, own: Mapping[int, FreeSeat], named: Collection[int] = frozenset()
    ) -> Iterator[tuple[FreeSeat, ...]]:
        """Yield the best seats in one section for a request with several areas, side by side or not: one choice of each
        section that has enough."""
        free = self._count_in_areas(demand, own)
        for one, count, _ in _sections_of(demand, free):
            if count >= demand.quantity:
                chosen = self._propose_in_section(one, own, named).seats
                if chosen is not None:
                    yield chosen

    def _propose_in_areas(
        self, demand: BestAvailable, own: Mapping[int, FreeSeat], named: Collection[int] = frozenset()
    ) -> Proposal:
        chosen = next(self.propose_together(demand, own), None)
        if chosen is None:
            scattered = islice(self.propose_scattered(demand, own, named), SCATTERED_SECTIONS)
            chosen = min(scattered, key=count_groups, default=None)
        if chosen is not None:
            return Proposal(chosen, len(chosen))
        free = self._count_in_areas(demand, own)
        counts = [
            self._propose_in_section(one, own, named).fitting_count
            for one, count, _ in _sections_of(demand, free)
            if count
        ]
        return Proposal(None, max(counts, default=0))

    def _count_in_areas(self, demand: BestAvailable, own: Mapping[int, FreeSeat]) -> Mapping[Area, int]:
        """Return how many seats are free in each area of the request, counted up to its quantity: most areas need not
        be read at all."""
        key = (demand.areas, demand.quantity)
        if key not in self._free_in_areas:
            rows = _free_areas.rows(
                self.cursor,
                section_ids=[area.section_id for area in demand.areas],
                category_ids=[area.category_id for area in demand.areas],
                limit=demand.quantity,
            )
            found = {(section_id, category_id): count for section_id, category_id, count in rows}
            self._free_in_areas[key] = {area: found[area.section_id, area.category_id] for area in demand.areas}
        free = self._free_in_areas[key]
        if not own:
            return free
        mine = Counter((seat.section_id, seat.category_id) for seat in own.values())
        return {area: count + mine[area.section_id, area.category_id] for area, count in free.items()}

    def _propose_in_section(
        self,
        demand: BestAvailable,
        own: Mapping[int, FreeSeat],
        named: Collection[int] = frozenset(),
        *,
        together: bool = False,
    ) -> Proposal:
        """Return a proposal for a request with one section. `together`: only seats side by side; others are not
        counted."""
        kind = _kind(demand)
        mine = [
            seat
            for seat in own.values()
            if seat.section_id == kind.section_id and (not kind.category_ids or seat.category_id in kind.category_ids)
        ]
        read = self._reads.get(kind)
        if read is None:
            read = self._read(kind, max(READ_MIN, READ_TO_WANTED * self._count_wanted(kind)))
            if self.alternatives > 1:
                self._set_aside(read, demand)
        while True:
            chosen = self._choose(read, demand, mine, together=together)
            if chosen is not None and (demand.accessible or is_adjacent(chosen)):
                break
            if read.set_aside:
                # Adjacent seats that were set aside are better than scattered ones.
                read.pool, read.set_aside = self._build_pool(read.seats), False
            elif read.limit is None or ((together or chosen is not None) and read.limit >= READ_ADJACENT_MAX):
                break
            else:
                further = min(read.limit * READ_FACTOR, READ_ADJACENT_MAX)
                read = self._read(kind, further if together or chosen is not None else None)
        if chosen is not None or together:
            return Proposal(chosen, len(chosen or ()))
        others = [seat for seat in [*read.seats, *mine] if seat.seat_id not in named]
        return Proposal(None, fitting_count(others, demand))

    def take(self, seats: Iterable[FreeSeat]) -> None:
        """Reserve these seats for the request that chose them."""
        ids = [seat.seat_id for seat in seats]
        self.taken.update(ids)
        for read in self._reads.values():
            read.pool.take(ids)

    def _count_wanted(self, kind: _Kind) -> int:
        return self._wanted.get(kind, 0) + self._wanted_in_areas

    def _choose(
        self, read: _Read, demand: BestAvailable, mine: list[FreeSeat], *, together: bool
    ) -> tuple[FreeSeat, ...] | None:
        still_mine = [seat for seat in mine if seat.seat_id not in self.taken]
        pool = FreeSeatPool([*read.pool.seats(), *still_mine]) if still_mine else read.pool
        return pool.choose_together(demand) if together else pool.choose(demand)

    def _read(self, kind: _Kind, limit: int | None) -> _Read:
        if kind.accessible and limit is not None:
            rows = _free_seats_accessible.rows(
                self.cursor, section_id=kind.section_id, category_ids=list(kind.category_ids), limit=READ_ACCESSIBLE
            )
            seats = [FreeSeat(*row) for row in rows]
        else:
            rows = _free_seats.rows(
                self.cursor, section_id=kind.section_id, category_ids=list(kind.category_ids), limit=limit
            )
            seats = [FreeSeat(*row) for row in rows]
            if limit is not None and len(seats) < limit:
                limit = None
            if limit is not None and seats[0].row_index != seats[-1].row_index:
                # The read may end within a row, whose runs would then look shorter than they are.
                seats = [seat for seat in seats if seat.row_index != seats[-1].row_index]
        self._reads[kind] = _Read(seats, limit, self._build_pool(seats))
        return self._reads[kind]

    def _build_pool(self, seats: Iterable[FreeSeat]) -> FreeSeatPool:
        return FreeSeatPool(seat for seat in seats if seat.seat_id not in self.taken)

    def _set_aside(self, read: _Read, demand: BestAvailable) -> None:
        """Leave a random number of the best choices to rivals, out of up to `alternatives`."""
        better: list[tuple[FreeSeat, ...]] = []
        while len(better) < self.alternatives:
            chosen = read.pool.choose_together(demand)
            if chosen is None or not is_adjacent(chosen):
                break
            better.append(chosen)
            read.pool.take(seat.seat_id for seat in chosen)
        aside = better[: secrets.randbelow(max(1, len(better)))]
        read.pool, read.set_aside = self._build_pool(read.seats), bool(aside)
        for chosen in aside:
            read.pool.take(seat.seat_id for seat in chosen)


def _kind(demand: BestAvailable) -> _Kind:
    assert demand.section_id is not None, "a read is of one section"
    return _Kind(demand.section_id, demand.category_ids, demand.accessible)


def _sections_of(demand: BestAvailable, free: Mapping[Area, int]) -> Iterator[tuple[BestAvailable, int, int]]:
    """Yield the request for each of its sections, in the order of its areas, with the number of free seats counted
    there and the number of its areas there."""
    by_section: dict[int, list[Area]] = {}
    for area in demand.areas:
        by_section.setdefault(area.section_id, []).append(area)
    for section_id, areas in by_section.items():
        one = demand.in_section(section_id, tuple(sorted(area.category_id for area in areas)))
        yield one, sum(free[area] for area in areas), len(areas)
