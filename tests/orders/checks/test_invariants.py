"""Errors in the code are refused by named constraints or found by the auditor."""

import uuid
from datetime import timedelta

import pytest
from django.core.management import call_command
from django.db import IntegrityError, connection, transaction
from django.db.models import F

from apps.kernel import clock
from apps.kernel.checks import auditor
from apps.kernel.db.transactions import violated_constraint
from apps.orders.models import Order, OrderHistoryEntry, OrderLine, Payment, ProviderMessage, Refund, Ticket
from apps.orders.payments.providers import sandbox
from apps.reservations import facade as reservations
from apps.reservations.models import Reservation
from tests.support.factories import assert_audit_clean, hold, make_event
from tests.support.orders.sale import buy, place_order

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def order() -> Order:
    return buy(hold(make_event(general_admission=5), seats=["hall-A-1"], ga_section="floor", ga_quantity=2))


def copy_of(row, **changes):
    """Return an unsaved copy of the row with these changes."""
    values = {field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields}
    del values[row._meta.pk.attname]
    return type(row)(**values | changes)


def a_fee(order: Order) -> OrderLine:
    """Return an unsaved fee line of 100."""
    return OrderLine(order=order, kind="fee", description="A fee", price_minor=100, total_minor=100)


WRONG = {
    "payment_refunded_at_most_captured": lambda o: o.payments.update(refunded_minor=F("captured_minor") + 1),
    "payment_attempts_limited": lambda o: o.payments.update(attempt=4),
    "payment_attempt_once_per_order": lambda o: copy_of(o.payments.get(), reference="other").save(),
    "payment_reference_once": lambda o: copy_of(o.payments.get(), attempt=2).save(),
    "payment_captured_when_succeeded": lambda o: o.payments.update(status="declined"),
    "payment_settled_has_time": lambda o: o.payments.update(settled_at=None),
    "payment_amount_positive": lambda o: o.payments.update(amount_minor=0),
    "order_one_per_reservation": lambda o: copy_of(o, number="other").save(),
    "order_number_once": lambda o: copy_of(o, reservation_id=uuid.uuid4()).save(),
    "order_standing_has_time": lambda o: Order.objects.update(confirmed_at=None),
    "order_ended_has_time_and_reason": lambda o: Order.objects.update(status="failed"),
    "order_open_has_no_end": lambda o: Order.objects.update(status="placed"),
    "order_has_buyer": lambda o: Order.objects.update(email=""),
    "ticket_one_live_per_seat": lambda o: copy_of(o.tickets.exclude(seat=None).get(), code="c", place=2).save(),
    "ticket_one_live_per_place": lambda o: copy_of(o.tickets.filter(seat=None).first(), code="c").save(),
    "ticket_code_once": lambda o: copy_of(o.tickets.filter(seat=None).first(), place=9).save(),
    "ticket_checked_in_after_issue": lambda o: o.tickets.update(checked_in_at=clock.now() - timedelta(days=1)),
    "order_line_place_once": lambda o: copy_of(o.lines.first()).save(),
    "order_line_place_or_fee": lambda o: copy_of(o.lines.first(), kind="fee").save(),
    "order_line_discount_at_most_price": lambda o: copy_of(a_fee(o), discount_minor=101).save(),
    "order_line_total_is_sum": lambda o: copy_of(a_fee(o), total_minor=99).save(),
    "order_line_tax_sane": lambda o: copy_of(a_fee(o), tax_minor=101).save(),
    "order_line_frozen": lambda o: o.lines.update(total_minor=1),
    "provider_message_once": lambda o: copy_of(ProviderMessage.objects.get()).save(),
}


@pytest.mark.parametrize("constraint", WRONG)
def test_a_named_constraint_refuses(order, constraint) -> None:
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        WRONG[constraint](order)
    assert violated_constraint(refused.value) == constraint


def test_one_order_has_one_pending_payment() -> None:
    payment = place_order(hold(make_event(), seats=["hall-A-1"])).payments.get()
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        copy_of(payment, attempt=2).save()
    assert violated_constraint(refused.value) == "payment_one_pending_per_order"


