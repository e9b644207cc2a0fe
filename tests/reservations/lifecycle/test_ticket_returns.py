"""Some tickets of a confirmed reservation are returned: they become free, or house seats, and the others stay sold.
Concurrent returns never return a ticket twice."""

from typing import Any
from uuid import UUID

import pytest

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.checks import reconciler
from apps.kernel.db import transactions
from apps.reservations import facade as reservations
from apps.reservations.checks import seat_history
from apps.reservations.lifecycle import after_commit
from apps.reservations.lifecycle.changes import StockChange
from apps.reservations.models import (
    GeneralAdmissionInventory,
    InventoryChange,
    Reservation,
    ReservationLine,
    ReservationTransition,
)
from tests.support.factories import PLACE_PRICE_MINOR, SEAT_PRICE_MINOR, assert_audit_clean, hold, join, make_event
from tests.support.orders.sale import EMAIL
from tests.support.races import Outcome, rival_waiting_at, statements, storm
from tests.support.reservations.buyers import begin_payment, cancel, confirm, get_general_admission, seat

pytestmark = pytest.mark.django_db(transaction=True)
WHY = "the buyer is ill"


@pytest.fixture(autouse=True)
def _audit() -> Any:
    yield
    assert_audit_clean(without_money=True)
    assert [outcome.difference for finding in reconciler.run() for outcome in finding.outcomes] == []


def sold(event: events.EventView, entry: Any = None, **payload: Any) -> reservations.ReservationView:
    held = hold(event, entry, **payload)
    begin_payment(held.id)
    confirm(held.id, clock.now())
    return reservations.get_reservation(held.id)


def return_tickets(
    reservation_id: UUID, quantities: dict[int, int], *, keep: bool = False
) -> reservations.ReservationView:
    with transactions.write():
        reservations.return_tickets(reservation_id, quantities, who="staff:7", why=WHY, keep=keep)
    return reservations.get_reservation(reservation_id)


def line_of(reservation: reservations.ReservationView, guid: str) -> int:
    return next(one.line_id for one in reservation.seats if one.seat_id == guid)


def test_a_returned_seat_is_free_again_and_the_other_stays_sold() -> None:
    reservation = sold(make_event(), seats=["hall-A-1", "hall-A-2"])
    left = return_tickets(reservation.id, {line_of(reservation, "hall-A-1"): 1})
    assert [one.seat_id for one in left.seats] == ["hall-A-2"]
    assert (left.status, left.seat_count, left.total_minor) == ("confirmed", 1, SEAT_PRICE_MINOR)
    assert (seat("hall-A-1").status, seat("hall-A-2").status) == (0, 2)


def test_tickets_of_a_line_are_returned_in_steps_and_each_step_records_its_time() -> None:
    reservation = sold(make_event(general_admission=10), ga_section="floor", ga_quantity=4)
    (floor,) = reservation.general_admission
    left = return_tickets(reservation.id, {floor.line_id: 1})
    assert [one.quantity for one in left.general_admission] == [3]
    left = return_tickets(reservation.id, {floor.line_id: 2})
    assert (left.seat_count, left.total_minor) == (1, PLACE_PRICE_MINOR)
    assert GeneralAdmissionInventory.objects.get().taken == 1
    returned = ReservationLine.objects.filter(returned_at__isnull=False).order_by("id")
    assert [(line.quantity, line.live) for line in returned] == [(1, False), (2, False)]


