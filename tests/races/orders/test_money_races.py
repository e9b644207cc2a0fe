"""Races for an order and its money. Each ends with a clean audit."""

import json
import re
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.http import idempotency, problems
from apps.kernel.models import IdempotentAnswer
from apps.kernel.outbox import facade as outbox
from apps.orders import selectors
from apps.orders.cancellation import order_cancellation
from apps.orders.checkout.checkout import check_out
from apps.orders.locks import lock_order, lock_payment
from apps.orders.models import Order, OrderLine, Payment, ProviderMessage, Refund, Ticket
from apps.orders.payments.providers import sandbox
from apps.orders.provider_sync import charges, event_storage
from apps.reservations import facade as reservations
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import (
    backdate_pay_deadline,
    buy,
    checkout_body,
    deliver_outbox,
    late_webhook,
    payment_of,
    place_order,
)
from tests.support.orders.sandbox_rows import SandboxCharge
from tests.support.races import ConcurrentCall, in_another_connection, storm, values

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _audit() -> Any:
    yield
    assert_audit_clean()


def test_eight_requests_with_one_key_place_one_order_and_get_one_answer() -> None:
    """All eight insert the order; the unique reservation lets one through. The other seven wait for its commit, lock
    the order it placed, and find the stored answer there."""
    reservation = hold(make_event(), seats=["hall-A-1"])
    answers = values(storm(8, lambda _: check_out(reservation, checkout_body(), "key")))
    assert len(set(answers)) == 1
    assert answers[0].status == 202
    assert Order.objects.count() == Payment.objects.count() == 1


def test_eight_tabs_with_eight_keys_place_one_order_and_are_charged_once() -> None:
    """Each has its own key, so none finds another's answer: they find the order, and its pending charge."""
    reservation = hold(make_event(), seats=["hall-A-1"])
    answers = values(storm(8, lambda number: check_out(reservation, checkout_body(), f"tab {number}")))
    assert {answer.status for answer in answers} == {202}
    values(storm(4, lambda _: deliver_outbox()))
    assert Order.objects.count() == Payment.objects.count() == SandboxCharge.objects.count() == 1
    assert Order.objects.get().status == Order.Status.CONFIRMED


def test_eight_cancellations_with_one_key_cancel_once_and_get_one_answer() -> None:
    """All wait for the order's lock. The first cancels and stores its answer in the same transaction; the others find
    it there."""
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    answers = values(storm(8, lambda _: order_cancellation.cancel_order_idempotently(order.pk, {}, "key")))
    assert len(set(answers)) == 1
    assert json.loads(answers[0].body)["status"] == "canceled"


def test_one_key_for_two_orders_at_once_cancels_one_of_them() -> None:
    """The two orders share no lock: the answer's unique key makes the second wait for the first one's commit; then its
    whole transaction is rolled back."""
    event = make_event()
    orders = [place_order(hold(event, seats=[seat])) for seat in ("hall-A-1", "hall-A-2")]
    Order.objects.update(buyer=orders[0].buyer)
    outcomes = storm(2, lambda number: order_cancellation.cancel_order_idempotently(orders[number].pk, {}, "key"))
    refused = [outcome.error for outcome in outcomes if outcome.error is not None]
    assert len(refused) == 1
    assert isinstance(refused[0], problems.IdempotencyInProgress | problems.IdempotencyMismatch)
    assert sorted(Order.objects.values_list("status", flat=True)) == ["canceled", "placed"]


def test_two_tabs_that_try_again_at_once_start_one_more_attempt() -> None:
    """Both read a declined order. Under its lock the first starts attempt 2; the second then reads a pending one."""
    reservation = hold(make_event(), seats=["hall-A-1"])
    buy(reservation, sandbox.DECLINES)
    values(storm(2, lambda number: check_out(reservation, checkout_body(), f"again {number}")))
    deliver_outbox()
    assert Payment.objects.count() == 2
    assert Order.objects.get().status == Order.Status.CONFIRMED


def test_control_without_the_unique_reservation_each_tab_places_an_order() -> None:
    """The naive checkout looks for an order, finds none, and writes one. Without the constraint, both tabs look before
    either writes: two orders, two charges for one seat."""
    reservation = hold(make_event(), seats=["hall-A-1"])
    order = place_order(reservation)
    values_of = {field.attname: getattr(order, field.attname) for field in Order._meta.concrete_fields}
    Payment.objects.all().delete()
    OrderLine.objects.all().delete()
    order.delete()

    def naive(number: int) -> None:
        found = Order.objects.filter(reservation_id=reservation.id).exists()
        both_have_read.wait(timeout=10)
        if not found:
            Order.objects.create(**values_of | {"id": uuid.uuid4(), "number": f"naive-{number}"})

    both_have_read = threading.Barrier(2)
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE orders_order DROP CONSTRAINT order_one_per_reservation")
    try:
        values(storm(2, naive))
        assert Order.objects.count() == 2
    finally:
        Order.objects.all().delete()
        IdempotentAnswer.objects.filter(scope__startswith="checkout:").delete()
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE orders_order ADD CONSTRAINT order_one_per_reservation UNIQUE (reservation_id)")
        cancel_reservation(reservation)


