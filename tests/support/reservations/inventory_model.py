"""The inventory as one clerk would keep it on paper, one request after the other: no locks, no SQL, no clock.

It says who wins and who loses, and with which words; what is free, held, sold and blocked; and what everybody pays.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

PENDING, PAYING, CONFIRMED, CANCELED, EXPIRED = "pending_payment", "paying", "confirmed", "canceled", "expired"
LIVE, CLAIMING = (PENDING, PAYING), (PENDING, PAYING, CONFIRMED)
HELD, REPLAYED, BUSY, OVERDUE = "held", "replayed", "busy", "lapsed"
SHORTAGES = ("not-enough-left", "sold-out", OVERDUE)
"""What a sweep may cure: where there is something to sweep, it is swept and asked once more."""


@dataclass
class Claim:
    entry: UUID
    buyer: str
    seats: frozenset[str]
    places: int
    total: int
    until: str
    status: str = PENDING
    over: bool = False
    """Its deadline has passed."""
    email: str = ""

    @property
    def lapsed(self) -> bool:
        """And nobody has swept it."""
        return self.over and self.status in LIVE

    @property
    def size(self) -> int:
        return len(self.seats) + self.places


@dataclass
class HoldDemand:
    """`got` and `until` are what the house answered: which of the free seats are best is its choice, and the time."""

    id: UUID
    entry: UUID
    buyer: str
    key: str
    payload: dict[str, Any]
    got: frozenset[str] = frozenset()
    until: str = ""

    def __post_init__(self) -> None:
        self.seats = frozenset(self.payload.get("seats", ()))
        self.places: int = self.payload.get("ga_quantity", 0)
        best = self.payload.get("best_available", {})
        self.quantity: int = best.get("quantity", 0)
        self.accessible: int = self.quantity - best.get("companions", 0) if best.get("accessible") else 0
        self.replaces = UUID(self.payload["replace"]) if "replace" in self.payload else None
        self.size = len(self.seats) + self.places + self.quantity


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
    """Places, by reason."""
    claims: dict[UUID, Claim] = field(default_factory=dict)
    answers: dict[tuple[str, str], HoldDemand] = field(default_factory=dict)
    """By buyer and key."""

    # --- what there is -----------------------------------------------------------------------------------------------

    def owners(self) -> dict[str, UUID]:
        return {seat: name for name, one in self.claims.items() if one.status in CLAIMING for seat in one.seats}

    def free(self) -> set[str]:
        return self.category.keys() - self.owners().keys() - self.why.keys()

    def places(self, *statuses: str) -> int:
        return sum(one.places for one in self.claims.values() if one.status in statuses)

    def places_left(self) -> int:
        return self.capacity - sum(self.blocked.values()) - self.places(*CLAIMING)

    def has(self, *, apart: UUID | None = None, lapsed: bool | None = None, **whose: str) -> int:
        """How many a buyer or an e-mail address has."""
        ((kind, who),) = whose.items()
        theirs = [one for name, one in self.claims.items() if getattr(one, kind) == who and name != apart]
        return sum(one.size for one in theirs if one.status in CLAIMING and lapsed in (None, one.lapsed))

    def count_fitting(self, wish: HoldDemand, seats: set[str]) -> int:
        if not wish.accessible:
            return len(seats - self.accessible)
        there = len(seats & self.accessible)
        return len(seats) if there >= wish.accessible else min(there, wish.quantity - 1)

    # --- buyers ------------------------------------------------------------------------------------------------------

    def hold(self, wishes: list[HoldDemand]) -> list[str]:
        """What becomes of each: the earlier comes first, but who is short waits for a sweep: of those in the way, where
        it is known who that is, else of all."""
        said = dict.fromkeys(range(len(wishes)), BUSY)
        for _ in range(4):
            asked = {number: wishes[number] for number, word in said.items() if word == BUSY}
            said |= self._decide(asked)
            short = [number for number in asked if said[number] in SHORTAGES]
            in_the_way = [
                self._blocking_claims(wishes[number]) if said[number] == OVERDUE else None for number in short
            ]
            swept = [self.sweep(names) for names in in_the_way if names is not None]
            if None in in_the_way:
                swept.append(self.sweep())
            if any(swept):
                said |= dict.fromkeys(short, BUSY)
        return list(said.values())

    def _decide(self, wishes: dict[int, HoldDemand]) -> dict[int, str]:
        free, gone, given_up, chosen, buyers = self.free(), set[str](), set[str](), 0, set[str]()
        said = {number: self._precheck(wish) for number, wish in wishes.items()}
        # Who of this list replaces what they have may give it up: whether they do is known in their turn.
        perhaps = free.union(*(self._replaced_claim(wish).seats for number, wish in wishes.items() if not said[number]))
        for number, wish in wishes.items():
            if not said[number] and not wish.seats <= perhaps:
                said[number] = self._refuse_seats(wish.seats - perhaps)
        named = {seat for number, wish in wishes.items() if not said[number] for seat in wish.seats}
        for number, wish in wishes.items():
            if wish.quantity and not said[number]:
                mine = free | self._replaced_claim(wish).seats
                if (fitting := self.count_fitting(wish, mine)) < wish.quantity:
                    said[number] = _shortage(fitting)
                elif self.count_fitting(wish, mine - named) - chosen < wish.quantity:
                    said[number] = BUSY  # Somebody of this list asked for them; whether he gets them is not known yet.
                else:
                    chosen += wish.quantity
        for number, wish in wishes.items():
            mine = (free | self._replaced_claim(wish).seats) - gone
            said[number] = said[number] or self._decide_one(wish, mine, given_up, buyers)
            if said[number] == HELD:
                assert wish.got <= mine
                given_up |= self._replaced_claim(wish).seats - wish.got
                gone |= wish.got
                buyers.add(wish.buyer)
                self._write(wish)
        return said

    def _refuse_seats(self, seats: set[str] | frozenset[str]) -> str:
        """By whose they are: final, if one of them is blocked or somebody's in time."""
        owners = self.owners()
        return (
            OVERDUE
            if all(seat in owners and self.claims[owners[seat]].lapsed for seat in seats)
            else ("seats-unavailable")
        )

    def _blocking_claims(self, wish: HoldDemand) -> set[UUID]:
        owners = self.owners()
        return {name for name, one in self.claims.items() if one.lapsed and one.buyer == wish.buyer} | {
            owners[seat] for seat in wish.seats if seat in owners
        }

    def _replaced_claim(self, wish: HoldDemand) -> Claim:
        return self.claims[wish.replaces] if wish.replaces else NO_CLAIM

    def _exceeds_cap(self, wish: HoldDemand) -> bool:
        return self.has(buyer=wish.buyer, lapsed=False) + wish.size - self._replaced_claim(wish).size > self.cap

    def _precheck(self, wish: HoldDemand) -> str:
        if (wish.buyer, wish.key) in self.answers:
            return self._replay(wish)
        old = self._replaced_claim(wish)
        # A buyer who has joined again has another entry, and cannot replace what the former one holds.
        if wish.replaces and old.entry != wish.entry:
            return "not-owner"
        if wish.replaces and (old.status != PENDING or old.lapsed):
            return "payment-in-progress" if old.status in (PAYING, CONFIRMED) else "reservation-expired"
        mine = [one for one in self.claims.values() if one.entry == wish.entry]
        live = next((one for one in mine if one.status in LIVE), None)
        if live and live is not old:
            return OVERDUE if live.lapsed else "reservation-exists"
        if not live and any(one.status == CONFIRMED for one in mine):
            return "admission-expired"
        if self._exceeds_cap(wish):
            return "purchase-cap"
        return OVERDUE if self.has(buyer=wish.buyer, lapsed=True) else ""

    def _decide_one(self, wish: HoldDemand, mine: set[str], given_up: set[str], buyers: set[str]) -> str:
        if (wish.buyer, wish.key) in self.answers:
            return self._replay(wish)
        if wish.buyer in buyers:
            return "reservation-exists"
        if wish.seats - mine:
            return BUSY if wish.seats - mine <= given_up else self._refuse_seats(wish.seats - mine - given_up)
        left = self.places_left() + self._replaced_claim(wish).places
        if wish.places > left:
            return _shortage(left)
        return "purchase-cap" if self._exceeds_cap(wish) else HELD

    def _replay(self, wish: HoldDemand) -> str:
        return REPLAYED if self.answers[wish.buyer, wish.key].payload == wish.payload else "idempotency-mismatch"

    def _write(self, wish: HoldDemand) -> None:
        seats = wish.seats | wish.got
        total = sum(self.prices[self.category[seat]] for seat in seats) + wish.places * self.prices["Floor"]
        until = self._replaced_claim(wish).until or wish.until
        if wish.replaces:
            self.claims[wish.replaces].status = CANCELED
        self.claims[wish.id] = Claim(wish.entry, wish.buyer, seats, wish.places, total, until)
        self.answers[wish.buyer, wish.key] = wish

    def lapse(self, name: UUID) -> None:
        self.claims[name].over, self.claims[name].until = True, ""

    def sweep(self, names: set[UUID] | None = None) -> bool:
        gone = [one for name, one in self.claims.items() if one.lapsed and (names is None or name in names)]
        for one in gone:
            one.status = EXPIRED
        return bool(gone)

    def release(self, name: UUID) -> str:
        if self.claims[name].status in (PAYING, CONFIRMED):
            return "payment-in-progress"
        return self.give_back(name)

    def give_back(self, name: UUID) -> str:
        if self.claims[name].status in CLAIMING:
            self.claims[name].status = CANCELED
        return ""

    def begin_payment(self, name: UUID, email: str) -> str:
        one = self.claims[name]
        if one.status not in LIVE or one.lapsed:
            return "reservation-expired"
        if one.status == PENDING:
            if self.has(email=email, apart=name, lapsed=False) + one.size > self.cap:
                return "purchase-cap"
            if self.has(email=email, apart=name) + one.size > self.cap:
                return BUSY
            one.status, one.email = PAYING, email
        return ""

    def confirm(self, name: UUID, *, too_late: bool) -> str:
        one = self.claims[name]
        if one.status == CONFIRMED:
            return ""
        if one.status == CANCELED or too_late:
            return "reservation-expired"
        if one.status == EXPIRED:
            theirs = max(self.has(buyer=one.buyer), self.has(email=one.email) if one.email else 0)
            if theirs + one.size > self.cap or not one.seats <= self.free() or one.places > self.places_left():
                return "reservation-expired"
        one.status = CONFIRMED
        return ""

    # --- staff -------------------------------------------------------------------------------------------------------

    def retry_after_sweep(self, act: Callable[[], str]) -> str:
        word = act()
        return act() if word and self.sweep() else word

    def block(self, seats: set[str], reason: str, *, only_free: bool) -> str:
        taken = seats & self.owners().keys()
        if taken and not only_free:
            return "seats-unavailable"
        self.why |= dict.fromkeys(seats - taken, reason)
        return ""

    def unblock(self, seats: set[str], reason: str) -> None:
        self.why = {seat: why for seat, why in self.why.items() if seat not in seats or reason not in ("", why)}

    def block_places(self, quantity: int, reason: str) -> str:
        if quantity > self.places_left():
            return "not-enough-left"
        self.blocked[reason] += quantity
        return ""

    def unblock_places(self, quantity: int, reason: str) -> str:
        if quantity > self.blocked[reason]:
            return "not-enough-left"
        self.blocked[reason] -= quantity
        return ""

    def resize(self, capacity: int) -> str:
        if capacity < self.places(*CLAIMING) + sum(self.blocked.values()):
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
