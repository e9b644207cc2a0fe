"""Races for the next attempt of a declined payment. Each ends with a clean audit."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import IntegrityError, connection

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import topics
from apps.orders.cancellation import order_cancellation
from apps.orders.checkout import checkout
from apps.orders.checkout.checkout import check_out
from apps.orders.errors import CodeUsedUp
from apps.orders.models import CodeUse, Order, Payment, Refund, Ticket
from apps.orders.payments import settlement
from apps.orders.payments.providers import sandbox
from apps.orders.promo_codes import promo_codes
from apps.orders.provider_sync import event_storage, inbox
from apps.reservations import facade as reservations
from apps.reservations.payment import PaymentStart
from tests.support.factories import (
    SEAT_PRICE_MINOR,
    assert_audit_clean,
    backdate_deadline,
    hold,
    join,
    make_event,
    make_hold_request,
)
from tests.support.orders.sale import (
    backdate_pay_deadline,
    buy,
    checkout_body,
    deliver_outbox,
    make_code,
    payment_of,
    place_order,
    receive_webhook,
)
from tests.support.orders.sandbox_rows import SandboxCharge, SandboxRefund
from tests.support.races import ConcurrentCall, in_another_connection, rival_at, run_at, storm, values

pytestmark = pytest.mark.django_db(transaction=True)
HALF = SEAT_PRICE_MINOR // 2


@pytest.fixture(autouse=True)
def _audit() -> Any:
    yield
    assert_audit_clean()


@pytest.fixture
def concert() -> events.EventView:
    return make_event("concert")


@pytest.fixture
def held(concert: events.EventView) -> reservations.ReservationView:
    """A reservation whose first payment was declined."""
    view = hold(concert, seats=["hall-A-1"])
    assert buy(view, sandbox.DECLINES).status == Order.Status.PLACED
    return reservations.get_reservation(view.id)


def kept_minor(order: Order) -> int:
    return sum(payment.captured_minor - payment.refunded_minor for payment in order.payments.all())


def the_order() -> Order:
    return Order.objects.get()


def deliver_all() -> None:
    """Deliver the outbox, and what waits in it."""
    for _ in range(3):
        OutboxMessage.objects.filter(done_at=None, dead_at=None).update(available_at=clock.now())
        deliver_outbox()


# --- the deadline ----------------------------------------------------------------------------------------------------


def test_attempts_do_not_move_the_deadline(held) -> None:
    deadline = held.expires_at
    assert held.pay_deadline == deadline
    for _ in range(2):
        order = buy(held, sandbox.DECLINES)
    assert reservations.get_reservation(held.id).pay_deadline == order.pay_deadline == deadline
    assert {payment.counts_until - order.pay_deadline for payment in order.payments.all()} == {
        payment_of(order).counts_until - deadline
    }
    assert order.status == Order.Status.FAILED


def sweep_at_the_deadline(held: reservations.ReservationView) -> None:
    backdate_deadline(held.id)
    reservations.sweep()


def test_a_retry_that_meets_the_sweep_starts_no_attempt(held) -> None:
    """R: a retry locks the order, and reads that enough time is left
    S: the deadline passes; the sweep ends the reservation, and commits
    R: locks the reservation, reads that it has ended: refused, nothing is charged
    """
    with (
        rival_at("lock_reservation", "before", lambda: sweep_at_the_deadline(held)),
        pytest.raises(reservations.ReservationExpired),
    ):
        place_order(held)
    assert Payment.objects.count() == 1
    backdate_pay_deadline(the_order())
    assert order_cancellation.fail_expired_orders() == 1
    assert SandboxCharge.objects.count() == 1


def test_control_a_retry_that_trusts_the_orders_row_charges_for_released_seats(concert, held, monkeypatch) -> None:
    """The naive retry reads the deadline from the order alone: it starts a charge although the sweep has ended the
    reservation. Another buyer has the seat by then, so the money has to go back."""

    def naive(reservation_id: Any, **_: Any) -> PaymentStart:
        in_another_connection(lambda: sweep_at_the_deadline(held))
        return PaymentStart(the_order().pay_deadline, clock.now())

    with monkeypatch.context() as patch:
        patch.setattr(reservations, "begin_payment", naive)
        place_order(held)
    hold(concert, seats=["hall-A-1"])
    deliver_all()
    assert SandboxCharge.objects.filter(status="succeeded").count() == 1
    order = the_order()
    assert order.status == Order.Status.REFUNDED
    backdate_pay_deadline(order)


def test_a_sweep_waits_for_the_retry_and_leaves_the_reservation_alone(held) -> None:
    """R: a retry has locked order and reservation, 31 seconds before the deadline
    S: sweeps, and skips the locked reservation; its deadline has not passed either
    R: commits; the charge is made, and the seat is sold
    """
    backdate_pay_deadline(the_order(), seconds=-31)
    with rival_at("lock_reservation", "after", reservations.sweep):
        place_order(held)
    deliver_outbox()
    assert the_order().status == Order.Status.CONFIRMED


# --- two attempts at once --------------------------------------------------------------------------------------------


def test_retries_with_different_keys_and_codes_start_one_attempt_at_one_price(concert, held) -> None:
    """Six tabs, each with its own key, half of them with a code. Under the order's lock one starts attempt 2; the
    others then read a pending payment, and all get 202 with the same order."""
    make_code(concert)
    codes = ["", "HALFPRICE"] * 3
    answers = values(storm(6, lambda at: check_out(held, checkout_body(code=codes[at]), f"again {at}")))
    assert {answer.status for answer in answers} == {202}
    assert len({answer.body for answer in answers}) == 1
    deliver_outbox()
    order, second = the_order(), payment_of(the_order(), 2)
    assert Payment.objects.count() == SandboxCharge.objects.count() == 2
    assert order.status == Order.Status.CONFIRMED
    assert second.captured_minor == order.total_minor == kept_minor(order)
    assert CodeUse.objects.count() == (order.total_minor == HALF)


def test_control_without_the_orders_lock_the_second_retry_fails_on_the_constraint(held, monkeypatch) -> None:
    """Both read a declined payment before either writes. Only the database's constraint refuses the second attempt, and
    its buyer sees an error instead of the order."""
    both_have_read = threading.Barrier(2)

    def read_without_lock(reservation_id: Any) -> Order:
        order = Order.objects.get(reservation_id=reservation_id)
        both_have_read.wait(timeout=10)
        return order

    def naive(number: int) -> Any:
        return check_out(held, checkout_body(), f"again {number}")

    started = threading.Barrier(2)

    def begin_together(reservation_id: Any, **_: Any) -> PaymentStart:
        started.wait(timeout=10)
        return PaymentStart(the_order().pay_deadline, clock.now())

    with monkeypatch.context() as patch:
        patch.setattr(checkout, "lock_order_of_reservation", read_without_lock)
        patch.setattr(reservations, "begin_payment", begin_together)
        outcomes = storm(2, naive)
    assert [type(outcome.error) for outcome in outcomes if outcome.error is not None] == [IntegrityError]
    deliver_outbox()
    assert the_order().status == Order.Status.CONFIRMED


# --- an earlier attempt succeeds late --------------------------------------------------------------------------------


def first_succeeds_after_all(order: Order) -> bytes:
    """Make attempt 1 succeed at the provider, where it was declined and perhaps canceled. Return the webhook."""
    charge = SandboxCharge.objects.get(idempotency_key=str(payment_of(order).pk))
    charge.status, charge.occurred_at = "succeeded", clock.now()
    SandboxCharge.objects.filter(pk=charge.pk).update(status=charge.status, occurred_at=charge.occurred_at)
    return sandbox.messages.charge_message(charge, charge.status, charge.occurred_at)


@pytest.mark.parametrize("code", ["", "HALFPRICE"])
@pytest.mark.parametrize(
    ("moment", "stands"), [("placed", 1), ("being canceled", 1), ("canceled", 1), ("charged", 1), ("confirmed", 2)]
)
def test_of_two_attempts_that_succeed_one_capture_stands(
    concert, held, monkeypatch, moment: str, stands: int, code: str
) -> None:
    """The webhook that attempt 1 has succeeded after all arrives, and another worker processes it: after attempt 2 was
    placed; before or after attempt 1 is canceled at the provider; after the provider has taken attempt 2's money, whose
    answer is not settled yet; or after that. At the same price the first to be settled stands, and other money is
    refunded. With another code only attempt 2's price counts."""
    make_code(concert)
    order = place_order(held, code=code)

    def arrive() -> None:
        raw = first_succeeds_after_all(order)
        assert event_storage.receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})
        process_webhooks()

    def arrive_during(verb: str, *, after: bool) -> None:
        real = getattr(sandbox.Sandbox, verb)

        def call(self: sandbox.Sandbox, *args: Any) -> Any:
            monkeypatch.setattr(sandbox.Sandbox, verb, real)
            if not after:
                in_another_connection(arrive)
            answer = real(self, *args)
            if after:
                in_another_connection(arrive)
            return answer

        monkeypatch.setattr(sandbox.Sandbox, verb, call)

    match moment:
        case "placed":
            arrive()
        case "being canceled":
            arrive_during("cancel", after=False)
        case "canceled":
            arrive_during("cancel", after=True)
        case "charged":
            arrive_during("charge", after=True)
    deliver_all()
    if moment == "confirmed":
        arrive()
        deliver_all()
    order.refresh_from_db()
    price = HALF if code else SEAT_PRICE_MINOR
    assert (order.status, order.total_minor, kept_minor(order)) == (Order.Status.CONFIRMED, price, price)
    kept = [payment.attempt for payment in order.payments.all() if payment.captured_minor > payment.refunded_minor]
    assert kept == [2 if code else stands]
    assert payment_of(order).captured_minor == SEAT_PRICE_MINOR
    assert Ticket.objects.filter(voided_at=None).count() == 1
    assert not Refund.objects.exclude(status=Refund.Status.SUCCEEDED).exists()
    charged = SandboxCharge.objects.filter(status="succeeded").total_minor()
    returned = SandboxRefund.objects.total_minor()
    assert charged - returned == price


