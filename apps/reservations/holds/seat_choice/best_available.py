"""The choice of the best seats: adjacent in one row, else in two consecutive rows, else close together; by rank.

These pure functions propose from free seats that were read without a lock; the hold locks and decides.

The cost of one choice is at most: for adjacent seats, one run; for two rows, a run and those beside it; for seats close
together, NEAR_SEEDS_MAX clusters of a few dozen runs. The first choice for each party size passes over all free seats.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import nsmallest
from itertools import islice, pairwise
from operator import attrgetter

from apps.reservations.holds.seat_choice.areas import NO_AREAS, Areas
from apps.reservations.holds.seat_choice.free_runs import FreeRuns, FreeSeat, Offer, Part, Run

NEAR_SEEDS_MAX = 12
NEAR_SEEDS_EACH = 3
# Pairs (rows, runs): the rest of a cluster is searched in so many rows in front and behind, and in so many runs to
# either side in each row.
NEAR_ROWS = ((2, 4), (8, 16))
# Distances are in seats: one row counts as three, a member of the party who sits alone as fifteen.
ROW_SEATS = 3
ALONE_SEATS = 15
RANKS_PER_SEAT = 100
# A companion takes an accessible seat only if nothing else is left.
ACCESSIBLE_SEAT_COST = 1_000
ACCESSIBLE_MAX = 400
"""A choice of accessible seats considers so many of the best ones."""
_Rows = dict[tuple[int, bool], list[FreeSeat]]
"""Seats by row and whether they are accessible, from one side to the other."""


@dataclass(frozen=True, slots=True)
class BestAvailable:
    """A request that leaves the choice of seats to the system: in one section, or in one of several `areas`."""

    section_id: int | None
    """None: in any section of `areas`."""
    quantity: int
    category_ids: tuple[int, ...] = ()
    """Only seats of these categories; empty: of any."""
    accessible: bool = False
    companions: int = 0
    """How many of `quantity` sit beside the accessible seats; only with `accessible`."""
    areas: Areas = NO_AREAS
    """Where a request without a section or with a maximum price may sit, the preferred area first. A party may sit in
    several areas of one section, never in several sections."""
    has_price_max: bool = False
    """Whether the areas are all that a maximum price allows."""

    @property
    def section_ids(self) -> Collection[int]:
        """Every section in which it may sit."""
        return [self.section_id] if self.section_id is not None else self.areas.section_ids

    @property
    def accessible_count(self) -> int:
        """How many accessible seats it needs."""
        return self.quantity - self.companions if self.accessible else 0

    def in_section(self, section_id: int, category_ids: tuple[int, ...]) -> "BestAvailable":
        """Return the same request for one section and these categories."""
        return replace(self, section_id=section_id, category_ids=category_ids, areas=NO_AREAS)

    def allows_category(self, category_id: int) -> bool:
        """Return whether the request may get seats of this category."""
        if self.areas:
            return category_id in self.areas.price_by_category
        return not self.category_ids or category_id in self.category_ids

    def allows_price(self, category_id: int, price_minor: int) -> bool:
        """Return whether this category, at its current price, is still within the request's maximum."""
        if not self.has_price_max:
            return True
        return price_minor <= self.areas.price_by_category.get(category_id, -1)


class FreeSeatPool:
    """The free seats that one read found for requests of one section and category, less those taken since.

    Accessible and companion seats go only to requests that ask for them, even when nothing else is left.
    """

    def __init__(self, seats: Iterable[FreeSeat]) -> None:
        self._seats = {seat.seat_id: seat for seat in seats}
        self._runs = FreeRuns(seat for seat in self._seats.values() if is_ordinary(seat))

    def seats(self) -> list[FreeSeat]:
        """Return all seats that are left."""
        return list(self._seats.values())

    def choose(self, demand: BestAvailable) -> tuple[FreeSeat, ...] | None:
        """Return the best seats for the request, or None if too few fit. They stay free until they are taken."""
        if demand.accessible:
            return _choose_accessible(self.seats(), demand)
        return _choose_ordinary(self._runs, demand.quantity)

    def choose_together(self, demand: BestAvailable) -> tuple[FreeSeat, ...] | None:
        """Return the best seats side by side, or None if no row has them; for accessible seats, what `choose`
        returns."""
        if demand.accessible:
            return self.choose(demand)
        best = next(self._runs.windows(demand.quantity), None)
        return None if best is None else best.seats

    def take(self, seat_ids: Iterable[int]) -> None:
        """Remove these seats; ids that are not here are ignored."""
        ids = [seat_id for seat_id in seat_ids if self._seats.pop(seat_id, None) is not None]
        self._runs.take(ids)


