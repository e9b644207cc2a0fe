"""No step of a curve and no row of a breakdown stands for one to four people, and nothing is lost by that."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from apps.orders.reports.disclosure import PEOPLE_MIN, coarsen, merge_small, split, withhold_small_flows

counts = st.lists(st.integers(0, 12), min_size=1, max_size=12)


@given(counts, st.data())
def test_merged_groups_keep_the_sums_and_are_never_small(people: list[int], data: st.DataObject) -> None:
    sums = [count * data.draw(st.integers(1, 4)) for count in people]
    merged = merge_small([(index, count, other) for index, (count, other) in enumerate(zip(people, sums, strict=True))])
    if sum(people) < PEOPLE_MIN:
        assert merged == []
        return
    assert all(count >= PEOPLE_MIN for _, count, _ in merged)
    assert sum(count for _, count, _ in merged) == sum(people)
    assert sum(other for _, _, other in merged) == sum(sums)
    bounds = [bound for bound, _, _ in merged]
    assert bounds == sorted(set(bounds))
    # Each group has exactly the people between its bounds.
    for (before, _, _), (bound, count, _) in pairwise([(-1, 0, 0), *merged]):
        assert count == sum(people[before + 1 : bound + 1])


@given(counts)
def test_a_coarse_curve_reaches_the_total_in_steps_that_are_never_small(people: list[int]) -> None:
    levels = [sum(people[: index + 1]) for index in range(len(people))]
    shown = coarsen(levels, people)
    if sum(people) < PEOPLE_MIN:
        assert shown is None
        return
    assert shown is not None
    assert (len(shown), shown[-1]) == (len(levels), levels[-1])
    steps = [after - before for before, after in pairwise([0, *shown]) if after != before]
    assert all(step >= PEOPLE_MIN for step in steps)


def test_two_parts_are_shown_only_if_neither_is_small() -> None:
    assert split(5, 5) == (5, 5)
    assert split(0, 9) == (0, 9)
    assert split(4, 9) is None
    assert split(9, 1) is None


def test_a_small_flow_does_not_follow_from_the_others() -> None:
    """A bought reservation was made, or revived after it had expired: made + revived = bought + canceled + expired."""
    large = {"made": 40, "bought": 20, "canceled": 15, "expired": 10, "revived": 5, "returned": 7}
    assert withhold_small_flows(large) == large
    for what, made in (("bought", 21), ("canceled", 26), ("expired", 31), ("revived", 44)):
        shown = withhold_small_flows(large | {what: 1, "made": made})
        assert (shown[what], shown["made"]) == (None, None)
    assert withhold_small_flows(large | {"returned": 4}) == large | {"returned": None}
    assert withhold_small_flows(dict.fromkeys(large, 0)) == dict.fromkeys(large, 0)
