"""A model of the inventory that processes one request after the other: no locks, no SQL, no clock.

It determines which requests win or lose and their outcome types; what is free, held, sold and blocked; and what each
reservation costs.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

PENDING, PAYING, CONFIRMED, CANCELED, EXPIRED = "pending_payment", "paying", "confirmed", "canceled", "expired"
LIVE, CLAIMING = (PENDING, PAYING), (PENDING, PAYING, CONFIRMED)
HELD, REPLAYED, BUSY, OVERDUE = "held", "replayed", "busy", "lapsed"
SHORTAGES = ("not-enough-left", "sold-out", OVERDUE)
"""Refusals that a sweep may cure: if there is something to sweep, it is swept and the request decided once more."""


@dataclass
class Claim:
    entry: UUID
    buyer: str
    seats: frozenset[str]
    tickets: int
    total: int
    until: str
    status: str = PENDING
    over: bool = False
    """Its deadline has passed."""
    email: str = ""

    @property
    def lapsed(self) -> bool:
        """Whether it is past its deadline and not yet swept."""
        return self.over and self.status in LIVE

    @property
    def size(self) -> int:
        return len(self.seats) + self.tickets


@dataclass
class HoldDemand:
    """`got` and `until` come from the system's answer: it chooses the best of the free seats, and the time."""

    id: UUID
    entry: UUID
    buyer: str
    key: str
    payload: dict[str, Any]
    got: frozenset[str] = frozenset()
    until: str = ""

    def __post_init__(self) -> None:
        self.seats = frozenset(self.payload.get("seats", ()))
        self.tickets: int = self.payload.get("ga_quantity", 0)
        best = self.payload.get("best_available", {})
        self.quantity: int = best.get("quantity", 0)
        self.accessible: int = self.quantity - best.get("companions", 0) if best.get("accessible") else 0
        self.replaces = UUID(self.payload["replace"]) if "replace" in self.payload else None
        self.size = len(self.seats) + self.tickets + self.quantity


NO_CLAIM = Claim(UUID(int=0), "", frozenset(), 0, 0, "")


