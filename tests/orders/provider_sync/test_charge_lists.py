"""Charges in lists: plain ones are started together and settled as their answers arrive, each other one alone."""

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest
from django.db import OperationalError, transaction

from apps.events.facade import EventView
from apps.kernel import clock
from apps.kernel.outbox import facade as outbox
from apps.kernel.outbox.delivery import Delivery
from apps.kernel.outbox.models import OutboxMessage
from apps.orders import topics
from apps.orders.cancellation import order_cancellation
from apps.orders.models import Order, Payment, ProviderMessage, ProviderStanding, Ticket
from apps.orders.payments import circuit_breaker, settlement, settlement_lists
from apps.orders.payments.providers import get_provider, sandbox
from apps.orders.payments.providers.protocol import ProviderFault
from apps.orders.payments.providers.sandbox.cards import DELAYED, TIMES_OUT
from apps.orders.provider_sync import charge_lists, event_storage, inbox
from apps.reservations import facade as reservations
from tests.support.batches import wait_until
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.charge_lists import HeldCalls, ListRun, claim_charges
from tests.support.orders.sale import backdate_pay_deadline, deliver_outbox, payment_of, place_order
from tests.support.races import in_another_connection, rival_at, rival_waiting_at, statements

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]
SECONDS_MAX = 20


@pytest.fixture(autouse=True)
def _audit() -> Iterator[None]:
    yield
    deliver_outbox()
    assert_audit_clean()


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ListRun:
    return ListRun(monkeypatch)


def place_orders(count: int, method: str = sandbox.APPROVES, event: EventView | None = None) -> list[Order]:
    """Place orders of one seat each, whose charges wait in the outbox."""
    event = event or make_event()
    orders = []
    for number in range(count):
        row, seat = divmod(number, 10)
        reservation = hold(event, seats=[f"hall-{chr(ord('A') + row)}-{seat + 1}"])
        orders.append(place_order(reservation, method, email=f"buyer{number}@example.org"))
    return orders


def status_of(order: Order) -> str:
    order.refresh_from_db()
    return order.status


def statuses(orders: list[Order]) -> list[str]:
    return [status_of(order) for order in orders]


def waiting_charge(order: Order) -> OutboxMessage:
    return OutboxMessage.objects.get(topic=topics.CHARGE, key=str(order.pk), done_at=None)


def test_a_list_is_started_and_settled_with_as_many_statements_as_one_charge(run: ListRun) -> None:
    event = make_event()
    place_orders(1, event=event)
    with statements() as for_one:
        run.start()
        run.settle()
    orders = [place_order(hold(event, seats=[f"hall-B-{seat + 1}"]), email=f"x{seat}@example.org") for seat in range(9)]
    with statements() as for_many:
        run.start()
        run.settle()
    assert for_many == for_one
    assert set(statuses(orders)) == {"confirmed"}
    assert (run.alone, len(run.handled), Ticket.objects.count()) == ([], 10, 10)
    assert not OutboxMessage.objects.filter(topic=topics.CHARGE, done_at=None).exists()


def test_answers_that_come_with_the_call_are_settled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    groups: list[int] = []
    settle = charge_lists.settle_arrived
    arrivals = charge_lists.Arrivals(lambda answers: (groups.append(len(answers)), settle(answers))[1])
    monkeypatch.setattr(charge_lists, "_arrivals", arrivals)
    monkeypatch.setattr(charge_lists, "IDLE_SECONDS", 0.05)
    orders = place_orders(5)
    delivery = Delivery(2)
    try:
        delivery.wake()
        wait_until(lambda: set(statuses(orders)) == {"confirmed"}, "confirmed")
    finally:
        assert delivery.close(SECONDS_MAX)
    assert groups == [5]