def test_returning_everything_cancels_the_reservation() -> None:
    reservation = sold(make_event(general_admission=10), seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    (floor,) = reservation.general_admission
    left = return_tickets(reservation.id, {line_of(reservation, "hall-A-1"): 1, floor.line_id: 2})
    assert left.status == "canceled"
    assert (seat("hall-A-1").status, get_general_admission().taken) == (0, 0)


def test_a_reservation_with_returned_tickets_can_be_canceled_completely() -> None:
    reservation = sold(
        make_event(general_admission=10), seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=3
    )
    (floor,) = reservation.general_admission
    return_tickets(reservation.id, {line_of(reservation, "hall-A-1"): 1, floor.line_id: 1})
    cancel(reservation.id)
    assert (seat("hall-A-1").status, seat("hall-A-2").status, get_general_admission().taken) == (0, 0, 0)


@pytest.mark.parametrize("returns_all", [False, True])
def test_tickets_kept_as_house_seats_are_not_on_sale(returns_all: bool) -> None:
    event = make_event(general_admission=10)
    reservation = sold(event, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=3)
    (floor,) = reservation.general_admission
    quantities = {line_of(reservation, "hall-A-1"): 1, floor.line_id: 2}
    if returns_all:
        quantities = {line_of(reservation, "hall-A-1"): 1, line_of(reservation, "hall-A-2"): 1, floor.line_id: 3}
    return_tickets(reservation.id, quantities, keep=True)
    row = GeneralAdmissionInventory.objects.get()
    assert (row.taken, row.blocked, row.house) == ((0, 3, 3) if returns_all else (1, 2, 2))
    assert (seat("hall-A-1").status, seat("hall-A-1").blocked_for) == (3, "house")
    assert InventoryChange.objects.filter(kind="blocked", who="staff:7", why=WHY).count() == len(quantities)


def test_a_returned_seat_is_sold_again_and_its_history_names_both_buyers() -> None:
    event = make_event()
    first = sold(event, seats=["hall-A-1", "hall-A-2"])
    return_tickets(first.id, {line_of(first, "hall-A-1"): 1})
    second = sold(event, seats=["hall-A-1"])
    seats = events.seats_by_guid(event.id, ["hall-A-1", "hall-A-2"])
    spans = seat_history.timeline(event, seats["hall-A-1"]).spans
    assert [(span.reservation_id, span.ended_as) for span in spans if span.state == "sold"] == [
        (first.id, "returned"),
        (second.id, ""),
    ]
    (other,) = (span for span in seat_history.timeline(event, seats["hall-A-2"]).spans if span.state == "sold")
    assert (other.reservation_id, other.until) == (first.id, None)


def test_the_ledger_records_the_actor_and_the_reason() -> None:
    reservation = sold(make_event(), seats=["hall-A-1", "hall-A-2"])
    return_tickets(reservation.id, {line_of(reservation, "hall-A-1"): 1})
    transition = ReservationTransition.objects.filter(reservation_id=reservation.id).last()
    assert transition is not None
    assert (transition.from_status, transition.to_status, transition.who, transition.why) == (
        "confirmed", "confirmed", "staff:7", f"1 returned: {WHY}",
    )  # fmt: skip


def test_returned_tickets_do_not_count_against_the_cap() -> None:
    event = make_event(per_buyer_max=2)
    buyer = join(event, visitor_id="v" * 22)
    reservation = sold(event, buyer, seats=["hall-A-1", "hall-A-2"])
    return_tickets(reservation.id, {line_of(reservation, "hall-A-1"): 1})
    again = hold(event, join(event, visitor_id="v" * 22), seats=["hall-A-3"])
    reservations.prepare_payment(event.id, EMAIL)
    begin_payment(again.id)
    assert Reservation.objects.get(pk=again.id).status == "paying"


def test_a_return_notifies_counters_of_changed_stock_but_not_of_an_ended_reservation(monkeypatch) -> None:
    notified: list[Any] = []
    event = make_event(general_admission=10)
    reservation = sold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=3)
    (floor,) = reservation.general_admission
    monkeypatch.setattr(after_commit, "notify_stock_changed", notified.extend)
    monkeypatch.setattr(after_commit, "notify_ended", notified.extend)
    return_tickets(reservation.id, {floor.line_id: 2})
    assert notified == [StockChange(event.id, {floor.section_pk: 2})]


@pytest.mark.parametrize("quantities", [{}, {0: 1}, {None: 2}, {None: 0}, {None: -1}])
def test_a_return_without_lines_or_with_an_unknown_line_or_a_wrong_quantity_is_refused(
    quantities: dict[Any, int],
) -> None:
    """`None` stands for the line of the first seat, which has one ticket."""
    reservation = sold(make_event(), seats=["hall-A-1", "hall-A-2"])
    first = line_of(reservation, "hall-A-1")
    with pytest.raises(reservations.TicketsNotReturnable):
        return_tickets(reservation.id, {first if line is None else line: count for line, count in quantities.items()})
    assert reservations.get_reservation(reservation.id).seat_count == 2


