"""The audit of every minute checks the orders that transactions have written since the last one."""

from collections.abc import Callable

import pytest
from django.db import connection

from apps.kernel import clock
from apps.kernel.checks import auditor
from apps.orders.models import ChangedOrder, CodeUse, Order, OrderLine, Payment, Ticket
from tests.support.batches import wait_until
from tests.support.factories import hold, make_event
from tests.support.orders.sale import buy, make_code

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def order() -> Order:
    event = make_event(general_admission=5)
    make_code(event, uses_max=1)
    return buy(hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2), code="HALFPRICE")


def audit_changes() -> list[str]:
    run = auditor.run_on_changes_and_record()
    assert run.unchecked_count == 0, run.report
    return [f"{found['invariant']}: {breach}" for found in run.report for breach in found["breaches"]]


def audit_until_all_is_checked() -> None:
    def is_past() -> bool:
        assert audit_changes() == []
        return not ChangedOrder.objects.exists()

    wait_until(is_past, "the changes are checked and their records deleted")


def cancel_line() -> None:
    first = OrderLine.objects.filter(kind="place").earliest("pk")
    OrderLine.objects.filter(pk=first.pk).update(canceled_at=clock.now())


FAULTS: dict[str, tuple[Callable[[], object], str]] = {
    "money is not captured": (lambda: Payment.objects.update(refunded_minor=1), "I4"),
    "a ticket is void": (lambda: Ticket.objects.update(voided_at=clock.now()), "I4"),
    "a line is canceled": (cancel_line, "I4"),
    "the order has failed": (
        lambda: Order.objects.update(status="failed", ended_at=clock.now(), reason="out_of_time", confirmed_at=None),
        "I4",
    ),
    "a code's use is not counted": (lambda: CodeUse.objects.update(released_at=clock.now()), "I4"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_in_an_orders_rows_is_found_within_the_minute(order: Order, name: str) -> None:
    """Triggers record the order, so even a raw edit of its rows is found."""
    audit_until_all_is_checked()
    plant, invariant = FAULTS[name]
    plant()
    found = audit_changes()
    assert any(line.startswith(invariant) for line in found), found
    assert audit_changes() == found, "it stays a finding until it is repaired"


def test_a_statement_records_each_order_once_and_the_audit_forgets_it(order: Order) -> None:
    audit_until_all_is_checked()
    Ticket.objects.update(holder="Another")
    assert [changed.order_id for changed in ChangedOrder.objects.all()] == [order.pk]
    audit_until_all_is_checked()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE orders_payment SET reference = reference WHERE false")
    assert not ChangedOrder.objects.exists()


def test_orders_beyond_the_changes_of_one_audit_stay_recorded_for_the_next(
    order: Order, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit_until_all_is_checked()
    monkeypatch.setattr(auditor, "CHANGES_MAX", 1)
    for holder in ("A", "B", "C"):
        Ticket.objects.update(holder=holder)
    Payment.objects.update(refunded_minor=1)
    run = auditor.run_on_changes_and_record()
    assert run.report[-1]["unchecked"].startswith("there are more than 1;")
    # The part that was read has the order, and with it the fault.
    assert run.breach_count > 0
    assert ChangedOrder.objects.count() == 4
