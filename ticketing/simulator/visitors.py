"""Visitors who join, poll exactly when the response allows, browse once admitted, and leave."""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from ticketing.simulator.api import Api, ApiResponse, Busy, NoResponse
from ticketing.simulator.queue_rules import ON_TIME_SECONDS_MAX, ObservedQueue, claims_of, number_of
from ticketing.simulator.stats import Breaches, Figures
from ticketing.simulator.work import Workers, WorkTooLong

TRIES_MAX = 6
"""Attempts per call before the visitor gives up; pauses double from FIRST_PAUSE_SECONDS."""
FIRST_PAUSE_SECONDS = 0.5
BUSY_TRIES_MAX = 60
WORK_TRIES_MAX = 5
OVER = frozenset({"completed", "expired", "left", "drained"})

Step = Callable[[], Awaitable[float | None]]


@dataclass(frozen=True, slots=True)
class Habits:
    """How one visitor differs from others."""

    stay_seconds: float
    """Mean time of each step after admission."""
    twice: bool = False
    """Joins from two tabs at the same time."""
    patience_seconds: float = math.inf
    """Leaves the line after this time."""
    walks_away: bool = False
    """Holds and disappears, so that the hold expires."""
    double_clicks: bool = False
    """Sends every hold and checkout twice at the same time, and tries to hold from a second tab."""
    changes_mind: bool = False
    """Replaces the hold."""
    comes_back: bool = False
    """Returns once to the same browser if nothing was bought."""


@dataclass(slots=True)
class Closing:
    """Whether the run is ending early: no more visitors join, and those in line leave. Shared by all contexts."""

    is_on: bool = False


@dataclass(slots=True)
class VisitorContext:
    """State shared by all visitors of one address."""

    event: str
    api: Api
    figures: Figures
    line: ObservedQueue
    now: Callable[[], float] = field(default_factory=lambda: asyncio.get_running_loop().time)
    workers: Workers = field(default_factory=Workers)
    """They solve the challenges of joins."""
    ending: Closing = field(default_factory=Closing)

    @property
    def closing(self) -> bool:
        return self.ending.is_on

    @property
    def breaches(self) -> Breaches:
        return self.figures.breaches

    @property
    def queue(self) -> str:
        return f"/events/{self.event}/queue"


