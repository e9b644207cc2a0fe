"""Every word of a sale dropped, doubled and in any order: the same money converges to the same end."""

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

import pytest

from tests.support.chaos import provider_messages
from tests.support.chaos.harness import OpenHouse
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
    Word,
)

pytestmark = pytest.mark.django_db(transaction=True)
LENGTH_MAX = 4
STORIES: dict[str, tuple[Word, ...]] = {
    "succeeded": (SUCCEEDED,),
    "pending, then succeeded": (PENDING, SUCCEEDED),
    "failed, then succeeded": (DECLINED, SUCCEEDED),
    # The first attempt was declined before, so that the buyer could try again.
    "two attempts succeeded": (SUCCEEDED, SUCCEEDED_AGAIN),
    "the second declined, the first succeeded": (DECLINED_AGAIN, SUCCEEDED),
    "the first too little, the second right": (SHORT, SUCCEEDED_AGAIN),
    "both changed their minds": (SUCCEEDED, PENDING_AGAIN, DECLINED_AGAIN, SUCCEEDED_AGAIN),
}


def arrivals(words: Sequence[Word]) -> Iterator[tuple[Word, ...]]:
    """Every way in which these can arrive: any left out, any one doubled, in any order, LENGTH_MAX at most."""
    for size in range(len(words) + 1):
        for chosen in combinations(words, size):
            bags = [chosen, *((*chosen, twice) for twice in chosen if len(words) < LENGTH_MAX)]
            yield from dict.fromkeys(order for bag in bags for order in permutations(bag))


def cases(words: Sequence[Word]) -> Iterator[Case]:
    """Most words come once the seats are swept and free, where what counts takes them again; after what staff has given
    back they come whole, and in the midst."""
    for arriving in arrivals(words):
        yield Case(arriving, FREE, 0)
        if len(words) < LENGTH_MAX and len(arriving) > 1:
            yield Case(arriving, BY_STAFF, 1)


@pytest.mark.parametrize("story", STORIES)
def test_whatever_arrives_in_whatever_order_the_money_converges(story: str, open_house: OpenHouse) -> None:
    played = list(cases(STORIES[story]))
    provider_messages.play(open_house(len(played)), story, STORIES[story], played)
