"""Questions that are asked together: none is left unasked."""

import asyncio
from collections.abc import Sequence

from ticketing.kernel.lane import threads
from ticketing.kernel.lane.gathering import Gatherer

WAIT_SECONDS_MAX = 30


def test_who_asks_again_at_once_is_answered_too() -> None:
    """The first answer goes on before the end of its group is told; what it asks then has no group under way to wait
    for."""

    def echo(questions: list[int]) -> Sequence[int]:
        return questions

    async def ask_twice() -> list[int]:
        gatherer: Gatherer[int, int] = Gatherer(echo)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            return [await gatherer.ask(1), await gatherer.ask(2)]

    try:
        assert asyncio.run(ask_twice()) == [1, 2]
    finally:
        threads.close()
