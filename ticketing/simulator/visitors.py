"""Somebody who joins, asks again exactly when told to, looks round when let in, and leaves."""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from ticketing.simulator.api import Answer, Api, Busy, NoAnswer
from ticketing.simulator.queue_rules import ON_TIME_SECONDS_MAX, ObservedQueue, claims_of, number_of
from ticketing.simulator.stats import Breaches, Figures

TRIES_MAX = 6
"""A call is made so often before the visitor gives up for good; the pauses double from FIRST_PAUSE_SECONDS."""
FIRST_PAUSE_SECONDS = 0.5
BUSY_TRIES_MAX = 60
OVER = frozenset({"completed", "expired", "left", "drained"})

Step = Callable[[], Awaitable[float | None]]


@dataclass(frozen=True, slots=True)
class Habits:
    """What sets one visitor apart from another."""

    stay_seconds: float
    """How long they take for a thing inside, on average."""
    twice: bool = False
    """They join from two tabs at the same moment."""
    patience_seconds: float = math.inf
    """So long they wait in line before they leave it."""
    walks_away: bool = False
    """They hold something and go without a word: it lapses."""
    double_clicks: bool = False
    """They send every hold and every checkout twice at the same moment, and try to hold more from a second tab."""
    changes_mind: bool = False
    """They choose others once they hold something."""
    comes_back: bool = False
    """Gone without having bought they come back once, to the same browser."""


@dataclass(slots=True)
class VisitorContext:
    """What everybody in the crowd shares."""

    event: str
    api: Api
    figures: Figures
    line: ObservedQueue
    now: Callable[[], float] = field(default_factory=lambda: asyncio.get_running_loop().time)
    closing: bool = False
    """The run comes to its end early: nobody new comes, and who has a place gives it up."""

    @property
    def breaches(self) -> Breaches:
        return self.figures.breaches

    @property
    def queue(self) -> str:
        return f"/events/{self.event}/queue"


