"""Returns during the compensation of an oversell: no buyer loses a ticket unnecessarily, and none is refunded twice."""

from collections.abc import Iterator
from uuid import UUID

import pytest

from apps.events import facade as events
from apps.kernel.checks import reconciler
from apps.kernel.db import transactions
from apps.orders.cancellation import order_cancellation
from apps.orders.errors import OrderNotReturnable
from apps.orders.locks import lock_order_of_reservation
from apps.orders.models import Order, Refund, Ticket
from apps.orders.returns import returns
from apps.reservations import facade as reservations
from apps.reservations.checks import oversell_compensation, oversell_plan
from tests.support.factories import PLACE_PRICE_MINOR, SEAT_PRICE_MINOR, assert_audit_clean, hold, make_event
from tests.support.orders.sale import buy, deliver_outbox
from tests.support.races import rival_at, rival_waiting_at, storm
from tests.support.reservations.buyers import get_general_admission, seat
from tests.support.reservations.oversells import share_seat, shrink, without_constraints

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _constraints_aside(transactional_db: None) -> Iterator[None]:
    with without_constraints():
        yield
        deliver_outbox()
        assert_audit_clean()


def oversold_by_one() -> tuple[events.EventView, list[Order]]:
    """Create four orders of two tickets each in a section of seven tickets: the newest order must be canceled."""
    event = make_event(general_admission=10)
    orders = [buy(hold(event, ga_section="floor", ga_quantity=2)) for _ in range(4)]
    shrink(7)
    return event, orders


def return_one(order: Order) -> str:
    code = Ticket.objects.filter(order=order, voided_at=None).values_list("code", flat=True)[0]
    returns.return_by_staff(order.pk, [code], (), who="staff:1", why="")
    order.refresh_from_db()
    return str(order.status)


def compensate(plan: oversell_plan.Plan) -> list[bool]:
    return [done.was_applied for done in oversell_compensation.apply(plan, by="test", approved_by="Ada")]


def status_of(orders: list[Order]) -> list[str]:
    return [str(Order.objects.get(pk=order.pk).status) for order in orders]


def refunded_amounts() -> list[int]:
    deliver_outbox()
    assert set(Refund.objects.values_list("status", flat=True)) <= {"succeeded"}
    return sorted(Refund.objects.values_list("amount_minor", flat=True))


def test_a_ticket_returned_during_compensation_saves_the_order_to_cancel() -> None:
    """we: plan "cancel D"; lock D's order | C returns one of two tickets, COMMIT | we: lock D and the section, read
    again: seven tickets are sold and seven fit. D stays."""
    event, orders = oversold_by_one()
    plan = oversell_plan.plan(event)
    assert [step.reservation_id for step in plan.steps] == [orders[3].reservation_id]
    with rival_at("lock_reservation", "before", lambda: return_one(orders[2])) as rival:
        assert compensate(plan) == [False]
    assert rival.result == "partly_refunded"
    assert status_of(orders) == ["confirmed", "confirmed", "partly_refunded", "confirmed"]
    assert (refunded_amounts(), get_general_admission().taken) == ([PLACE_PRICE_MINOR], 7)


def test_control_a_stale_plan_cancels_an_order_unnecessarily() -> None:
    """The same without reading again: D is canceled although seven tickets fit."""
    event, orders = oversold_by_one()
    (step,) = oversell_plan.plan(event).steps
    return_one(orders[2])
    assert step.reservation_id is not None
    cancel_as_planned(step.reservation_id)
    assert get_general_admission().taken == 5


def cancel_as_planned(reservation_id: UUID) -> None:
    with transactions.write():
        order = lock_order_of_reservation(reservation_id)
        assert order is not None
        reservations.cancel(reservation_id, who="naive", why="planned")
        order_cancellation.cancel_or_refund(order, "naive")


def test_an_order_returned_during_its_compensation_is_refunded_once() -> None:
    """we: plan "cancel D", lock D's order | D: returns a ticket, waits for that lock | we: all of D is refunded, COMMIT
    | D: finds nothing to return."""
    event, orders = oversold_by_one()
    plan = oversell_plan.plan(event)
    with rival_waiting_at("lock_reservation", "before", lambda: return_one(orders[3])) as rival:
        assert compensate(plan) == [True]
    with pytest.raises(OrderNotReturnable):
        rival.result()
    assert status_of(orders) == ["confirmed", "confirmed", "confirmed", "refunded"]
    assert (refunded_amounts(), get_general_admission().taken) == ([2 * PLACE_PRICE_MINOR], 6)


def test_an_order_compensated_during_a_return_keeps_its_other_ticket() -> None:
    """D: returns a ticket, its order locked | we: "cancel D", wait for that lock | D: COMMIT | we: no ticket exceeds
    the capacity. D keeps the other ticket."""
    event, orders = oversold_by_one()
    plan = oversell_plan.plan(event)
    with rival_waiting_at("unreturned_lines", "before", lambda: compensate(plan)) as rival:
        assert return_one(orders[3]) == "partly_refunded"
    assert rival.result() == [False]
    assert status_of(orders) == ["confirmed", "confirmed", "confirmed", "partly_refunded"]
    assert (refunded_amounts(), get_general_admission().taken) == ([PLACE_PRICE_MINOR], 7)


def test_concurrent_returns_and_compensations_refund_each_order_correctly() -> None:
    """Four buyers return a ticket and two threads compensate, behind one barrier. In any order, each order's money
    matches its remaining tickets in the end, and the next plan finds nothing."""
    event, orders = oversold_by_one()
    plans = [oversell_plan.plan(event) for _ in range(2)]
    outcomes = storm(6, lambda number: return_one(orders[number]) if number < 4 else compensate(plans[number - 4]))
    for outcome in outcomes:
        assert outcome.error is None or isinstance(outcome.error, OrderNotReturnable), outcome.error
    assert oversell_plan.plan(event).steps == []
    left = sum(1 for status in status_of(orders) if status == "partly_refunded")
    assert left >= 3
    assert get_general_admission().taken == left
    assert sum(refunded_amounts()) == PLACE_PRICE_MINOR * (8 - left)


def test_the_second_buyer_of_a_shared_seat_keeps_it_once_the_first_returns_it() -> None:
    """we: plan "cancel the second" of two that have paid for one seat | the first returns it, COMMIT | we: lock both,
    read again: one claims it. The second stays, and the reconciler writes it into the seat's row."""
    event = make_event()
    first, second = (buy(hold(event, seats=[guid])) for guid in ("hall-A-1", "hall-B-1"))
    share_seat(first.reservation_id, second.reservation_id, "hall-A-1")
    plan = oversell_plan.plan(event)
    assert [step.reservation_id for step in plan.steps] == [second.reservation_id]
    with rival_at("lock_reservation", "before", lambda: return_one(first)) as rival:
        assert compensate(plan) == [False]
    assert (rival.result, status_of([first, second])) == ("refunded", ["refunded", "confirmed"])
    reconciler.run(repair_by="test")
    assert (seat("hall-A-1").status, seat("hall-A-1").reservation_id) == (2, second.reservation_id)
    assert refunded_amounts() == [SEAT_PRICE_MINOR]
