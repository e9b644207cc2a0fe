"""Rows, neighbours and ranks, found from where the seats are."""

import math
import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apps.events.plans import PlanSeat, parse_plan
from apps.events.plans.geometry import convex_hull, rows_outline
from tests.support.events.factories import encoded, plan, row, seat, zone

STAGE = {"shape": "rectangle", "position": {"x": 400, "y": 0}, "rectangle": {"width": 200, "height": 50}}


def seats_of(rows: list[dict], *, stage: bool = False) -> tuple[PlanSeat, ...]:
    areas = [{**STAGE, "text": {"text": "Stage"}}] if stage else []
    return parse_plan(encoded(plan([zone("Stalls", rows, areas=areas)]))).sections[0].seats


def numbered(spots: list[tuple[float, float]], label: str = "A") -> dict:
    return row(label, [seat(f"{label}{index}", index, x, y) for index, (x, y) in enumerate(spots, 1)])


def places(seats: tuple[PlanSeat, ...]) -> dict[str, int]:
    return {found.number: found.place_index for found in seats}


def test_an_aisle_skips_a_place_and_nothing_else_does() -> None:
    found = seats_of([numbered([(0, 0), (25, 0), (50, 0), (110, 0), (135, 0), (160, 0)])])
    assert list(places(found).values()) == [0, 1, 2, 4, 5, 6]


def test_a_slightly_wider_gap_is_no_aisle() -> None:
    found = seats_of([numbered([(0, 0), (25, 0), (50, 0), (90, 0), (115, 0), (140, 0)])])
    assert list(places(found).values()) == [0, 1, 2, 3, 4, 5]


def test_a_row_of_pairs_has_an_aisle_between_every_two() -> None:
    found = seats_of([numbered([(x, 0) for x in (0, 25, 100, 125, 200, 225, 300, 325)])])
    assert list(places(found).values()) == [0, 1, 3, 4, 6, 7, 9, 10]


def test_a_row_of_two_takes_its_measure_from_the_section() -> None:
    rows = [numbered([(x * 25, 0) for x in range(8)]), numbered([(0, 30), (175, 30)], "B")]
    assert [found.place_index for found in seats_of(rows) if found.row == "B"] == [0, 2]


@pytest.mark.parametrize("degrees", [0, 37, 90, 123, 180, 270])
def test_a_straight_row_is_walked_end_to_end_whatever_its_direction_and_the_order_of_the_file(degrees: int) -> None:
    turn = math.radians(degrees)
    spots = [(500 + 25 * step * math.cos(turn), 500 + 25 * step * math.sin(turn)) for step in range(10)]
    shuffled = list(enumerate(spots))
    random.Random(degrees).shuffle(shuffled)
    seats = [seat(f"s{index}", index, *spot) for index, spot in shuffled]
    walked = [int(found.number) for found in seats_of([row("A", seats)])]
    assert walked in (list(range(10)), list(reversed(range(10))))


def test_a_row_bent_into_a_horseshoe_keeps_the_order_of_its_file() -> None:
    angles = [math.radians(20 + 320 * step / 29) for step in range(30)]
    found = seats_of([numbered([(500 + 200 * math.sin(a), 500 + 200 * math.cos(a)) for a in angles])])
    assert [int(place.number) for place in found] == list(range(1, 31))
    assert [place.place_index for place in found] == list(range(30))


def test_the_front_row_is_the_nearest_to_the_stage_or_the_first_of_the_file() -> None:
    back_first = [
        numbered([(x * 25 + 400, y) for x in range(5)], label) for label, y in (("C", 300), ("B", 200), ("A", 100))
    ]
    by_row = {found.row: found.row_index for found in seats_of(back_first, stage=True)}
    assert by_row == {"A": 0, "B": 1, "C": 2}
    by_row = {found.row: found.row_index for found in seats_of(back_first)}
    assert by_row == {"C": 0, "B": 1, "A": 2}


def test_the_best_seat_is_in_the_middle_of_the_front() -> None:
    rows = [numbered([(400 + x * 25, 100 + y * 30) for x in range(9)], label) for y, label in enumerate("AB")]
    ranked = sorted(seats_of(rows, stage=True), key=lambda found: found.rank)
    assert [(found.row, found.number) for found in ranked[:3]] == [("A", "5"), ("A", "4"), ("A", "6")]
    assert [found.row for found in ranked] == ["A"] * 9 + ["B"] * 9


def test_beside_the_middle_the_best_seat_is_the_one_nearest_to_the_middle() -> None:
    middle = numbered([(350 + x * 25, 200) for x in range(13)], "M")
    right = numbered([(800 + x * 25, 200) for x in range(6)], "R")
    document = plan([zone("Middle", [middle], areas=[{**STAGE, "text": {"text": "STAGE"}}]), zone("Right", [right])])
    seats = parse_plan(encoded(document)).sections[1].seats
    assert [found.rank for found in seats] == [1, 2, 3, 4, 5, 6]


@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900)), min_size=1, max_size=12), min_size=1, max_size=8
    )
)
def test_whatever_the_seats_ranks_count_through_and_places_rise(rows: list[list[tuple[int, int]]]) -> None:
    found = seats_of([numbered([(float(x), float(y)) for x, y in spots], f"R{n}-") for n, spots in enumerate(rows)])
    total = sum(map(len, rows))
    assert sorted(place.rank for place in found) == list(range(1, total + 1))
    assert len({(place.row_index, place.place_index) for place in found}) == total
    assert sorted({place.row_index for place in found}) == list(range(len(rows)))
    for before, after in pairwise(found):
        if before.row_index == after.row_index:
            assert after.place_index - before.place_index in (1, 2)
        else:
            assert (after.row_index, after.place_index) == (before.row_index + 1, 0)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=40))
def test_a_hull_with_a_margin_goes_around_every_point(spots: list[tuple[int, int]]) -> None:
    hull = convex_hull([(float(x), float(y)) for x, y in spots], margin=5)
    for (ax, ay), (bx, by) in zip(hull, [*hull[1:], hull[0]], strict=True):
        for x, y in spots:
            assert (bx - ax) * (y - ay) - (by - ay) * (x - ax) >= -1e-6


def test_the_outline_of_bent_rows_leaves_out_what_they_are_bent_around() -> None:
    bend = [math.radians(-50 + 100 * step / 19) for step in range(20)]
    rows = [[(500 + r * math.sin(a), r * math.cos(a)) for a in bend] for r in (400, 430, 460)]
    ring = rows_outline(rows, margin=15)
    hull = convex_hull([point for line in rows for point in line], margin=15)
    assert min(y for x, y in ring if 450 < x < 550) > 370
    assert len(ring) > len(hull) / 2
    assert _area(ring) < 0.75 * _area(hull)


def _area(ring: list[tuple[float, float]]) -> float:
    return abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(ring, [*ring[1:], ring[0]], strict=True))) / 2
