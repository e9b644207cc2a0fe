"""What a provider says of a sale, when it comes, and what must become of it: cases, a model of the rules, and how a
case is played."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from apps.events.models import Event
from apps.kernel import clock
from apps.orders.cancellation import event_cancellation, order_cancellation
from apps.orders.errors import OrderNotCancelable
from apps.orders.models import ATTEMPTS_MAX
from apps.orders.payments.providers.protocol import Kind
from apps.reservations.models import Reservation
from tests.support.chaos.harness import GRACE_SECONDS, House, Sale
from tests.support.chaos.provider_ledger import Fact
from tests.support.orders.sale import deliver_outbox


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
DECLINED_AT_LAST = Word(ATTEMPTS_MAX, Kind.DECLINED)
SHORT, FOREIGN = Word(1, Kind.SUCCEEDED, amount_minor=1), Word(1, Kind.SUCCEEDED, currency="EUR")

BEFORE = "before the deadline"
HOLD_OVER = "after the hold's time, before the deadline"
OWN = "within grace, seats still its own"
FREE = "within grace, seats swept and free"
TAKEN = "within grace, seats another's"
IN_TIME = "after grace, of money in time, seats swept and free"
STARTED = "after the event began, of money in time, seats swept and free"
LATE = "after grace, unswept"
LATE_SWEPT = "after grace, swept"
BY_BUYER = "after the buyer canceled"
BY_STAFF = "after staff gave it back"
CALLED_OFF = "after the event was canceled"
MOMENTS = (
    BEFORE, HOLD_OVER, OWN, FREE, TAKEN, IN_TIME, STARTED, LATE, LATE_SWEPT, BY_BUYER, BY_STAFF, CALLED_OFF,
)  # fmt: skip
SWEPT = (FREE, TAKEN, IN_TIME, STARTED, LATE_SWEPT)
OF_EVENTS = (STARTED, CALLED_OFF)
"""Their sales have an event of their own."""


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


class Model:
    """What must become of a case, told by the rules and not by the code: who is first with money that counts gets the
    seats, all other money goes back."""

    def __init__(self, attempts: int) -> None:
        self.status = "placed" if attempts > 1 else "paying"
        self.pending = attempts
        """The attempt that nobody has settled yet; 0: none."""
        self.paid: set[int] = set()
        self.moment = BEFORE
        self.is_on_sale_again = False
        """After the last try nobody waits for what was held."""

    def come(self, moment: str) -> None:
        self.moment = moment
        if moment in SWEPT and self.is_open:
            self.status = "failed"
        if moment == BY_BUYER and self.is_open:
            self.status = "canceled"
        if moment in (BY_STAFF, CALLED_OFF):
            self.status = {"confirmed": "refunded"}.get(self.status, "canceled" if self.is_open else self.status)

    @property
    def is_open(self) -> bool:
        return self.status in ("placed", "paying")

    def hear(self, word: Word, *, occurred_late: bool) -> None:
        if word.kind == Kind.DECLINED and word.attempt == self.pending:
            self.pending = 0
            if self.is_open:
                is_early, is_last = self.moment in (BEFORE, HOLD_OVER), word.attempt == ATTEMPTS_MAX
                self.status = "placed" if is_early and not is_last else "failed"
                self.is_on_sale_again = is_early and is_last
        if word.is_money and word.attempt not in self.paid:
            self.paid.add(word.attempt)
            self.pending = 0 if word.attempt == self.pending else self.pending
            if self.status in ("confirmed", "refunded"):
                return
            has_seats = self.moment != TAKEN and not self.is_on_sale_again
            counts = word.is_right and not occurred_late and has_seats and self.status != "canceled"
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


def play(house: House, story: str, words: Sequence[Word], played: Sequence[Case]) -> None:
    """Each case has a sale; what of these words a case leaves out happens as well, and nobody is told. In the end every
    sale is what the model says, and the oracle finds nothing wrong."""
    sales = dict(zip(played, _begin(house, story, words, played), strict=True))
    house.ask_nothing()
    facts: dict[Case, dict[Word, Fact]] = {case: {} for case in played}
    for case, sale in sales.items():
        _arrive(house, sale, case.words[: case.turn], facts[case], seconds=None)
    deliver_outbox()
    _come(house, {moment: [sales[case] for case in played if case.moment == moment] for moment in MOMENTS})
    for case, sale in sales.items():
        seconds = OCCURS_AFTER.get(case.moment)
        _arrive(house, sale, case.words[case.turn :], facts[case], seconds=seconds)
        for word in words:
            if word not in facts[case]:
                _happen(house, sale, word, seconds)
        sale.ends = expected(case, words)
    deliver_outbox()
    house.assert_converged()


OCCURS_AFTER = {
    OWN: 10, FREE: 10, TAKEN: 10, IN_TIME: -10, STARTED: -10, LATE: GRACE_SECONDS + 10, LATE_SWEPT: GRACE_SECONDS + 10,
}  # fmt: skip
"""So many seconds after the deadline happens what is told after the moment; else now."""


def _begin(house: House, story: str, words: Sequence[Word], played: Sequence[Case]) -> list[Sale]:
    """With the provider, all of them: those of one moment of an event at an event of their own."""
    sales: dict[Case, Sale] = {}
    for of_event in (*OF_EVENTS, None):
        cases = [case for case in played if (case.moment if case.moment in OF_EVENTS else None) == of_event]
        if cases:
            house.move(len(cases))
            sales |= zip(cases, house.charge([f"{story}: {case}" for case in cases]), strict=True)
    begun = [sales[case] for case in played]
    for attempt in range(1, attempts_of(words)):
        _try_again(house, begun, attempt)
    return begun


def _try_again(house: House, sales: Iterable[Sale], attempt: int) -> None:
    """This attempt was declined and the buyer has begun another, which is with the provider."""
    sales = list(sales)
    for sale in sales:
        house.tell(sale, attempt, house.books.happen(str(sale.payment(attempt).pk), Kind.DECLINED))
    deliver_outbox()
    for sale in sales:
        house.check_out(sale, key=f"{sale.key} try {attempt + 1}")
    deliver_outbox()


def _arrive(house: House, sale: Sale, words: Sequence[Word], known: dict[Word, Fact], *, seconds: int | None) -> None:
    """These words have been received, in this order. What is told for the first time happens now, or so many seconds
    after the sale's deadline."""
    for word in words:
        if word not in known:
            known[word] = _happen(house, sale, word, seconds)
        house.tell(sale, word.attempt, known[word])


