"""A visitor who buys: sees what is free, holds some of it, checks out as a guest and waits for the tickets."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from ticketing.simulator.api import Answer
from ticketing.simulator.visitors import Habits, Visitor, VisitorContext

CHOICES_MAX = 5
"""Somebody else was faster: so often another choice is made, then the buyer leaves."""
SHORTAGES = frozenset({"sold-out", "not-enough-left", "seats-unavailable"})
TOO_LATE = frozenset({"admission-expired", "reservation-expired"})
PAYMENT_METHOD = "sandbox"
PAGE_SIZE = 200
ORDER_ASK_SECONDS = 1.0
ORDER_ASK_SECONDS_MAX = 5.0
ORDER_OPEN = frozenset({"placed", "paying"})
BACK_SECONDS = (5.0, 90.0)
"""Who comes back does so after so long."""
GONE = frozenset({"walked away", "left the shop", "ran out of time", "found nothing"})
NAMED_SEATS_SHARE = 0.5
"""Of the buyers of reserved seats: so many pick them by name, the others take the best available."""


@dataclass(frozen=True, slots=True)
class SaleTerms:
    """What the event's page says about buying."""

    quantity_max: int


class Buyer(Visitor):
    __slots__ = (
        "_asked_seconds",
        "_came_back",
        "_choices",
        "_found_nothing",
        "_held_until",
        "_holds",
        "_order",
        "_reservation",
        "_selection",
        "_wares",
    )

    def __init__(self, name: str, door: VisitorContext, rng: random.Random, habits: Habits, wares: SaleTerms) -> None:
        super().__init__(name, door, rng, habits)
        self._wares = wares
        self._choices = self._holds = 0
        self._came_back = self._found_nothing = False
        self._held_until = ""
        self._selection: dict[str, Any] = {}
        self._reservation = self._order = ""
        self._asked_seconds = ORDER_ASK_SECONDS

    def start_visit(self) -> float | None:
        self.step = self.choose_section
        return self.think_seconds()

    async def choose_section(self) -> float | None:
        """Chooses a section that has something left."""
        answer = await self.door.api.call("sections", "GET", f"/events/{self.door.event}/sections")
        if answer.status != 200:
            return self.unexpected("sections", answer)
        free = [section for section in answer.document.get("sections", []) if section.get("available_seats", 0) > 0]
        if not free or self._choices >= CHOICES_MAX:
            if self._reservation:
                return self._keep_reservation()
            self._found_nothing = True
            self.step = self.leave
            return 0.0
        self._choices += 1
        section = self.random.choice(free)
        quantity = self.random.randint(1, min(self._wares.quantity_max, section["available_seats"]))
        if section["type"] == "general_admission":
            self._selection = {"ga_section": section["section_id"], "ga_quantity": quantity}
        elif self.random.random() < NAMED_SEATS_SHARE:
            self._selection = {"section": section, "quantity": quantity}
            self.step = self.pick
            return 0.0
        else:
            self._selection = {"best_available": {"section": section["section_id"], "quantity": quantity}}
        self.step = self.hold
        return 0.0

    async def pick(self) -> float | None:
        """Chooses seats by name, side by side as the list has them, from a page of the section."""
        section, quantity = self._selection["section"], self._selection["quantity"]
        page = self.random.randint(1, -(-section["total_seats"] // PAGE_SIZE))
        path = f"/events/{self.door.event}/sections/{section['section_id']}/seats?page={page}&page_size={PAGE_SIZE}"
        answer = await self.door.api.call("seats", "GET", path, token=self.token)
        if answer.problem in TOO_LATE:
            return self.finish("ran out of time")
        if answer.status != 200:
            return self.unexpected("seats", answer)
        free = [seat["seat_id"] for seat in answer.document.get("seats", []) if seat.get("status") == "available"]
        if not free:
            self.step = self.choose_section
            return 0.0
        first = self.random.randrange(max(1, len(free) - quantity + 1))
        self._selection = {"seats": free[first : first + quantity]}
        self.step = self.hold
        return self.think_seconds()

    async def hold(self) -> float | None:
        """Asks for what was chosen; the same again gives the same, so it may be asked again when no answer came."""
        body = {**self._selection, "replace": self._reservation} if self._reservation else self._selection
        key = f"{self.name}-hold-{self._holds + 1}"
        answer = await self._submit("hold", f"/events/{self.door.event}/reservations", key, body)
        if answer is None:
            return self.report_breach("two answers to one key", f"{self.name}: hold {key}")
        if answer.problem in SHORTAGES:
            self._holds += 1
            self.step = self.choose_section
            return self.random.random()
        if answer.problem in TOO_LATE:
            return self.finish("ran out of time")
        if answer.problem == "reservation-exists" and self._came_back and not self._reservation:
            # Held before going away, and still there: paid for now.
            self._reservation = str(answer.document["reservation"])
            self.step = self.pay
            return self.think_seconds()
        left = answer.seconds_until("reserved_until")
        if answer.status != 201 or left is None:
            return self.unexpected("hold", answer)
        return self._handle_hold(answer, left)

    def _handle_hold(self, answer: Answer, left: float) -> float | None:
        counts, until = self.door.figures.counts, str(answer.document["reserved_until"])
        self._holds += 1
        if self._reservation:
            counts["changed their mind"] += 1
            # One form for all moments, in UTC: they compare as texts do.
            if until > self._held_until:
                return self.report_breach(
                    "a change that prolonged the hold", f"{self.name}: {self._held_until}, then {until}"
                )
        self._reservation = str(answer.document["reservation_id"])
        counts["reservations"] += 1
        self.door.line.holds(self.name, answer.received_at, left)
        self.door.figures.held_at = answer.received_at
        self._held_until, self.inside_until = until, answer.received_at + left
        self.step = self.pay
        if self.habits.double_clicks:
            self.step = self.second_tab
        elif self.habits.walks_away and not self._came_back:
            return self.finish("walked away")
        elif self.habits.changes_mind and self._holds == 1:
            self._choices = CHOICES_MAX - 1
            self.step = self.choose_section
        return self.think_seconds()

    def _keep_reservation(self) -> float | None:
        """Nothing better was found: what is held is paid for."""
        self.door.figures.counts["kept the old"] += 1
        self.step = self.pay
        return self.think_seconds()

    async def _submit(self, call: str, path: str, key: str, body: dict[str, Any]) -> Answer | None:
        """One call, or two at the same moment with the same key; None where two of them won and differ."""
        asked = [
            self.door.api.call(call, "POST", path, token=self.admission_token, key=key, body=body)
            for _ in range(2 if self.habits.double_clicks else 1)
        ]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        good = [answer for answer in answers if isinstance(answer, Answer)]
        if len(good) < len(answers):
            # As with any answer that did not come: both are asked again, with the same key.
            raise next(error for error in answers if isinstance(error, BaseException))
        self.door.figures.counts["double clicks"] += len(good) > 1
        won = [answer for answer in good if answer.status < 400]
        if len(won) > 1 and won[0].document != won[1].document:
            return None
        return (won or good)[0]

    async def second_tab(self) -> float | None:
        """Tries to hold once more beside what is held, with a key of its own: it must not be had."""
        answer = await self.door.api.call(
            "hold",
            "POST",
            f"/events/{self.door.event}/reservations",
            token=self.admission_token,
            key=f"{self.name}-tab-{self._holds}",
            body=self._selection,
        )
        if answer.status < 400:
            return self.report_breach("two holds of one buyer", f"{self.name}: {answer.document.get('reservation_id')}")
        self.door.figures.counts["second tabs refused"] += 1
        self.step = self.pay
        return self.think_seconds()

    def finish(self, outcome: str) -> float | None:
        if outcome == "left the shop" and self._found_nothing:
            outcome, self._found_nothing = "found nothing", False
        if outcome not in GONE or not self.habits.comes_back or self._came_back or self.door.closing:
            return super().finish(outcome)
        self._came_back = True
        self.door.line.may_have_ended(self.name)
        self.door.figures.counts["came back"] += 1
        self.queue_token = self.admission_token = self._reservation = ""
        self.number = self.position = self.estimated_wait = None
        self._choices, self.joined_at = 0, 0.0
        self.step = self.join
        return self.random.uniform(*BACK_SECONDS)

    async def pay(self) -> float | None:
        self.door.line.may_have_ended(self.name)
        body = {
            "email": f"{self.name.lower()}@example.org",
            "name": "A Simulated Buyer",
            "payment_method": PAYMENT_METHOD,
        }
        path = f"/reservations/{self._reservation}/checkout"
        answer = await self._submit("checkout", path, f"{self.name}-pay-{self._reservation}", body)
        if answer is None:
            return self.report_breach("two answers to one key", f"{self.name}: checkout of {self._reservation}")
        if answer.problem in TOO_LATE:
            return self.finish("ran out of time")
        if answer.status != 202:
            return self.unexpected("checkout", answer)
        self._order = str(answer.document["order_id"])
        self.step = self.follow
        return ORDER_ASK_SECONDS

    async def follow(self) -> float | None:
        """Asks for the order until it is settled."""
        answer = await self.door.api.call("order", "GET", f"/orders/{self._order}", token=self.admission_token)
        if answer.status != 200:
            return self.unexpected("order", answer)
        status = answer.document.get("status")
        if status in ORDER_OPEN:
            self._asked_seconds = min(ORDER_ASK_SECONDS_MAX, self._asked_seconds * 1.5)
            return self._asked_seconds
        if status != "confirmed":
            return self.finish("did not pay")
        return self._handle_confirmation(answer)

    def _handle_confirmation(self, answer: Answer) -> float | None:
        tickets = answer.document.get("tickets", [])
        if not tickets or not all(ticket.get("valid") for ticket in tickets):
            return self.report_breach("paid without tickets", f"{self.name}: order {self._order}")
        self.door.figures.counts["tickets"] += len(tickets)
        return self.finish("bought")