def refund_without_row(order: Order) -> None:
    Payment.objects.update(refunded_minor=1)


def give_a_ticket_too_few(order: Order) -> None:
    Ticket.objects.filter(pk=order.tickets.first().pk).delete()


def fail_with_money(order: Order) -> None:
    Order.objects.update(status="failed", reason="declined", confirmed_at=None, ended_at=clock.now())


def lose_the_reservation(order: Order) -> None:
    Reservation.objects.update(status="canceled", ended_at=clock.now())


def confirm_without_order(order: Order) -> None:
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE orders_invoice")  # A trigger refuses DELETE.
    OrderHistoryEntry.objects.all().delete()
    Refund.objects.all().delete()
    Ticket.objects.all().delete()
    ProviderMessage.objects.all().delete()
    Payment.objects.all().delete()
    OrderLine.objects.all().delete()
    Order.objects.all().delete()


def count_for_longer(order: Order) -> None:
    """Let a payment count until an hour and a second after the deadline, longer than any grace period."""
    deadline = Order.objects.get(pk=order.pk).pay_deadline
    Payment.objects.update(counts_until=deadline + timedelta(seconds=3_601))


def count_late_money(order: Order) -> None:
    Payment.objects.update(occurred_at=F("counts_until") + timedelta(seconds=1))


def owe_another_total(order: Order) -> None:
    Order.objects.update(total_minor=F("total_minor") + 1)


def cancel_a_line_and_keep_its_money(order: Order) -> None:
    order.lines.filter(pk=order.lines.first().pk).update(canceled_at=clock.now())


@pytest.mark.parametrize(
    ("corrupt", "check"),
    [
        (owe_another_total, "an order's total is the sum of its lines, with one line per ticket"),
        (cancel_a_line_and_keep_its_money, "captured less refunded is what each order is owed"),
        (cancel_a_line_and_keep_its_money, "each standing order has exactly its valid tickets, other orders have none"),
        (refund_without_row, "a payment's refunded amount is the sum of its refunds"),
        (refund_without_row, "captured less refunded is what each order is owed"),
        (give_a_ticket_too_few, "each standing order has exactly its valid tickets, other orders have none"),
        (fail_with_money, "captured less refunded is what each order is owed"),
        (fail_with_money, "each standing order has exactly its valid tickets, other orders have none"),
        (fail_with_money, "every confirmed reservation has a standing order"),
        (lose_the_reservation, "a standing order has exactly one confirmed reservation"),
        (confirm_without_order, "every confirmed reservation has a standing order"),
        (count_late_money, "the payments of standing orders occurred within deadline and grace"),
        (count_for_longer, "the payments of standing orders occurred within deadline and grace"),
    ],
)
def test_the_auditor_finds_breaches_that_no_constraint_can_refuse(order, corrupt, check, capsys) -> None:
    assert_audit_clean()
    corrupt(order)
    broken = {finding.promise for finding in auditor.run() if finding.breaches}
    assert check in broken
    with pytest.raises(SystemExit) as ended:
        call_command("audit")
    assert ended.value.code == 1
    assert check in capsys.readouterr().out


def test_the_auditor_reads_every_batch(monkeypatch) -> None:
    monkeypatch.setattr(auditor, "PIECE_MAX", 2)
    event = make_event()
    for number in range(1, 6):
        buy(hold(event, seats=[f"hall-A-{number}"]))
    assert_audit_clean()
    Payment.objects.update(refunded_minor=1)
    (breaches,) = [finding.breaches for finding in auditor.run() if finding.promise.startswith("a payment's refunded")]
    assert len(breaches) == 5


def test_the_command_delivers_the_outbox(capsys) -> None:
    reservation = hold(make_event(), seats=["hall-A-1"])
    place_order(reservation, sandbox.APPROVES)
    call_command("deliver_outbox")
    assert "outbox: 3 messages handed over" in capsys.readouterr().out
    assert reservations.get_reservation(reservation.id).status == "confirmed"