def fitting_count(free: Iterable[FreeSeat], demand: BestAvailable) -> int:
    """Return how many of these free seats of its section and category fit the request, wherever they are."""
    seats = list(free)
    if demand.accessible:
        accessible = sum(seat.accessible for seat in seats)
        # Without an accessible seat for each member who needs one, the other free seats are of no use to the party.
        return len(seats) if accessible >= demand.quantity - demand.companions else min(accessible, demand.quantity - 1)
    return sum(map(is_ordinary, seats))


def is_adjacent(seats: Sequence[FreeSeat]) -> bool:
    """Return whether these seats are side by side in one row."""
    ordered = sorted(seats, key=attrgetter("place_index"))
    return all(
        one.row_index == other.row_index and one.place_index + 1 == other.place_index
        for one, other in pairwise(ordered)
    )


def count_groups(seats: Sequence[FreeSeat]) -> int:
    """Return into how many groups of adjacent seats these seats fall."""
    ordered = sorted(seats, key=attrgetter("row_index", "place_index"))
    return 1 + sum(
        one.row_index != other.row_index or one.place_index + 1 != other.place_index for one, other in pairwise(ordered)
    )


def is_ordinary(seat: FreeSeat) -> bool:
    """Return whether any buyer may have the seat."""
    return not seat.accessible and not seat.companion


def _choose_ordinary(runs: FreeRuns, quantity: int) -> tuple[FreeSeat, ...] | None:
    if runs.count < quantity:
        return None
    for offers in (runs.windows(quantity), runs.pairs(quantity)):
        best = next(offers, None)
        if best is not None:
            return best.seats
    return _choose_cluster(runs, quantity)


def _choose_cluster(runs: FreeRuns, quantity: int) -> tuple[FreeSeat, ...]:
    """Return the tightest cluster around one of the best starting points, with as few single seats as possible."""
    best: tuple[float, tuple[FreeSeat, ...]] | None = None
    seeds = list(islice(_seeds(runs, quantity), NEAR_SEEDS_MAX))
    for seed in seeds:
        for rows, each in NEAR_ROWS:
            found = _build_cluster(seed, runs.around(seed, rows, each), quantity)
            if found is not None:
                if best is None or found < best:
                    best = found
                break
    if best is None:
        # Free seats are sparse: start at the best one, wherever the others are.
        best = _build_cluster(seeds[0], runs.others(seeds[0]), quantity)
    assert best is not None, "only called with at least `quantity` seats"
    return best[1]


