"""Which seats are best: side by side in one row, else in two neighbouring rows, else near one another; best rank first.

Pure: it is given the free seats as they were read, unlocked, and proposes; the hold locks and decides.

What one choice costs at most, with n free seats read and k given away since: side by side, the work of one run of
neighbours; in two rows, of the runs beside it; near one another, NEAR_SEEDS_MAX clusters of a few dozen runs. Reading
the hall the first time for a party of some size is one pass over n.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from operator import attrgetter

from apps.reservations.holds.seat_choice.free_runs import FreeRuns, FreeSeat, Offer, Part, Run

__all__ = ["BestAvailable", "FreeSeat", "FreeSeatPool", "choose", "fitting_count", "is_adjacent"]

NEAR_SEEDS_MAX = 12
NEAR_SEEDS_EACH = 3
# Where friends of somebody are looked for: so many rows before and behind, so many runs of each to either side.
NEAR_ROWS = ((2, 4), (8, 16))
# A row further is as far as three places; somebody who sits alone is as bad as five rows.
ROW_PLACES = 3
ALONE_PLACES = 15
RANKS_TO_A_PLACE = 100
# A companion in somebody else's accessible place is the last resort.
ACCESSIBLE_PLACE_COST = 1_000


@dataclass(frozen=True, slots=True)
class BestAvailable:
    """What a buyer asks for who leaves the choice to us."""

    section_id: int
    quantity: int
    category_id: int | None = None
    accessible: bool = False
    companions: int = 0
    """Of `quantity`, how many sit beside the accessible places; only with `accessible`."""


class FreeSeatPool:
    """The free seats that one read found for wishes of one section and category, less those given away since.

    Accessible and companion seats are for those who ask for them and for nobody else, also when nothing else is left.
    """

    def __init__(self, seats: Iterable[FreeSeat]) -> None:
        self._seats = {seat.seat_id: seat for seat in seats}
        self._runs = FreeRuns(seat for seat in self._seats.values() if is_ordinary(seat))

    def seats(self) -> list[FreeSeat]:
        """All that is left."""
        return list(self._seats.values())

    def choose(self, wish: BestAvailable) -> tuple[FreeSeat, ...] | None:
        """The best seats that fit the wish, or None when fewer than that many fit. They stay until they are taken."""
        if wish.accessible:
            return _choose_accessible(self.seats(), wish)
        return _choose_ordinary(self._runs, wish.quantity)

    def take(self, seat_ids: Iterable[int]) -> None:
        """These seats are not free any more; those that are not here are passed over."""
        ids = [seat_id for seat_id in seat_ids if self._seats.pop(seat_id, None) is not None]
        self._runs.take(ids)


def choose(free: Iterable[FreeSeat], wish: BestAvailable) -> tuple[FreeSeat, ...] | None:
    """The best seats that fit the wish, or None when fewer than that many fit."""
    return FreeSeatPool(seat for seat in free if _matches_category(seat, wish)).choose(wish)


def fitting_count(free: Iterable[FreeSeat], wish: BestAvailable) -> int:
    """How many free seats fit the wish, wherever they are."""
    seats = [seat for seat in free if _matches_category(seat, wish)]
    if wish.accessible:
        places = sum(seat.accessible for seat in seats)
        # Without a place for everybody who needs one, what else is free is of no use to the party.
        return len(seats) if places >= wish.quantity - wish.companions else min(places, wish.quantity - 1)
    return sum(map(is_ordinary, seats))


def is_adjacent(seats: Sequence[FreeSeat]) -> bool:
    """Whether these are neighbours, one beside the other."""
    ordered = sorted(seats, key=attrgetter("place_index"))
    return all(
        one.row_index == other.row_index and one.place_index + 1 == other.place_index
        for one, other in pairwise(ordered)
    )


def is_ordinary(seat: FreeSeat) -> bool:
    """Whether anybody may have it."""
    return not seat.accessible and not seat.companion


def _matches_category(seat: FreeSeat, wish: BestAvailable) -> bool:
    return wish.category_id is None or seat.category_id == wish.category_id


def _choose_ordinary(runs: FreeRuns, quantity: int) -> tuple[FreeSeat, ...] | None:
    if runs.count < quantity:
        return None
    for offers in (runs.windows(quantity), runs.pairs(quantity)):
        best = next(offers, None)
        if best is not None:
            return best.seats
    return _choose_cluster(runs, quantity)


def _choose_cluster(runs: FreeRuns, quantity: int) -> tuple[FreeSeat, ...]:
    """The tightest cluster around one of the best places to begin at, as few as possible sitting alone."""
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
        # Few and far between: from the best one, wherever the others are.
        best = _build_cluster(seeds[0], runs.others(seeds[0]), quantity)
    assert best is not None, "only called with at least `quantity` seats"
    return best[1]


def _seeds(runs: FreeRuns, quantity: int) -> Iterator[Part]:
    """Where a party that sits apart could begin: in long runs rather than short ones, so that few sit alone; all but
    one of the party together only after the others, because that one would."""
    sizes = [quantity - 2]
    while sizes[-1] > 2:
        # One by one for a party of friends, by halves for a coach: every size costs a pass over the hall.
        sizes.append(sizes[-1] - 1 if quantity <= 12 else sizes[-1] // 2)
    for size in (*sizes, quantity - 1, 1):
        if size >= 1:
            for offer in islice(runs.windows(size), NEAR_SEEDS_EACH):
                yield from offer.parts


def _build_cluster(seed: Part, around: Sequence[Run], quantity: int) -> tuple[float, tuple[FreeSeat, ...]] | None:
    """The party with the seed and what is nearest to it, and how far apart it sits; None if there are not enough."""
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
        key=lambda pair: (pair[0] + (ALONE_PLACES if len(pair[1]) == 1 else 0), pair[1].row, pair[1].first),
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
    return apart + ALONE_PLACES * alone + ranks / RANKS_TO_A_PLACE, seats


def _distance(run: Run, row: int, first: int, last: int) -> int:
    """Between a run and so many places of a row, where they are nearest, in places."""
    return ROW_PLACES * abs(run.row - row) + max(0, run.first - last, first - run.last)


def _nearest_start(run: Run, size: int, first: int, last: int) -> int:
    """Where in the run so many seats are nearest to the middle of those places."""
    return min(max((first + last + 1 - size) // 2 - run.first, 0), len(run) - size)


def _choose_accessible(seats: Sequence[FreeSeat], wish: BestAvailable) -> tuple[FreeSeat, ...] | None:
    """Accessible places near one another, and companions beside them: next to one before further away, companion seats
    before ordinary ones."""
    places = sorted((seat for seat in seats if seat.accessible), key=attrgetter("rank", "row_index", "place_index"))
    wanted = wish.quantity - wish.companions
    if len(places) < wanted or len(seats) < wish.quantity:
        return None
    by_row: dict[int, list[FreeSeat]] = defaultdict(list)
    for seat in seats:
        by_row[seat.row_index].append(seat)
    best: tuple[float, int, tuple[FreeSeat, ...]] | None = None
    for number, seed in enumerate(places[:NEAR_SEEDS_MAX]):
        chosen = sorted(places, key=lambda seat: (_seat_distance(seed, seat), seat.rank))[:wanted]
        rows = {place.row_index + step for place in chosen for step in range(-NEAR_ROWS[0][0], NEAR_ROWS[0][0] + 1)}
        near = [seat for row in sorted(rows) for seat in by_row.get(row, ())]
        party = _with_companions(chosen, near, wish.companions)
        if party is not None:
            cost = party[0] + sum(_seat_distance(seed, seat) for seat in chosen) + seed.rank / RANKS_TO_A_PLACE
            if best is None or (cost, number) < best[:2]:
                best = (cost, number, party[1])
    if best is not None:
        return best[2]
    party = _with_companions(places[:wanted], seats, wish.companions)
    return None if party is None else party[1]


def _with_companions(
    chosen: Sequence[FreeSeat], others: Sequence[FreeSeat], count: int
) -> tuple[float, tuple[FreeSeat, ...]] | None:
    """These accessible places with so many seats beside them, and how far from them those are; None if there are not
    enough."""
    taken = {seat.seat_id for seat in chosen}
    beside = sorted(
        (
            min(_seat_distance(place, seat) for place in chosen) + ACCESSIBLE_PLACE_COST * seat.accessible,
            not seat.companion,
            seat.rank,
            seat,
        )
        for seat in others
        if seat.seat_id not in taken
    )[:count]
    if len(beside) < count:
        return None
    return sum(far for far, _, _, _ in beside), (*chosen, *(seat for _, _, _, seat in beside))


def _seat_distance(one: FreeSeat, other: FreeSeat) -> int:
    return ROW_PLACES * abs(one.row_index - other.row_index) + abs(one.place_index - other.place_index)
