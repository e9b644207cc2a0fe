"""Many sales at once in one hall, time that passes by moving rows, and the end that every run must come to."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import F

from apps.orders import canceling, comparing, inbox
from apps.orders.checkout import check_out
from apps.orders.models import Order, Payment, ProviderMessage, ProviderStanding, Refund
from apps.queue import facade as queue
from apps.reservations import facade as reservations
from apps.reservations.models import Reservation
from tests.factories import make_event, wish
from tests.money.books import HEADERS, NAME, Books, Fact
from tests.money.converging import assert_money_converged
from tests.orders.sale import body, deliver_all
from ticketing.kernel import clock, maintenance
from ticketing.kernel.idempotency import Answer
from ticketing.kernel.outbox.models import OutboxMessage

GRACE_SECONDS = 60
SEATS_PER_ROW = 50
BATCH = 50
ROUNDS_MAX = 12
LEAVE_OUT = ("deliver", "collect", "forget", "tell", "reset", "report")
"""Maintenance jobs, by how they begin, that move no money."""


@dataclass
class Sale:
    """One buyer's way through a checkout. `label` names the case when something is wrong at the end."""

    label: str
    reservation: reservations.ReservationView
    seats: list[str]
    key: str
    answers: list[tuple[str, Answer]] = field(default_factory=list)
    """What each idempotency key was answered first."""
    order_id: UUID | None = None

    @property
    def order(self) -> Order:
        return Order.objects.get(pk=self.order_id)

    def payment(self, attempt: int = 1) -> Payment:
        return Payment.objects.get(order_id=self.order_id, attempt=attempt)


class House:
    """An event with many seats, its buyers, and a provider whose books are its own."""

    def __init__(self, books: Books, seats: int) -> None:
        self.books = books
        self.event = make_event(rows=-(-seats // SEATS_PER_ROW), seats_per_row=SEATS_PER_ROW)
        self.sales: list[Sale] = []
        self._free = (
            f"hall-{chr(ord('A') + number // SEATS_PER_ROW)}-{number % SEATS_PER_ROW + 1}" for number in range(seats)
        )

    def hold(self, labels: Sequence[str]) -> list[Sale]:
        """A live reservation of one seat for each of these labels, by a buyer each."""
        sales: list[Sale] = []
        for start in range(0, len(labels), BATCH):
            part = labels[start : start + BATCH]
            seats = [next(self._free) for _ in part]
            for label, seat, view in zip(part, seats, self._held([[seat] for seat in seats]), strict=True):
                sales.append(Sale(label, view, [seat], key=f"checkout {len(self.sales) + len(sales)}"))
        self.sales += sales
        return sales

    def place(self, labels: Sequence[str]) -> list[Sale]:
        """The same with an order each, whose charge waits in the outbox."""
        sales = self.hold(labels)
        for sale in sales:
            self.check_out(sale)
        # On a busy machine many checkouts take longer than there is time to pay for one.
        later = timedelta(minutes=30)
        orders = Order.objects.filter(pk__in=[sale.order_id for sale in sales])
        Reservation.objects.filter(pk__in=[sale.reservation.id for sale in sales]).update(
            pay_deadline=F("pay_deadline") + later
        )
        Payment.objects.filter(order__in=orders).update(counts_until=F("counts_until") + later)
        orders.update(pay_deadline=F("pay_deadline") + later)
        return sales

    def charge(self, labels: Sequence[str]) -> list[Sale]:
        """The same, and the provider has been asked for the money."""
        sales = self.place(labels)
        deliver_all()
        return sales

    def ask_nothing(self) -> None:
        """What waits to ask the provider waits until all time passes: until then only its own words tell."""
        OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now() + timedelta(hours=1))

    def check_out(self, sale: Sale, key: str = "") -> Answer:
        """The checkout was asked for with this key and answered, and its answer is kept to be compared in the end."""
        key = key or sale.key
        answer = check_out(sale.reservation, body(), key)
        sale.order_id = UUID(json.loads(answer.body)["order_id"])
        sale.answers.append((key, answer))
        return answer

    def tell(self, sale: Sale, attempt: int, fact: Fact) -> None:
        """The provider's word of this has been received; it waits to be processed."""
        inbox.receive(NAME, self.books.word_of(str(sale.payment(attempt).pk), fact), HEADERS)

    def age(self, sales: Iterable[Sale], by: timedelta) -> None:
        """Everything about these sales happened so much earlier."""
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
        self.books.age({str(pk) for pk in payments.values_list("pk", flat=True)}, by)

    def deadline(self, sale: Sale) -> datetime:
        return sale.order.pay_deadline

    def until_deadline_passed(self, sales: Sequence[Sale], seconds: float) -> None:
        """The time of these sales to pay was over so many seconds ago or more; nobody has swept or failed anything."""
        if sales:
            latest = max(map(self.deadline, sales))
            self.age(sales, latest - clock.now() + timedelta(seconds=seconds))

    def sweep(self) -> None:
        """What has lapsed has failed and is free."""
        while canceling.fail_lapsed():
            pass
        reservations.sweep_all()

    def take(self, sales: Sequence[Sale]) -> None:
        """Somebody else holds the seats of these sales."""
        for start in range(0, len(sales), BATCH):
            self._held([sale.seats for sale in sales[start : start + BATCH]])

    def pass_all_time(self) -> None:
        """The clock has passed every deadline of these sales, and whatever runs by itself has run until nothing
        moves. Who has taken their seats keeps them."""
        for _ in range(ROUNDS_MAX):
            self.age(self.sales, timedelta(hours=1))
            # Workers that were killed hold their claims no more, and every pause is over.
            OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now(), claimed_until=None)
            ProviderStanding.objects.filter(rests_until__isnull=False).update(rests_until=clock.now())
            before = self._state()
            for job in list(maintenance._jobs.values()):
                if not job.name.startswith(LEAVE_OUT):
                    job.run()
            reservations.sweep_all()
            deliver_all()
            for day in self.books.days():
                comparing.compare_day(NAME, day)
            deliver_all()
            if before == self._state():
                return
        raise AssertionError(f"it still moves after {ROUNDS_MAX} rounds")

    def assert_converged(self) -> None:
        """All time has passed, and the oracle finds nothing wrong; each idempotency key is still answered the same."""
        self.pass_all_time()
        assert_money_converged(self.books, {sale.order_id: sale.label for sale in self.sales if sale.order_id})
        for sale in self.sales:
            for key, answer in sale.answers:
                assert check_out(sale.reservation, body(), key) == answer, f"{sale.label}: another answer"

    def _held(self, seats: Sequence[list[str]]) -> list[reservations.ReservationView]:
        callers = [queue.Caller(account_id=None, visitor_id=queue.new_visitor_id()) for _ in seats]
        entries: Any = queue.join_many([queue.JoinRequest(self.event, caller) for caller in callers])
        wishes = [wish(self.event, entry, seats=each) for entry, each in zip(entries, seats, strict=True)]
        views = []
        for outcome in reservations.hold(wishes):
            assert isinstance(outcome, reservations.Held), outcome
            views.append(reservations.get_reservation(outcome.reservation_id))
        return views

    def _state(self) -> tuple[Any, ...]:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT (SELECT array_agg(status ORDER BY id) FROM orders_order),"
                " (SELECT array_agg(status ORDER BY id) FROM orders_payment),"
                " (SELECT array_agg(status ORDER BY id) FROM orders_refund),"
                " (SELECT count(*) FROM outbox_outboxmessage WHERE done_at IS NULL)"
            )
            return tuple(cursor.fetchone())


OpenHouse = Callable[[int], House]