def cancel_reservation(reservation: reservations.ReservationView) -> None:
    """Clean up after the control: free what it sold twice."""
    with transactions.write():
        reservations.cancel(reservation.id, who="test", why="the control is over")


def claim_charge() -> outbox.Message:
    (message,) = outbox.claim(1)
    return message


def test_a_worker_killed_after_the_provider_s_answer_charges_no_second_time(monkeypatch) -> None:
    """A: claims the charge, the provider takes the money, A is killed before it can settle.
    B: gets the message again, finds that the charge was started, asks the provider by its key, and settles that.
    """
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    message = claim_charge()

    class Killed(BaseException):
        pass

    def be_killed(*args: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(charges, "record_provider_answer", be_killed)
        with pytest.raises(Killed):
            charges.handle_charge(message)
    order.refresh_from_db()
    assert order.status == Order.Status.PAYING
    assert SandboxCharge.objects.count() == 1

    def refuse(*args: object) -> None:
        raise AssertionError("charged again")

    monkeypatch.setattr(sandbox.Sandbox, "charge", refuse)
    charges.handle_charge(message)
    order.refresh_from_db()
    assert order.status == Order.Status.CONFIRMED
    assert Ticket.objects.count() == 1


def test_a_worker_killed_before_it_called_the_provider_leaves_the_charge_to_the_next() -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    message = claim_charge()
    charges._start(payment_of(order).pk)
    charges.handle_charge(message)
    order.refresh_from_db()
    assert order.status == Order.Status.CONFIRMED
    assert SandboxCharge.objects.count() == 1


def test_a_message_whose_claim_ran_out_is_handled_by_two_workers_and_charged_once() -> None:
    """The claim expires while the first worker still waits for the provider: both ask with one key, both settle; the
    second finds the message processed."""
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    message = claim_charge()
    values(storm(4, lambda _: charges.handle_charge(message)))
    order.refresh_from_db()
    assert order.status == Order.Status.CONFIRMED
    assert SandboxCharge.objects.count() == ProviderMessage.objects.count() == Ticket.objects.count() == 1


def test_a_success_that_arrives_while_the_buyer_cancels_is_either_a_sale_or_a_refund(monkeypatch) -> None:
    """The buyer's cancellation commits between the provider's answer and its settling: the money is refunded."""
    event = make_event()
    order = place_order(hold(event, seats=["hall-A-1"]))
    real = sandbox.Sandbox.charge

    def canceled_meanwhile(self: sandbox.Sandbox, request: Any) -> Any:
        answer = real(self, request)
        in_another_connection(lambda: order_cancellation.cancel_order(order.pk))
        return answer

    monkeypatch.setattr(sandbox.Sandbox, "charge", canceled_meanwhile)
    deliver_outbox()
    order.refresh_from_db()
    assert (order.status, order.reason) == (Order.Status.REFUNDED, Order.Reason.CANCELED_BY_BUYER)
    assert Refund.objects.get().status == Refund.Status.SUCCEEDED
    assert not Ticket.objects.exists()
    hold(event, seats=["hall-A-1"])


def test_a_payment_in_time_concurrent_with_the_sweep_gets_its_seats() -> None:
    """At once: the late message of a payment that occurred in time, and two sweeps that fail the lapsed order and free
    its seats. Whichever gets the order's lock first, the message is decided by what it reads under the lock: the seats
    are still held, or free and so taken again."""
    reservation = hold(make_event(), seats=["hall-A-1"])
    order = buy(reservation, sandbox.LATE)
    backdate_pay_deadline(order)
    raw = late_webhook(order, clock.now() - timedelta(seconds=10))
    values(storm(3, lambda number: (sweep_and_fail, lambda: arrive_only(raw), sweep_and_fail)[number]()))
    deliver_outbox()
    order.refresh_from_db()
    assert order.status == Order.Status.CONFIRMED
    assert reservations.get_reservation(reservation.id).status == "confirmed"


def sweep_and_fail() -> None:
    order_cancellation.fail_expired_orders()
    reservations.sweep()


def arrive_only(raw: bytes) -> None:
    event_storage.receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})
    outbox.deliver()