def _seeds(runs: FreeRuns, quantity: int) -> Iterator[Part]:
    """Yield starting points for a party that cannot sit together: long runs before short ones, so that few sit alone.
    Runs for all but one member come late, because that member would sit alone."""
    sizes = [quantity - 2]
    while sizes[-1] > 2:
        # Small parties try every size, large ones halve it: each size costs a pass over all free seats.
        sizes.append(sizes[-1] - 1 if quantity <= 12 else sizes[-1] // 2)
    for size in (*sizes, quantity - 1, 1):
        if size >= 1:
            for offer in islice(runs.windows(size), NEAR_SEEDS_EACH):
                yield from offer.parts


def _build_cluster(seed: Part, around: Sequence[Run], quantity: int) -> tuple[float, tuple[FreeSeat, ...]] | None:
    """Return the seed with the seats nearest to it, and how far apart they are; None if there are too few."""
    missing = quantity - seed.size
    if sum(map(len, around)) < missing:
        return None
    first = seed.run.first + seed.start
    last = first + seed.size - 1
    alone = int(seed.size == 1)
    apart = 0
    parts = [seed]
    ordered = sorted(
        ((_distance(run, seed.run.row, first, last), run) for run in around),
        key=lambda pair: (pair[0] + (ALONE_SEATS if len(pair[1]) == 1 else 0), pair[1].row, pair[1].first),
    )
    for distance, run in ordered:
        size = min(len(run), missing)
        if missing - size == 1 and size > 2:
            size -= 1
        parts.append(Part(run, _nearest_start(run, size, first, last), size))
        apart += distance * size
        alone += size == 1
        missing -= size
        if missing == 0:
            break
    if missing:
        return None
    seats = Offer(tuple(parts)).seats
    ranks = sum(seat.rank for seat in seats) / quantity
    return apart + ALONE_SEATS * alone + ranks / RANKS_PER_SEAT, seats


def _distance(run: Run, row: int, first: int, last: int) -> int:
    """Return the distance, in seats, from a run to the nearest of the seats `first` to `last` of a row."""
    return ROW_SEATS * abs(run.row - row) + max(0, run.first - last, first - run.last)


def _nearest_start(run: Run, size: int, first: int, last: int) -> int:
    """Return the start of the `size` seats in the run that are nearest to the middle of seats `first` to `last`."""
    return min(max((first + last + 1 - size) // 2 - run.first, 0), len(run) - size)


def _choose_accessible(seats: Sequence[FreeSeat], demand: BestAvailable) -> tuple[FreeSeat, ...] | None:
    """Return accessible seats close together, out of the ACCESSIBLE_MAX best ones, with companions as near to them as
    possible: companion seats before ordinary ones."""
    wanted = demand.quantity - demand.companions
    accessible = nsmallest(
        max(ACCESSIBLE_MAX, wanted),
        (seat for seat in seats if seat.accessible),
        key=attrgetter("rank", "row_index", "place_index"),
    )
    if len(accessible) < wanted or len(seats) < demand.quantity:
        return None
    by_row: _Rows = defaultdict(list)
    for seat in sorted(seats, key=attrgetter("place_index")):
        by_row[seat.row_index, seat.accessible].append(seat)
    best: tuple[float, int, tuple[FreeSeat, ...]] | None = None
    for number, seed in enumerate(accessible[:NEAR_SEEDS_MAX]):
        chosen = nsmallest(wanted, accessible, key=lambda seat: (_seat_distance(seed, seat), seat.rank))
        party = _with_companions(chosen, _near(by_row, chosen, demand.companions), demand.companions)
        if party is not None:
            cost = party[0] + sum(_seat_distance(seed, seat) for seat in chosen) + seed.rank / RANKS_PER_SEAT
            if best is None or (cost, number) < best[:2]:
                best = (cost, number, party[1])
    if best is not None:
        return best[2]
    party = _with_companions(accessible[:wanted], seats, demand.companions)
    return None if party is None else party[1]


def _near(by_row: _Rows, chosen: Sequence[FreeSeat], count: int) -> Iterable[FreeSeat]:
    """Return the seats in these and neighboring rows that may be among the `count` nearest to the chosen ones: in each
    row and on each side so many of both kinds, besides the chosen ones."""
    found: dict[int, FreeSeat] = {}
    for one in chosen if count else ():
        for row in range(one.row_index - NEAR_ROWS[0][0], one.row_index + NEAR_ROWS[0][0] + 1):
            for is_accessible in (False, True):
                line = by_row.get((row, is_accessible), [])
                at = bisect_left(line, one.place_index, key=attrgetter("place_index"))
                nearest = line[max(0, at - count - len(chosen)) : at + count + len(chosen)]
                found.update((seat.seat_id, seat) for seat in nearest)
    return found.values()


def _with_companions(
    chosen: Sequence[FreeSeat], others: Iterable[FreeSeat], count: int
) -> tuple[float, tuple[FreeSeat, ...]] | None:
    """Return these accessible seats with seats for the companions, and how far those are; None if too few are left."""
    taken = {seat.seat_id for seat in chosen}
    costs = (
        (
            min(_seat_distance(one, seat) for one in chosen) + ACCESSIBLE_SEAT_COST * seat.accessible,
            not seat.companion,
            seat.rank,
            seat,
        )
        for seat in others
        if seat.seat_id not in taken
    )
    beside = nsmallest(count, costs)
    if len(beside) < count:
        return None
    return sum(far for far, _, _, _ in beside), (*chosen, *(seat for _, _, _, seat in beside))


def _seat_distance(one: FreeSeat, other: FreeSeat) -> int:
    return ROW_SEATS * abs(one.row_index - other.row_index) + abs(one.place_index - other.place_index)