def process_webhooks() -> None:
    """Process stored webhooks alone, as another worker would while this one waits for the provider."""
    for message in OutboxMessage.objects.filter(done_at=None, topic=topics.PROVIDER_MESSAGE):
        inbox.process(SimpleNamespace(body=message.body))  # type: ignore[arg-type]


def test_control_money_of_a_replaced_price_would_end_the_order(concert, held, monkeypatch) -> None:
    """The naive settlement compares the amount with the order's total and finds a wrong amount: it ends the order whose
    current attempt is under way, and the buyer loses the seat."""
    make_code(concert)
    order = place_order(held, code="HALFPRICE")
    with monkeypatch.context() as patch:
        patch.setattr(settlement, "is_superseded", lambda *_: False)
        receive_webhook(first_succeeds_after_all(order))
    deliver_all()
    order.refresh_from_db()
    assert (order.status, order.reason) == (Order.Status.REFUNDED, Order.Reason.WRONG_AMOUNT)
    assert kept_minor(order) == 0
    hold(concert, seats=["hall-A-1"])


def test_money_of_a_replaced_price_comes_before_a_decline_of_the_current_attempt(concert, held) -> None:
    """Attempt 1 succeeds late, attempt 2 at half price is declined: the buyer has the seat held and the money back, and
    attempt 3 can still be made."""
    make_code(concert)
    order = place_order(held, sandbox.DECLINES, code="HALFPRICE")
    assert receive_webhook(first_succeeds_after_all(order))
    deliver_all()
    order.refresh_from_db()
    assert (order.status, kept_minor(order)) == (Order.Status.PLACED, 0)
    order = buy(held)
    assert (order.status, kept_minor(order)) == (Order.Status.CONFIRMED, HALF)


