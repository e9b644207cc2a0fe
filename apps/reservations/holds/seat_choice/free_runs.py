"""Runs of adjacent free seats and the parties that fit into them, kept current while seats are taken.

A batch chooses for hundreds of buyers from one read. The best seats of a run for a party of some size are computed once
and kept until the run changes: taking seats ends their runs and creates the shorter ones that remain. So a choice costs
about the same with a thousand free seats and with twenty thousand.
"""

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter, itemgetter
from typing import NamedTuple

# A party may get seats worse by this many ranks per seat (one row of forty seats, or two of twenty) if that avoids
# leaving a single free seat beside it: most buyers do not buy single seats.
ORPHAN_RANKS = 40


class FreeSeat(NamedTuple):
    seat_id: int
    section_id: int
    row_index: int
    place_index: int
    rank: int
    category_id: int
    accessible: bool
    companion: bool


class Run:
    """A maximal run of adjacent free seats: a taken seat, an aisle or the row's end is on either side."""

    __slots__ = ("_ranks", "alive", "best", "first", "last", "row", "seats")

    def __init__(self, seats: Sequence[FreeSeat]) -> None:
        self.seats = seats
        self.row = seats[0].row_index
        self.first, self.last = seats[0].place_index, seats[-1].place_index
        self.best = min(seat.rank for seat in seats)
        self.alive = True
        self._ranks: list[int] = []

    def __len__(self) -> int:
        return len(self.seats)

    def cost(self, start: int, size: int) -> int:
        """Return the summed ranks of `size` seats from `start`; lower is better. Single seats left over cost extra."""
        if not self._ranks:
            self._ranks = [0, *accumulate(seat.rank for seat in self.seats)]
        orphans = (start == 1) + (len(self.seats) - start - size == 1)
        return self._ranks[start + size] - self._ranks[start] + orphans * ORPHAN_RANKS * size


class Part(NamedTuple):
    """Adjacent seats that would go to one party."""

    run: Run
    start: int
    size: int

    @property
    def seats(self) -> Sequence[FreeSeat]:
        return self.run.seats[self.start : self.start + self.size]


class Offer(NamedTuple):
    """Seats for a party in one run, or in two of consecutive rows. It is current while those runs are unchanged."""

    parts: tuple[Part, ...]

    @property
    def seats(self) -> tuple[FreeSeat, ...]:
        return tuple(seat for part in self.parts for seat in part.seats)

    @property
    def is_current(self) -> bool:
        return all(part.run.alive for part in self.parts)


Key = tuple[int, ...]
"""The sort key of offers of one kind, lowest first."""


class _Offers:
    """The best offer of each run for parties of one size, the best first.

    A run's offer is computed when the run is next in order; until then it is sorted by its best possible key. So while
    few seats are taken, few runs are examined.
    """

    def __init__(self, at_best: Callable[[Run], Key | None], evaluate: Callable[[Run], tuple[Key, Offer] | None]):
        self._at_best = at_best
        self._evaluate = evaluate
        self._entries: list[tuple[Key, int, Run, Offer | None]] = []
        self._count = 0
        self._latest: dict[Run, int] = {}

    def fill(self, runs: Iterable[Run]) -> None:
        self._entries = sorted(entry for run in runs if (entry := self._unevaluated_entry(run)) is not None)

    def add(self, run: Run) -> None:
        entry = self._unevaluated_entry(run)
        if entry is not None:
            insort(self._entries, entry)

    def current(self) -> Iterator[Offer]:
        """Yield the current offers, the best first. Runs must not change while this generator is in use."""
        entries, at = self._entries, 0
        while at < len(entries):
            _, number, run, offer = entries[at]
            latest = self._latest[run] == number
            if latest and offer is not None and offer.is_current:
                yield offer
                at += 1
                continue
            del entries[at]
            found = self._evaluate(run) if latest and run.alive else None
            if found is not None:
                insort(entries, (found[0], number, run, found[1]))

    def _unevaluated_entry(self, run: Run) -> tuple[Key, int, Run, Offer | None] | None:
        key = self._at_best(run)
        if key is None:
            return None
        # Only the latest entry of a run counts. The number is unique, so runs and offers are never compared.
        self._count += 1
        self._latest[run] = self._count
        return key, self._count, run, None


