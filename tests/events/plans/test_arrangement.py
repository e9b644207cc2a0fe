"""Rows, neighbors and ranks, derived from coordinates."""

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


def place_indexes(seats: tuple[PlanSeat, ...]) -> dict[str, int]:
    return {found.number: found.place_index for found in seats}


def test_only_an_aisle_skips_a_place_index() -> None:
    found = seats_of([numbered([(0, 0), (25, 0), (50, 0), (110, 0), (135, 0), (160, 0)])])
    assert list(place_indexes(found).values()) == [0, 1, 2, 4, 5, 6]


def test_a_slightly_wider_gap_is_not_an_aisle() -> None:
    found = seats_of([numbered([(0, 0), (25, 0), (50, 0), (90, 0), (115, 0), (140, 0)])])
    assert list(place_indexes(found).values()) == [0, 1, 2, 3, 4, 5]


def test_a_row_of_pairs_has_an_aisle_between_pairs() -> None:
    found = seats_of([numbered([(x, 0) for x in (0, 25, 100, 125, 200, 225, 300, 325)])])
    assert list(place_indexes(found).values()) == [0, 1, 3, 4, 6, 7, 9, 10]


def test_a_row_of_two_seats_uses_the_typical_gap_of_the_section() -> None:
    rows = [numbered([(x * 25, 0) for x in range(8)]), numbered([(0, 30), (175, 30)], "B")]
    assert [found.place_index for found in seats_of(rows) if found.row == "B"] == [0, 2]


@pytest.mark.parametrize("degrees", [0, 37, 90, 123, 180, 270])
def test_a_straight_row_is_ordered_along_its_direction_whatever_the_order_of_the_file(degrees: int) -> None:
    turn = math.radians(degrees)
    spots = [(500 + 25 * step * math.cos(turn), 500 + 25 * step * math.sin(turn)) for step in range(10)]
    shuffled = list(enumerate(spots))
    random.Random(degrees).shuffle(shuffled)
    seats = [seat(f"s{index}", index, *spot) for index, spot in shuffled]
    walked = [int(found.number) for found in seats_of([row("A", seats)])]
    assert walked in (list(range(10)), list(reversed(range(10))))


def test_a_row_bent_into_a_horseshoe_keeps_the_order_of_the_file() -> None:
    angles = [math.radians(20 + 320 * step / 29) for step in range(30)]
    found = seats_of([numbered([(500 + 200 * math.sin(a), 500 + 200 * math.cos(a)) for a in angles])])
    assert [int(one.number) for one in found] == list(range(1, 31))
    assert [one.place_index for one in found] == list(range(30))


def test_the_front_row_is_nearest_to_the_stage_or_first_in_the_file() -> None:
    back_first = [
        numbered([(x * 25 + 400, y) for x in range(5)], label) for label, y in (("C", 300), ("B", 200), ("A", 100))
    ]
    by_row = {found.row: found.row_index for found in seats_of(back_first, stage=True)}
    assert by_row == {"A": 0, "B": 1, "C": 2}
    by_row = {found.row: found.row_index for found in seats_of(back_first)}
    assert by_row == {"C": 0, "B": 1, "A": 2}


def test_the_best_seat_is_in_the_middle_of_the_front_row() -> None:
    rows = [numbered([(400 + x * 25, 100 + y * 30) for x in range(9)], label) for y, label in enumerate("AB")]
    ranked = sorted(seats_of(rows, stage=True), key=lambda found: found.rank)
    assert [(found.row, found.number) for found in ranked[:3]] == [("A", "5"), ("A", "4"), ("A", "6")]
    assert [found.row for found in ranked] == ["A"] * 9 + ["B"] * 9


def test_in_a_side_block_the_best_seat_is_nearest_to_the_axis() -> None:
    middle = numbered([(350 + x * 25, 200) for x in range(13)], "M")
    right = numbered([(800 + x * 25, 200) for x in range(6)], "R")
    document = plan([zone("Middle", [middle], areas=[{**STAGE, "text": {"text": "STAGE"}}]), zone("Right", [right])])
    seats = parse_plan(encoded(document)).sections[1].seats
    assert [found.rank for found in seats] == [1, 2, 3, 4, 5, 6]


@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900)), min_size=1, max_size=60, unique=True),
    st.integers(1, 12),
)
def test_ranks_are_consecutive_and_place_indexes_rise_for_any_seats(spots: list[tuple[int, int]], length: int) -> None:
    rows = [spots[first : first + length] for first in range(0, len(spots), length)]
    found = seats_of([numbered([(float(x), float(y)) for x, y in row], f"R{n}-") for n, row in enumerate(rows)])
    total = len(spots)
    assert sorted(one.rank for one in found) == list(range(1, total + 1))
    assert len({(one.row_index, one.place_index) for one in found}) == total
    assert sorted({one.row_index for one in found}) == list(range(len(rows)))
    for before, after in pairwise(found):
        if before.row_index == after.row_index:
            assert after.place_index - before.place_index in (1, 2)
        else:
            assert (after.row_index, after.place_index) == (before.row_index + 1, 0)


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=40))
def test_a_hull_with_a_margin_encloses_every_point(spots: list[tuple[int, int]]) -> None:
    hull = convex_hull([(float(x), float(y)) for x, y in spots], margin=5)
    for (ax, ay), (bx, by) in zip(hull, [*hull[1:], hull[0]], strict=True):
        for x, y in spots:
            assert (bx - ax) * (y - ay) - (by - ay) * (x - ax) >= -1e-6


def test_the_outline_of_bent_rows_excludes_the_space_inside_the_bend() -> None:
    bend = [math.radians(-50 + 100 * step / 19) for step in range(20)]
    rows = [[(500 + r * math.sin(a), r * math.cos(a)) for a in bend] for r in (400, 430, 460)]
    ring = rows_outline(rows, margin=15)
    hull = convex_hull([point for line in rows for point in line], margin=15)
    assert min(y for x, y in ring if 450 < x < 550) > 370
    assert len(ring) > len(hull) / 2
    assert _area(ring) < 0.75 * _area(hull)


def _area(ring: list[tuple[float, float]]) -> float:
    return abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(ring, [*ring[1:], ring[0]], strict=True))) / 2