def test_ten_deliveries_of_one_webhook_at_once_are_stored_and_processed_once() -> None:
    """All ten insert the message; the provider's message id lets one through, and one outbox row is written."""
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    raw = late_webhook(order, clock.now())
    header = {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)}
    stored = values(storm(10, lambda _: event_storage.receive(sandbox.NAME, raw, header)))
    assert stored.count(True) == 1
    values(storm(3, lambda _: deliver_outbox()))
    order.refresh_from_db()
    assert order.status == Order.Status.CONFIRMED
    assert Ticket.objects.count() == 1


def test_concurrent_refunds_of_one_order_return_the_money_once() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    values(storm(4, lambda number: order_cancellation.refund_order(order.pk, f"staff:{number}")))
    values(storm(3, lambda _: deliver_outbox()))
    assert Refund.objects.count() == 1
    assert selectors.get_order(order.pk).payment.refunded_minor == order.total_minor


def test_buyers_of_different_seats_do_not_wait_for_each_other() -> None:
    """No conflict: while one order's row is locked, another buyer's whole sale completes."""
    event = make_event()
    first, second = place_order(hold(event, seats=["hall-A-1"])), hold(event, seats=["hall-A-2"])
    with transaction.atomic():
        lock_order(first.pk)
        sold = in_another_connection(lambda: sell(second), seconds_max=20)
    assert sold.status == Order.Status.CONFIRMED
    deliver_outbox()


def sell(reservation: reservations.ReservationView) -> Order:
    order = place_order(reservation)
    for message in outbox.claim(10):
        if message.key == str(order.pk):
            charges.handle_charge(message)
    order.refresh_from_db()
    return order


def test_a_transaction_that_waited_for_an_order_s_lock_reads_its_current_payments() -> None:
    """A: locks the order and writes to its payment; not yet committed
    B: sends the lock and the read in one round trip, and waits for A
    A: commits
    B: has the lock, and reads what A wrote: the read is a separate statement, with a snapshot taken after the wait
    C (the control) waited with B, for lock and payment in one statement: it reads the new order beside the old payment.
    """
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    payment = payment_of(order)

    def lock() -> tuple[str, str]:
        with transactions.write():
            locked = lock_payment(payment.pk)
            assert locked is not None
            return locked.order.name, locked.payment.reference

    def lock_at_once() -> Any:
        with transactions.write(), connection.cursor() as cursor:
            cursor.execute(
                "SELECT the_order.name, payment.reference FROM orders_payment AS payment JOIN orders_order AS the_order"
                " ON the_order.id = payment.order_id WHERE payment.id = %s FOR NO KEY UPDATE OF the_order",
                [payment.pk],
            )
            return cursor.fetchone()

    with transactions.write():
        lock_order(order.pk)
        rival, control = ConcurrentCall(lock).wait_until_blocked(), ConcurrentCall(lock_at_once).wait_until_blocked()
        Order.objects.filter(pk=order.pk).update(name="Another")
        Payment.objects.filter(pk=payment.pk).update(reference="sc_9")
    assert rival.outcome().value == ("Another", "sc_9")
    assert control.outcome().value == ("Another", "")


def test_the_order_is_locked_before_the_reservation_and_neither_by_plain_for_update(
    django_assert_max_num_queries: Callable[..., Any],
) -> None:
    """Shape: of all row locks in a settlement the order's is the first (rule 3), and none is plain FOR UPDATE."""
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    with django_assert_max_num_queries(200) as queries:
        charges.handle_charge(claim_charge())
    statements = [" ".join(query["sql"].split()) for query in queries.captured_queries]
    assert not [sql for sql in statements if "FOR UPDATE" in sql]
    locks = [sql for sql in statements if sql.endswith("FOR NO KEY UPDATE")]
    tables = [re.search(r"FROM \"?(\w+)", sql).group(1) for sql in locks]  # type: ignore[union-attr]
    # Starting the charge locks the order; settling it locks the order, then what reservations locks below it.
    assert tables[:3] == ["orders_order", "orders_order", "reservations_reservation"]
    assert "orders_order" not in tables[3:]
    order.refresh_from_db()
    assert order.status == Order.Status.CONFIRMED


def test_stored_answers_are_per_buyer() -> None:
    event = make_event()
    first, second = hold(event, seats=["hall-A-1"]), hold(event, seats=["hall-A-2"])
    answers = {check_out(reservation, checkout_body(), "1").body for reservation in (first, second)}
    assert len(answers) == 2
    assert isinstance(check_out(first, checkout_body(), "1"), idempotency.Answer)


def test_staff_cancel_a_reservation_that_is_being_paid_for_and_the_payment_is_refunded() -> None:
    order = place_order(hold(make_event(), seats=["hall-A-1"]))
    reservations.cancel_unpaid(order.reservation_id, "staff:1", "a double booking")
    reservations.cancel_unpaid(order.reservation_id, "staff:1", "again")
    deliver_outbox()
    order.refresh_from_db()
    assert order.status == Order.Status.REFUNDED
    assert payment_of(order).refunded_minor == order.total_minor
