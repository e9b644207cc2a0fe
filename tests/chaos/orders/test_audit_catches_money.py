"""The auditor finds each planted breach of I4, I6 and I7; a constraint that would prevent the breach is dropped
first."""

import json
import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import connection

from apps.kernel import clock
from apps.kernel.checks import auditor
from apps.kernel.models import IdempotentAnswer
from apps.kernel.outbox.models import OutboxMessage
from apps.orders.checks import invariants
from apps.orders.models import Order, Payment, ProviderMessage, Refund, Ticket
from apps.orders.payments.providers import sandbox
from apps.orders.provider_sync import event_storage
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import buy, late_webhook, place_order

# Each test is rolled back with its transaction, including the dropped constraints.
pytestmark = pytest.mark.django_db
Harm = Callable[[Order], object]


def run(statement: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(statement)


def copy(row, **changes) -> None:
    values = {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
    del values[row._meta.pk.attname]
    type(row)(**values | changes).save()


def keep_money_of_canceled_order(order: Order) -> None:
    Ticket.objects.update(voided_at=clock.now())
    Order.objects.update(status="canceled", reason="canceled_by_staff", ended_at=clock.now())


def take_less(order: Order) -> None:
    Payment.objects.update(captured_minor=1)


def lose_a_refund(order: Order) -> None:
    Payment.objects.update(refunded_minor=1)


def refund_twice(order: Order) -> None:
    """A refund failed and was sent again, and then both succeeded."""
    payment = order.payments.get()
    values = {
        "order": order, "payment": payment, "amount_minor": 1, "currency": payment.currency, "reason": "test",
        "requested_by": "test", "requested_at": clock.now(), "settled_at": clock.now(), "status": "succeeded",
    }  # fmt: skip
    Refund.objects.create(**values, replaces=Refund.objects.create(**values))
    Payment.objects.update(refunded_minor=1)


def keep_a_ticket(order: Order) -> None:
    payment = order.payments.get()
    Refund.objects.create(
        order=order,
        payment=payment,
        amount_minor=payment.captured_minor,
        currency=payment.currency,
        reason="test",
        requested_by="test",
        requested_at=clock.now(),
    )
    Payment.objects.update(refunded_minor=payment.captured_minor)
    Order.objects.update(status="refunded", reason="canceled_by_staff", ended_at=clock.now())


def delete_the_answer(order: Order) -> None:
    IdempotentAnswer.objects.all().delete()


def store_another_sum(order: Order) -> None:
    row = IdempotentAnswer.objects.get(scope__startswith="checkout:")
    row.answer = json.dumps(json.loads(row.answer) | {"total_minor": order.total_minor + 1})
    row.save()


def store_two_answers(order: Order) -> None:
    run("ALTER TABLE kernel_idempotentanswer DROP CONSTRAINT idempotent_answer_once")
    copy(IdempotentAnswer.objects.get(scope__startswith="checkout:"), answer=json.dumps({"order_id": str(order.pk)}))


def store_answer_of_no_order(order: Order) -> None:
    row = IdempotentAnswer.objects.get(scope__startswith="checkout:")
    copy(row, key="other", answer=json.dumps(json.loads(row.answer) | {"order_id": str(uuid.uuid4())}))


def store_answer_of_another_buyer(order: Order) -> None:
    row = IdempotentAnswer.objects.get(scope__startswith="checkout:")
    copy(row, scope=f"checkout:{uuid.uuid4()}")


def store_false_cancellation(order: Order) -> None:
    row = IdempotentAnswer.objects.get(scope__startswith="checkout:")
    answer = json.dumps({"order_id": str(order.pk), "status": "canceled"})
    copy(row, scope=f"cancel:{order.buyer}", answer=answer)


def change_twice(order: Order) -> None:
    copy(ProviderMessage.objects.get(), message_id="another")


def take_without_message(order: Order) -> None:
    ProviderMessage.objects.all().delete()


def take_another_sum_than_reported(order: Order) -> None:
    ProviderMessage.objects.update(amount_minor=1)


def store_twice(order: Order) -> None:
    run("ALTER TABLE orders_providermessage DROP CONSTRAINT provider_message_once")
    copy(ProviderMessage.objects.get(), outcome="known already")


def process_without_outcome(order: Order) -> None:
    ProviderMessage.objects.update(outcome="")


def lose_a_queued_message(order: Order) -> None:
    copy(ProviderMessage.objects.get(), message_id="lost", processed_at=None, outcome="")


def leave_stuck(order: Order) -> None:
    """Store a message whose outbox row has waited longer than any delay explains."""
    long_ago = clock.now() - timedelta(minutes=invariants.UNPROCESSED_MINUTES_MAX, seconds=1)
    copy(ProviderMessage.objects.get(), message_id="stuck", processed_at=None, outcome="", received_at=long_ago)
    stuck = ProviderMessage.objects.get(message_id="stuck")
    now = clock.now()
    OutboxMessage.objects.create(
        topic="orders.provider_message",
        key=str(order.pk),
        body={"message": stuck.pk},
        created_at=now,
        available_at=now,
    )


def give_up(order: Order) -> None:
    """The same with a recent message whose outbox row was given up."""
    leave_stuck(order)
    ProviderMessage.objects.filter(message_id="stuck").update(received_at=clock.now())
    OutboxMessage.objects.filter(topic="orders.provider_message").update(dead_at=clock.now())


OWED = "captured less refunded is what each order is owed"
ANSWERED = "every order's checkout response is stored unchanged"
ONE_ANSWER = "each key has one stored response, which is still true"
ONCE = "provider messages changed each payment once"
PROCESSED = "every stored message is processed or queued"


@pytest.mark.parametrize(
    ("harm", "invariant", "promise"),
    [
        (keep_money_of_canceled_order, "I4", OWED),
        (take_less, "I4", OWED),
        (lose_a_refund, "I4", "a payment's refunded amount is the sum of its refunds"),
        (refund_twice, "I4", "a payment's refunded amount is the sum of its refunds"),
        (keep_a_ticket, "I4", "each standing order has exactly its valid tickets, other orders have none"),
        (keep_a_ticket, "I4", "every confirmed reservation has a standing order"),
        (delete_the_answer, "I6", ANSWERED),
        (store_another_sum, "I6", ANSWERED),
        (store_two_answers, "I6", ONE_ANSWER),
        (store_answer_of_no_order, "I6", ONE_ANSWER),
        (store_answer_of_another_buyer, "I6", ONE_ANSWER),
        (store_false_cancellation, "I6", ONE_ANSWER),
        (change_twice, "I7", ONCE),
        (take_without_message, "I7", ONCE),
        (take_another_sum_than_reported, "I7", ONCE),
        (store_twice, "I7", PROCESSED),
        (process_without_outcome, "I7", PROCESSED),
        (lose_a_queued_message, "I7", PROCESSED),
        (leave_stuck, "I7", PROCESSED),
        (give_up, "I7", PROCESSED),
    ],
)
def test_a_planted_breach_is_found(harm: Harm, invariant: str, promise: str, capsys) -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]))
    assert_audit_clean()
    harm(order)
    found = [(finding.invariant, finding.promise) for finding in auditor.run() if finding.breaches]
    assert (invariant, promise) in found
    assert not [finding for finding in auditor.run() if finding.unchecked]
    with pytest.raises(SystemExit):
        call_command("audit")
    assert promise in capsys.readouterr().out


def test_a_correct_state_has_no_breach() -> None:
    """A pending charge, a declined one tried again, a late message, a cancellation: the audit stays clean."""
    event = make_event()
    waiting = buy(hold(event, seats=["hall-A-1"]), sandbox.LATE)
    assert_audit_clean()
    reservation = hold(event, seats=["hall-A-2"])
    buy(reservation, sandbox.DECLINES)
    assert_audit_clean()
    buy(reservation)
    place_order(hold(event, seats=["hall-A-3"]))
    assert_audit_clean()
    # A stored answer is deleted after some hours; its order is then too old for the check.
    IdempotentAnswer.objects.filter(answer__contains=str(waiting.pk)).delete()
    Order.objects.filter(pk=waiting.pk).update(placed_at=clock.now() - timedelta(hours=24))
    assert_audit_clean()


def test_a_message_queued_in_the_outbox_is_no_breach() -> None:
    order = buy(hold(make_event(), seats=["hall-A-1"]), sandbox.LATE)
    raw = late_webhook(order, clock.now())
    event_storage.receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})
    assert ProviderMessage.objects.filter(processed_at=None).count() == 1
    assert_audit_clean()
