"""An oversell, which must be impossible, planted after the constraints were dropped: found, planned, and compensated in
both ways, once."""

from dataclasses import replace
from io import StringIO
from uuid import UUID, uuid4

import pytest
from django.core.management import CommandError, call_command

from apps.events import facade as events
from apps.events.models import OnSale
from apps.kernel.checks import reconciler
from apps.kernel.db import transactions
from apps.orders.models import Order, Payment, Refund, Ticket
from apps.reservations import facade as reservations
from apps.reservations.checks import oversell_compensation, oversell_plan
from apps.reservations.models import (
    BlockedFor,
    GeneralAdmissionInventory,
    InventoryChange,
    Reservation,
    ReservationTransition,
    SeatInventory,
)
from tests.support.factories import assert_audit_clean, backdate_deadline, hold, make_event
from tests.support.orders import sale
from tests.support.races import rival_at
from tests.support.reservations.buyers import get_general_admission, run_sql, seat
from tests.support.reservations.oversells import drop_constraints, share_seat, shrink, without_constraints


def way(event: events.EventView, strategy: str) -> events.EventView:
    OnSale.objects.filter(event_id=event.id).update(oversell=strategy)
    return events.get_event(event.slug)


def block_as_house_seats(*guids: str) -> None:
    """Block these seats as house seats."""
    SeatInventory.objects.filter(seat__guid__in=guids).update(status=3, blocked_for=BlockedFor.HOUSE)


def applied(event: events.EventView, approved_by: str = "Ada") -> list[bool]:
    return [
        done.was_applied
        for done in oversell_compensation.apply(oversell_plan.plan(event), by="test", approved_by=approved_by)
    ]


def statuses(*ids: UUID) -> list[str]:
    found = dict(Reservation.objects.values_list("id", "status"))
    return [found[one] for one in ids]


def differences() -> list[str]:
    return [outcome.difference.kind for finding in reconciler.run() for outcome in finding.outcomes]


@pytest.fixture
def concert(db: None) -> events.EventView:
    event = make_event(general_admission=10)
    run_sql("SET CONSTRAINTS ALL IMMEDIATE")
    drop_constraints()
    return event


def buy_tickets(event: events.EventView, *quantities: int) -> list[Order]:
    """Create paid orders, oldest first, each of this many tickets."""
    return [sale.buy(hold(event, ga_section="floor", ga_quantity=quantity)) for quantity in quantities]


def test_the_newest_orders_are_canceled_and_never_more_than_needed(concert: events.EventView) -> None:
    """Sold 3, 4, 1, then 1 held and unpaid, and 6 fit: canceling the unpaid one and the newest paid one is not enough;
    with the one before them it is more than needed, so both stay."""
    orders = buy_tickets(concert, 3, 4, 1)
    unpaid = hold(concert, ga_section="floor", ga_quantity=1)
    shrink(6)
    plan = oversell_plan.plan(concert)
    assert plan.strategy == "cancel_newest"
    assert [step.reservation_id for step in plan.steps] == [orders[1].reservation_id]
    assert len(differences()) == 1
    assert statuses(*(order.reservation_id for order in orders), unpaid.id) == ["confirmed"] * 3 + ["pending_payment"]
    assert applied(concert) == [True]
    assert statuses(*(order.reservation_id for order in orders), unpaid.id) == [
        "confirmed", "canceled", "confirmed", "pending_payment",
    ]  # fmt: skip
    assert get_general_admission().taken == 5
    assert applied(concert) == []
    assert differences() == []
    assert_audit_clean()


def test_a_canceled_buyer_is_refunded_and_the_approver_is_recorded(concert: events.EventView) -> None:
    first, second = buy_tickets(concert, 4, 4)
    shrink(4)
    applied(concert, "Grace Hopper")
    sale.deliver_outbox()
    second.refresh_from_db()
    assert (second.status, first.status) == (Order.Status.REFUNDED, Order.Status.CONFIRMED)
    assert Refund.objects.get(order=second).status == Refund.Status.SUCCEEDED
    assert not Ticket.objects.filter(order=second, voided_at=None).exists()
    row = ReservationTransition.objects.get(reservation_id=second.reservation_id, to_status="canceled")
    assert (row.who, row.why) == ("test", "oversold: cancel_newest, approved by Grace Hopper")
    assert InventoryChange.objects.filter(kind="compensated", why__endswith="approved by Grace Hopper").exists()
    assert_audit_clean()


