"""What a hold's transaction proposes to those who leave the choice to us: from one read of a section for all of them.

Read without a lock, and no more than will do: the best of what is free; more of it where no row of that has room for
somebody's party; everything only before anybody is told that too little is left.
"""

import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from apps.kernel.db import sql
from apps.reservations.holds.seat_choice.best_available import (
    BestAvailable,
    FreeSeat,
    FreeSeatPool,
    fitting_count,
    is_adjacent,
)

# So many of the best free seats are read at first, more for a batch that wants more. Where no row of those has room for
# a party, READ_FACTOR times as many, up to READ_ADJACENT_MAX: whom ten thousand free seats cannot seat together, sits
# near one another. The figures of docs/performance.md are those of these bounds.
READ_MIN = 400
READ_TO_WANTED = 2
READ_FACTOR = 5
READ_ADJACENT_MAX = 10_000
# Around so many of the best accessible places what else is free is read at first.
READ_ACCESSIBLE = 24

_free_seats = sql.load("apps.reservations", "free_seats")
_free_seats_accessible = sql.load("apps.reservations", "free_seats_accessible")


class Proposal(NamedTuple):
    seats: tuple[FreeSeat, ...] | None
    """None: there is nothing left for the party."""
    fitting_count: int
    """How many free seats fit, those counted in that are spoken for or that a rival has locked."""


class _Kind(NamedTuple):
    """Wishes of one kind choose from the same read."""

    section_id: int
    category_id: int | None
    accessible: bool


@dataclass(slots=True)
class _Read:
    """The free seats of a section as far as they were read, and what is left of them for those who still choose."""

    seats: list[FreeSeat]
    limit: int | None
    pool: FreeSeatPool
    set_aside: bool = False
    """Some of the best choices are left to rivals; they come back where nothing else is left."""

    @property
    def is_all(self) -> bool:
        return self.limit is None


@dataclass(slots=True)
class Proposer:
    """Proposes to one wish after the other what was not taken. Made anew for every look at what is free."""

    cursor: sql.Cursor
    wishes: Iterable[BestAvailable]
    """Of all those who will ask, so that enough is read at once."""
    taken: set[int]
    """Seats that are nobody's to choose: named by somebody, chosen by somebody, locked by a rival."""
    alternatives: int = 1
    """Begin at any of so many of the best choices: who lost one to a rival must not go where all others go."""
    _wanted: dict[_Kind, int] = field(default_factory=dict)
    _reads: dict[_Kind, _Read] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for wish in self.wishes:
            self._wanted[_kind(wish)] = self._wanted.get(_kind(wish), 0) + wish.quantity

    def propose(
        self, wish: BestAvailable, own: Mapping[int, FreeSeat], named: Collection[int] = frozenset()
    ) -> Proposal:
        """The best seats for the wish, or how many fit; seats of its `own` are free for this wish alone. Those that its
        own request has `named` are in no count: nobody's loss makes them fit."""
        kind = _kind(wish)
        mine = [seat for seat in own.values() if _matches_key(kind, seat)]
        read = self._reads.get(kind)
        if read is None:
            read = self._read(kind, max(READ_MIN, READ_TO_WANTED * self._wanted.get(kind, wish.quantity)))
            if self.alternatives > 1:
                self._set_aside(read, wish)
        while True:
            chosen = self._choose(read, wish, mine)
            if chosen is not None and (wish.accessible or is_adjacent(chosen)):
                break
            if read.set_aside:
                # Scattered seats are no alternative to neighbours that may be had a moment later.
                read.pool, read.set_aside = self._build_pool(read.seats), False
            elif read.limit is None or (chosen is not None and read.limit >= READ_ADJACENT_MAX):
                break
            else:
                further = min(read.limit * READ_FACTOR, READ_ADJACENT_MAX)
                read = self._read(kind, None if chosen is None else further)
        if chosen is not None:
            return Proposal(chosen, len(chosen))
        others = [seat for seat in [*read.seats, *mine] if seat.seat_id not in named]
        return Proposal(None, fitting_count(others, wish))

    def take(self, seats: Iterable[FreeSeat]) -> None:
        """These are somebody's from now on."""
        ids = [seat.seat_id for seat in seats]
        self.taken.update(ids)
        for read in self._reads.values():
            read.pool.take(ids)

    def _choose(self, read: _Read, wish: BestAvailable, mine: list[FreeSeat]) -> tuple[FreeSeat, ...] | None:
        still_mine = [seat for seat in mine if seat.seat_id not in self.taken]
        shelf = FreeSeatPool([*read.pool.seats(), *still_mine]) if still_mine else read.pool
        return shelf.choose(wish)

    def _read(self, kind: _Kind, limit: int | None) -> _Read:
        if kind.accessible and limit is not None:
            rows = _free_seats_accessible.rows(
                self.cursor, section_id=kind.section_id, category_id=kind.category_id, limit=READ_ACCESSIBLE
            )
            seats = [FreeSeat(*row) for row in rows]
        else:
            rows = _free_seats.rows(self.cursor, section_id=kind.section_id, category_id=kind.category_id, limit=limit)
            seats = [FreeSeat(*row) for row in rows]
            if limit is not None and len(seats) < limit:
                limit = None
            if limit is not None and seats[0].row_index != seats[-1].row_index:
                # The read may end within a row: its seats would look like single ones.
                seats = [seat for seat in seats if seat.row_index != seats[-1].row_index]
        self._reads[kind] = _Read(seats, limit, self._build_pool(seats))
        return self._reads[kind]

    def _build_pool(self, seats: Iterable[FreeSeat]) -> FreeSeatPool:
        return FreeSeatPool(seat for seat in seats if seat.seat_id not in self.taken)

    def _set_aside(self, read: _Read, wish: BestAvailable) -> None:
        """Some of the best choices are left to others, by chance: of as many as there are, up to `alternatives`."""
        better: list[tuple[FreeSeat, ...]] = []
        while len(better) < self.alternatives:
            chosen = read.pool.choose(wish)
            if chosen is None or not is_adjacent(chosen):
                break
            better.append(chosen)
            read.pool.take(seat.seat_id for seat in chosen)
        aside = better[: secrets.randbelow(max(1, len(better)))]
        read.pool, read.set_aside = self._build_pool(read.seats), bool(aside)
        for chosen in aside:
            read.pool.take(seat.seat_id for seat in chosen)


def _kind(wish: BestAvailable) -> _Kind:
    return _Kind(wish.section_id, wish.category_id, wish.accessible)


def _matches_key(kind: _Kind, seat: FreeSeat) -> bool:
    return seat.section_id == kind.section_id and kind.category_id in (None, seat.category_id)