def _happen(house: House, sale: Sale, word: Word, seconds: int | None) -> Fact:
    return house.books.happen(
        str(sale.payment(word.attempt).pk),
        word.kind,
        occurred_at=None if seconds is None else house.deadline(sale) + timedelta(seconds=seconds),
        amount_minor=word.amount_minor,
        currency=word.currency,
    )


def _come(house: House, sales: dict[str, list[Sale]]) -> None:
    """The moment of each of these sales is now."""
    house.until_deadline_passed([*sales[FREE], *sales[TAKEN]], 20)
    house.until_deadline_passed([*sales[IN_TIME], *sales[STARTED], *sales[LATE_SWEPT]], 300)
    house.sweep()
    house.take([sale for sale in sales[TAKEN] if sale.order.status == "failed"])
    house.until_deadline_passed(sales[OWN], 20)
    house.until_deadline_passed(sales[LATE], 300)
    for moment, act in ACTS.items():
        for sale in sales[moment]:
            act(sale)


def _let_hold_end(sale: Sale) -> None:
    Reservation.objects.filter(pk=sale.reservation.id).update(expires_at=clock.now() - timedelta(seconds=1))


def _begin_event(sale: Sale) -> None:
    Event.objects.filter(pk=sale.reservation.event_id).update(starts_at=clock.now() - timedelta(hours=1))


def _call_off(sale: Sale) -> None:
    event_cancellation.begin(sale.reservation.event_id, "It rains.", "staff:1")
    event_cancellation.step(sale.reservation.event_id)


def _cancel(sale: Sale) -> None:
    try:
        order_cancellation.cancel_order(sale.order_id)
    except OrderNotCancelable:
        assert sale.order.status in ("confirmed", "refunded")


ACTS: dict[str, Callable[[Sale], object]] = {
    HOLD_OVER: _let_hold_end,
    STARTED: _begin_event,
    BY_BUYER: _cancel,
    BY_STAFF: lambda sale: order_cancellation.refund_order(sale.order_id, "staff:1"),
    CALLED_OFF: _call_off,
}
