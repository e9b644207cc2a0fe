"""Every provider message of a sale delayed past each moment of the sale, its hold, its payment and its event."""

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

import pytest

from tests.support.chaos import provider_messages
from tests.support.chaos.harness import OpenScenario
from tests.support.chaos.provider_messages import (
    BEFORE,
    BY_BUYER,
    BY_STAFF,
    DECLINED,
    DECLINED_AGAIN,
    DECLINED_AT_LAST,
    FOREIGN,
    LATE_SWEPT,
    MOMENTS,
    OWN,
    PENDING,
    SHORT,
    SUCCEEDED,
    SUCCEEDED_AGAIN,
    TAKEN,
    Case,
    Report,
)

pytestmark = pytest.mark.django_db(transaction=True)
STORIES: dict[str, tuple[Report, ...]] = {
    "declined": (DECLINED,),
    "succeeded": (SUCCEEDED,),
    "wrong amount": (SHORT,),
    "wrong currency": (FOREIGN,),
    "pending, then succeeded": (PENDING, SUCCEEDED),
    "failed, then succeeded": (DECLINED, SUCCEEDED),
    # Earlier attempts were declined, so that the buyer could try again.
    "two attempts succeeded": (SUCCEEDED, SUCCEEDED_AGAIN),
    "the second declined, the first succeeded": (DECLINED_AGAIN, SUCCEEDED),
    "the last try declined, the first succeeded": (DECLINED_AT_LAST, SUCCEEDED),
}
MID_STORY = (TAKEN, BY_BUYER, BY_STAFF)
"""Moments that also occur after the first report."""
OF_LATER_TRIES = (BEFORE, OWN, TAKEN, LATE_SWEPT)


def cases(reports: Sequence[Report]) -> Iterator[Case]:
    """Any of these reports, in any order, after each moment."""
    moments = MOMENTS if provider_messages.attempts_of(reports) == 1 else OF_LATER_TRIES
    for size in range(len(reports) + 1):
        for arriving in (order for chosen in combinations(reports, size) for order in permutations(chosen)):
            for moment in moments:
                yield Case(arriving, moment, 0)
                if len(arriving) > 1 and moment in MID_STORY:
                    yield Case(arriving, moment, 1)


@pytest.mark.parametrize("story", STORIES)
def test_however_late_a_message_arrives_the_money_converges(story: str, open_scenario: OpenScenario) -> None:
    played = list(cases(STORIES[story]))
    provider_messages.play(open_scenario(len(played)), story, STORIES[story], played)