class FreeRuns:
    """All runs of some free seats. Seats with consecutive `place_index` are adjacent; an aisle skips one."""

    def __init__(self, seats: Iterable[FreeSeat]) -> None:
        self.rows: dict[int, list[Run]] = defaultdict(list)
        """By row, in order."""
        self.count = 0
        self._run_of: dict[int, Run] = {}
        self._best_of: dict[int, int] = {}
        """The best rank of each row before any seat was taken."""
        self._windows: dict[int, _Offers] = {}
        self._pairs: dict[int, _Offers] = {}
        for run in _split(sorted(seats, key=attrgetter("row_index", "place_index"))):
            self._begin(run)
            self._best_of[run.row] = min(run.best, self._best_of.get(run.row, run.best))

    def take(self, seat_ids: Iterable[int]) -> None:
        """Remove these seats; ids of seats that are not free are ignored."""
        taken = set(seat_ids)
        ended = {run: None for run in (self._run_of.get(seat_id) for seat_id in taken) if run is not None}
        for run in ended:
            run.alive = False
            self.rows[run.row].remove(run)
            self.count -= len(run)
            for seat in run.seats:
                del self._run_of[seat.seat_id]
            for left in _split([seat for seat in run.seats if seat.seat_id not in taken]):
                self._begin(left)

    def windows(self, size: int) -> Iterator[Offer]:
        """Yield adjacent seats: the best of each run, the best run first."""
        if size not in self._windows:
            self._windows[size] = _Offers(
                lambda run: (size * run.best,) if len(run) >= size else None, lambda run: _window(run, size)
            )
            self._windows[size].fill(self._all())
        return self._windows[size].current()

    def pairs(self, size: int) -> Iterator[Offer]:
        """Yield two parts, one behind the other in consecutive rows: the best pair of each run in front, the most even
        split first, then the best ranks. One member sits alone in a row only in parties of two or three."""
        if size not in self._pairs:
            least = _least(size)
            self._pairs[size] = _Offers(
                lambda run: (
                    (size % 2, size * min(run.best, self._best_of[run.row + 1]))
                    if len(run) >= least and run.row + 1 in self._best_of
                    else None
                ),
                lambda run: min(
                    (
                        pair
                        for back in self._beside(run, run.row + 1, size)
                        if (pair := _pair(run, back, size)) is not None
                    ),
                    default=None,
                    key=_key,
                ),
            )
            self._pairs[size].fill(self._all())
        return self._pairs[size].current()

    def _beside(self, run: Run, row: int, size: int) -> Iterator[Run]:
        """Yield the runs of the row in front or behind that a party of that size could share with this one."""
        runs = self.rows.get(row, [])
        for at in range(bisect_left(runs, run.first - size, key=_last), len(runs)):
            if runs[at].first > run.last + size:
                return
            yield runs[at]

    def around(self, part: Part, rows: int, each: int) -> list[Run]:
        """Return the nearest other runs in `rows` rows in front and behind: of each row, `each` to either side."""
        near: list[Run] = []
        for row in range(part.run.row - rows, part.run.row + rows + 1):
            runs = self.rows.get(row)
            if runs:
                at = bisect_left(runs, part.run.first, key=_first)
                near += (run for run in runs[max(0, at - each) : at + each + 1] if run is not part.run)
        return near

    def others(self, part: Part) -> list[Run]:
        """Return every run but the part's own."""
        return [run for run in self._all() if run is not part.run]

    def _all(self) -> Iterator[Run]:
        return (run for runs in self.rows.values() for run in runs)

    def _begin(self, run: Run) -> None:
        insort(self.rows[run.row], run, key=_first)
        self.count += len(run)
        for seat in run.seats:
            self._run_of[seat.seat_id] = run
        for windows in self._windows.values():
            windows.add(run)
        for size, pairs in self._pairs.items():
            pairs.add(run)
            for front in self._beside(run, run.row - 1, size):
                pairs.add(front)


_first: Callable[[Run], int] = attrgetter("first")
_last: Callable[[Run], int] = attrgetter("last")
_key: Callable[[tuple[Key, Offer]], Key] = itemgetter(0)


def _least(size: int) -> int:
    """Return the least number of members in each row if a party is split over two rows."""
    return 1 if size < 4 else 2


def _split(seats: Sequence[FreeSeat]) -> Iterator[Run]:
    """Yield the runs of these seats, which are sorted by row and place."""
    begin = 0
    for at in range(1, len(seats) + 1):
        if at == len(seats) or (
            seats[at].place_index != seats[at - 1].place_index + 1 or seats[at].row_index != seats[at - 1].row_index
        ):
            yield Run(seats[begin:at])
            begin = at


def _window(run: Run, size: int) -> tuple[Key, Offer] | None:
    """Return the best adjacent seats of the run, if it has that many."""
    if len(run) < size:
        return None
    cost, start = min((run.cost(start, size), start) for start in range(len(run) - size + 1))
    return (cost, run.row, run.first + start), Offer((Part(run, start, size),))


def _pair(front: Run, back: Run, size: int) -> tuple[Key, Offer] | None:
    """Return the best split of a party over these two runs, one behind the other: as even as they have room for. None
    if they do not overlap, or if one member would sit alone without need."""
    least = _least(size)
    if len(front) + len(back) < size or min(len(front), len(back)) < least or size < 2:
        return None
    if front.first > back.last + size or back.first > front.last + size:
        return None
    for smaller in range(size // 2, least - 1, -1):
        best: tuple[tuple[int, int, int], Offer] | None = None
        for before, behind in {(smaller, size - smaller), (size - smaller, smaller)}:
            for start in range(len(front) - before + 1):
                # Roughly behind the middle of the part in front.
                middle = 2 * (front.first + start) + before
                ideal = (middle - behind) // 2 - back.first
                for at in range(max(0, ideal - size // 2), min(len(back) - behind, ideal + size // 2 + 1) + 1):
                    apart = abs(middle - 2 * (back.first + at) - behind)
                    if apart <= size:
                        cost = front.cost(start, before) + back.cost(at, behind) + apart
                        key = (cost, front.first + start, before)
                        if best is None or key < best[0]:
                            best = (key, Offer((Part(front, start, before), Part(back, at, behind))))
        if best is not None:
            cost, place, before = best[0]
            return (size - 2 * smaller, cost, front.row, place, before), best[1]
    return None