# --- codes, cancellation, replacement --------------------------------------------------------------------------------


def test_two_retries_that_want_a_codes_last_use_get_it_once(concert) -> None:
    """Two buyers retry with the same code at once: each waits for the code's row, and the second counts the first's
    use. The refused one keeps its seat, its price and its attempts."""
    make_code(concert, uses_max=1)
    views = [hold(concert, seats=[f"hall-A-{number}"]) for number in (1, 2)]
    for at, view in enumerate(views):
        buy(view, sandbox.DECLINES, email=f"buyer{at}@example.org")
    outcomes = storm(2, lambda at: place_order(views[at], code="HALFPRICE", email=f"buyer{at}@example.org"))
    assert [type(outcome.error) for outcome in outcomes if outcome.error is not None] == [CodeUsedUp]
    assert CodeUse.objects.count() == 1
    loser = next(at for at, outcome in enumerate(outcomes) if outcome.error is not None)
    assert buy(views[loser], email=f"buyer{loser}@example.org").total_minor == SEAT_PRICE_MINOR
    assert set(Order.objects.values_list("status", flat=True)) == {"confirmed"}


def test_two_orders_that_swap_their_codes_do_not_deadlock(concert) -> None:
    """Each order has the code that the other wants: a transaction locks one code only, the one that it takes."""
    for code in ("HALFPRICE", "OTHER"):
        make_code(concert, code=code, uses_max=2)
    views = [hold(concert, seats=[f"hall-A-{number}"]) for number in (1, 2)]
    codes = ["HALFPRICE", "OTHER"]
    for at, view in enumerate(views):
        buy(view, sandbox.DECLINES, code=codes[at], email=f"buyer{at}@example.org")
    values(storm(2, lambda at: place_order(views[at], code=codes[1 - at], email=f"buyer{at}@example.org")))
    assert [promo_codes.used_code(order) for order in Order.objects.order_by("email")] == codes[::-1]