def test_of_two_buyers_of_a_seat_the_one_who_paid_keeps_it_in_either_order(concert: events.EventView) -> None:
    early = hold(concert, seats=["hall-A-1"])
    paid = sale.buy(hold(concert, seats=["hall-B-1"]))
    share_seat(early.id, paid.reservation_id, "hall-A-1")
    assert differences() == ["oversold_seat"]
    assert applied(concert) == [True]
    assert statuses(early.id, paid.reservation_id) == ["canceled", "confirmed"]
    assert (seat("hall-A-1").status, seat("hall-A-1").reservation_id) == (2, paid.reservation_id)
    assert applied(concert) == []
    assert differences() == []
    assert_audit_clean()


def test_of_two_paid_buyers_of_a_seat_the_first_keeps_it(concert: events.EventView) -> None:
    first, second = (sale.buy(hold(concert, seats=[guid])) for guid in ("hall-A-1", "hall-B-1"))
    share_seat(first.reservation_id, second.reservation_id, "hall-A-1")
    # The inventory row names the reservation to cancel.
    SeatInventory.objects.filter(seat__guid="hall-A-1").update(reservation_id=second.reservation_id)
    assert applied(concert) == [True]
    sale.deliver_outbox()
    assert statuses(first.reservation_id, second.reservation_id) == ["confirmed", "canceled"]
    assert seat("hall-A-1").reservation_id == first.reservation_id
    assert Payment.objects.get(order=second).refunded_minor > 0
    assert differences() == []
    assert_audit_clean()


def test_an_oversell_by_a_wrong_count_with_every_constraint_in_place(db: None) -> None:
    """The count was lowered by hand, and two more tickets were sold than there are: no constraint notices."""
    event = make_event(general_admission=4)
    first = hold(event, ga_section="floor", ga_quantity=4)
    GeneralAdmissionInventory.objects.update(taken=0)
    second, third = (hold(event, ga_section="floor", ga_quantity=1) for _ in range(2))
    assert sorted(differences()) == ["oversold_places", "places"]
    assert applied(event) == [True, True]
    assert statuses(first.id, second.id, third.id) == ["pending_payment", "canceled", "canceled"]
    assert get_general_admission().taken == 4
    assert differences() == []
    assert_audit_clean()


def test_house_tickets_are_used_and_a_shortage_of_them_is_reported(concert: events.EventView) -> None:
    show = way(concert, "house_seats")
    buy_tickets(show, 4, 4)
    GeneralAdmissionInventory.objects.update(blocked=5, house=2)
    plan = oversell_plan.plan(show)
    assert [step.line for step in plan.steps] == ["use 2 house tickets of floor"]
    assert plan.uncovered == ["floor: 2 house tickets for an oversell of 3"]
    assert applied(show) == [True]
    row = get_general_admission()
    assert (row.blocked, row.house, row.taken) == (3, 0, 8)
    assert applied(show) == []
    # What the house tickets do not cover, cancellation does.
    assert applied(way(concert, "cancel_newest")) == [True]
    assert differences() == []
    assert_audit_clean()


def test_the_nearest_house_seat_is_assigned_and_new_tickets_are_issued(concert: events.EventView) -> None:
    show = way(concert, "house_seats")
    first, second = (sale.buy(hold(show, seats=[guid])) for guid in ("hall-B-5", "hall-E-1"))
    block_as_house_seats("hall-A-1", "hall-B-7", "hall-B-9")
    share_seat(first.reservation_id, second.reservation_id, "hall-B-5")
    (step,) = oversell_plan.plan(show).steps
    assert step.line == f"move reservation {second.reservation_id} from seat hall-B-5 to hall-B-7"
    assert applied(show) == [True]
    sale.deliver_outbox()
    assert statuses(first.reservation_id, second.reservation_id) == ["confirmed", "confirmed"]
    assert (seat("hall-B-5").reservation_id, seat("hall-B-7").reservation_id) == (
        first.reservation_id,
        second.reservation_id,
    )
    assert (seat("hall-B-7").status, seat("hall-B-7").blocked_for) == (2, "")
    ticket = Ticket.objects.get(order=second, voided_at=None)
    assert (ticket.row, ticket.number) == ("B", "7")
    assert applied(show) == []
    assert differences() == []
    assert_audit_clean()


