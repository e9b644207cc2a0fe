"""Every word of a sale, dropped, doubled, late and in any order, at every moment a sale knows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import combinations, permutations

import pytest

from apps.orders import canceling
from apps.orders.errors import OrderNotCancelable
from apps.orders.providers.protocol import Kind
from tests.money.books import Fact
from tests.money.harness import GRACE_SECONDS, House, OpenHouse, Sale
from tests.orders.sale import deliver_all

pytestmark = pytest.mark.django_db(transaction=True)
LENGTH_MAX = 4


@dataclass(frozen=True)
class Word:
    """What the provider says of an attempt."""

    attempt: int
    kind: Kind
    amount_minor: int | None = None
    currency: str = ""

    @property
    def is_money(self) -> bool:
        return self.kind == Kind.SUCCEEDED

    @property
    def is_right(self) -> bool:
        return self.amount_minor is None and not self.currency


PENDING, DECLINED, SUCCEEDED = (Word(1, kind) for kind in (Kind.PENDING, Kind.DECLINED, Kind.SUCCEEDED))
PENDING_AGAIN, DECLINED_AGAIN, SUCCEEDED_AGAIN = (
    Word(2, kind) for kind in (Kind.PENDING, Kind.DECLINED, Kind.SUCCEEDED)
)
SHORT, FOREIGN = Word(1, Kind.SUCCEEDED, amount_minor=1), Word(1, Kind.SUCCEEDED, currency="EUR")

STORIES: dict[str, tuple[Word, ...]] = {
    "declined": (DECLINED,),
    "succeeded": (SUCCEEDED,),
    "pending, then succeeded": (PENDING, SUCCEEDED),
    "failed, then succeeded": (DECLINED, SUCCEEDED),
    "wrong amount": (SHORT,),
    "wrong currency": (FOREIGN,),
    # The first attempt was declined before, so that the buyer could try again.
    "two attempts succeeded": (SUCCEEDED, SUCCEEDED_AGAIN),
    "the second declined, the first succeeded": (DECLINED_AGAIN, SUCCEEDED),
    "the first too little, the second right": (SHORT, SUCCEEDED_AGAIN),
    "both changed their minds": (SUCCEEDED, PENDING_AGAIN, DECLINED_AGAIN, SUCCEEDED_AGAIN),
}
BEFORE = "before the deadline"
OWN = "within grace, seats still its own"
FREE = "within grace, seats swept and free"
TAKEN = "within grace, seats another's"
IN_TIME = "after grace, of money in time, seats swept and free"
LATE = "after grace, unswept"
LATE_SWEPT = "after grace, swept"
BY_BUYER = "after the buyer canceled"
BY_STAFF = "after staff gave it back"
MOMENTS = (BEFORE, OWN, FREE, TAKEN, IN_TIME, LATE, LATE_SWEPT, BY_BUYER, BY_STAFF)
MID_STORY = (TAKEN, BY_BUYER, BY_STAFF)
"""Moments that also come after the first word."""


@dataclass(frozen=True)
class Case:
    words: tuple[Word, ...]
    """In the order of their arrival."""
    moment: str
    turn: int
    """So many words arrive before the moment comes."""

    def __str__(self) -> str:
        said = [f"{word.kind.removeprefix('payment.')}{word.attempt}" for word in self.words]
        return f"{' '.join(said[: self.turn])} | {self.moment} | {' '.join(said[self.turn :])}"


def arrivals(words: Sequence[Word]) -> Iterator[tuple[Word, ...]]:
    """Every way in which these can arrive: any left out, any one doubled, in any order, LENGTH_MAX at most."""
    for size in range(len(words) + 1):
        for chosen in combinations(words, size):
            bags = [chosen, *((*chosen, twice) for twice in chosen if len(words) < LENGTH_MAX)]
            yield from dict.fromkeys(order for bag in bags for order in permutations(bag))


def cases(words: Sequence[Word]) -> Iterator[Case]:
    for arriving in arrivals(words):
        is_plain = len(words) < 3 and len(set(arriving)) == len(arriving)
        moments = MOMENTS if len(words) == 1 or is_plain else (FREE, BY_STAFF)
        for moment in moments if len(words) < LENGTH_MAX else (FREE,):
            yield Case(arriving, moment, 0)
            if len(arriving) > 1 and moment in MID_STORY:
                yield Case(arriving, moment, 1)


class Model:
    """What must become of a case, told by the rules and not by the code: who is first with money that counts gets the
    seats, all other money goes back."""

    def __init__(self, attempts: int) -> None:
        self.status = "placed" if attempts > 1 else "paying"
        self.pending = attempts
        """The attempt that nobody has settled yet; 0: none."""
        self.paid: set[int] = set()
        self.moment = BEFORE

    def come(self, moment: str) -> None:
        self.moment = moment
        if moment in (FREE, TAKEN, IN_TIME, LATE_SWEPT) and self.is_open:
            self.status = "failed"
        if moment == BY_BUYER and self.is_open:
            self.status = "canceled"
        if moment == BY_STAFF:
            self.status = {"confirmed": "refunded"}.get(self.status, "canceled" if self.is_open else self.status)

    @property
    def is_open(self) -> bool:
        return self.status in ("placed", "paying")

    def hear(self, word: Word, *, occurred_late: bool) -> None:
        if word.kind == Kind.DECLINED and word.attempt == self.pending:
            self.pending = 0
            if self.is_open:
                self.status = "placed" if self.moment == BEFORE else "failed"
        if word.is_money and word.attempt not in self.paid:
            self.paid.add(word.attempt)
            self.pending = 0 if word.attempt == self.pending else self.pending
            if self.status in ("confirmed", "refunded"):
                return
            counts = word.is_right and not occurred_late and self.status != "canceled" and self.moment != TAKEN
            self.status = "confirmed" if counts else "refunded"

    def end(self, unheard: Sequence[Word], *, occurred_late: bool) -> None:
        """All time has passed. Whoever has not been told asks: about what is pending first, then day by day."""
        if self.is_open:
            self.status = "failed"
        for word in sorted(unheard, key=lambda word: word.attempt != self.pending):
            self.hear(word, occurred_late=occurred_late)


def expected(case: Case, words: Sequence[Word]) -> str:
    model, late = Model(attempts_of(words)), case.moment in (LATE, LATE_SWEPT)
    for word in case.words[: case.turn]:
        model.hear(word, occurred_late=False)
    model.come(case.moment)
    for word in case.words[case.turn :]:
        model.hear(word, occurred_late=late)
    model.end([word for word in words if word not in case.words], occurred_late=late)
    return model.status


def attempts_of(words: Sequence[Word]) -> int:
    return max(word.attempt for word in words)


@pytest.mark.parametrize("story", STORIES)
def test_whatever_arrives_whenever_the_money_converges(story: str, open_house: OpenHouse) -> None:
    words = STORIES[story]
    played = list(cases(words))
    house = open_house(len(played))
    sales = house.charge([f"{story}: {case}" for case in played])
    if attempts_of(words) > 1:
        try_again(house, sales)
    house.ask_nothing()
    facts: list[dict[Word, Fact]] = [{} for _ in played]
    for case, sale, known in zip(played, sales, facts, strict=True):
        arrive(house, sale, case.words[: case.turn], known, seconds=None)
    deliver_all()
    come(house, {moment: [s for s, c in zip(sales, played, strict=True) if c.moment == moment] for moment in MOMENTS})
    for case, sale, known in zip(played, sales, facts, strict=True):
        seconds = {OWN: 10, FREE: 10, TAKEN: 10, IN_TIME: -10, LATE: GRACE_SECONDS + 10, LATE_SWEPT: GRACE_SECONDS + 10}
        arrive(house, sale, case.words[case.turn :], known, seconds=seconds.get(case.moment))
        drop(house, sale, [word for word in words if word not in known], seconds=seconds.get(case.moment))
    deliver_all()
    house.assert_converged()
    other = [
        f"{sale.label}: {sale.order.status}, not {expected(case, words)}"
        for case, sale in zip(played, sales, strict=True)
        if sale.order.status != expected(case, words)
    ]
    assert not other, f"{len(other)} of {len(played)}:\n" + "\n".join(other[:40])


def try_again(house: House, sales: Sequence[Sale]) -> None:
    """The first attempt was declined and the buyer has begun another, which is with the provider."""
    for sale in sales:
        fact = house.books.happen(str(sale.payment().pk), Kind.DECLINED)
        house.tell(sale, 1, fact)
    deliver_all()
    for sale in sales:
        house.check_out(sale, key=f"{sale.key} again")
    deliver_all()


def arrive(house: House, sale: Sale, words: Sequence[Word], known: dict[Word, Fact], *, seconds: int | None) -> None:
    """These words have been received, in this order. What is told for the first time happens now, or so many seconds
    after the sale's deadline."""
    for word in words:
        if word not in known:
            known[word] = happen(house, sale, word, seconds)
        house.tell(sale, word.attempt, known[word])


