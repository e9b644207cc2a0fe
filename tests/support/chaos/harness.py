"""Many sales in one hall, time that is simulated by changing rows, and the end state that every run must reach."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import F

from apps.events.facade import PricePolicy
from apps.kernel import clock, maintenance
from apps.kernel.http.idempotency import Answer
from apps.kernel.outbox.models import OutboxMessage
from apps.orders.cancellation import order_cancellation
from apps.orders.checkout.checkout import check_out
from apps.orders.models import (
    ComparedDay,
    EventCancellation,
    Order,
    Payment,
    ProviderMessage,
    ProviderStanding,
    Refund,
    Ticket,
)
from apps.orders.provider_sync import event_storage
from apps.orders.webhooks import delivery
from apps.queue import facade as queue
from apps.reservations import facade as reservations
from apps.reservations.models import Reservation
from tests.support.chaos.convergence import assert_money_converged
from tests.support.chaos.provider_ledger import HEADERS, NAME, Fact, FakeProvider
from tests.support.chaos.webhook_receiver import Organizer
from tests.support.factories import make_event, make_hold_request
from tests.support.orders.sale import checkout_body, deliver_outbox, make_code
from tests.support.orders.webhook_endpoints import make_endpoint, make_feed_key

GRACE_SECONDS = 60
SEATS_PER_ROW = 50
BATCH = 50
ROUNDS_MAX = 12
LEAVE_OUT = ("deliver", "collect", "forget", "tell", "reset", "report")
"""Prefixes of maintenance jobs that move no money."""

# A seat of 50.00 less 10 %: 45.00, and its fee: 2.50 and 10 % of 45.00. The tax is included, or added.
TAX_INCLUDED = PricePolicy(ticket_fee_minor=250, ticket_fee_rate=1_000, order_fee_minor=100, tax_rate=1_900)
TAX_ADDED = replace(TAX_INCLUDED, tax_rate=2_000, tax_included=False)


@dataclass(frozen=True)
class Prices:
    """The prices of a sale at an event with fees, tax and a promo code, computed by hand."""

    policy: PricePolicy
    seat_minor: int
    seat_fee_minor: int
    """Included in it; with tax."""
    order_fee_minor: int


INCLUDED = Prices(TAX_INCLUDED, seat_minor=5_200, seat_fee_minor=700, order_fee_minor=100)
ADDED = Prices(TAX_ADDED, seat_minor=6_240, seat_fee_minor=840, order_fee_minor=120)


@dataclass
class Sale:
    """One buyer's checkout. `label` names the case in error messages."""

    label: str
    reservation: reservations.ReservationView
    seats: list[str]
    key: str
    code: str = ""
    """A promo code for one order."""
    answers: list[tuple[Callable[[], Answer], Answer]] = field(default_factory=list)
    """Each request with an idempotency key, and its first answer."""
    order_id: UUID | None = None
    ends: str = ""
    """The order's status at the end; empty: whatever the oracle accepts."""
    keeps_minor: int | None = None
    """What the provider must keep at the end; None: whatever the oracle accepts."""

    @property
    def order(self) -> Order:
        return Order.objects.get(pk=self.order_id)

    @property
    def tickets(self) -> list[str]:
        """The codes of the valid tickets."""
        valid = Ticket.objects.filter(order=self.order_id, voided_at=None).order_by("pk")
        return list(valid.values_list("code", flat=True))

    def payment(self, attempt: int = 1) -> Payment:
        return Payment.objects.get(order_id=self.order_id, attempt=attempt)