def test_an_accessible_seat_is_replaced_by_an_accessible_one_which_other_buyers_do_not_get(db: None) -> None:
    event = make_event(accessible=frozenset({"hall-A-1", "hall-A-3", "hall-E-10"}))
    run_sql("SET CONSTRAINTS ALL IMMEDIATE")
    drop_constraints()
    show = way(event, "house_seats")
    one = hold(show, seats=["hall-A-1"])
    other = hold(show, seats=["hall-C-1"])
    share_seat(one.id, other.id, "hall-A-1")
    block_as_house_seats("hall-A-2", "hall-E-10")
    (step,) = oversell_plan.plan(show).steps
    assert step.line.endswith("to hall-E-10")
    walker, rival = hold(show, seats=["hall-B-3"]), hold(show, seats=["hall-C-3"])
    share_seat(walker.id, rival.id, "hall-B-3")
    assert [step.line.rpartition(" ")[2] for step in oversell_plan.plan(show).steps] == ["hall-E-10", "hall-A-2"]
    block_as_house_seats("hall-A-3")
    SeatInventory.objects.filter(seat__guid="hall-A-2").update(status=0, blocked_for="")
    assert [step.line.rpartition(" ")[2] for step in oversell_plan.plan(show).steps] == ["hall-A-3", "hall-E-10"]


@pytest.mark.parametrize("row_names", ["lapsed", "live"])
def test_an_overdue_hold_is_ended_first(concert: events.EventView, row_names: str) -> None:
    """If the inventory row names the lapsed one, its sweep frees the seat, and the repair assigns it to the other. If
    it names the other, no sweep can end the lapsed one: it is canceled."""
    lapsed, live = hold(concert, seats=["hall-A-1"]), hold(concert, seats=["hall-B-1"])
    share_seat(lapsed.id, live.id, "hall-A-1")
    if row_names == "live":
        SeatInventory.objects.filter(seat__guid="hall-A-1").update(reservation_id=live.id)
    backdate_deadline(lapsed.id)
    out = StringIO()
    call_command("compensate", "concert", "--apply", "--approved-by", "Ada", stdout=out)
    outcome = "nothing is oversold" if row_names == "lapsed" else "no longer oversold"
    assert f"concert: {outcome}" in out.getvalue()
    ended = "expired" if row_names == "lapsed" else "canceled"
    assert statuses(lapsed.id, live.id) == [ended, "pending_payment"]
    assert seat("hall-A-1").reservation_id == live.id
    assert differences() == []
    assert_audit_clean()


def test_a_large_part_of_a_section_needs_an_approval(db: None) -> None:
    """One ticket of 20 is 5 % and is done; two of 20 are 10 %, and wait for an approver's name."""
    event = make_event(general_admission=20)
    run_sql("SET CONSTRAINTS ALL IMMEDIATE")
    drop_constraints()
    for _ in range(20):
        hold(event, ga_section="floor", ga_quantity=1)
    shrink(19)
    assert oversell_plan.plan(event).approval_reasons == []
    assert applied(event, approved_by="") == [True]
    shrink(17)
    assert oversell_plan.plan(event).approval_reasons == ["floor: 2 of 19 sold and held tickets (10.5 %)"]
    out = StringIO()
    with pytest.raises(CommandError, match=r"more than 5 %.* so nothing was canceled or released"):
        call_command("compensate", "concert", "--apply", stdout=out)
    assert "done:" not in out.getvalue()
    assert Reservation.objects.filter(status="canceled").count() == 1
    call_command("compensate", "concert", "--apply", "--approved-by", "Ada", stdout=out)
    assert "  approved by Ada: floor: 2 of 19 sold and held tickets" in out.getvalue()
    assert Reservation.objects.filter(status="canceled").count() == 3
    assert_audit_clean()


def test_steps_done_before_a_missing_approval_are_reported(db: None) -> None:
    """A hold is past its deadline and a seat is free under its buyer: both are repaired, and the oversell stays."""
    event = make_event(general_admission=20)
    run_sql("SET CONSTRAINTS ALL IMMEDIATE")
    drop_constraints()
    hold(event, ga_section="floor", ga_quantity=8)
    hold(event, ga_section="floor", ga_quantity=8)
    backdate_deadline(hold(event, seats=["hall-A-1"]).id)
    hold(event, seats=["hall-A-2"])
    SeatInventory.objects.filter(seat__guid="hall-A-2").update(status=0, reservation_id=None)
    shrink(10)
    out = StringIO()
    with pytest.raises(CommandError, match="so nothing was canceled or released"):
        call_command("compensate", "concert", "--apply", stdout=out)
    assert out.getvalue().splitlines()[:2] == [
        "  done: 1 overdue reservation expired",
        "  done: 1 difference repaired",
    ]