def drop(house: House, sale: Sale, words: Sequence[Word], *, seconds: int | None) -> None:
    """All of this has happened too, and nobody was told."""
    for word in words:
        happen(house, sale, word, seconds)


def happen(house: House, sale: Sale, word: Word, seconds: int | None) -> Fact:
    return house.books.happen(
        str(sale.payment(word.attempt).pk),
        word.kind,
        occurred_at=None if seconds is None else house.deadline(sale) + timedelta(seconds=seconds),
        amount_minor=word.amount_minor,
        currency=word.currency,
    )


def come(house: House, sales: dict[str, list[Sale]]) -> None:
    """The moment of each of these sales is now."""
    house.until_deadline_passed([*sales[FREE], *sales[TAKEN]], 20)
    house.until_deadline_passed([*sales[IN_TIME], *sales[LATE_SWEPT]], 300)
    house.sweep()
    house.take([sale for sale in sales[TAKEN] if sale.order.status == "failed"])
    house.until_deadline_passed(sales[OWN], 20)
    house.until_deadline_passed(sales[LATE], 300)
    for sale in sales[BY_BUYER]:
        try:
            canceling.cancel_order(sale.order_id)
        except OrderNotCancelable:
            assert sale.order.status in ("confirmed", "refunded")
    for sale in sales[BY_STAFF]:
        canceling.refund_order(sale.order_id, "staff:1")