class Scenario:
    """An event with many seats, its buyers, a listening organizer, and a provider with independent accounts.

    With `prices` it charges fees and tax, and each buyer has a promo code for one order.
    """

    def __init__(self, provider: FakeProvider, organizer: Organizer, seats: int, prices: Prices | None = None) -> None:
        self.provider, self.organizer, self.prices = provider, organizer, prices
        self.sales: list[Sale] = []
        self._events = count(1)
        make_endpoint(organizer.url)
        make_feed_key()
        self.move(seats)

    def move(self, seats: int) -> None:
        """Sell another event, with this number of seats, from now on."""
        policy = {} if self.prices is None else {"price_policy": self.prices.policy}
        rows = -(-seats // SEATS_PER_ROW)
        self.event = make_event(f"concert-{next(self._events)}", rows=rows, seats_per_row=SEATS_PER_ROW, **policy)
        self._free = (
            f"hall-{chr(ord('A') + number // SEATS_PER_ROW)}-{number % SEATS_PER_ROW + 1}" for number in range(seats)
        )

    def hold(self, labels: Sequence[str], seats: int = 1) -> list[Sale]:
        """Hold this many seats for each label, each label being one buyer."""
        sales: list[Sale] = []
        for start in range(0, len(labels), BATCH):
            part = labels[start : start + BATCH]
            wanted = [[next(self._free) for _ in range(seats)] for _ in part]
            for label, guids, view in zip(part, wanted, self._held(wanted), strict=True):
                number = len(self.sales) + len(sales)
                sales.append(Sale(label, view, guids, key=f"checkout {number}", code=self._code(number)))
        self.sales += sales
        return sales

    def _code(self, number: int) -> str:
        if self.prices is None:
            return ""
        return make_code(self.event, code=f"FAN{number}", rate=1_000, uses_max=1, uses_per_buyer_max=1).code

    def place(self, labels: Sequence[str], seats: int = 1) -> list[Sale]:
        """Hold and place an order each, whose charges wait in the outbox."""
        sales = self.hold(labels, seats)
        for sale in sales:
            self.check_out(sale)
        # On a busy machine many checkouts take longer than one payment deadline.
        later = timedelta(minutes=30)
        orders = Order.objects.filter(pk__in=[sale.order_id for sale in sales])
        Reservation.objects.filter(pk__in=[sale.reservation.id for sale in sales]).update(
            pay_deadline=F("pay_deadline") + later
        )
        Payment.objects.filter(order__in=orders).update(counts_until=F("counts_until") + later)
        orders.update(pay_deadline=F("pay_deadline") + later)
        return sales

    def charge(self, labels: Sequence[str], seats: int = 1) -> list[Sale]:
        """Hold, place and charge at the provider."""
        sales = self.place(labels, seats)
        deliver_outbox()
        return sales

    def postpone_inquiries(self) -> None:
        """Postpone queued inquiries until the end: until then only the provider's own messages report outcomes."""
        OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now() + timedelta(hours=1))

    def check_out(self, sale: Sale, key: str = "") -> Answer:
        """Check out with this key, and keep the answer to be compared at the end."""
        key = key or sale.key
        body = checkout_body(code=sale.code) if sale.code else checkout_body()
        answer = self.send(sale, lambda: check_out(sale.reservation, body, key))
        sale.order_id = UUID(json.loads(answer.body)["order_id"])
        return answer

    def send(self, sale: Sale, request: Callable[[], Answer]) -> Answer:
        """Send the request and keep its answer: repeated at the end, it must get the same."""
        answer = request()
        sale.answers.append((request, answer))
        return answer

    def receive_report(self, sale: Sale, attempt: int, fact: Fact) -> None:
        """Receive the provider's message of this fact; it waits to be processed."""
        event_storage.receive(NAME, self.provider.payload_of(str(sale.payment(attempt).pk), fact), HEADERS)

    def age(self, sales: Iterable[Sale], by: timedelta) -> None:
        """Move everything about these sales into the past."""
        reservation_ids = [sale.reservation.id for sale in sales]
        orders = Order.objects.filter(reservation_id__in=reservation_ids)
        Reservation.objects.filter(pk__in=reservation_ids).update(
            pay_deadline=F("pay_deadline") - by, expires_at=F("expires_at") - by
        )
        payments = Payment.objects.filter(order__in=orders)
        payments.update(
            **{name: F(name) - by for name in ("counts_until", "occurred_at", "created_at", "started_at", "settled_at")}
        )
        Refund.objects.filter(order__in=orders).update(requested_at=F("requested_at") - by, asked_at=F("asked_at") - by)
        ProviderMessage.objects.filter(payment__in=payments).update(occurred_at=F("occurred_at") - by)
        orders.update(**{name: F(name) - by for name in ("pay_deadline", "placed_at", "confirmed_at", "ended_at")})
        EventCancellation.objects.filter(event__in=orders.values("event")).update(started_at=F("started_at") - by)
        self.provider.age({str(pk) for pk in payments.values_list("pk", flat=True)}, by)

    def deadline(self, sale: Sale) -> datetime:
        return sale.order.pay_deadline

    def backdate_deadlines(self, sales: Sequence[Sale], seconds: float) -> None:
        """Move the payment deadlines of these sales at least this many seconds into the past, without a sweep."""
        if sales:
            latest = max(map(self.deadline, sales))
            self.age(sales, latest - clock.now() + timedelta(seconds=seconds))

    def sweep(self) -> None:
        """Fail the lapsed orders and free their seats."""
        while order_cancellation.fail_expired_orders():
            pass
        reservations.sweep_all()

    def take(self, sales: Sequence[Sale]) -> None:
        """Let other buyers hold the seats of these sales."""
        for start in range(0, len(sales), BATCH):
            self._held([sale.seats for sale in sales[start : start + BATCH]])

    def run_to_the_end(self) -> None:
        """Pass every deadline of these sales, and run every background job until nothing changes. Buyers who have taken
        their seats keep them."""
        for _ in range(ROUNDS_MAX):
            self.age(self.sales, timedelta(hours=1))
            # Killed workers no longer hold their claims, and every pause is over.
            OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now(), claimed_until=None)
            ProviderStanding.objects.filter(rests_until__isnull=False).update(rests_until=clock.now())
            delivery._pauses.clear()
            ComparedDay.objects.all().delete()
            before = self._state()
            for job in list(maintenance._jobs.values()):
                if not job.name.startswith(LEAVE_OUT):
                    job.run()
            reservations.sweep_all()
            deliver_outbox()
            if before == self._state():
                return
        raise AssertionError(f"still changing after {ROUNDS_MAX} rounds")

    def assert_converged(self) -> None:
        """Run to the end, and assert that the oracle finds no error, that each sale ended as expected, and that each
        idempotency key still gets the same answer."""
        self.run_to_the_end()
        labels = {sale.order_id: sale.label for sale in self.sales if sale.order_id}
        assert_money_converged(self.provider, self.organizer, labels)
        other = [line for sale in self.sales for line in self._find_unexpected(sale)]
        assert not other, f"{len(other)} unexpected:\n" + "\n".join(other[:40])

    def _find_unexpected(self, sale: Sale) -> Iterator[str]:
        if sale.ends and sale.order.status != sale.ends:
            yield f"{sale.label}: {sale.order.status}, not {sale.ends}"
        if sale.keeps_minor is not None:
            keys = {str(pk) for pk in Payment.objects.filter(order=sale.order_id).values_list("pk", flat=True)}
            kept_minor = sum(charge.kept_minor for charge in self.provider.charges.values() if charge.key in keys)
            if kept_minor != sale.keeps_minor:
                yield f"{sale.label}: the provider keeps {kept_minor}, not {sale.keeps_minor}"
        for request, answer in sale.answers:
            if request() != answer:
                yield f"{sale.label}: another answer"

    def _held(self, seats: Sequence[list[str]]) -> list[reservations.ReservationView]:
        callers = [queue.Caller(account_id=None, visitor_id=queue.new_visitor_secret()) for _ in seats]
        entries: Any = queue.join_many([queue.JoinRequest(self.event, caller) for caller in callers])
        requests = [
            make_hold_request(self.event, entry, seats=each) for entry, each in zip(entries, seats, strict=True)
        ]
        views = []
        for outcome in reservations.hold(requests):
            assert isinstance(outcome, reservations.Held), outcome
            views.append(reservations.get_reservation(outcome.reservation_id))
        return views

    def _state(self) -> tuple[Any, ...]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT (SELECT array_agg(status ORDER BY id) FROM orders_order),"
                " (SELECT array_agg(status ORDER BY id) FROM orders_payment),"
                " (SELECT array_agg(status ORDER BY id) FROM orders_refund),"
                " (SELECT count(*) FROM outbox_outboxmessage WHERE done_at IS NULL AND dead_at IS NULL)"
            )
            return tuple(cursor.fetchone())


OpenScenario = Callable[..., Scenario]
