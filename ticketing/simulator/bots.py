"""Bots: programs that try to get more tickets than people, by three methods.

- A *naive* bot sends its join again and again, ignores Retry-After, and does no work.
- A *patient* bot does everything that a person's browser does, including the work, but at once.
- A *distributed* bot is a patient one with an address of its own, or one of a few that it shares.

All of them come at the opening, think for no time, and buy as many tickets as an order may have.
"""

import random
from collections.abc import Mapping, Sequence

from ticketing.simulator.api import ApiResponse, Busy, NoResponse
from ticketing.simulator.buyers import CHOICES_MAX, Buyer, SaleTerms
from ticketing.simulator.visitors import Habits, VisitorContext
from ticketing.simulator.work import Workers

NAIVE, PATIENT, DISTRIBUTED = KINDS = ("naive", "patient", "distributed")
NAIVE_PAUSE_SECONDS = 1.0
NAIVE_TRIES_MAX = 120


class Bot(Buyer):
    __slots__ = ()

    def __init__(self, name: str, context: VisitorContext, rng: random.Random, terms: SaleTerms) -> None:
        super().__init__(name, context, rng, Habits(stay_seconds=0.0), terms)

    def think_seconds(self) -> float:
        return 0.0

    async def choose_section(self) -> float | None:
        """Take the best available tickets, as many as possible."""
        response = await self.context.api.call("sections", "GET", f"/events/{self.context.event}/sections")
        if response.status != 200:
            return self.unexpected("sections", response)
        free = [section for section in response.document.get("sections", []) if section.get("available_seats", 0) > 0]
        if not free or self._choices >= CHOICES_MAX:
            return self.finish("found nothing")
        self._choices += 1
        section = max(free, key=lambda one: one["available_seats"])
        quantity = min(self._terms.quantity_max, section["available_seats"])
        if section["type"] == "general_admission":
            self._selection = {"ga_section": section["section_id"], "ga_quantity": quantity}
        else:
            self._selection = {"best_available": {"section": section["section_id"], "quantity": quantity}}
        return self.continue_with(self.hold, 0.0)


class NaiveBot(Bot):
    __slots__ = ("_naive_tries",)

    def __init__(self, name: str, context: VisitorContext, rng: random.Random, terms: SaleTerms) -> None:
        super().__init__(name, context, rng, terms)
        self._naive_tries = 0

    async def act(self, late_seconds: float) -> float | None:
        again = await super().act(late_seconds)
        return again if again is None or self.step != self.poll_status else min(again, NAIVE_PAUSE_SECONDS)

    async def join(self) -> float | None:
        self._naive_tries += 1
        if self._naive_tries > NAIVE_TRIES_MAX:
            return self.finish("gave up")
        try:
            return await super().join()
        except (Busy, NoResponse):
            return NAIVE_PAUSE_SECONDS

    async def work(self, response: ApiResponse) -> float | None:
        return self.continue_with(self.join, NAIVE_PAUSE_SECONDS)


def create_bots(
    count: int, contexts: Mapping[str, Sequence[VisitorContext]], terms: SaleTerms, rng: random.Random, run: str
) -> list[Bot]:
    """Return the bots, evenly of the kinds in `contexts`, which has the contexts of each kind: one for each address."""
    kinds, bots = list(contexts), list[Bot]()
    for number in range(count):
        kind = kinds[number % len(kinds)]
        at = contexts[kind][number // len(kinds) % len(contexts[kind])]
        bot: type[Bot] = NaiveBot if kind == NAIVE else Bot
        bots.append(bot(f"bot-{run}-{number}", at, random.Random(rng.random()), terms))  # noqa: S311
    return bots


def describe(counts: Mapping[str, int], workers: Workers) -> str:
    """Return what the bots achieved, in one line."""
    ends = ("bought", "found nothing", "gave up", "sales were over", "ran out of time", "failed")
    outcomes = ", ".join(f"{end} {counts[end]:,}" for end in ends if counts[end])
    work = f"; {workers.solved:,} challenges in {workers.core_seconds:,.0f} core-seconds" if workers.solved else ""
    return f"{counts['joined']:,} joined, {counts['admitted']:,} admitted; {outcomes or 'no outcome'}{work}"
