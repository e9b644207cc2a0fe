"""Every provider message of a sale dropped, duplicated and in any order: the money converges to the same end."""

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

import pytest

from tests.support.chaos import provider_messages
from tests.support.chaos.harness import OpenScenario
from tests.support.chaos.provider_messages import (
    BY_STAFF,
    DECLINED,
    DECLINED_AGAIN,
    FREE,
    PENDING,
    PENDING_AGAIN,
    SHORT,
    SUCCEEDED,
    SUCCEEDED_AGAIN,
    Case,
    Report,
)

pytestmark = pytest.mark.django_db(transaction=True)
LENGTH_MAX = 4
STORIES: dict[str, tuple[Report, ...]] = {
    "succeeded": (SUCCEEDED,),
    "pending, then succeeded": (PENDING, SUCCEEDED),
    "failed, then succeeded": (DECLINED, SUCCEEDED),
    # The first attempt was declined before, so that the buyer could try again.
    "two attempts succeeded": (SUCCEEDED, SUCCEEDED_AGAIN),
    "the second declined, the first succeeded": (DECLINED_AGAIN, SUCCEEDED),
    "the first too little, the second right": (SHORT, SUCCEEDED_AGAIN),
    "both changed their minds": (SUCCEEDED, PENDING_AGAIN, DECLINED_AGAIN, SUCCEEDED_AGAIN),
}


def arrivals(reports: Sequence[Report]) -> Iterator[tuple[Report, ...]]:
    """Every way in which these reports can arrive: any left out, any one duplicated, in any order, LENGTH_MAX at
    most."""
    for size in range(len(reports) + 1):
        for chosen in combinations(reports, size):
            multisets = [chosen, *((*chosen, twice) for twice in chosen if len(reports) < LENGTH_MAX)]
            yield from dict.fromkeys(order for multiset in multisets for order in permutations(multiset))


def cases(reports: Sequence[Report]) -> Iterator[Case]:
    """Most reports arrive once the seats are swept and free, so that a successful payment takes them again; after a
    refund by staff they arrive all together, or with the refund in between."""
    for arriving in arrivals(reports):
        yield Case(arriving, FREE, 0)
        if len(reports) < LENGTH_MAX and len(arriving) > 1:
            yield Case(arriving, BY_STAFF, 1)


@pytest.mark.parametrize("story", STORIES)
def test_the_money_converges_for_any_arrival_of_messages(story: str, open_scenario: OpenScenario) -> None:
    played = list(cases(STORIES[story]))
    provider_messages.play(open_scenario(len(played)), story, STORIES[story], played)
