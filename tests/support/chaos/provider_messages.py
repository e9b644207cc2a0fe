"""Cases of provider messages: what is reported about a sale and when, a model of the expected end, and the player of
cases."""

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
from tests.support.chaos.harness import GRACE_SECONDS, Sale, Scenario
from tests.support.chaos.provider_ledger import Fact
from tests.support.orders.sale import deliver_outbox


@dataclass(frozen=True)
class Report:
    """A provider's report about a payment attempt."""

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


PENDING, DECLINED, SUCCEEDED = (Report(1, kind) for kind in (Kind.PENDING, Kind.DECLINED, Kind.SUCCEEDED))
PENDING_AGAIN, DECLINED_AGAIN, SUCCEEDED_AGAIN = (
    Report(2, kind) for kind in (Kind.PENDING, Kind.DECLINED, Kind.SUCCEEDED)
)
DECLINED_AT_LAST = Report(ATTEMPTS_MAX, Kind.DECLINED)
SHORT, FOREIGN = Report(1, Kind.SUCCEEDED, amount_minor=1), Report(1, Kind.SUCCEEDED, currency="EUR")

BEFORE = "before the deadline"
HOLD_OVER = "after the hold's time, before the deadline"
OWN = "within grace, seats still held"
FREE = "within grace, seats swept and free"
TAKEN = "within grace, seats taken by another buyer"
IN_TIME = "after grace, paid in time, seats swept and free"
STARTED = "after the event began, paid in time, seats swept and free"
LATE = "after grace, unswept"
LATE_SWEPT = "after grace, swept"
BY_BUYER = "after the buyer canceled"
BY_STAFF = "after staff refunded it"
EVENT_CANCELED = "after the event was canceled"
MOMENTS = (
    BEFORE, HOLD_OVER, OWN, FREE, TAKEN, IN_TIME, STARTED, LATE, LATE_SWEPT, BY_BUYER, BY_STAFF, EVENT_CANCELED,
)  # fmt: skip
SWEPT = (FREE, TAKEN, IN_TIME, STARTED, LATE_SWEPT)
OF_EVENTS = (STARTED, EVENT_CANCELED)
"""Their sales have an event of their own."""


@dataclass(frozen=True)
class Case:
    reports: tuple[Report, ...]
    """In the order of their arrival."""
    moment: str
    turn: int
    """The number of reports that arrive before the moment."""

    def __str__(self) -> str:
        labels = [f"{report.kind.removeprefix('payment.')}{report.attempt}" for report in self.reports]
        return f"{' '.join(labels[: self.turn])} | {self.moment} | {' '.join(labels[self.turn :])}"


class Model:
    """The expected end of a case, derived from the rules and not from the code: the first successful payment that
    counts gets the seats, all other money is refunded."""

    def __init__(self, attempts: int) -> None:
        self.status = "placed" if attempts > 1 else "paying"
        self.pending = attempts
        """The pending attempt; 0: none."""
        self.paid: set[int] = set()
        self.moment = BEFORE
        self.is_on_sale_again = False
        """The hold's seats are on sale again: the last attempt was declined."""

    def reach(self, moment: str) -> None:
        self.moment = moment
        if moment in SWEPT and self.is_open:
            self.status = "failed"
        if moment == BY_BUYER and self.is_open:
            self.status = "canceled"
        if moment in (BY_STAFF, EVENT_CANCELED):
            self.status = {"confirmed": "refunded"}.get(self.status, "canceled" if self.is_open else self.status)

    @property
    def is_open(self) -> bool:
        return self.status in ("placed", "paying")

    def receive(self, report: Report, *, occurred_late: bool) -> None:
        if report.kind == Kind.DECLINED and report.attempt == self.pending:
            self.pending = 0
            if self.is_open:
                is_early, is_last = self.moment in (BEFORE, HOLD_OVER), report.attempt == ATTEMPTS_MAX
                self.status = "placed" if is_early and not is_last else "failed"
                self.is_on_sale_again = is_early and is_last
        if report.is_money and report.attempt not in self.paid:
            self.paid.add(report.attempt)
            self.pending = 0 if report.attempt == self.pending else self.pending
            if self.status in ("confirmed", "refunded"):
                return
            has_seats = self.moment != TAKEN and not self.is_on_sale_again
            counts = report.is_right and not occurred_late and has_seats and self.status != "canceled"
            self.status = "confirmed" if counts else "refunded"

    def end(self, unreceived: Sequence[Report], *, occurred_late: bool) -> None:
        """Run to the end: missing reports are received by inquiry, first about the pending attempt, then by daily
        comparison."""
        if self.is_open:
            self.status = "failed"
        for report in sorted(unreceived, key=lambda report: report.attempt != self.pending):
            self.receive(report, occurred_late=occurred_late)


def expected(case: Case, reports: Sequence[Report]) -> str:
    model, late = Model(attempts_of(reports)), case.moment in (LATE, LATE_SWEPT)
    for report in case.reports[: case.turn]:
        model.receive(report, occurred_late=False)
    model.reach(case.moment)
    for report in case.reports[case.turn :]:
        model.receive(report, occurred_late=late)
    model.end([report for report in reports if report not in case.reports], occurred_late=late)
    return model.status