def test_an_unpaid_ticket_cannot_be_returned() -> None:
    reservation = hold(make_event(), seats=["hall-A-1", "hall-A-2"])
    with pytest.raises(reservations.TicketsNotReturnable):
        return_tickets(reservation.id, {line_of(reservation, "hall-A-1"): 1})


# --- concurrency -----------------------------------------------------------------------------------------------------


def results(outcomes: list[Outcome]) -> list[str]:
    """Return the outcomes, sorted: `done`, or the name of the refusal's class."""
    return sorted("done" if one.error is None else type(one.error).__name__ for one in outcomes)


def test_of_eight_concurrent_returns_of_one_seat_one_succeeds() -> None:
    """All wait for the lock on the reservation. The first frees the seat; each of the others, once it has the lock,
    reads that the line was returned."""
    reservation = sold(make_event(), seats=["hall-A-1", "hall-A-2"])
    quantities = {line_of(reservation, "hall-A-1"): 1}
    outcomes = storm(8, lambda _: return_tickets(reservation.id, quantities))
    assert results(outcomes) == ["TicketsNotReturnable"] * 7 + ["done"]
    assert reservations.get_reservation(reservation.id).seat_count == 1


def test_of_eight_concurrent_returns_of_one_of_five_tickets_five_succeed() -> None:
    """The line has five tickets. Any five of the returns succeed, and the fifth cancels the reservation."""
    reservation = sold(make_event(general_admission=10), ga_section="floor", ga_quantity=5)
    (floor,) = reservation.general_admission
    outcomes = storm(8, lambda _: return_tickets(reservation.id, {floor.line_id: 1}))
    assert results(outcomes) == ["TicketsNotReturnable"] * 3 + ["done"] * 5
    assert get_general_admission().taken == 0
    assert reservations.get_reservation(reservation.id).status == "canceled"


def test_a_return_that_waits_for_a_cancellation_finds_nothing_to_return() -> None:
    """A cancels the reservation and has locked its seats; B waits for the reservation. After A's commit, B reads that
    the reservation is canceled."""
    reservation = sold(make_event(), seats=["hall-A-1", "hall-A-2"])
    quantities = {line_of(reservation, "hall-A-1"): 1}
    with rival_waiting_at("free_taken_seats", "before", lambda: return_tickets(reservation.id, quantities)) as rival:
        cancel(reservation.id)
    with pytest.raises(reservations.TicketsNotReturnable):
        rival.result()


def test_a_cancellation_that_waits_for_a_return_frees_the_rest() -> None:
    reservation = sold(make_event(), seats=["hall-A-1", "hall-A-2"])
    quantities = {line_of(reservation, "hall-A-1"): 1}
    with rival_waiting_at("free_taken_seats", "before", lambda: cancel(reservation.id)) as rival:
        return_tickets(reservation.id, quantities)
    rival.result()
    assert (seat("hall-A-1").status, seat("hall-A-2").status) == (0, 0)


def test_concurrent_returns_and_holds_of_the_same_tickets_lose_none() -> None:
    """Four threads return one ticket each and four hold one each, in a full section. All take their locks in the same
    order, so there is no deadlock, and each counts what the one before it committed."""
    event = make_event(general_admission=8)
    reservation = sold(event, ga_section="floor", ga_quantity=8)
    (floor,) = reservation.general_admission

    def act(number: int) -> object:
        if number % 2:
            return return_tickets(reservation.id, {floor.line_id: 1})
        return hold(event, ga_section="floor", ga_quantity=1)

    outcomes = storm(8, act)
    assert all(one.error is None for one in outcomes[1::2])
    held = sum(one.error is None for one in outcomes[::2])
    assert get_general_admission().taken == 4 + held


def test_a_return_takes_its_locks_in_the_common_order() -> None:
    """First the reservation, then its seats, then general admission (docs/locking.md, rule 3)."""
    event = make_event(general_admission=10)
    reservation = sold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    (floor,) = reservation.general_admission
    with statements() as seen:
        return_tickets(reservation.id, {line_of(reservation, "hall-A-1"): 1, floor.line_id: 1}, keep=True)
    locks = [name for name in seen if name.startswith("lock_")]
    assert locks == ["lock_reservation", "lock_seats_waiting", "lock_general_admission"]
    assert seen.index("unreturned_lines") > seen.index("lock_reservation")
