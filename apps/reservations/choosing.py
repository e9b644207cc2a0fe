"""Which seats are best: adjacent in one row, else in two neighbouring rows, else near one another; best rank first.

Pure: it is given the free seats as they were read, unlocked, and proposes; the hold locks and decides.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter

# A choice that leaves a single free seat between taken ones is worth giving up this many ranks per seat.
ORPHAN_RANKS = 12
NEAR_SEEDS_MAX = 24


@dataclass(frozen=True, slots=True)
class FreeSeat:
    seat_id: int
    section_id: int
    row_index: int
    place_index: int
    rank: int
    category_id: int
    accessible: bool
    companion: bool


@dataclass(frozen=True, slots=True)
class BestAvailable:
    """What a buyer asks for who leaves the choice to us."""

    section_id: int
    quantity: int
    category_id: int | None = None
    accessible: bool = False
    companions: int = 0
    """Of `quantity`, how many sit beside the accessible places; only with `accessible`."""


def choose(free: Iterable[FreeSeat], wish: BestAvailable) -> tuple[FreeSeat, ...] | None:
    """The best seats that fit the wish, or None when fewer than that many fit. Accessible and companion seats are
    left to those who ask for them."""
    seats = [seat for seat in free if wish.category_id is None or seat.category_id == wish.category_id]
    if wish.accessible:
        return _choose_accessible(seats, wish)
    ordinary = [seat for seat in seats if not seat.accessible and not seat.companion]
    return _choose_ordinary(ordinary, wish.quantity)


def choose_one_of(free: Sequence[FreeSeat], wish: BestAvailable, better: int) -> tuple[FreeSeat, ...] | None:
    """As `choose`, after leaving up to `better` better choices to others: as many as there are."""
    chosen = choose(free, wish)
    left = list(free)
    for _ in range(better):
        if chosen is None:
            break
        spoken_for = {seat.seat_id for seat in chosen}
        left = [seat for seat in left if seat.seat_id not in spoken_for]
        following = choose(left, wish)
        if following is None or (not _is_together(following) and _is_together(chosen)):
            # Scattered seats are no alternative to neighbours that may be had a moment later.
            break
        chosen = following
    return chosen


def _is_together(seats: Sequence[FreeSeat]) -> bool:
    """Whether the seats are one run of neighbours."""
    return len(_runs(seats)) == 1


def fitting_count(free: Iterable[FreeSeat], wish: BestAvailable) -> int:
    """How many free seats fit the wish, wherever they are."""
    seats = [seat for seat in free if wish.category_id is None or seat.category_id == wish.category_id]
    if wish.accessible:
        return len(seats) if any(seat.accessible for seat in seats) else 0
    return sum(1 for seat in seats if not seat.accessible and not seat.companion)


def _choose_ordinary(seats: Sequence[FreeSeat], quantity: int) -> tuple[FreeSeat, ...] | None:
    if len(seats) < quantity:
        return None
    runs = _runs(seats)
    return _in_one_row(runs, quantity) or _in_two_rows(runs, quantity) or _near(seats, quantity)


def _runs(seats: Iterable[FreeSeat]) -> list[list[FreeSeat]]:
    """Maximal runs of neighbouring free seats; consecutive `place_index` are neighbours, an aisle skips one."""
    ordered = sorted(seats, key=attrgetter("row_index", "place_index"))
    runs: list[list[FreeSeat]] = []
    for seat in ordered:
        last = runs[-1][-1] if runs else None
        if last is not None and last.row_index == seat.row_index and last.place_index + 1 == seat.place_index:
            runs[-1].append(seat)
        else:
            runs.append([seat])
    return runs


def _in_one_row(runs: Sequence[list[FreeSeat]], quantity: int) -> tuple[FreeSeat, ...] | None:
    best: tuple[int, tuple[FreeSeat, ...]] | None = None
    for run in runs:
        for start in range(len(run) - quantity + 1):
            window = run[start : start + quantity]
            orphans = (start == 1) + (len(run) - start - quantity == 1)
            cost = sum(seat.rank for seat in window) + orphans * ORPHAN_RANKS * quantity
            if best is None or cost < best[0]:
                best = (cost, tuple(window))
    return None if best is None else best[1]


def _in_two_rows(runs: Sequence[list[FreeSeat]], quantity: int) -> tuple[FreeSeat, ...] | None:
    """The party split as evenly as possible over two neighbouring rows, one part behind the other."""
    by_row = {row: list(group) for row, group in groupby(runs, key=lambda run: run[0].row_index)}
    best: tuple[int, tuple[FreeSeat, ...]] | None = None
    for smaller in range(quantity // 2, 0, -1):
        for row, ahead in by_row.items():
            behind = by_row.get(row + 1, [])
            for first, second in ((smaller, quantity - smaller), (quantity - smaller, smaller)):
                for front in _windows(ahead, first):
                    for back in _windows(behind, second):
                        apart = abs(
                            front[0].place_index + front[-1].place_index - back[0].place_index - back[-1].place_index
                        )
                        if apart > 2 * quantity:
                            continue
                        cost = sum(seat.rank for seat in (*front, *back)) + apart
                        if best is None or cost < best[0]:
                            best = (cost, (*front, *back))
        if best is not None:
            return best[1]
    return None


def _windows(runs: Iterable[list[FreeSeat]], length: int) -> Iterable[list[FreeSeat]]:
    for run in runs:
        for start in range(len(run) - length + 1):
            yield run[start : start + length]


def _near(seats: Sequence[FreeSeat], quantity: int) -> tuple[FreeSeat, ...]:
    """The tightest cluster around one of the best-ranked seats."""
    best: tuple[float, tuple[FreeSeat, ...]] | None = None
    for seed in sorted(seats, key=attrgetter("rank"))[:NEAR_SEEDS_MAX]:
        cluster = tuple(sorted(seats, key=_nearest(seed))[:quantity])
        cost = sum(_distance(seed, seat) for seat in cluster) + seed.rank / 1_000
        if best is None or cost < best[0]:
            best = (cost, cluster)
    assert best is not None, "only called with at least `quantity` seats"
    return best[1]


def _distance(one: FreeSeat, other: FreeSeat) -> int:
    return 3 * abs(one.row_index - other.row_index) + abs(one.place_index - other.place_index)


def _nearest(seed: FreeSeat) -> Callable[[FreeSeat], tuple[int, int]]:
    return lambda seat: (_distance(seed, seat), seat.rank)


def _beside(seed: FreeSeat) -> Callable[[FreeSeat], tuple[bool, bool, int, int]]:
    """Companion seats before ordinary ones, other people's accessible places last; the nearest first."""
    return lambda seat: (seat.accessible, not seat.companion, _distance(seed, seat), seat.rank)


def _choose_accessible(seats: Sequence[FreeSeat], wish: BestAvailable) -> tuple[FreeSeat, ...] | None:
    """Accessible places first, then those beside them: companion seats before ordinary ones."""
    places = sorted((seat for seat in seats if seat.accessible), key=attrgetter("rank"))
    wanted = wish.quantity - wish.companions
    if len(places) < wanted or len(seats) < wish.quantity:
        return None
    best: tuple[float, tuple[FreeSeat, ...]] | None = None
    for seed in places[:NEAR_SEEDS_MAX]:
        chosen = sorted(places, key=_nearest(seed))[:wanted]
        taken = {seat.seat_id for seat in chosen}
        beside = sorted(
            (seat for seat in seats if seat.seat_id not in taken),
            key=_beside(seed),
        )[: wish.companions]
        party = (*chosen, *beside)
        cost = sum(_distance(seed, seat) for seat in party) + seed.rank / 1_000
        if len(party) == wish.quantity and (best is None or cost < best[0]):
            best = (cost, party)
    return None if best is None else best[1]