class Visitor:
    """One visitor with one browser. Each step makes one call and sets the next step; see schedule.Actor."""

    __slots__ = (
        "account_token",
        "admission_token",
        "busy_tries",
        "context",
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
        "proof",
        "queue_token",
        "random",
        "step",
        "tries",
        "work_tries",
    )
    keeps_open = True

    def __init__(self, name: str, context: VisitorContext, rng: random.Random, habits: Habits) -> None:
        self.name, self.context, self.random, self.habits = name, context, rng, habits
        self.leaves_at = math.inf
        self.step: Step = self.join
        self.outcome = self.account_token = ""
        self.queue_token = self.admission_token = self.proof = ""
        self.number: int | None = None
        self.position: int | None = None
        self.estimated_wait: tuple[float, float] | None = None
        self.joined_at = self.inside_until = self.late_seconds = 0.0
        self.tries = self.busy_tries = self.work_tries = 0

    async def act(self, late_seconds: float) -> float | None:
        self.late_seconds = late_seconds
        if self.context.closing and self.step != self.leave:
            if not self.token:
                return self.finish("did not start")
            self.step = self.leave
        try:
            again = await self.step()
        except Busy as busy:
            self.busy_tries += 1
            if self.busy_tries >= BUSY_TRIES_MAX:
                return self.report_breach("busy to the last", f"{self.name}: busy {self.busy_tries} times in a row")
            # The requested time, with jitter.
            return busy.seconds * (1 + self.random.random())
        except NoResponse as error:
            self.tries += 1
            if self.tries >= TRIES_MAX:
                return self.report_breach("no response", f"{self.name}: {error}, {self.tries} times in a row")
            return FIRST_PAUSE_SECONDS * 2**self.tries * (0.5 + self.random.random())
        self.tries = self.busy_tries = 0
        return again

    def finish(self, outcome: str) -> float | None:
        """Record the visitor's outcome. Returns None, as a last step must."""
        self.outcome = outcome
        self.context.line.may_have_ended(self.name)
        self.context.figures.counts[outcome] += 1
        return None

    def report_breach(self, kind: str, example: str) -> float | None:
        self.context.breaches.note(kind, example)
        return self.finish("failed")

    def unexpected(self, call: str, response: ApiResponse) -> float | None:
        """Record a response that a visitor who follows the rules must not get."""
        detail = response.problem or response.document
        return self.report_breach("unexpected responses", f"{self.name}, {call}: {response.status} {str(detail)[:150]}")

    def continue_with(self, step: Step, in_seconds: float) -> float:
        """Make this the next step, due in so many seconds."""
        self.step = step
        return in_seconds

    @property
    def may_hold(self) -> bool:
        """Whether the visitor has asked for tickets, so that the site may know of a reservation."""
        return False

    @property
    def token(self) -> str:
        return self.admission_token or self.queue_token

    # --- in line ----------------------------------------------------------------------------------------------------

    async def join(self) -> float | None:
        calls = [self._send_join() for _ in range(2 if self.habits.twice else 1)]
        self.joined_at = self.joined_at or self.context.now()
        results = await asyncio.gather(*calls, return_exceptions=True)
        responses = [result for result in results if isinstance(result, ApiResponse)]
        if len(responses) < len(results):
            # One tab failed: retry both. An entry that was committed is found again by the visitor id.
            raise next(error for error in results if isinstance(error, BaseException))
        # The site may want work from one tab only, if the pressure has just begun or ended.
        responses = [one for one in responses if one.problem != "work-required"] or responses
        response = responses[0]
        if response.problem == "work-required":
            return await self.work(response)
        if response.status != 201:
            return self._not_joined(response)
        tokens = [str(one.document.get("queue_token", "")) for one in responses]
        if len({claims_of(token).get("sub", token) for token in tokens}) != 1:
            return self.report_breach("two queue entries", f"{self.name}: two tabs have different queue entries")
        self.queue_token = tokens[0] or self.account_token
        if not self.queue_token:
            return self.unexpected("join", response)
        self.context.line.joins.append(self.joined_at)
        self.context.figures.counts["joined"] += 1
        self.context.figures.counts["from two tabs"] += self.habits.twice
        self.leaves_at = self.context.now() + self.habits.patience_seconds
        self._learn_number(self.queue_token)
        self.estimated_wait = _interval(response.document.get("estimated_wait_range"))
        # Only one tab's response may have the admission.
        return self.handle_status(max(responses, key=lambda one: one.document.get("status") == "ready"))

    async def _send_join(self) -> ApiResponse:
        body = {} if self.account_token else {"visitor_id": self.name}
        if self.proof:
            body["proof"] = self.proof
        return await self.context.api.call("join", "POST", self.context.queue, body=body, token=self.account_token)

    async def work(self, response: ApiResponse) -> float | None:
        """Solve the challenge, and join again once a core would have solved it."""
        self.work_tries += 1
        if self.work_tries > WORK_TRIES_MAX:
            return self.report_breach("work without end", f"{self.name}: {self.work_tries} challenges")
        try:
            self.proof, seconds = await self.context.workers.solve(response.document["challenge"])
        except WorkTooLong:
            return self.report_breach("work too long", f"{self.name}: more derivations than a simulation computes")
        return self.continue_with(self.join, seconds)

    def _not_joined(self, response: ApiResponse) -> float | None:
        if response.problem == "not-on-sale":
            in_seconds = response.seconds_until("opens_at")
            if in_seconds is not None and in_seconds > -1:
                return max(0.0, in_seconds) + self.random.random()
            return self.finish("not on sale")
        if response.problem == "room-drained":
            return self.finish("sales were over")
        return self.unexpected("join", response)

    async def poll_status(self) -> float | None:
        response = await self.context.api.call("poll", "GET", f"{self.context.queue}/status", token=self.token)
        return self.handle_status(response) if response.status == 200 else self.unexpected("poll", response)

    def handle_status(self, response: ApiResponse) -> float | None:
        """Handle a status: wait until the next poll, enter, or finish."""
        document, line = response.document, self.context.line
        status, position = document.get("status"), document.get("position_in_queue")
        if isinstance(position, int):
            if self.position is not None and position > self.position:
                self.context.breaches.note("positions that rose", f"{self.name}: {self.position}, then {position}")
            self.position = position
        if status == "ready" and document.get("admission_token"):
            return self._handle_admission(response)
        if status in OVER:
            if status == "expired":
                self._miss_admission()
            return self.finish("sales were over" if status == "drained" else f"{status} in line")
        if status not in ("lobby", "waiting", "paused", "review") or not isinstance(document.get("next_poll"), int):
            return self.unexpected("status", response)
        if isinstance(position, int) and status != "review":
            line.waits(self.name, self.number, position, response.sent_at)
            if position == 0:
                self._miss_admission()
        wait = document["next_poll"] / 1_000
        left = self.leaves_at - self.context.now()
        return self.continue_with(self.leave if left < wait else self.poll_status, max(0.0, min(left, wait)))

    def _miss_admission(self) -> None:
        """Record that the visitor's time for claiming the admission ran out between two requests."""
        self.context.figures.counts["missed admissions"] += 1
        if self.late_seconds <= ON_TIME_SECONDS_MAX and not self.tries and not self.busy_tries:
            self.context.breaches.note("lost admissions", f"{self.name}, number {self.number}: polled on time")

    def _handle_admission(self, response: ApiResponse) -> float | None:
        context, at = self.context, response.received_at
        self.admission_token = str(response.document["admission_token"])
        self._learn_number(self.admission_token)
        left = response.seconds_until("expires_at")
        if left is None or self.position != 0:
            return self.unexpected("ready", response)
        self.inside_until = at + left
        context.line.admitted(self.name, self.number, at, left)
        context.figures.counts["admitted"] += 1
        if self.estimated_wait is not None and self.estimated_wait[1] > 0:
            waited = at - self.joined_at
            context.figures.waited.append(waited)
            # Estimates are rounded to the second, and an admission may wait for the next tick.
            context.figures.accurate_estimates += self.estimated_wait[0] - 2 <= waited <= self.estimated_wait[1] + 2
        return self.start_visit()

    def _learn_number(self, token: str) -> None:
        number = number_of(token)
        if self.number is not None and number != self.number:
            self.context.breaches.note("numbers that changed", f"{self.name}: {self.number}, then {number}")
        self.number = number
        self.context.line.joined(self.name, number)

    # --- inside -----------------------------------------------------------------------------------------------------

    def start_visit(self) -> float | None:
        """Start the first step inside; the visitor may stay until `inside_until`."""
        return self.continue_with(self.leave, self.think_seconds())

    def think_seconds(self) -> float:
        """Return a random duration of a step, cut so that it ends before the admission does."""
        seconds = self.random.uniform(0.5, 1.5) * self.habits.stay_seconds
        return max(0.0, min(seconds, self.inside_until - self.context.now() - 5))

    async def leave(self) -> float | None:
        self.context.line.may_have_ended(self.name)
        response = await self.context.api.call("leave", "DELETE", self.context.queue, token=self.token)
        if response.problem == "still-holding" and self.may_hold:
            # A documented refusal: the tickets stay held, and the place with them, until the hold ends.
            return self.finish("left holding tickets")
        if response.status != 200:
            return self.unexpected("leave", response)
        if self.admission_token:
            return self.finish("left the shop")
        return self.finish("stopped in line" if self.context.closing else "left the line")


def _interval(value: Any) -> tuple[float, float] | None:
    if isinstance(value, list) and len(value) == 2 and all(isinstance(end, int | float) for end in value):
        return float(value[0]), float(value[1])
    return None
