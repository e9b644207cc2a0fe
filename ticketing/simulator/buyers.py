"""Visitors who buy: look at availability, hold, check out as guests and wait for their tickets."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from ticketing.simulator.api import ApiResponse
from ticketing.simulator.visitors import Habits, Visitor, VisitorContext

CHOICES_MAX = 5
"""A buyer leaves after this many choices, if others bought the seats first each time."""
SHORTAGES = frozenset({"sold-out", "not-enough-left", "seats-unavailable"})
TOO_LATE = frozenset({"admission-expired", "reservation-expired"})
PAYMENT_METHOD = "sandbox"
PAGE_SIZE = 200
ORDER_POLL_SECONDS = 1.0
ORDER_POLL_SECONDS_MAX = 5.0
ORDER_OPEN = frozenset({"placed", "paying"})
BACK_SECONDS = (5.0, 90.0)
"""Range of the time after which a buyer returns."""
GONE = frozenset({"walked away", "left the shop", "ran out of time", "found nothing"})
NAMED_SEATS_SHARE = 0.5
"""The share of buyers of reserved seats who choose them by name; the others take the best available."""


@dataclass(frozen=True, slots=True)
class SaleTerms:
    """The event's purchase limits."""

    quantity_max: int


class Buyer(Visitor):
    __slots__ = (
        "_came_back",
        "_choices",
        "_found_nothing",
        "_has_asked",
        "_held_until",
        "_holds",
        "_order",
        "_poll_seconds",
        "_reservation",
        "_selection",
        "_terms",
    )

    def __init__(
        self, name: str, context: VisitorContext, rng: random.Random, habits: Habits, terms: SaleTerms
    ) -> None:
        super().__init__(name, context, rng, habits)
        self._terms = terms
        self._choices = self._holds = 0
        self._came_back = self._found_nothing = self._has_asked = False
        self._held_until = ""
        self._selection: dict[str, Any] = {}
        self._reservation = self._order = ""
        self._poll_seconds = ORDER_POLL_SECONDS

    @property
    def may_hold(self) -> bool:
        return self._has_asked

    def start_visit(self) -> float | None:
        return self.continue_with(self.choose_section, self.think_seconds())

    async def choose_section(self) -> float | None:
        """Choose a section with availability."""
        response = await self.context.api.call("sections", "GET", f"/events/{self.context.event}/sections")
        if response.status != 200:
            return self.unexpected("sections", response)
        free = [section for section in response.document.get("sections", []) if section.get("available_seats", 0) > 0]
        if not free or self._choices >= CHOICES_MAX:
            if self._reservation:  # Nothing better was found.
                self.context.figures.counts["kept the reservation"] += 1
                return self.continue_with(self.pay, self.think_seconds())
            self._found_nothing = True
            return self.continue_with(self.leave, 0.0)
        self._choices += 1
        section = self.random.choice(free)
        quantity = self.random.randint(1, min(self._terms.quantity_max, section["available_seats"]))
        if section["type"] == "general_admission":
            self._selection = {"ga_section": section["section_id"], "ga_quantity": quantity}
        elif self.random.random() < NAMED_SEATS_SHARE:
            self._selection = {"section": section, "quantity": quantity}
            return self.continue_with(self.pick, 0.0)
        else:
            self._selection = {"best_available": {"section": section["section_id"], "quantity": quantity}}
        return self.continue_with(self.hold, 0.0)

    async def pick(self) -> float | None:
        """Choose consecutive available seats, by name, from one page of the section's list."""
        section, quantity = self._selection["section"], self._selection["quantity"]
        page = self.random.randint(1, -(-section["total_seats"] // PAGE_SIZE))
        path = f"/events/{self.context.event}/sections/{section['section_id']}/seats?page={page}&page_size={PAGE_SIZE}"
        response = await self.context.api.call("seats", "GET", path, token=self.token)
        if response.problem in TOO_LATE:
            return self.finish("ran out of time")
        if response.status != 200:
            return self.unexpected("seats", response)
        free = [seat["seat_id"] for seat in response.document.get("seats", []) if seat.get("status") == "available"]
        if not free:
            return self.continue_with(self.choose_section, 0.0)
        first = self.random.randrange(max(1, len(free) - quantity + 1))
        self._selection = {"seats": free[first : first + quantity]}
        return self.continue_with(self.hold, self.think_seconds())

    async def hold(self) -> float | None:
        """Hold the selection. A repeated key returns the same reservation, so the request may be retried."""
        # Before the request: its response may be lost.
        self._has_asked = True
        body = {**self._selection, "replace": self._reservation} if self._reservation else self._selection
        key = f"{self.name}-hold-{self._holds + 1}"
        response = await self._submit("hold", f"/events/{self.context.event}/reservations", key, body)
        if response is None:
            return self.report_breach("two responses to one key", f"{self.name}: hold {key}")
        if response.problem in SHORTAGES:
            self._holds += 1
            return self.continue_with(self.choose_section, self.random.random())
        if response.problem in TOO_LATE:
            return self.finish("ran out of time")
        if response.problem == "reservation-exists" and self._came_back and not self._reservation:
            # The buyer held it before leaving, and now pays for it.
            self._reservation = str(response.document["reservation"])
            return self.continue_with(self.pay, self.think_seconds())
        left = response.seconds_until("reserved_until")
        if response.status != 201 or left is None:
            return self.unexpected("hold", response)
        return self._handle_hold(response, left)

    def _handle_hold(self, response: ApiResponse, left: float) -> float | None:
        counts, until = self.context.figures.counts, str(response.document["reserved_until"])
        self._holds += 1
        if self._reservation:
            counts["changed their mind"] += 1
            # Times have one format, in UTC, so they can be compared as strings.
            if until > self._held_until:
                return self.report_breach(
                    "a replacement that extended the hold", f"{self.name}: {self._held_until}, then {until}"
                )
        self._reservation = str(response.document["reservation_id"])
        counts["reservations"] += 1
        self.context.line.holds(self.name, response.received_at, left)
        self.context.figures.held_at = response.received_at
        self._held_until, self.inside_until = until, response.received_at + left
        self.step = self.pay
        if self.habits.double_clicks:
            self.step = self.second_tab
        elif self.habits.walks_away and not self._came_back:
            return self.finish("walked away")
        elif self.habits.changes_mind and self._holds == 1:
            self._choices = CHOICES_MAX - 1
            self.step = self.choose_section
        return self.think_seconds()

    async def _submit(self, call: str, path: str, key: str, body: dict[str, Any]) -> ApiResponse | None:
        """Send one request, or two at the same time with the same key. Return None if both succeed but differ."""
        calls = [
            self.context.api.call(call, "POST", path, token=self.admission_token, key=key, body=body)
            for _ in range(2 if self.habits.double_clicks else 1)
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
        responses = [result for result in results if isinstance(result, ApiResponse)]
        if len(responses) < len(results):
            # Both are retried with the same key, as after any lost response.
            raise next(error for error in results if isinstance(error, BaseException))
        self.context.figures.counts["double clicks"] += len(responses) > 1
        successes = [response for response in responses if response.status < 400]
        if len(successes) > 1 and successes[0].document != successes[1].document:
            return None
        return (successes or responses)[0]

    async def second_tab(self) -> float | None:
        """Try to hold the same selection again with another key, which must be refused."""
        response = await self.context.api.call(
            "hold",
            "POST",
            f"/events/{self.context.event}/reservations",
            token=self.admission_token,
            key=f"{self.name}-tab-{self._holds}",
            body=self._selection,
        )
        if response.status < 400:
            return self.report_breach(
                "two holds of one buyer", f"{self.name}: {response.document.get('reservation_id')}"
            )
        self.context.figures.counts["second tabs refused"] += 1
        return self.continue_with(self.pay, self.think_seconds())

    def finish(self, outcome: str) -> float | None:
        if outcome == "left the shop" and self._found_nothing:
            outcome, self._found_nothing = "found nothing", False
        if outcome not in GONE or not self.habits.comes_back or self._came_back or self.context.closing:
            return super().finish(outcome)
        self._came_back = True
        self.context.line.may_have_ended(self.name)
        self.context.figures.counts["came back"] += 1
        self.queue_token = self.admission_token = self._reservation = ""
        self.number = self.position = self.estimated_wait = None
        self._choices, self.joined_at = 0, 0.0
        return self.continue_with(self.join, self.random.uniform(*BACK_SECONDS))

    async def pay(self) -> float | None:
        self.context.line.may_have_ended(self.name)
        body = {
            "email": f"{self.name.lower()}@example.org",
            "name": "A Simulated Buyer",
            "payment_method": PAYMENT_METHOD,
        }
        path = f"/reservations/{self._reservation}/checkout"
        response = await self._submit("checkout", path, f"{self.name}-pay-{self._reservation}", body)
        if response is None:
            return self.report_breach("two responses to one key", f"{self.name}: checkout of {self._reservation}")
        if response.problem in TOO_LATE:
            return self.finish("ran out of time")
        if response.status != 202:
            return self.unexpected("checkout", response)
        self._order = str(response.document["order_id"])
        return self.continue_with(self.follow, ORDER_POLL_SECONDS)

    async def follow(self) -> float | None:
        """Poll the order until it is settled."""
        response = await self.context.api.call("order", "GET", f"/orders/{self._order}", token=self.admission_token)
        if response.status != 200:
            return self.unexpected("order", response)
        status = response.document.get("status")
        if status in ORDER_OPEN:
            self._poll_seconds = min(ORDER_POLL_SECONDS_MAX, self._poll_seconds * 1.5)
            return self._poll_seconds
        if status != "confirmed":
            return self.finish("did not pay")
        tickets = response.document.get("tickets", [])
        if not tickets or not all(ticket.get("valid") for ticket in tickets):
            return self.report_breach("paid without tickets", f"{self.name}: order {self._order}")
        self.context.figures.counts["tickets"] += len(tickets)
        return self.finish("bought")