@dataclass
class InventoryModel:
    category: dict[str, str]
    """Of every seat."""
    accessible: frozenset[str]
    prices: dict[str, int]
    capacity: int
    cap: int
    why: dict[str, str] = field(default_factory=dict)
    """Why a seat is blocked."""
    blocked: dict[str, int] = field(default_factory=lambda: {"house": 0, "out_of_use": 0})
    """Tickets, by reason."""
    claims: dict[UUID, Claim] = field(default_factory=dict)
    answers: dict[tuple[str, str], HoldDemand] = field(default_factory=dict)
    """By buyer and key."""

    # --- stock -------------------------------------------------------------------------------------------------------

    def owners(self) -> dict[str, UUID]:
        return {seat: name for name, one in self.claims.items() if one.status in CLAIMING for seat in one.seats}

    def free(self) -> set[str]:
        return self.category.keys() - self.owners().keys() - self.why.keys()

    def tickets(self, *statuses: str) -> int:
        return sum(one.tickets for one in self.claims.values() if one.status in statuses)

    def tickets_left(self) -> int:
        return self.capacity - sum(self.blocked.values()) - self.tickets(*CLAIMING)

    def has(self, *, apart: UUID | None = None, lapsed: bool | None = None, **filters: str) -> int:
        """Return how many a buyer or an email address has."""
        ((kind, owner),) = filters.items()
        claims = [one for name, one in self.claims.items() if getattr(one, kind) == owner and name != apart]
        return sum(one.size for one in claims if one.status in CLAIMING and lapsed in (None, one.lapsed))

    def paid(self, email: str, apart: UUID) -> int:
        """Return how many an email address has paid, without one claim."""
        claims = [one for name, one in self.claims.items() if one.email == email and name != apart]
        return sum(one.size for one in claims if one.status == CONFIRMED)

    def count_fitting(self, demand: HoldDemand, seats: set[str]) -> int:
        if not demand.accessible:
            return len(seats - self.accessible)
        accessible_count = len(seats & self.accessible)
        return len(seats) if accessible_count >= demand.accessible else min(accessible_count, demand.quantity - 1)

    # --- buyers ------------------------------------------------------------------------------------------------------

    def hold(self, demands: list[HoldDemand]) -> list[str]:
        """Return the outcome of each: earlier requests are decided first, but a request that finds too little waits for
        a sweep: of the claims that block it if they are known, else of all."""
        outcomes = dict.fromkeys(range(len(demands)), BUSY)
        for _ in range(4):
            undecided = {number: demands[number] for number, outcome in outcomes.items() if outcome == BUSY}
            outcomes |= self._decide(undecided)
            short_numbers = [number for number in undecided if outcomes[number] in SHORTAGES]
            in_the_way = [
                self._blocking_claims(demands[number]) if outcomes[number] == OVERDUE else None
                for number in short_numbers
            ]
            swept = [self.sweep(names) for names in in_the_way if names is not None]
            if None in in_the_way:
                swept.append(self.sweep())
            if any(swept):
                outcomes |= dict.fromkeys(short_numbers, BUSY)
        return list(outcomes.values())

    def _decide(self, demands: dict[int, HoldDemand]) -> dict[int, str]:
        free, unavailable, given_up, chosen, buyers = self.free(), set[str](), set[str](), 0, set[str]()
        outcomes = {number: self._precheck(demand) for number, demand in demands.items()}
        # Requests of this batch that replace a claim may release its seats: whether they do is known only when they are
        # decided.
        perhaps = free.union(
            *(self._replaced_claim(demand).seats for number, demand in demands.items() if not outcomes[number])
        )
        for number, demand in demands.items():
            if not outcomes[number] and not demand.seats <= perhaps:
                outcomes[number] = self._refuse_seats(demand.seats - perhaps)
        named = {seat for number, demand in demands.items() if not outcomes[number] for seat in demand.seats}
        for number, demand in demands.items():
            if demand.quantity and not outcomes[number]:
                mine = free | self._replaced_claim(demand).seats
                if (fitting := self.count_fitting(demand, mine)) < demand.quantity:
                    outcomes[number] = _shortage(fitting)
                elif self.count_fitting(demand, mine - named) - chosen < demand.quantity:
                    # Another request of the batch asked for them; whether it gets them is not known yet.
                    outcomes[number] = BUSY
                else:
                    chosen += demand.quantity
        for number, demand in demands.items():
            mine = (free | self._replaced_claim(demand).seats) - unavailable
            outcomes[number] = outcomes[number] or self._decide_one(demand, mine, given_up, buyers)
            if outcomes[number] == HELD:
                assert demand.got <= mine
                given_up |= self._replaced_claim(demand).seats - demand.got
                unavailable |= demand.got
                buyers.add(demand.buyer)
                self._write(demand)
        return outcomes

    def _refuse_seats(self, seats: set[str] | frozenset[str]) -> str:
        """Final if one of the seats is blocked or held in time, otherwise overdue."""
        owners = self.owners()
        return (
            OVERDUE
            if all(seat in owners and self.claims[owners[seat]].lapsed for seat in seats)
            else ("seats-unavailable")
        )

    def _blocking_claims(self, demand: HoldDemand) -> set[UUID]:
        owners = self.owners()
        return {name for name, one in self.claims.items() if one.lapsed and one.buyer == demand.buyer} | {
            owners[seat] for seat in demand.seats if seat in owners
        }

    def _replaced_claim(self, demand: HoldDemand) -> Claim:
        return self.claims[demand.replaces] if demand.replaces else NO_CLAIM

    def _exceeds_cap(self, demand: HoldDemand) -> bool:
        return self.has(buyer=demand.buyer, lapsed=False) + demand.size - self._replaced_claim(demand).size > self.cap

    def _precheck(self, demand: HoldDemand) -> str:
        if (demand.buyer, demand.key) in self.answers:
            return self._replay(demand)
        old = self._replaced_claim(demand)
        # A buyer who has joined again has another entry, and cannot replace what the former entry holds.
        if demand.replaces and old.entry != demand.entry:
            return "not-owner"
        if demand.replaces and (old.status != PENDING or old.lapsed):
            return "payment-in-progress" if old.status in (PAYING, CONFIRMED) else "reservation-expired"
        mine = [one for one in self.claims.values() if one.entry == demand.entry]
        live = next((one for one in mine if one.status in LIVE), None)
        if live and live is not old:
            return OVERDUE if live.lapsed else "reservation-exists"
        if not live and any(one.status == CONFIRMED for one in mine):
            return "admission-expired"
        if self._exceeds_cap(demand):
            return "purchase-cap"
        return OVERDUE if self.has(buyer=demand.buyer, lapsed=True) else ""

    def _decide_one(self, demand: HoldDemand, mine: set[str], given_up: set[str], buyers: set[str]) -> str:
        if (demand.buyer, demand.key) in self.answers:
            return self._replay(demand)
        if demand.buyer in buyers:
            return "reservation-exists"
        if demand.seats - mine:
            return BUSY if demand.seats - mine <= given_up else self._refuse_seats(demand.seats - mine - given_up)
        left = self.tickets_left() + self._replaced_claim(demand).tickets
        if demand.tickets > left:
            return _shortage(left)
        return "purchase-cap" if self._exceeds_cap(demand) else HELD

    def _replay(self, demand: HoldDemand) -> str:
        return REPLAYED if self.answers[demand.buyer, demand.key].payload == demand.payload else "idempotency-mismatch"

    def _write(self, demand: HoldDemand) -> None:
        seats = demand.seats | demand.got
        total = sum(self.prices[self.category[seat]] for seat in seats) + demand.tickets * self.prices["Floor"]
        until = self._replaced_claim(demand).until or demand.until
        if demand.replaces:
            self.claims[demand.replaces].status = CANCELED
        self.claims[demand.id] = Claim(demand.entry, demand.buyer, seats, demand.tickets, total, until)
        self.answers[demand.buyer, demand.key] = demand

    def lapse(self, name: UUID) -> None:
        self.claims[name].over, self.claims[name].until = True, ""

    def sweep(self, names: set[UUID] | None = None) -> bool:
        lapsed = [one for name, one in self.claims.items() if one.lapsed and (names is None or name in names)]
        for one in lapsed:
            one.status = EXPIRED
        return bool(lapsed)

    def release(self, name: UUID) -> str:
        if self.claims[name].status in (PAYING, CONFIRMED):
            return "payment-in-progress"
        return self.cancel(name)

    def cancel(self, name: UUID) -> str:
        if self.claims[name].status in CLAIMING:
            self.claims[name].status = CANCELED
        return ""

    def begin_payment(self, name: UUID, email: str) -> str:
        one = self.claims[name]
        if one.status not in LIVE or one.lapsed:
            return "reservation-expired"
        if one.status == PENDING:
            if self.paid(email, name) + one.size > self.cap:
                return "purchase-cap"
            one.status, one.email = PAYING, email
        return ""

    def confirm(self, name: UUID, *, too_late: bool) -> str:
        one = self.claims[name]
        if one.status == CONFIRMED:
            return ""
        if one.status == CANCELED or too_late:
            return "reservation-expired"
        if one.status == EXPIRED:
            owned = max(self.has(buyer=one.buyer), self.paid(one.email, name) if one.email else 0)
            if owned + one.size > self.cap or not one.seats <= self.free() or one.tickets > self.tickets_left():
                return "reservation-expired"
        elif one.email:
            paid = self.paid(one.email, name)
            if paid and paid + one.size > self.cap:
                return "purchase-cap"
        one.status = CONFIRMED
        return ""

    # --- staff -------------------------------------------------------------------------------------------------------

    def retry_after_sweep(self, act: Callable[[], str]) -> str:
        outcome = act()
        return act() if outcome and self.sweep() else outcome

    def block(self, seats: set[str], reason: str, *, only_free: bool) -> str:
        taken = seats & self.owners().keys()
        if taken and not only_free:
            return "seats-unavailable"
        self.why |= dict.fromkeys(seats - taken, reason)
        return ""

    def unblock(self, seats: set[str], reason: str) -> None:
        self.why = {seat: why for seat, why in self.why.items() if seat not in seats or reason not in ("", why)}

    def block_general_admission(self, quantity: int, reason: str) -> str:
        if quantity > self.tickets_left():
            return "not-enough-left"
        self.blocked[reason] += quantity
        return ""

    def unblock_general_admission(self, quantity: int, reason: str) -> str:
        if quantity > self.blocked[reason]:
            return "not-enough-left"
        self.blocked[reason] -= quantity
        return ""

    def resize(self, capacity: int) -> str:
        if capacity < self.tickets(*CLAIMING) + sum(self.blocked.values()):
            return "capacity-in-use"
        self.capacity = capacity
        return ""

    def move(self, seats: set[str], category: str) -> str:
        if any(self.category[seat] != category for seat in seats & self.owners().keys()):
            return "seats-unavailable"
        self.category |= dict.fromkeys(seats, category)
        return ""


def _shortage(left: int) -> str:
    return "not-enough-left" if left > 0 else "sold-out"
