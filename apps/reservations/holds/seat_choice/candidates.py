"""Proposals for best-available requests with one section, from one read of the section for a whole batch.

The read takes no lock and returns no more than needed: the best free seats; if none of their rows has room for a party,
further ones that are side by side, which PostgreSQL finds; all of them only before a request is refused because too few
are left. A request for accessible seats is refused
without that if too few of these are left: buyers may ask for them when a large section has none. No read for accessible
seats takes more than READ_ADJACENT_MAX of the other ones, unless the batch wants more.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from apps.kernel.db import sql
from apps.reservations.holds.seat_choice import longest_runs
from apps.reservations.holds.seat_choice.best_available import BestAvailable, FreeSeatPool, fitting_count, is_adjacent
from apps.reservations.holds.seat_choice.free_runs import FreeSeat

# The first read takes READ_MIN of the best free seats, or READ_TO_WANTED times the batch's quantity if that is more. If
# their rows have no room for a party, READ_ADJACENT_MAX of the best free seats are examined for such rows: a party that
# does not fit side by side among so many sits close together. More would cost all other buyers of the event time: a
# section may have tens of thousands of single free seats, if every other one is blocked. To read these here costs
# several times as much as to have PostgreSQL examine them (docs/performance.md).
READ_MIN = 400
READ_TO_WANTED = 2
READ_ADJACENT_MAX = 4_000
# The first read for accessible seats takes the other free seats around this many of the best accessible ones.
READ_AROUND = 24

_free_seats = sql.load("apps.reservations", "free_seats")
_adjacent_seats = sql.load("apps.reservations", "adjacent_seats")
_free_seats_accessible = sql.load("apps.reservations", "free_seats_accessible")


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

    @property
    def categories(self) -> tuple[int, tuple[int, ...]]:
        return self.section_id, self.category_ids


@dataclass(slots=True)
class _Read:
    """The free seats of a section as far as they were read, and those left for requests that still choose."""

    seats: list[FreeSeat]
    limit: int | None
    """None: all were read."""
    pool: FreeSeatPool
    set_aside: bool = False
    """Some of the best choices are left to rivals; they are used after all if nothing else is left."""
    longest: int | None = None
    """How many seats were side by side at most when that was last examined; None: it was not."""


@dataclass(slots=True)
class SectionProposer:
    """Proposes seats of one section to one request after another. Every read of the free seats has a new one."""

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

    def __post_init__(self) -> None:
        for demand in self.demands:
            if demand.areas:
                self._wanted_in_areas += demand.quantity
            else:
                self._wanted[_kind(demand)] = self._wanted.get(_kind(demand), 0) + demand.quantity

    def is_read(self, demand: BestAvailable) -> bool:
        """Return whether the seats that a request with one section chooses from were read before."""
        return _kind(demand) in self._reads

    def propose_in_section(
        self,
        demand: BestAvailable,
        own: Mapping[int, FreeSeat],
        named: Collection[int] = frozenset(),
        *,
        together: bool = False,
    ) -> Proposal:
        """Return the best seats for a request with one section, or how many fit. Seats of its `own` are free for this
        request alone. Seats that the request has `named` itself are not counted. `together`: only seats side by side;
        others are not counted."""
        kind = _kind(demand)
        mine = [
            seat
            for seat in own.values()
            if seat.section_id == kind.section_id and (not kind.category_ids or seat.category_id in kind.category_ids)
        ]
        is_scattered = (
            not demand.accessible and longest_runs.seats_without(*kind.categories, demand.quantity) is not None
        )
        if together and is_scattered and not mine:
            return Proposal(None, 0)
        read = self._reads.get(kind)
        if read is None:
            read = self._read(kind, max(READ_MIN, READ_TO_WANTED * self._count_wanted(kind)))
            if self.alternatives > 1:
                self._set_aside(read, demand)
        is_examined = is_scattered
        while True:
            chosen = self._choose(read, demand, mine, together=together)
            if chosen is not None and (demand.accessible or is_adjacent(chosen)):
                break
            are_enough = together or chosen is not None
            if read.set_aside:
                # Adjacent seats that were set aside are better than scattered ones.
                read.pool, read.set_aside = self._build_pool(read.seats), False
            elif read.limit is None:
                break
            elif demand.accessible:
                if (are_enough and read.limit >= READ_ADJACENT_MAX) or self._has_too_few_accessible(
                    read, demand, mine, named
                ):
                    break  # No further read has more of them.
                read = self._read(kind, READ_ADJACENT_MAX if are_enough else None)
            elif not are_enough:
                read = self._read(kind, None)
            elif is_examined or (not mine and read.longest is not None and read.longest < demand.quantity):
                break
            else:
                self._add_adjacent(read, kind, demand.quantity, [seat.seat_id for seat in mine])
                is_examined = True
        if chosen is not None or together:
            return Proposal(chosen, len(chosen or ()))
        return Proposal(None, fitting_count(self._others(read, mine, named), demand))

    def take(self, seats: Iterable[FreeSeat]) -> None:
        """Reserve these seats for the request that chose them."""
        ids = [seat.seat_id for seat in seats]
        self.taken.update(ids)
        for read in self._reads.values():
            read.pool.take(ids)

    def _has_too_few_accessible(
        self, read: _Read, demand: BestAvailable, mine: list[FreeSeat], named: Collection[int]
    ) -> bool:
        """Return whether the request needs more accessible seats than are free. A read with fewer of them than its
        limit has all of them."""
        if sum(seat.accessible for seat in read.seats) == read.limit:
            return False
        return sum(seat.accessible for seat in self._others(read, mine, named)) < demand.accessible_count

    def _others(self, read: _Read, mine: list[FreeSeat], named: Collection[int]) -> list[FreeSeat]:
        return [seat for seat in [*read.seats, *mine] if seat.seat_id not in named]

    def _count_wanted(self, kind: _Kind) -> int:
        return self._wanted.get(kind, 0) + self._wanted_in_areas

    def _choose(
        self, read: _Read, demand: BestAvailable, mine: list[FreeSeat], *, together: bool
    ) -> tuple[FreeSeat, ...] | None:
        still_mine = [seat for seat in mine if seat.seat_id not in self.taken]
        pool = FreeSeatPool([*read.pool.seats(), *still_mine]) if still_mine else read.pool
        return pool.choose_together(demand) if together else pool.choose(demand)

    def _read(self, kind: _Kind, limit: int | None) -> _Read:
        if kind.accessible:
            rows = _free_seats_accessible.rows(
                self.cursor,
                section_id=kind.section_id,
                category_ids=list(kind.category_ids),
                limit=limit,
                near=None if limit is None else READ_AROUND,
                others_max=max(READ_ADJACENT_MAX, READ_TO_WANTED * self._count_wanted(kind)),
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

    def _add_adjacent(self, read: _Read, kind: _Kind, quantity: int, own_ids: Collection[int]) -> None:
        """Add further seats to the read: those with at least so many side by side, some perhaps the request's own."""
        rows = _adjacent_seats.rows(
            self.cursor,
            section_id=kind.section_id,
            category_ids=list(kind.category_ids),
            excluded_ids=list(self.taken),
            own_ids=[seat_id for seat_id in own_ids if seat_id not in self.taken],
            examined_max=READ_ADJACENT_MAX,
            party=quantity,
            limit=max(READ_MIN, READ_TO_WANTED * self._count_wanted(kind)),
        )
        examined, read.longest = rows[0][:2]
        if examined >= longest_runs.SEATS_MIN:
            longest_runs.keep(*kind.categories, read.longest, examined)
        found = [FreeSeat(*row[2:]) for row in rows if row[2] is not None and row[2] not in own_ids]
        if found:
            read.seats = list({seat.seat_id: seat for seat in [*read.seats, *found]}.values())
            read.pool = self._build_pool(read.seats)

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