def test_the_command_shows_the_plan_first_and_exits_1_while_something_is_oversold(concert: events.EventView) -> None:
    call_command("compensate", "concert", stdout=StringIO())
    orders = buy_tickets(concert, 1, 1)
    shrink(1)
    out = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("compensate", "concert", stdout=out)
    assert ended.value.code == 1
    assert "concert/floor: 2 tickets are sold or held, 1 more than are for sale" in out.getvalue()
    assert f"would cancel reservation {orders[1].reservation_id}" in out.getvalue()
    assert "needs approval: floor: 1 of 2 sold and held tickets (50.0 %)" in out.getvalue()
    assert "concert: nothing was changed; --apply --approved-by NAME expires overdue" in out.getvalue()
    assert statuses(orders[1].reservation_id) == ["confirmed"]


@pytest.mark.django_db
@pytest.mark.parametrize("arguments", [["nowhere"], ["\x00"], ["concert", "--approved-by", "x" * 101]])
def test_the_command_refuses_in_one_line(arguments: list[str]) -> None:
    make_event(rows=1, seats_per_row=1)
    with pytest.raises(CommandError):
        call_command("compensate", *arguments)


def test_the_choice_of_orders_to_cancel() -> None:
    one, two, three = (uuid4() for _ in range(3))
    newest_for = oversell_plan.choose_newest
    assert newest_for({one: 1, two: 1, three: 1}, 2, set()) == [one, two]
    assert newest_for({one: 1, two: 4, three: 1}, 4, set()) == [two]
    assert newest_for({one: 1, two: 1, three: 2}, 3, {three}) == [one]
    assert newest_for({one: 1, two: 1}, 1, {two}) == []


# --- concurrency ---------------------------------------------------------------------------------------------------


def oversold_by_one() -> tuple[events.EventView, list[reservations.ReservationView]]:
    event = make_event(general_admission=10)
    views = [hold(event, ga_section="floor", ga_quantity=1) for _ in range(4)]
    shrink(3)
    return event, views


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("rival_takes", [3, 2], ids=["the same", "another"])
def test_two_concurrent_compensations_cancel_no_order_twice(rival_takes: int) -> None:
    """we: plan "cancel D" | rival: cancels D, or by a later plan C | we: lock D and its section, read again: D is
    canceled already, or there is no oversell any more."""
    with without_constraints():
        event, views = oversold_by_one()
        own_plan, rival_plan = oversell_plan.plan(event), oversell_plan.plan(event)
        assert [step.reservation_id for step in own_plan.steps] == [views[3].id]
        rival_plan.steps = [replace(step, reservation_id=views[rival_takes].id) for step in rival_plan.steps]

        def rival() -> list[bool]:
            return [done.was_applied for done in oversell_compensation.apply(rival_plan, by="rival", approved_by="Ada")]

        with rival_at("lock_reservation", "before", rival) as rival_call:
            happened = [
                done.was_applied for done in oversell_compensation.apply(own_plan, by="test", approved_by="Ada")
            ]
        assert (rival_call.result, happened) == ([True], [False])
        assert [view.id for view in views if statuses(view.id) == ["canceled"]] == [views[rival_takes].id]
        assert get_general_admission().taken == 3
        assert_audit_clean()


@pytest.mark.django_db(transaction=True)
def test_a_buyer_who_pays_between_the_two_locks_is_left_to_the_next_plan() -> None:
    """we: plan "cancel D"; D has no order to lock | D: pays; COMMIT | we: lock D: it is paid, and we have not locked
    its order: if it were canceled now, its buyer would be neither notified nor refunded. The next plan finds the
    order."""
    with without_constraints():
        event, views = oversold_by_one()
        own_plan = oversell_plan.plan(event)
        with rival_at("lock_reservation", "before", lambda: sale.buy(views[3]).status) as rival_call:
            happened = [
                done.was_applied for done in oversell_compensation.apply(own_plan, by="test", approved_by="Ada")
            ]
        assert (rival_call.result, happened) == ("confirmed", [False])
        for _ in range(2):
            list(oversell_compensation.apply(oversell_plan.plan(event), by="test", approved_by="Ada"))
        assert get_general_admission().taken == 3
        assert_audit_clean()


@pytest.mark.django_db(transaction=True)
def test_control_without_reading_again_both_cancel() -> None:
    """The control: a compensation that executes the plan without reading again under the locks cancels two orders for
    one."""
    with without_constraints():
        _, views = oversold_by_one()
        for planned in (views[3].id, views[2].id):
            _cancel_as_planned(planned)
        assert statuses(*(view.id for view in views))[2:] == ["canceled", "canceled"]
        assert get_general_admission().taken == 2


def _cancel_as_planned(reservation_id: UUID) -> None:
    with transactions.write():
        reservations.cancel(reservation_id, who="naive", why="planned")
