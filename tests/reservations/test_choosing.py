"""Which seats are best: examples a person would agree with, and properties that hold for every hall."""

from collections.abc import Sequence

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from apps.reservations.choosing import BestAvailable, FreeSeat, choose, fitting_count

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


@given(HALLS, WISHES)
def test_a_party_is_together_whenever_some_row_has_room_for_it(free: list[FreeSeat], wish: BestAvailable) -> None:
    fitting = {(one.row_index, one.place_index) for one in free if fits(one, wish)}
    room = any(all((r, p + step) in fitting for step in range(wish.quantity)) for r, p in fitting)
    assume(room)
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


@pytest.mark.parametrize("quantity", [1, 8])
def test_an_empty_hall_serves_nobody(quantity: int) -> None:
    assert choose([], want(quantity)) is None
    assert fitting_count([], want(quantity)) == 0
