"""Which seats are best: examples a person would agree with, and properties that hold for every hall."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from apps.reservations.holds.seat_choice.best_available import (
    BestAvailable,
    FreeSeat,
    FreeSeatPool,
    choose,
    fitting_count,
    is_adjacent,
)

SECTION, CATEGORY, DEAREST = 1, 1, 2


def seat(row: int, place: int, *, rank: int | None = None, category: int = CATEGORY, **flags: bool) -> FreeSeat:
    """A free seat; ranked by its row, then by its place, unless said otherwise."""
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


def row(index: int, places: Sequence[int], **flags: bool) -> list[FreeSeat]:
    return [seat(index, place, **flags) for place in places]


def want(quantity: int, **options: object) -> BestAvailable:
    return BestAvailable(SECTION, quantity, **options)  # type: ignore[arg-type]


def places(chosen: Sequence[FreeSeat] | None) -> list[tuple[int, int]] | None:
    return None if chosen is None else sorted((one.row_index, one.place_index) for one in chosen)


def test_a_party_sits_in_the_best_row_that_has_it_together() -> None:
    free = row(0, [1, 2, 4]) + row(1, range(1, 9))
    assert places(choose(free, want(2))) == [(0, 1), (0, 2)]
    assert places(choose(free, want(3))) == [(1, 1), (1, 2), (1, 3)]


def test_an_aisle_parts_neighbours() -> None:
    assert places(choose(row(0, [1, 2, 5, 6]) + row(1, [1, 2, 3]), want(3))) == [(1, 1), (1, 2), (1, 3)]


def test_no_single_seat_is_left_between_parties_where_it_can_be_avoided() -> None:
    """Three free seats and two wanted: leaving one alone costs more than the row behind, which is nearly as good."""
    free = row(0, [1, 2, 3]) + [seat(1, place, rank=10 + place) for place in (1, 2)]
    assert places(choose(free, want(2))) == [(1, 1), (1, 2)]


def test_a_single_seat_is_left_rather_than_nobody_served() -> None:
    assert places(choose(row(0, [1, 2, 3]), want(2))) == [(0, 1), (0, 2)]


def test_a_party_too_large_for_a_row_sits_in_two_one_behind_the_other() -> None:
    free = row(0, range(1, 5)) + row(1, range(1, 5)) + row(5, range(1, 4))
    assert places(choose(free, want(6))) == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]


def test_a_party_that_cannot_sit_together_sits_near() -> None:
    free = row(0, [1, 3, 5]) + row(9, [1])
    assert places(choose(free, want(3))) == [(0, 1), (0, 3), (0, 5)]


def test_a_category_is_kept_to() -> None:
    free = [*row(0, [1, 2]), seat(1, 1, category=DEAREST), seat(1, 2, category=DEAREST)]
    assert places(choose(free, want(2, category_id=DEAREST))) == [(1, 1), (1, 2)]
    assert choose(free, want(3, category_id=DEAREST)) is None
    assert fitting_count(free, want(3, category_id=DEAREST)) == 2


def test_accessible_and_companion_seats_are_left_to_those_who_ask() -> None:
    free = [seat(0, 1, accessible=True), seat(0, 2, companion=True), seat(0, 3)]
    assert places(choose(free, want(1))) == [(0, 3)]
    assert choose(free, want(2)) is None
    assert fitting_count(free, want(2)) == 1


def test_an_accessible_place_comes_with_its_companions_beside_it() -> None:
    free = [seat(0, 1, accessible=True), seat(0, 2, companion=True), seat(0, 3), seat(0, 9, accessible=True)]
    assert places(choose(free, want(2, accessible=True, companions=1))) == [(0, 1), (0, 2)]
    assert places(choose(free, want(3, accessible=True, companions=2))) == [(0, 1), (0, 2), (0, 3)]
    assert places(choose(free, want(2, accessible=True))) == [(0, 1), (0, 9)]


def test_a_companion_takes_somebody_s_accessible_place_last() -> None:
    free = [seat(0, 1, accessible=True), seat(0, 2, accessible=True), seat(0, 3)]
    assert places(choose(free, want(2, accessible=True, companions=1))) == [(0, 2), (0, 3)]
    assert places(choose(free[:2], want(2, accessible=True, companions=1))) == [(0, 1), (0, 2)]


def test_without_accessible_places_left_none_are_promised() -> None:
    free = row(0, range(1, 9))
    assert choose(free, want(1, accessible=True)) is None
    assert fitting_count(free, want(1, accessible=True)) == 0


def test_single_seats_go_to_those_who_come_alone() -> None:
    free = [*row(0, [1, 2]), seat(0, 9)]
    assert places(choose(free, want(1))) == [(0, 9)]


def test_four_friends_sit_two_and_two_rather_than_leave_one_alone() -> None:
    free = row(0, [1, 2, 3]) + row(1, [1]) + row(2, [1, 2])
    assert places(choose(free, want(4))) == [(0, 1), (0, 2), (2, 1), (2, 2)]


def test_parties_are_parted_evenly_over_two_rows() -> None:
    free = row(0, range(1, 7)) + row(1, range(1, 7))
    for quantity, split in ((7, (3, 4)), (8, (4, 4)), (10, (5, 5)), (11, (5, 6))):
        chosen = choose(free, want(quantity))
        assert chosen is not None
        in_front = sum(one.row_index == 0 for one in chosen)
        assert tuple(sorted((in_front, quantity - in_front))) == split


def test_nobody_is_sent_to_a_row_whose_seats_are_far_aside() -> None:
    """The row behind has three, twenty places away: two rows further back three are right behind."""
    free = row(0, [1, 2, 3]) + row(1, [23, 24, 25]) + row(2, [1, 2, 3])
    assert places(choose(free, want(6))) == [(0, 1), (0, 2), (0, 3), (2, 1), (2, 2), (2, 3)]


def test_companions_sit_next_to_the_accessible_place_before_they_sit_in_companion_seats_elsewhere() -> None:
    free = [seat(0, 1, accessible=True), seat(0, 2), seat(4, 9, companion=True), seat(4, 8, accessible=True, rank=999)]
    assert places(choose(free[:3], want(2, accessible=True, companions=1))) == [(0, 1), (0, 2)]
    assert places(choose([free[0], *free[2:]], want(2, accessible=True, companions=1))) == [(4, 8), (4, 9)]


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
WISHES = st.builds(
    BestAvailable,
    section_id=st.just(SECTION),
    quantity=st.integers(1, 8),
    category_id=st.none() | st.integers(1, 2),
)


def fits(one: FreeSeat, wish: BestAvailable) -> bool:
    return (wish.category_id is None or one.category_id == wish.category_id) and not (one.accessible or one.companion)


@given(HALLS, WISHES)
def test_whoever_can_be_served_is_with_exactly_what_was_asked_for(free: list[FreeSeat], wish: BestAvailable) -> None:
    chosen = choose(free, wish)
    assert (chosen is not None) == (fitting_count(free, wish) >= wish.quantity)
    if chosen is not None:
        assert len({one.seat_id for one in chosen}) == len(chosen) == wish.quantity
        assert all(one in free and fits(one, wish) for one in chosen)


@given(HALLS, WISHES, st.randoms())
def test_the_choice_depends_on_the_hall_not_on_the_order_it_is_read_in(
    free: list[FreeSeat], wish: BestAvailable, random: object
) -> None:
    shuffled = list(free)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert places(choose(shuffled, wish)) == places(choose(free, wish))


@st.composite
def halls_with_room_in_one_row(draw: st.DrawFn) -> tuple[list[FreeSeat], BestAvailable]:
    wish, r, first = draw(WISHES), draw(st.integers(0, 5)), draw(st.integers(0, 11))
    room = row(r, range(first, first + wish.quantity), category=wish.category_id or 1)
    of_room = {(one.row_index, one.place_index) for one in room}
    return [*(one for one in draw(HALLS) if (one.row_index, one.place_index) not in of_room), *room], wish


@given(halls_with_room_in_one_row())
def test_a_party_is_together_whenever_some_row_has_room_for_it(hall: tuple[list[FreeSeat], BestAvailable]) -> None:
    free, wish = hall
    chosen = places(choose(free, wish))
    assert chosen is not None
    (first_row, first), *_ = chosen
    assert chosen == [(first_row, first + step) for step in range(wish.quantity)]


@given(HALLS, st.integers(1, 4), st.integers(0, 3))
def test_who_asks_for_accessible_places_gets_them_or_nothing(free: list[FreeSeat], places_: int, beside: int) -> None:
    wish = BestAvailable(SECTION, places_ + beside, accessible=True, companions=beside)
    chosen = choose(free, wish)
    accessible = sum(one.accessible for one in free)
    assert (chosen is not None) == (accessible >= places_ and len(free) >= wish.quantity)
    if chosen is not None:
        assert len({one.seat_id for one in chosen}) == wish.quantity
        assert sum(one.accessible for one in chosen) >= places_


@given(HALLS, WISHES)
def test_more_free_seats_never_make_a_served_party_go_away(free: list[FreeSeat], wish: BestAvailable) -> None:
    assume(free)
    if choose(free[:-1], wish) is not None:
        assert choose(free, wish) is not None


@given(HALLS, st.lists(st.integers(1, 8), max_size=8), st.randoms())
def test_a_shelf_from_which_parties_took_theirs_chooses_as_one_that_never_had_them(
    free: list[FreeSeat], parties: list[int], random: object
) -> None:
    """One read serves a whole batch: choices made from what is left of it are those of a new read."""
    shelf = FreeSeatPool(free)
    for quantity in parties:
        wish = want(quantity)
        chosen = shelf.choose(wish)
        assert chosen == choose(free, wish)
        # Some of it goes, perhaps all, and something else with it: a rival had that.
        taken = {one for one in (*(chosen or ()), *free[:2]) if random.random() < 0.7}  # type: ignore[attr-defined]
        shelf.take(one.seat_id for one in taken)
        free = [one for one in free if one not in taken]


@given(halls_with_room_in_one_row())
def test_who_sits_together_has_the_best_such_seats_there_are(hall: tuple[list[FreeSeat], BestAvailable]) -> None:
    """Against every window of the hall, one by one."""
    free, wish = hall
    chosen = choose(free, want(wish.quantity))
    assert chosen is not None
    assert is_adjacent(chosen)
    assert cost(chosen, free) == min(cost(window, free) for window in windows(free, wish.quantity))


@st.composite
def halls_without_room_in_one_row(draw: st.DrawFn) -> tuple[list[FreeSeat], int]:
    quantity = draw(st.integers(2, 8))
    free: list[FreeSeat] = []
    for r in range(3):
        place = draw(st.integers(0, 3))
        for length in draw(st.lists(st.integers(1, quantity - 1), min_size=1, max_size=2)):
            free += row(r, range(place, place + length))
            place += length + draw(st.integers(1, 2))
    return free, quantity


@given(halls_without_room_in_one_row())
def test_a_party_in_two_rows_has_the_most_even_and_then_the_best_halves_there_are(
    hall: tuple[list[FreeSeat], int],
) -> None:
    """Against every pair of windows of neighbouring rows, one by one."""
    free, quantity = hall
    least = 1 if quantity < 4 else 2
    found = [
        (abs(size - (quantity - size)), cost(front, free) + cost(back, free), front, back)
        for size in range(least, quantity - least + 1)
        for front in windows(free, size)
        for back in windows(free, quantity - size)
        if front[0].row_index + 1 == back[0].row_index and aside(front, back) <= quantity
    ]
    assume(found)
    chosen = choose(free, want(quantity))
    assert chosen is not None
    halves = [[one for one in chosen if one.row_index == r] for r in sorted({one.row_index for one in chosen})]
    assert len(halves) == 2
    assert all(map(is_adjacent, halves))
    uneven = abs(len(halves[0]) - len(halves[1]))
    assert uneven == min(found)[0]
    # Being right behind one another is worth a few ranks more.
    assert cost(halves[0], free) + cost(halves[1], free) <= min(found)[1] + quantity


def windows(free: Sequence[FreeSeat], quantity: int) -> list[list[FreeSeat]]:
    at = {(one.row_index, one.place_index): one for one in free if not (one.accessible or one.companion)}
    found = ([at.get((r, p + step)) for step in range(quantity)] for r, p in at)
    return [[one for one in window if one is not None] for window in found if None not in window]


def cost(window: Sequence[FreeSeat], free: Sequence[FreeSeat]) -> int:
    """Ranks, and a row of forty for each single seat that would be left beside them."""
    ordinary = {(one.row_index, one.place_index) for one in free if not (one.accessible or one.companion)}
    r, first, last = window[0].row_index, window[0].place_index, window[-1].place_index
    orphans = ((r, first - 1) in ordinary and (r, first - 2) not in ordinary) + (
        (r, last + 1) in ordinary and (r, last + 2) not in ordinary
    )
    return sum(one.rank for one in window) + orphans * 40 * len(window)


def aside(front: Sequence[FreeSeat], back: Sequence[FreeSeat]) -> int:
    """Twice the distance between the middles of the two."""
    return abs(front[0].place_index + front[-1].place_index - back[0].place_index - back[-1].place_index)


@pytest.mark.parametrize("quantity", [1, 8])
def test_an_empty_hall_serves_nobody(quantity: int) -> None:
    assert choose([], want(quantity)) is None
    assert fitting_count([], want(quantity)) == 0
