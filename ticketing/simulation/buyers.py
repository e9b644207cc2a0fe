"""A visitor who buys: sees what is free, holds some of it, checks out as a guest and waits for the tickets."""

import random
from dataclasses import dataclass
from typing import Any

from ticketing.simulation.api import Answer
from ticketing.simulation.visitors import Door, Habits, Visitor

CHOICES_MAX = 5
"""Somebody else was faster: so often another choice is made, then the buyer leaves."""
SHORTAGES = frozenset({"sold-out", "not-enough-left", "seats-unavailable"})
TOO_LATE = frozenset({"admission-expired", "reservation-expired"})
PAYMENT_METHOD = "sandbox"
PAGE_SIZE = 200
ORDER_ASK_SECONDS = 1.0
ORDER_ASK_SECONDS_MAX = 5.0
ORDER_OPEN = frozenset({"placed", "paying"})
NAMED_SEATS_SHARE = 0.5
"""Of the buyers of reserved seats: so many pick them by name, the others take the best available."""


@dataclass(frozen=True, slots=True)
class Wares:
    """What the event's page says about buying."""

    quantity_max: int


class Buyer(Visitor):
    __slots__ = ("_asked_seconds", "_choices", "_order", "_reservation", "_wares", "_wish")

    def __init__(self, name: str, door: Door, rng: random.Random, habits: Habits, wares: Wares) -> None:
        super().__init__(name, door, rng, habits)
        self._wares = wares
        self._choices = 0
        self._wish: dict[str, Any] = {}
        self._reservation = self._order = ""
        self._asked_seconds = ORDER_ASK_SECONDS

    def begins(self) -> float | None:
        self.step = self.look
        return self.thinks()

    async def look(self) -> float | None:
        """Chooses a section that has something left."""
        answer = await self.door.api.ask("sections", "GET", f"/events/{self.door.event}/sections")
        if answer.status != 200:
            return self.unexpected("sections", answer)
        free = [section for section in answer.document.get("sections", []) if section.get("available_seats", 0) > 0]
        if not free or self._choices >= CHOICES_MAX:
            self.door.figures.counts["found nothing"] += 1
            self.step = self.leave
            return 0.0
        self._choices += 1
        section = self.random.choice(free)
        quantity = self.random.randint(1, min(self._wares.quantity_max, section["available_seats"]))
        if section["type"] == "general_admission":
            self._wish = {"ga_section": section["section_id"], "ga_quantity": quantity}
        elif self.random.random() < NAMED_SEATS_SHARE:
            self._wish = {"section": section, "quantity": quantity}
            self.step = self.pick
            return 0.0
        else:
            self._wish = {"best_available": {"section": section["section_id"], "quantity": quantity}}
        self.step = self.hold
        return 0.0

    async def pick(self) -> float | None:
        """Chooses seats by name, side by side as the list has them, from a page of the section."""
        section, quantity = self._wish["section"], self._wish["quantity"]
        page = self.random.randint(1, -(-section["total_seats"] // PAGE_SIZE))
        path = f"/events/{self.door.event}/sections/{section['section_id']}/seats?page={page}&page_size={PAGE_SIZE}"
        answer = await self.door.api.ask("seats", "GET", path, token=self.token)
        if answer.problem in TOO_LATE:
            return self.ends("ran out of time")
        if answer.status != 200:
            return self.unexpected("seats", answer)
        free = [seat["seat_id"] for seat in answer.document.get("seats", []) if seat.get("status") == "available"]
        if not free:
            self.step = self.look
            return 0.0
        first = self.random.randrange(max(1, len(free) - quantity + 1))
        self._wish = {"seats": free[first : first + quantity]}
        self.step = self.hold
        return self.thinks()

    async def hold(self) -> float | None:
        """Asks for what was chosen; the same again gives the same, so it may be asked again when no answer came."""
        answer = await self.door.api.ask(
            "hold",
            "POST",
            f"/events/{self.door.event}/reservations",
            token=self.admission_token,
            key=f"{self.name}-hold-{self._choices}",
            body=self._wish,
        )
        if answer.problem in SHORTAGES:
            self.step = self.look
            return self.random.random()
        if answer.problem in TOO_LATE:
            return self.ends("ran out of time")
        left = answer.seconds_until("reserved_until")
        if answer.status != 201 or left is None:
            return self.unexpected("hold", answer)
        self._reservation = str(answer.document["reservation_id"])
        self.door.line.holds(self.name, answer.received_at, left)
        self.door.figures.counts["reservations"] += 1
        self.inside_until = answer.received_at + left
        self.step = self.pay
        return self.thinks()

    async def pay(self) -> float | None:
        self.door.line.may_have_ended(self.name)
        answer = await self.door.api.ask(
            "checkout",
            "POST",
            f"/reservations/{self._reservation}/checkout",
            token=self.admission_token,
            key=f"{self.name}-pay",
            body={
                "email": f"{self.name.lower()}@example.org",
                "name": "A Simulated Buyer",
                "payment_method": PAYMENT_METHOD,
            },
        )
        if answer.problem in TOO_LATE:
            return self.ends("ran out of time")
        if answer.status != 202:
            return self.unexpected("checkout", answer)
        self._order = str(answer.document["order_id"])
        self.step = self.follow
        return ORDER_ASK_SECONDS

    async def follow(self) -> float | None:
        """Asks for the order until it is settled."""
        answer = await self.door.api.ask("order", "GET", f"/orders/{self._order}", token=self.admission_token)
        if answer.status != 200:
            return self.unexpected("order", answer)
        status = answer.document.get("status")
        if status in ORDER_OPEN:
            self._asked_seconds = min(ORDER_ASK_SECONDS_MAX, self._asked_seconds * 1.5)
            return self._asked_seconds
        if status != "confirmed":
            return self.ends("did not pay")
        return self._has_tickets(answer)

    def _has_tickets(self, answer: Answer) -> float | None:
        tickets = answer.document.get("tickets", [])
        if not tickets or not all(ticket.get("valid") for ticket in tickets):
            return self.fails("paid without tickets", f"{self.name}: order {self._order}")
        self.door.figures.counts["tickets"] += len(tickets)
        return self.ends("bought")