def test_charges_that_wait_are_noted_together_and_are_asked_about_later(run: ListRun) -> None:
    orders = place_orders(3, DELAYED)
    run.start()
    run.settle()
    assert statuses(orders) == ["paying"] * 3
    assert not Payment.objects.filter(reference="").exists()
    asked = OutboxMessage.objects.filter(topic=topics.ASK, key__in=[str(payment_of(order).pk) for order in orders])
    assert len([row for row in asked if row.available_at > clock.now()]) == 3
    assert ProviderMessage.objects.filter(processed_at=None).count() == 0
    deliver_outbox()
    assert statuses(orders) == ["confirmed"] * 3


def test_refusals_are_settled_together_with_as_many_statements_as_one(run: ListRun) -> None:
    event = make_event()
    place_orders(1, sandbox.DECLINES, event)
    run.start()
    with statements() as for_one:
        run.settle()
    orders = [
        place_order(hold(event, seats=[f"hall-B-{seat + 1}"]), sandbox.DECLINES, email=f"x{seat}@example.org")
        for seat in range(9)
    ]
    run.start()
    with statements() as for_many:
        run.settle()
    assert for_many == for_one
    assert (run.alone, len(run.handled)) == ([], 10)
    assert set(statuses(orders)) == {"placed"}
    payments = Payment.objects.filter(order__in=orders)
    assert set(payments.values_list("status", "next_action")) == {("declined", None)}
    assert all(payment.settled_at is not None and payment.occurred_at is not None for payment in payments)
    assert set(ProviderMessage.objects.values_list("outcome", flat=True)) == {settlement.MAY_TRY_AGAIN}
    again = check_out_again(orders[0])
    deliver_outbox()
    assert (status_of(again), Ticket.objects.count()) == ("confirmed", 1)


def test_a_refusal_that_ends_its_order_is_settled_alone_and_the_others_together(run: ListRun) -> None:
    event = make_event()
    declined = [
        place_order(hold(event, seats=[f"hall-B-{seat + 1}"]), sandbox.DECLINES, email=f"x{seat}@example.org")
        for seat in range(3)
    ]
    paid = place_orders(2, event=event)
    run.start()
    is_too_late(declined[1])
    run.settle()
    assert statuses([*declined, *paid]) == ["placed", "failed", "placed", "confirmed", "confirmed"]
    assert len(run.handled) == 5


def check_out_again(order: Order) -> Order:
    return place_order(reservations.get_reservation(order.reservation_id), email=order.email)


def was_started(order: Order) -> None:
    Payment.objects.filter(order=order).update(started_at=clock.now())


def was_canceled(order: Order) -> None:
    order_cancellation.cancel_order_idempotently(order.pk, {}, f"key-{order.pk}")


def is_too_late(order: Order) -> None:
    backdate_pay_deadline(order)


def has_failed_before(order: Order) -> None:
    Payment.objects.filter(order=order).update(faults_count=1)


@pytest.mark.parametrize("change", [was_started, was_canceled, is_too_late, has_failed_before])
def test_an_unusual_charge_is_handled_alone_and_the_others_are_not(
    change: Callable[[Order], None], run: ListRun
) -> None:
    orders = place_orders(3)
    change(orders[1])
    run.start()
    run.settle()
    assert statuses([orders[0], orders[2]]) == ["confirmed", "confirmed"]
    assert run.alone == [waiting_charge(orders[1]).pk]
    deliver_outbox()
    assert status_of(orders[1]) != "paying"


def test_an_order_that_another_transaction_has_locked_is_handled_alone(run: ListRun) -> None:
    orders = place_orders(3)
    with transaction.atomic():
        Order.objects.select_for_update(no_key=True).get(pk=orders[0].pk)
        in_another_connection(run.start)
    run.settle()
    assert statuses(orders) == ["placed", "confirmed", "confirmed"]
    deliver_outbox()
    assert status_of(orders[0]) == "confirmed"


