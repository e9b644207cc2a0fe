"""Keeps a report from revealing a person: no number counts one to four people or reservations.

Small groups of a distribution are merged with their neighbors instead of left out, so that the difference from the
total does not reveal them either. Other small counts are withheld. What everyone could count during the sale is
published as it is: tickets, whose states are public, and the entries and admissions of the public proof.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

PEOPLE_MIN = 5

Bound = TypeVar("Bound")


def merge_small(groups: Sequence[tuple[Bound, int, int]]) -> list[tuple[Bound, int, int]]:
    """Merge neighboring groups of (upper bound, people, another sum) until each has PEOPLE_MIN people or more. Empty
    groups are dropped. Returns an empty list if there are fewer people in all."""
    merged: list[tuple[Bound, int, int]] = []
    people = other = 0
    for bound, more_people, more in groups:
        people, other = people + more_people, other + more
        if people >= PEOPLE_MIN:
            merged.append((bound, people, other))
            people = other = 0
    if people and merged:
        # The last group includes the rest, whose bound is the last one with people in it.
        _, last_people, last_other = merged.pop()
        bound = next(bound for bound, count, _ in reversed(groups) if count)
        merged.append((bound, last_people + people, last_other + other))
    return merged


def merge_smallest(
    groups: Sequence[tuple[tuple[str, ...], int, int]], order: Sequence[str]
) -> list[tuple[tuple[str, ...], int, int]]:
    """Merge the smallest groups of (names, people, another sum) until each has PEOPLE_MIN people or more. Empty groups
    are dropped. Groups and names are returned in this order of names. Returns an empty list if there are fewer people
    in all."""
    ordered = sorted((group for group in groups if group[1] or group[2]), key=lambda group: group[1])
    while len(ordered) > 1 and ordered[0][1] < PEOPLE_MIN:
        first, second, *others = ordered
        merged = (first[0] + second[0], first[1] + second[1], first[2] + second[2])
        ordered = sorted([merged, *others], key=lambda group: group[1])
    if not ordered or ordered[0][1] < PEOPLE_MIN:
        return []
    named = [(tuple(sorted(names, key=order.index)), people, other) for names, people, other in ordered]
    return sorted(named, key=lambda group: order.index(group[0][0]))


def coarsen(levels: Sequence[int], people: Sequence[int]) -> list[int] | None:
    """Return the curve with steps that PEOPLE_MIN people or more have caused; None if all of them are fewer.

    `people` are those between each point and the previous one. A point at which fewer have been counted since the last
    step repeats the previous level; the last step includes those who are left.
    """
    if sum(people) < PEOPLE_MIN:
        return None
    steps = []
    since = 0
    for index, count in enumerate(people):
        since += count
        if since >= PEOPLE_MIN:
            steps.append(index)
            since = 0
    shown, level = [], 0
    for index in range(len(levels)):
        if index in steps:
            level = levels[-1] if index == steps[-1] else levels[index]
        shown.append(level)
    return shown


def withhold_small(count: int) -> int | None:
    """Return the count of people, or None if it is small."""
    return None if 0 < count < PEOPLE_MIN else count


def withhold_small_flows(counts: Mapping[str, int]) -> dict[str, int | None]:
    """Return the numbers of reservations by what happened to them, without the small ones. Those made follow from those
    bought and lost (made + revived = bought + canceled + expired), so they are withheld if one of these is."""
    shown = {what: withhold_small(count) for what, count in counts.items()}
    if None in [shown[what] for what in ("bought", "canceled", "expired", "revived")]:
        shown["made"] = None
    return shown


def split(first: int, second: int) -> tuple[int, int] | None:
    """Return two parts of a known total, or None if one of them is small: the other would reveal it."""
    return None if 0 < first < PEOPLE_MIN or 0 < second < PEOPLE_MIN else (first, second)