class Visitor:
    """One person with one browser. Its steps each make one call and name the next; see agenda.Actor."""

    __slots__ = (
        "admission_token",
        "busy_tries",
        "door",
        "estimated_wait",
        "habits",
        "inside_until",
        "joined_at",
        "late_seconds",
        "leaves_at",
        "name",
        "number",
        "outcome",
        "position",
        "queue_token",
        "random",
        "step",
        "tries",
    )
    keeps_open = True

    def __init__(self, name: str, door: VisitorContext, rng: random.Random, habits: Habits) -> None:
        self.name, self.door, self.random, self.habits = name, door, rng, habits
        self.leaves_at = math.inf
        self.step: Step = self.join
        self.outcome = ""
        self.queue_token = self.admission_token = ""
        self.number: int | None = None
        self.position: int | None = None
        self.estimated_wait: tuple[float, float] | None = None
        self.joined_at = self.inside_until = self.late_seconds = 0.0
        self.tries = self.busy_tries = 0

    async def act(self, late_seconds: float) -> float | None:
        self.late_seconds = late_seconds
        if self.door.closing and self.step != self.leave:
            if not self.token:
                return self.finish("never came")
            self.step = self.leave
        try:
            again = await self.step()
        except Busy as busy:
            self.busy_tries += 1
            if self.busy_tries >= BUSY_TRIES_MAX:
                return self.report_breach("turned away for good", f"{self.name}: busy {self.busy_tries} times on end")
            # As told, and not all at the same moment.
            return busy.seconds * (1 + self.random.random())
        except NoAnswer as error:
            self.tries += 1
            if self.tries >= TRIES_MAX:
                return self.report_breach("no answer", f"{self.name}: {error}, {self.tries} times on end")
            return FIRST_PAUSE_SECONDS * 2**self.tries * (0.5 + self.random.random())
        self.tries = self.busy_tries = 0
        return again

    def finish(self, outcome: str) -> float | None:
        """This visitor's story is over; what its last step returns."""
        self.outcome = outcome
        self.door.line.may_have_ended(self.name)
        self.door.figures.counts[outcome] += 1
        return None

    def report_breach(self, kind: str, example: str) -> float | None:
        self.door.breaches.note(kind, example)
        return self.finish("failed")

    def unexpected(self, call: str, answer: Answer) -> float | None:
        """An answer that this visitor, who did nothing wrong, must not get."""
        said = answer.problem or answer.document
        return self.report_breach("unexpected answers", f"{self.name}, {call}: {answer.status} {str(said)[:150]}")

    @property
    def token(self) -> str:
        return self.admission_token or self.queue_token

    # --- in line ----------------------------------------------------------------------------------------------------

    async def join(self) -> float | None:
        calls = [self._ask_to_join() for _ in range(2 if self.habits.twice else 1)]
        self.joined_at = self.joined_at or self.door.now()
        answers = await asyncio.gather(*calls, return_exceptions=True)
        good = [answer for answer in answers if isinstance(answer, Answer)]
        if len(good) < len(answers):
            # One tab came to nothing: both try again. Whatever was committed is found again by the visitor's id.
            raise next(error for error in answers if isinstance(error, BaseException))
        answer = good[0]
        if answer.status != 201:
            return self._not_joined(answer)
        tokens = [str(answer.document.get("queue_token", "")) for answer in good]
        if len({claims_of(token).get("sub", token) for token in tokens}) != 1:
            return self.report_breach("two places", f"{self.name}: two tabs have places of their own")
        self.queue_token = tokens[0]
        if not self.queue_token:
            return self.unexpected("join", answer)
        self.door.line.joins.append(self.joined_at)
        self.door.figures.counts["joined"] += 1
        self.door.figures.counts["from two tabs"] += self.habits.twice
        self.leaves_at = self.door.now() + self.habits.patience_seconds
        self._learn_number(self.queue_token)
        self.estimated_wait = _interval(answer.document.get("estimated_wait_range"))
        # The other tab's answer may be the later one.
        return self.handle_status(max(good, key=lambda one: one.document.get("status") == "ready"))

    async def _ask_to_join(self) -> Answer:
        return await self.door.api.call("join", "POST", self.door.queue, body={"visitor_id": self.name})

    def _not_joined(self, answer: Answer) -> float | None:
        if answer.problem == "not-on-sale":
            in_seconds = answer.seconds_until("opens_at")
            if in_seconds is not None and in_seconds > -1:
                return max(0.0, in_seconds) + self.random.random()
            return self.finish("came when nothing is sold")
        if answer.problem == "room-drained":
            return self.finish("told that it is over")
        return self.unexpected("join", answer)

    async def poll_status(self) -> float | None:
        answer = await self.door.api.call("poll", "GET", f"{self.door.queue}/status", token=self.token)
        return self.handle_status(answer) if answer.status == 200 else self.unexpected("poll", answer)

    def handle_status(self, answer: Answer) -> float | None:
        """What somebody in line makes of an answer: waits as long as told, goes in, or learns that it is over."""
        document, line = answer.document, self.door.line
        status, position = document.get("status"), document.get("position_in_queue")
        if isinstance(position, int):
            if self.position is not None and position > self.position:
                self.door.breaches.note("positions that rose", f"{self.name}: {self.position}, then {position}")
            self.position = position
        if status == "ready" and document.get("admission_token"):
            return self._handle_admission(answer)
        if status in OVER:
            if status == "expired":
                self._missed_the_turn()
            return self.finish("told that it is over" if status == "drained" else f"{status} in line")
        if status not in ("lobby", "waiting", "paused") or not isinstance(document.get("next_poll"), int):
            return self.unexpected("place", answer)
        if isinstance(position, int):
            line.waits(self.name, self.number, position, answer.sent_at)
            if position == 0:
                self._missed_the_turn()
        wait = document["next_poll"] / 1_000
        left = self.leaves_at - self.door.now()
        self.step = self.leave if left < wait else self.poll_status
        return max(0.0, min(left, wait))

    def _missed_the_turn(self) -> None:
        """The head has passed this visitor, who is not in: the claim time ran out between two of its requests."""
        self.door.figures.counts["missed a turn"] += 1
        if self.late_seconds <= ON_TIME_SECONDS_MAX and not self.tries and not self.busy_tries:
            self.door.breaches.note("turns lost", f"{self.name}, number {self.number}: asked when told, and lost it")

    def _handle_admission(self, answer: Answer) -> float | None:
        door, at = self.door, answer.received_at
        self.admission_token = str(answer.document["admission_token"])
        self._learn_number(self.admission_token)
        left = answer.seconds_until("expires_at")
        if left is None or self.position != 0:
            return self.unexpected("ready", answer)
        self.inside_until = at + left
        door.line.admitted(self.name, self.number, at, left)
        door.figures.counts["let in"] += 1
        if self.estimated_wait is not None and self.estimated_wait[1] > 0:
            waited = at - self.joined_at
            door.figures.waited.append(waited)
            # To the second, and a tick.
            door.figures.accurate_estimates += self.estimated_wait[0] - 2 <= waited <= self.estimated_wait[1] + 2
        return self.start_visit()

    def _learn_number(self, token: str) -> None:
        number = number_of(token)
        if self.number is not None and number != self.number:
            self.door.breaches.note("numbers that changed", f"{self.name}: {self.number}, then {number}")
        self.number = number
        self.door.line.joined(self.name, number)

    # --- inside -----------------------------------------------------------------------------------------------------

    def start_visit(self) -> float | None:
        """What it does inside; it may be there until `inside_until`."""
        self.step = self.leave
        return self.think_seconds()

    def think_seconds(self) -> float:
        """A while of its own length, that ends before the time inside does."""
        while_ = self.random.uniform(0.5, 1.5) * self.habits.stay_seconds
        return max(0.0, min(while_, self.inside_until - self.door.now() - 5))

    async def leave(self) -> float | None:
        self.door.line.may_have_ended(self.name)
        answer = await self.door.api.call("leave", "DELETE", self.door.queue, token=self.token)
        if answer.status != 200:
            return self.unexpected("leave", answer)
        if self.admission_token:
            return self.finish("left the shop")
        return self.finish("waited in vain" if self.door.closing else "left the line")


def _interval(given: Any) -> tuple[float, float] | None:
    if isinstance(given, list) and len(given) == 2 and all(isinstance(end, int | float) for end in given):
        return float(given[0]), float(given[1])
    return None