def test_a_paused_provider_gets_one_trial_and_no_list(run: ListRun, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pause is over. Of the three charges one is the trial; the others wait for its outcome."""
    orders = place_orders(3)
    ProviderStanding.objects.create(
        provider=sandbox.NAME, faults_count=9, rests_until=clock.now(), changed_at=clock.now()
    )
    run.start()
    assert (run.answers, len(run.alone)) == ([], 3)
    permitted = []
    require = circuit_breaker.require_available

    def watch(provider: str) -> int:
        faults = require(provider)
        permitted.append(provider)
        return faults

    monkeypatch.setattr(circuit_breaker, "require_available", watch)
    # The trial's call is under way: it does not return before the others have asked.
    monkeypatch.setattr(sandbox.Sandbox, "charge", lambda *_: deliver_outbox() and None)
    outbox.deliver(1)
    assert permitted == [sandbox.NAME]
    monkeypatch.undo()
    ProviderStanding.objects.all().delete()
    OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now())
    deliver_outbox()
    assert statuses(orders) == ["confirmed"] * 3


def test_a_slow_call_delays_no_other_charge_and_no_end_of_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first charge of a list is not answered. The others of its list and a later list have tickets, and their
    messages are done, before it is."""
    event = make_event()
    orders = place_orders(3, event=event)
    calls = HeldCalls(monkeypatch, orders[0])
    delivery = Delivery(2)
    try:
        delivery.wake()
        wait_until(lambda: statuses(orders) == ["paying", "confirmed", "confirmed"], "the others are confirmed")
        later = place_order(hold(event, seats=["hall-B-1"]), email="later@example.org")
        delivery.wake()
        wait_until(lambda: status_of(later) == "confirmed", "a later list is confirmed")
        wait_until(
            lambda: OutboxMessage.objects.filter(topic=topics.CHARGE, done_at=None).count() == 1,
            "the others have ended",
        )
        wait_until(lambda: delivery.under_way_count == 1, "messages of other topics have ended too")
        assert not delivery.close(0), "it waits for charges under way"
        calls.answer(orders[0])
    finally:
        assert delivery.close(SECONDS_MAX)
    assert status_of(orders[0]) == "confirmed"
    assert not OutboxMessage.objects.filter(topic=topics.CHARGE, done_at=None).exists()


def test_control_a_list_handler_that_waits_for_its_calls_keeps_every_message_until_the_slowest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without ends of their own, the confirmed order's message stays claimed, and the order's next one behind it."""
    orders = place_orders(2)
    run, calls = ListRun(monkeypatch), HeldCalls(monkeypatch, orders[0])
    monkeypatch.setattr(run, "end", lambda *_: None)
    run.start()
    run.settle()
    assert status_of(orders[1]) == "confirmed"
    assert waiting_charge(orders[1]).claimed_until is not None
    calls.answer(orders[0])
    OutboxMessage.objects.filter(done_at=None).update(claimed_until=None)


def test_no_more_charges_are_claimed_than_may_be_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    orders = place_orders(4)
    topic = outbox._topics[topics.CHARGE]
    outbox.register_handler(
        topics.CHARGE, topic.handler, topic.visibility, together_max=2, list_starter=topic.list_starter
    )
    calls, delivery = HeldCalls(monkeypatch, *orders), Delivery(4)
    try:
        delivery.wake()
        wait_until(lambda: len(calls.begun) == 2, "two calls have begun")
        assert outbox.claim(4, {topics.CHARGE: 2}, busy_lists=()) == []
        for order in orders[:2]:
            calls.answer(order)
        wait_until(lambda: len(calls.begun) == 4, "the next two have begun")
        assert calls.begun == [payment_of(order).pk for order in orders]
        for order in orders[2:]:
            calls.answer(order)
    finally:
        assert delivery.close(SECONDS_MAX)
        outbox._topics[topics.CHARGE] = topic
    assert statuses(orders) == ["confirmed"] * 4


def test_a_call_that_fails_is_tried_again_alone_and_the_others_are_settled(
    run: ListRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = place_orders(3)
    calls = HeldCalls(monkeypatch, orders[1])
    run.start()
    calls.fail(orders[1], ProviderFault("500"))
    run.settle()
    assert statuses(orders) == ["confirmed", "paying", "confirmed"]
    message = waiting_charge(orders[1])
    assert run.postponed == {message.pk: 2.0}
    assert payment_of(orders[1]).faults_count == ProviderStanding.objects.get().faults_count == 1
    OutboxMessage.objects.filter(pk=message.pk).update(available_at=clock.now())
    run.start()
    assert (run.answers, run.alone) == ([], [message.pk]), "it has been started before"
    deliver_outbox()
    assert status_of(orders[1]) == "confirmed"


def test_a_card_whose_answer_is_lost_occupies_no_thread_and_is_charged_once() -> None:
    (order,) = place_orders(1, TIMES_OUT)
    delivery = Delivery(1)
    try:
        delivery.wake()
        wait_until(lambda: payment_of(order).faults_count == 1, "the fault is counted")
    finally:
        assert delivery.close(SECONDS_MAX)
    OutboxMessage.objects.filter(done_at=None).update(available_at=clock.now())
    deliver_outbox()
    assert status_of(order) == "confirmed"


def test_a_cancellation_before_the_list_locks_its_orders_prevents_the_charge(run: ListRun) -> None:
    """A: has claimed the charge
    B: cancels the order and commits
    A: locks the order, reads it and the payment under the lock, and does not charge
    """
    orders = place_orders(2)
    with rival_at("lock_orders_of_payments_skipping", "before", lambda: was_canceled(orders[0])):
        run.start()
    run.settle()
    assert statuses(orders) == ["canceled", "confirmed"]
    assert payment_of(orders[0]).started_at is None


def test_a_cancellation_after_the_lock_waits_and_then_knows_of_the_charge(run: ListRun) -> None:
    """A: has locked the orders
    B: cancels one, and waits for its lock
    A: commits that the charges have started
    B: cancels the order, whose charge may succeed: it is canceled or refunded by an inquiry
    """
    orders = place_orders(2)
    with rival_waiting_at("lock_orders_of_payments_skipping", "after", lambda: was_canceled(orders[0])) as rival:
        run.start()
    rival.result()
    run.settle()
    deliver_outbox()
    assert statuses(orders) == ["canceled", "confirmed"] or statuses(orders) == ["refunded", "confirmed"]
    assert not Ticket.objects.filter(order=orders[0]).exists()


def answer_again(order: Order) -> None:
    event = get_provider(sandbox.NAME).find_charge(payment_of(order).pk)
    assert event is not None
    inbox.record_provider_answer(sandbox.NAME, event)


def receive_again(order: Order) -> None:
    event = get_provider(sandbox.NAME).find_charge(payment_of(order).pk)
    assert event is not None
    event_storage.receive(sandbox.NAME, event.raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(event.raw)})


def test_a_webhook_with_the_same_message_that_was_stored_before_is_settled_with_the_answer(run: ListRun) -> None:
    orders = place_orders(2)
    run.start()
    receive_again(orders[0])
    run.settle()
    assert statuses(orders) == ["confirmed"] * 2
    assert run.alone == []
    assert ProviderMessage.objects.exclude(processed_at=None).count() == ProviderMessage.objects.count() == 2
    deliver_outbox()
    assert Ticket.objects.count() == 2


def test_a_webhook_of_the_same_message_during_the_settlement_waits_and_changes_nothing(run: ListRun) -> None:
    """A: has locked the order and stored the answer
    B: stores the same message, and waits for A's row, without any lock that A needs
    A: commits
    B: finds the message known
    """
    orders = place_orders(2)
    run.start()
    with rival_waiting_at("store_settled_messages", "after", lambda: receive_again(orders[0])) as rival:
        run.settle()
    rival.result()
    assert ProviderMessage.objects.count() == 2
    deliver_outbox()
    assert (statuses(orders), Ticket.objects.count()) == (["confirmed"] * 2, 2)


def test_a_direct_answer_during_the_settlement_waits_for_the_order_and_finds_it_settled(run: ListRun) -> None:
    orders = place_orders(2)
    run.start()
    with rival_waiting_at("lock_orders_of_payments_skipping", "after", lambda: answer_again(orders[1])) as rival:
        run.settle()
    rival.result()
    assert (statuses(orders), Ticket.objects.count()) == (["confirmed"] * 2, 2)


def test_an_answer_that_the_webhook_of_its_success_has_overtaken_is_stored_with_the_list(run: ListRun) -> None:
    """The answer says that the charge is pending, which decides nothing any more and needs no inquiry."""
    orders = place_orders(2, DELAYED)
    run.start()
    key = str(payment_of(orders[0]).pk)
    raw = sandbox.settle(key, "succeeded", clock.now())
    assert event_storage.receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})
    settlement_lists.settle_plain(ProviderMessage.objects.values_list("pk", flat=True))
    with statements() as sent:
        run.settle()
    assert "store_provider_messages" not in sent, "none alone"
    assert statuses(orders) == ["confirmed", "paying"]
    late = ProviderMessage.objects.get(kind="payment.pending", payment__order=orders[0])
    assert (late.outcome, late.processed_at is not None) == (settlement.TOO_LATE, True)
    assert not OutboxMessage.objects.filter(topic=topics.ASK, key=key).exists()


def test_an_answer_whose_order_was_canceled_meanwhile_is_settled_alone_and_refunded(run: ListRun) -> None:
    orders = place_orders(3)
    run.start()
    was_canceled(orders[1])
    with statements() as sent:
        run.settle()
    assert sent.count("store_provider_messages") == 1, "that one alone"
    deliver_outbox()
    assert statuses(orders) == ["confirmed", "refunded", "confirmed"]


def test_if_the_settlement_of_a_list_fails_each_answer_is_settled_alone(
    run: ListRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = place_orders(2)
    run.start()

    def fail(*_: object) -> None:
        raise RuntimeError("the server is out of memory")

    monkeypatch.setattr(charge_lists.settlement_lists, "settle_answers", fail)
    run.settle()
    assert statuses(orders) == ["confirmed"] * 2


def test_two_deliveries_charge_each_order_once() -> None:
    orders = place_orders(12)
    both = [Delivery(3), Delivery(3)]
    try:
        for delivery in both:
            delivery.wake()
        wait_until(lambda: set(statuses(orders)) == {"confirmed"}, "all are confirmed")
    finally:
        for delivery in both:
            assert delivery.close(SECONDS_MAX)
    assert ProviderMessage.objects.count() == Ticket.objects.count() == 12


def test_an_expired_claim_is_repaired_by_the_next_delivery(run: ListRun) -> None:
    """The process was killed after the charges had started and succeeded, before any answer was stored."""
    orders = place_orders(2)
    run.start()
    run.answers.clear()
    assert statuses(orders) == ["paying"] * 2
    OutboxMessage.objects.filter(topic=topics.CHARGE).update(claimed_until=clock.now() - timedelta(seconds=1))
    assert claim_charges() == [], "each is handled alone"
    deliver_outbox()
    assert statuses(orders) == ["confirmed"] * 2
    assert Ticket.objects.count() == 2


def test_messages_end_with_their_charges_when_the_database_was_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the messages fails once, and is repeated until the database accepts it."""
    orders = place_orders(2)
    end, fails = outbox._end_list, [True]

    def end_later(*args: object) -> None:
        if fails and args[0]:
            fails.clear()
            raise OperationalError("the server closed the connection")
        end(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(outbox, "_end_list", end_later)
    delivery = Delivery(2)
    try:
        delivery.wake()
        wait_until(lambda: not OutboxMessage.objects.filter(topic=topics.CHARGE, done_at=None).exists(), "they end")
    finally:
        assert delivery.close(SECONDS_MAX)
    assert statuses(orders) == ["confirmed"] * 2