def test_a_retry_that_becomes_free_locks_the_addresss_cap_before_the_code() -> None:
    """Shape: a checkout locks the address's cap row, then the code. A free retry is confirmed at once, which counts the
    address's seats: if it locked the code first, the two could deadlock."""
    event = make_event(per_buyer_max=4)
    code = make_code(event, rate=10_000, uses_max=5)
    view = hold(event, seats=["hall-A-1"])
    buy(view, sandbox.DECLINES)

    def lock_code() -> None:
        with transactions.write(lock_ms=50):
            promo_codes.lock_code(code.pk)

    with rival_at("lock_caps", "after", lock_code):
        assert place_order(view, code="HALFPRICE").status == Order.Status.CONFIRMED


def test_a_retry_and_a_cancellation_at_once_leave_nothing_paid(concert, held) -> None:
    """Whichever has the order's lock first: a retry after the cancellation is refused, and a cancellation after the
    retry ends its attempt before it was sent."""
    outcomes = storm(2, lambda at: place_order(held) if at == 0 else order_cancellation.cancel_order(the_order().pk))
    errors = [type(outcome.error) for outcome in outcomes if outcome.error is not None]
    assert errors in ([], [reservations.ReservationExpired])
    deliver_all()
    order = the_order()
    assert (order.status, kept_minor(order)) == (Order.Status.CANCELED, 0)
    assert SandboxCharge.objects.filter(status="succeeded").count() == 0
    hold(concert, seats=["hall-A-1"])


def test_a_cancellation_while_the_second_attempt_is_charged_refunds_it(concert, held, monkeypatch) -> None:
    real = sandbox.Sandbox.charge

    def canceled_meanwhile(self: sandbox.Sandbox, request: Any) -> Any:
        answer = real(self, request)
        in_another_connection(lambda: order_cancellation.cancel_order(the_order().pk))
        return answer

    place_order(held)
    monkeypatch.setattr(sandbox.Sandbox, "charge", canceled_meanwhile)
    deliver_all()
    order = the_order()
    assert (order.status, order.reason, kept_minor(order)) == ("refunded", "canceled_by_buyer", 0)
    hold(concert, seats=["hall-A-1"])


def test_a_hold_in_payment_is_not_replaced_between_attempts(concert) -> None:
    entry = join(concert)
    view = hold(concert, entry, seats=["hall-A-1"])
    buy(view, sandbox.DECLINES)
    (outcome,) = reservations.hold([make_hold_request(concert, entry, seats=["hall-A-2"], replace=str(view.id))])
    assert isinstance(outcome, reservations.Refused)
    assert outcome.problem.type == "payment-in-progress"
    assert buy(view).status == Order.Status.CONFIRMED


def test_a_hold_that_is_replaced_while_paying_begins_is_paid_or_replaced_not_both(concert) -> None:
    """R: a replacement locks the reservation, and has not committed
    C: the checkout has placed its order, and waits for the reservation
    R: commits: the reservation is canceled
    C: reads that under the lock: refused, and its order is rolled back
    """
    entry = join(concert)
    view = hold(concert, entry, seats=["hall-A-1"])
    request = make_hold_request(concert, entry, seats=["hall-A-2"], replace=str(view.id))
    rivals = []
    with run_at("insert_lines", "before", lambda: rivals.append(ConcurrentCall(lambda: place_order(view)))):
        (outcome,) = reservations.hold([request])
    assert isinstance(outcome, reservations.Held)
    (rival,) = rivals
    with pytest.raises(reservations.ReservationExpired):
        rival.result()
    assert not Order.objects.exists()
    assert reservations.get_reservation(request.reservation_id).is_live


# --- the provider ----------------------------------------------------------------------------------------------------


def test_no_lock_and_no_transaction_is_open_while_the_provider_is_asked(concert, held, monkeypatch) -> None:
    """During each call of the second attempt (cancel the declined charge, charge), another connection locks the order,
    the reservation and the code at once."""
    make_code(concert, uses_max=5)
    asked = []

    def lock_everything() -> None:
        with transactions.write(lock_ms=50), connection.cursor() as cursor:
            for table in ("orders_order", "orders_payment", "reservations_reservation", "orders_promocode"):
                cursor.execute(f"SELECT id FROM {table} ORDER BY id FOR NO KEY UPDATE")

    def watch(verb: str) -> None:
        real = getattr(sandbox.Sandbox, verb)

        def call(self: sandbox.Sandbox, *args: Any) -> Any:
            assert not connection.in_atomic_block
            in_another_connection(lock_everything)
            asked.append(verb)
            return real(self, *args)

        monkeypatch.setattr(sandbox.Sandbox, verb, call)

    for verb in ("cancel", "charge"):
        watch(verb)
    assert buy(held, code="HALFPRICE").status == Order.Status.CONFIRMED
    assert asked == ["cancel", "charge"]
