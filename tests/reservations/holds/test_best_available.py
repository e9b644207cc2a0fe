"""Best available seats: examples that a person would agree with, and properties that hold for every hall."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from apps.reservations.holds.seat_choice import best_available
from apps.reservations.holds.seat_choice.best_available import (
    BestAvailable,
    FreeSeatPool,
    fitting_count,
    is_adjacent,
)
from apps.reservations.holds.seat_choice.free_runs import FreeSeat

SECTION, CATEGORY, DEAREST = 1, 1, 2


def seat(row: int, place: int, *, rank: int | None = None, category: int = CATEGORY, **flags: bool) -> FreeSeat:
    """Return a free seat, ranked by its row, then by its index in the row, unless given otherwise."""
    return FreeSeat(
        seat_id=row * 1_000 + place,
        section_id=SECTION,
        row_index=row,
        place_index=place,
        rank=row * 100 + place if rank is None else rank,
        category_id=category,
        accessible=flags.get("accessible", False),
        companion=flags.get("companion", False),
    )


def row(index: int, indices: Sequence[int], **flags: bool) -> list[FreeSeat]:
    return [seat(index, place, **flags) for place in indices]


def want(quantity: int, **options: object) -> BestAvailable:
    return BestAvailable(SECTION, quantity, **options)  # type: ignore[arg-type]


def of_category(free: Iterable[FreeSeat], demand: BestAvailable) -> list[FreeSeat]:
    return [one for one in free if demand.allows_category(one.category_id)]


def choose(free: Iterable[FreeSeat], demand: BestAvailable) -> tuple[FreeSeat, ...] | None:
    return FreeSeatPool(of_category(free, demand)).choose(demand)


def positions(chosen: Sequence[FreeSeat] | None) -> list[tuple[int, int]] | None:
    return None if chosen is None else sorted((one.row_index, one.place_index) for one in chosen)


def test_a_party_sits_in_the_best_row_that_has_it_together() -> None:
    free = row(0, [1, 2, 4]) + row(1, range(1, 9))
    assert positions(choose(free, want(2))) == [(0, 1), (0, 2)]
    assert positions(choose(free, want(3))) == [(1, 1), (1, 2), (1, 3)]


def test_an_aisle_separates_neighbors() -> None:
    assert positions(choose(row(0, [1, 2, 5, 6]) + row(1, [1, 2, 3]), want(3))) == [(1, 1), (1, 2), (1, 3)]


def test_no_single_seat_is_left_between_parties_if_avoidable() -> None:
    """Three free seats and a demand of two: leaving one alone costs more than the row behind, which is nearly as
    good."""
    free = row(0, [1, 2, 3]) + [seat(1, place, rank=10 + place) for place in (1, 2)]
    assert positions(choose(free, want(2))) == [(1, 1), (1, 2)]


def test_a_single_seat_is_left_rather_than_a_party_refused() -> None:
    assert positions(choose(row(0, [1, 2, 3]), want(2))) == [(0, 1), (0, 2)]


def test_a_party_too_large_for_a_row_sits_in_two_rows_one_behind_the_other() -> None:
    free = row(0, range(1, 5)) + row(1, range(1, 5)) + row(5, range(1, 4))
    assert positions(choose(free, want(6))) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]


def test_a_party_that_cannot_sit_together_sits_near() -> None:
    free = row(0, [1, 3, 5]) + row(9, [1])
    assert positions(choose(free, want(3))) == [(0, 1), (0, 3), (0, 5)]


def test_a_requested_category_is_respected() -> None:
    free = [*row(0, [1, 2]), seat(1, 1, category=DEAREST), seat(1, 2, category=DEAREST)]
    assert positions(choose(free, want(2, category_ids=(DEAREST,)))) == [(1, 1), (1, 2)]
    assert choose(free, want(3, category_ids=(DEAREST,))) is None
    assert fitting_count(of_category(free, want(3, category_ids=(DEAREST,))), want(3, category_ids=(DEAREST,))) == 2


def test_accessible_and_companion_seats_are_left_to_buyers_who_request_them() -> None:
    free = [seat(0, 1, accessible=True), seat(0, 2, companion=True), seat(0, 3)]
    assert positions(choose(free, want(1))) == [(0, 3)]
    assert choose(free, want(2)) is None
    assert fitting_count(free, want(2)) == 1


def test_an_accessible_seat_comes_with_companion_seats_beside_it() -> None:
    free = [seat(0, 1, accessible=True), seat(0, 2, companion=True), seat(0, 3), seat(0, 9, accessible=True)]
    assert positions(choose(free, want(2, accessible=True, companions=1))) == [(0, 1), (0, 2)]
    assert positions(choose(free, want(3, accessible=True, companions=2))) == [(0, 1), (0, 2), (0, 3)]
    assert positions(choose(free, want(2, accessible=True))) == [(0, 1), (0, 9)]


def test_a_companion_takes_another_accessible_seat_last() -> None:
    free = [seat(0, 1, accessible=True), seat(0, 2, accessible=True), seat(0, 3)]
    assert positions(choose(free, want(2, accessible=True, companions=1))) == [(0, 2), (0, 3)]
    assert positions(choose(free[:2], want(2, accessible=True, companions=1))) == [(0, 1), (0, 2)]


def test_without_accessible_seats_left_none_are_promised() -> None:
    free = row(0, range(1, 9))
    assert choose(free, want(1, accessible=True)) is None
    assert fitting_count(free, want(1, accessible=True)) == 0


def test_single_seats_go_to_single_buyers() -> None:
    free = [*row(0, [1, 2]), seat(0, 9)]
    assert positions(choose(free, want(1))) == [(0, 9)]


def test_four_friends_sit_two_and_two_rather_than_leave_one_alone() -> None:
    free = row(0, [1, 2, 3]) + row(1, [1]) + row(2, [1, 2])
    assert positions(choose(free, want(4))) == [(0, 1), (0, 2), (2, 1), (2, 2)]


def test_parties_are_split_evenly_over_two_rows() -> None:
    free = row(0, range(1, 7)) + row(1, range(1, 7))
    for quantity, split in ((7, (3, 4)), (8, (4, 4)), (10, (5, 5)), (11, (5, 6))):
        chosen = choose(free, want(quantity))
        assert chosen is not None
        in_front = sum(one.row_index == 0 for one in chosen)
        assert tuple(sorted((in_front, quantity - in_front))) == split


def test_no_half_of_a_party_sits_far_to_the_side() -> None:
    """The row behind has three free seats, twenty seats to the side: two rows further back three are right behind."""
    free = row(0, [1, 2, 3]) + row(1, [23, 24, 25]) + row(2, [1, 2, 3])
    assert positions(choose(free, want(6))) == [(0, 1), (0, 2), (0, 3), (2, 1), (2, 2), (2, 3)]


def test_companions_sit_next_to_the_accessible_seat_rather_than_in_companion_seats_elsewhere() -> None:
    free = [seat(0, 1, accessible=True), seat(0, 2), seat(4, 9, companion=True), seat(4, 8, accessible=True, rank=999)]
    assert positions(choose(free[:3], want(2, accessible=True, companions=1))) == [(0, 1), (0, 2)]
    assert positions(choose([free[0], *free[2:]], want(2, accessible=True, companions=1))) == [(4, 8), (4, 9)]


HALLS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(0, 11),
        st.integers(1, 2),
        st.sampled_from(["", "", "", "accessible", "companion"]),
    ),
    max_size=50,
    unique_by=lambda place: place[:2],
).map(lambda found: [seat(r, p, category=category, **({flag: True} if flag else {})) for r, p, category, flag in found])
DEMANDS = st.builds(
    BestAvailable,
    section_id=st.just(SECTION),
    quantity=st.integers(1, 8),
    category_ids=st.sampled_from([(), (1,), (2,), (1, 2)]),
)


def fits(one: FreeSeat, demand: BestAvailable) -> bool:
    return demand.allows_category(one.category_id) and not (one.accessible or one.companion)


@given(HALLS, DEMANDS)
def test_a_demand_that_can_be_met_gets_exactly_the_requested_seats(free: list[FreeSeat], demand: BestAvailable) -> None:
    chosen = choose(free, demand)
    assert (chosen is not None) == (fitting_count(of_category(free, demand), demand) >= demand.quantity)
    if chosen is not None:
        assert len({one.seat_id for one in chosen}) == len(chosen) == demand.quantity
        assert all(one in free and fits(one, demand) for one in chosen)


@given(HALLS, DEMANDS, st.randoms())
def test_the_choice_depends_on_the_hall_not_on_its_reading_order(
    free: list[FreeSeat], demand: BestAvailable, random: object
) -> None:
    shuffled = list(free)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert positions(choose(shuffled, demand)) == positions(choose(free, demand))


@st.composite
def halls_with_space_in_one_row(draw: st.DrawFn) -> tuple[list[FreeSeat], BestAvailable]:
    demand, r, first = draw(DEMANDS), draw(st.integers(0, 5)), draw(st.integers(0, 11))
    room = row(r, range(first, first + demand.quantity), category=next(iter(demand.category_ids), 1))
    of_room = {(one.row_index, one.place_index) for one in room}
    return [*(one for one in draw(HALLS) if (one.row_index, one.place_index) not in of_room), *room], demand


@given(halls_with_space_in_one_row())
def test_a_party_sits_together_whenever_some_row_has_enough_seats(hall: tuple[list[FreeSeat], BestAvailable]) -> None:
    free, demand = hall
    chosen = positions(choose(free, demand))
    assert chosen is not None
    (first_row, first), *_ = chosen
    assert chosen == [(first_row, first + step) for step in range(demand.quantity)]


@given(HALLS, st.integers(1, 4), st.integers(0, 3))
def test_a_demand_for_accessible_seats_gets_them_or_nothing(
    free: list[FreeSeat], accessible_count: int, beside: int
) -> None:
    demand = BestAvailable(SECTION, accessible_count + beside, accessible=True, companions=beside)
    chosen = choose(free, demand)
    accessible = sum(one.accessible for one in free)
    assert (chosen is not None) == (accessible >= accessible_count and len(free) >= demand.quantity)
    if chosen is not None:
        assert len({one.seat_id for one in chosen}) == demand.quantity
        assert sum(one.accessible for one in chosen) >= accessible_count


@given(HALLS, st.integers(1, 4), st.integers(0, 6), st.randoms(use_true_random=False))
def test_companions_are_found_in_windows_as_in_whole_rows(
    free: list[FreeSeat], chosen_count: int, count: int, random: Random
) -> None:
    assume(len(free) >= chosen_count)
    chosen = random.sample(free, chosen_count)
    by_row: dict[tuple[int, bool], list[FreeSeat]] = defaultdict(list)
    for one in sorted(free, key=lambda each: each.place_index):
        by_row[one.row_index, one.accessible].append(one)
    rows = {one.row_index + step for one in chosen for step in range(-2, 3)}
    whole_rows = [one for one in free if one.row_index in rows]
    windows = best_available._near(by_row, chosen, count)
    found = best_available._with_companions(chosen, windows, count)
    assert found == best_available._with_companions(chosen, whole_rows, count)


def test_a_choice_among_many_accessible_seats_considers_the_best_ones() -> None:
    """A choice among all of 100,000 took seconds."""
    free = [seat(number // 100, number % 100, accessible=True) for number in range(5_000)]
    counted = Counter[int]()

    class Counted(FreeSeat):
        @property
        def place_index(self) -> int:
            counted[self.seat_id] += 1
            return self[3]

    pool = FreeSeatPool([Counted(*one) for one in free])
    assert positions(pool.choose(want(4, accessible=True, companions=1))) == [(0, 0), (0, 1), (0, 2), (0, 3)]
    assert sum(times > 3 for times in counted.values()) <= best_available.ACCESSIBLE_MAX


@given(HALLS, DEMANDS)
def test_more_free_seats_never_make_a_demand_fail(free: list[FreeSeat], demand: BestAvailable) -> None:
    assume(free)
    if choose(free[:-1], demand) is not None:
        assert choose(free, demand) is not None


@given(HALLS, st.lists(st.integers(1, 8), max_size=8), st.randoms())
def test_a_pool_after_choices_chooses_like_a_new_one(free: list[FreeSeat], parties: list[int], random: object) -> None:
    """One read serves a whole batch: choices from the remaining pool equal those of a new read."""
    pool = FreeSeatPool(free)
    for quantity in parties:
        demand = want(quantity)
        chosen = pool.choose(demand)
        assert chosen == choose(free, demand)
        # Some of the choice is taken, perhaps all, and other seats with it: a rival took those.
        taken = {one for one in (*(chosen or ()), *free[:2]) if random.random() < 0.7}  # type: ignore[attr-defined]
        pool.take(one.seat_id for one in taken)
        free = [one for one in free if one not in taken]


@given(halls_with_space_in_one_row())
def test_a_party_that_sits_together_has_the_best_such_seats(hall: tuple[list[FreeSeat], BestAvailable]) -> None:
    """Compared with every window of the hall, one by one."""
    free, demand = hall
    chosen = choose(free, want(demand.quantity))
    assert chosen is not None
    assert is_adjacent(chosen)
    assert cost(chosen, free) == min(cost(window, free) for window in windows(free, demand.quantity))


@st.composite
def halls_without_space_in_one_row(draw: st.DrawFn) -> tuple[list[FreeSeat], int]:
    quantity = draw(st.integers(2, 8))
    free: list[FreeSeat] = []
    for r in range(3):
        place = draw(st.integers(0, 3))
        for length in draw(st.lists(st.integers(1, quantity - 1), min_size=1, max_size=2)):
            free += row(r, range(place, place + length))
            place += length + draw(st.integers(1, 2))
    return free, quantity


@given(halls_without_space_in_one_row())
def test_a_party_in_two_rows_has_the_most_even_and_then_the_best_halves(
    hall: tuple[list[FreeSeat], int],
) -> None:
    """Compared with every pair of windows of neighboring rows, one by one."""
    free, quantity = hall
    least = 1 if quantity < 4 else 2
    found = [
        (abs(size - (quantity - size)), cost(front, free) + cost(back, free), front, back)
        for size in range(least, quantity - least + 1)
        for front in windows(free, size)
        for back in windows(free, quantity - size)
        if front[0].row_index + 1 == back[0].row_index and sideways_distance(front, back) <= quantity
    ]
    assume(found)
    chosen = choose(free, want(quantity))
    assert chosen is not None
    halves = [[one for one in chosen if one.row_index == r] for r in sorted({one.row_index for one in chosen})]
    assert len(halves) == 2
    assert all(map(is_adjacent, halves))
    uneven = abs(len(halves[0]) - len(halves[1]))
    assert uneven == min(found)[0]
    # Sitting right behind one another is worth a few ranks more.
    assert cost(halves[0], free) + cost(halves[1], free) <= min(found)[1] + quantity


def windows(free: Sequence[FreeSeat], quantity: int) -> list[list[FreeSeat]]:
    at = {(one.row_index, one.place_index): one for one in free if not (one.accessible or one.companion)}
    found = ([at.get((r, p + step)) for step in range(quantity)] for r, p in at)
    return [[one for one in window if one is not None] for window in found if None not in window]


def cost(window: Sequence[FreeSeat], free: Sequence[FreeSeat]) -> int:
    """Return the ranks' sum, plus a row of forty for each single seat that would be left beside them."""
    ordinary = {(one.row_index, one.place_index) for one in free if not (one.accessible or one.companion)}
    r, first, last = window[0].row_index, window[0].place_index, window[-1].place_index
    orphans = ((r, first - 1) in ordinary and (r, first - 2) not in ordinary) + (
        (r, last + 1) in ordinary and (r, last + 2) not in ordinary
    )
    return sum(one.rank for one in window) + orphans * 40 * len(window)


def sideways_distance(front: Sequence[FreeSeat], back: Sequence[FreeSeat]) -> int:
    """Return twice the distance between the middles of the two."""
    return abs(front[0].place_index + front[-1].place_index - back[0].place_index - back[-1].place_index)


@pytest.mark.parametrize("quantity", [1, 8])
def test_an_empty_hall_satisfies_no_demand(quantity: int) -> None:
    assert choose([], want(quantity)) is None
    assert fitting_count([], want(quantity)) == 0