def attempts_of(reports: Sequence[Report]) -> int:
    return max(report.attempt for report in reports)


def play(scenario: Scenario, story: str, reports: Sequence[Report], played: Sequence[Case]) -> None:
    """Play each case with its own sale; reports that a case leaves out happen as well, but their messages are lost. In
    the end every sale has the model's status, and the oracle finds no error."""
    sales = dict(zip(played, _begin(scenario, story, reports, played), strict=True))
    scenario.postpone_inquiries()
    facts: dict[Case, dict[Report, Fact]] = {case: {} for case in played}
    for case, sale in sales.items():
        _arrive(scenario, sale, case.reports[: case.turn], facts[case], seconds=None)
    deliver_outbox()
    _reach_moments(scenario, {moment: [sales[case] for case in played if case.moment == moment] for moment in MOMENTS})
    for case, sale in sales.items():
        seconds = OCCURS_AFTER.get(case.moment)
        _arrive(scenario, sale, case.reports[case.turn :], facts[case], seconds=seconds)
        for report in reports:
            if report not in facts[case]:
                _record(scenario, sale, report, seconds)
        sale.ends = expected(case, reports)
    deliver_outbox()
    scenario.assert_converged()


OCCURS_AFTER = {
    OWN: 10,
    FREE: 10,
    TAKEN: 10,
    IN_TIME: -10,
    STARTED: -10,
    LATE: GRACE_SECONDS + 10,
    LATE_SWEPT: GRACE_SECONDS + 10,
}  # fmt: skip
"""The time of the reports after the moment, in seconds after the deadline; otherwise now."""


def _begin(scenario: Scenario, story: str, reports: Sequence[Report], played: Sequence[Case]) -> list[Sale]:
    """Begin all sales at the provider; those of event-wide moments at an event of their own."""
    sales: dict[Case, Sale] = {}
    for of_event in (*OF_EVENTS, None):
        cases = [case for case in played if (case.moment if case.moment in OF_EVENTS else None) == of_event]
        if cases:
            scenario.move(len(cases))
            sales |= zip(cases, scenario.charge([f"{story}: {case}" for case in cases]), strict=True)
    begun = [sales[case] for case in played]
    for attempt in range(1, attempts_of(reports)):
        _try_again(scenario, begun, attempt)
    return begun


def _try_again(scenario: Scenario, sales: Iterable[Sale], attempt: int) -> None:
    """Decline this attempt and begin another one at the provider."""
    sales = list(sales)
    for sale in sales:
        scenario.receive_report(sale, attempt, scenario.provider.happen(str(sale.payment(attempt).pk), Kind.DECLINED))
    deliver_outbox()
    for sale in sales:
        scenario.check_out(sale, key=f"{sale.key} try {attempt + 1}")
    deliver_outbox()


def _arrive(
    scenario: Scenario, sale: Sale, reports: Sequence[Report], known: dict[Report, Fact], *, seconds: int | None
) -> None:
    """Receive these reports in this order. One that is new happens now, or this many seconds after the sale's
    deadline."""
    for report in reports:
        if report not in known:
            known[report] = _record(scenario, sale, report, seconds)
        scenario.receive_report(sale, report.attempt, known[report])


def _record(scenario: Scenario, sale: Sale, report: Report, seconds: int | None) -> Fact:
    return scenario.provider.happen(
        str(sale.payment(report.attempt).pk),
        report.kind,
        occurred_at=None if seconds is None else scenario.deadline(sale) + timedelta(seconds=seconds),
        amount_minor=report.amount_minor,
        currency=report.currency,
    )


def _reach_moments(scenario: Scenario, sales: dict[str, list[Sale]]) -> None:
    """Bring each of these sales to its moment."""
    scenario.backdate_deadlines([*sales[FREE], *sales[TAKEN]], 20)
    scenario.backdate_deadlines([*sales[IN_TIME], *sales[STARTED], *sales[LATE_SWEPT]], 300)
    scenario.sweep()
    scenario.take([sale for sale in sales[TAKEN] if sale.order.status == "failed"])
    scenario.backdate_deadlines(sales[OWN], 20)
    scenario.backdate_deadlines(sales[LATE], 300)
    for moment, act in ACTS.items():
        for sale in sales[moment]:
            act(sale)


def _end_hold(sale: Sale) -> None:
    Reservation.objects.filter(pk=sale.reservation.id).update(expires_at=clock.now() - timedelta(seconds=1))


def _begin_event(sale: Sale) -> None:
    Event.objects.filter(pk=sale.reservation.event_id).update(starts_at=clock.now() - timedelta(hours=1))


def _cancel_event(sale: Sale) -> None:
    event_cancellation.begin(sale.reservation.event_id, "It rains.", "staff:1")
    event_cancellation.step(sale.reservation.event_id)


def _cancel(sale: Sale) -> None:
    try:
        order_cancellation.cancel_order(sale.order_id)
    except OrderNotCancelable:
        assert sale.order.status in ("confirmed", "refunded")


ACTS: dict[str, Callable[[Sale], object]] = {
    HOLD_OVER: _end_hold,
    STARTED: _begin_event,
    BY_BUYER: _cancel,
    BY_STAFF: lambda sale: order_cancellation.refund_order(sale.order_id, "staff:1"),
    EVENT_CANCELED: _cancel_event,
}
