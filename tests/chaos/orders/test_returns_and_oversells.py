"""What is given back while an oversell is made up for: nobody loses a place that need not be lost, and nobody twice."""

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
    """Four have paid for two places each, and seven fit: the newest has to go."""
    event = make_event(general_admission=10)
    orders = [buy(hold(event, ga_section="floor", ga_quantity=2)) for _ in range(4)]
    shrink(7)
    return event, orders


def give_one_back(order: Order) -> str:
    code = Ticket.objects.filter(order=order, voided_at=None).values_list("code", flat=True)[0]
    returns.return_by_staff(order.pk, [code], (), who="staff:1", why="")
    order.refresh_from_db()
    return str(order.status)


def compensate(plan: oversell_plan.Plan) -> list[bool]:
    return [done.was_applied for done in oversell_compensation.apply(plan, by="test", approved_by="Ada")]


def told(orders: list[Order]) -> list[str]:
    return [str(Order.objects.get(pk=order.pk).status) for order in orders]


def gone_back() -> list[int]:
    deliver_outbox()
    assert set(Refund.objects.values_list("status", flat=True)) <= {"succeeded"}
    return sorted(Refund.objects.values_list("amount_minor", flat=True))


def test_a_place_returned_in_the_midst_saves_the_one_who_had_to_go() -> None:
    """we: plan "cancel D"; lock D's order | C gives one of two places back, COMMIT | we: lock D and the section, read
    again: seven are promised and seven fit. D stays."""
    event, orders = oversold_by_one()
    plan = oversell_plan.plan(event)
    assert [step.reservation_id for step in plan.steps] == [orders[3].reservation_id]
    with rival_at("lock_reservation", "before", lambda: give_one_back(orders[2])) as rival:
        assert compensate(plan) == [False]
    assert rival.result == "partly_refunded"
    assert told(orders) == ["confirmed", "confirmed", "partly_refunded", "confirmed"]
    assert (gone_back(), get_general_admission().taken) == ([PLACE_PRICE_MINOR], 7)


def test_control_who_does_as_planned_takes_two_places_for_none() -> None:
    """The same without reading again: D goes although seven fit."""
    event, orders = oversold_by_one()
    (step,) = oversell_plan.plan(event).steps
    give_one_back(orders[2])
    assert step.reservation_id is not None
    as_planned(step.reservation_id)
    assert get_general_admission().taken == 5


def as_planned(reservation_id: UUID) -> None:
    with transactions.write():
        order = lock_order_of_reservation(reservation_id)
        assert order is not None
        reservations.cancel(reservation_id, who="naive", why="planned")
        order_cancellation.cancel_or_refund(order, "naive")


def test_who_returns_while_being_compensated_gets_the_money_back_once() -> None:
    """we: plan "cancel D", lock D's order | D: returns a place, waits for that lock | we: all of D is given back,
    COMMIT | D: finds nothing to return."""
    event, orders = oversold_by_one()
    plan = oversell_plan.plan(event)
    with rival_waiting_at("lock_reservation", "before", lambda: give_one_back(orders[3])) as rival:
        assert compensate(plan) == [True]
    with pytest.raises(OrderNotReturnable):
        rival.result()
    assert told(orders) == ["confirmed", "confirmed", "confirmed", "refunded"]
    assert (gone_back(), get_general_admission().taken) == ([2 * PLACE_PRICE_MINOR], 6)


def test_who_is_compensated_while_returning_keeps_what_is_left() -> None:
    """D: returns a place, its order locked | we: "cancel D", wait for that lock | D: COMMIT | we: nobody is one too
    many. D keeps the other place."""
    event, orders = oversold_by_one()
    plan = oversell_plan.plan(event)
    with rival_waiting_at("standing_lines", "before", lambda: compensate(plan)) as rival:
        assert give_one_back(orders[3]) == "partly_refunded"
    assert rival.result() == [False]
    assert told(orders) == ["confirmed", "confirmed", "confirmed", "partly_refunded"]
    assert (gone_back(), get_general_admission().taken) == ([PLACE_PRICE_MINOR], 7)


def test_all_return_and_all_compensate_at_once() -> None:
    """Four buyers give a place back and two compensate, behind one barrier. Whoever comes first, each order's money
    fits what it has in the end, and the next plan finds nothing."""
    event, orders = oversold_by_one()
    plans = [oversell_plan.plan(event) for _ in range(2)]
    outcomes = storm(6, lambda number: give_one_back(orders[number]) if number < 4 else compensate(plans[number - 4]))
    for outcome in outcomes:
        assert outcome.error is None or isinstance(outcome.error, OrderNotReturnable), outcome.error
    assert oversell_plan.plan(event).steps == []
    left = sum(1 for status in told(orders) if status == "partly_refunded")
    assert left >= 3
    assert get_general_admission().taken == left
    assert sum(gone_back()) == PLACE_PRICE_MINOR * (8 - left)


def test_the_other_buyer_of_a_shared_seat_has_it_alone_once_the_first_returns_it() -> None:
    """we: plan "cancel the second" of two who have paid for one seat | the first returns it, COMMIT | we: lock both,
    read again: one claims it. The second stays, and the reconciler says so in the seat's row."""
    event = make_event()
    first, second = (buy(hold(event, seats=[guid])) for guid in ("hall-A-1", "hall-B-1"))
    share_seat(first.reservation_id, second.reservation_id, "hall-A-1")
    plan = oversell_plan.plan(event)
    assert [step.reservation_id for step in plan.steps] == [second.reservation_id]
    with rival_at("lock_reservation", "before", lambda: give_one_back(first)) as rival:
        assert compensate(plan) == [False]
    assert (rival.result, told([first, second])) == ("refunded", ["refunded", "confirmed"])
    reconciler.run(repair_by="test")
    assert (seat("hall-A-1").status, seat("hall-A-1").reservation_id) == (2, second.reservation_id)
    assert gone_back() == [SEAT_PRICE_MINOR]
