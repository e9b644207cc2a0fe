"""A confirmed reservation gives some of its places back: they are free, or the house's, and the rest stands. However
many do it at once, nothing is given back twice."""

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


def give(reservation_id: UUID, given: dict[int, int], *, keep: bool = False) -> reservations.ReservationView:
    with transactions.write():
        reservations.return_places(reservation_id, given, who="staff:7", why=WHY, keep=keep)
    return reservations.get_reservation(reservation_id)


def line_of(reservation: reservations.ReservationView, guid: str) -> int:
    return next(one.line_id for one in reservation.seats if one.seat_id == guid)


def test_a_seat_is_free_again_and_the_other_stands() -> None:
    reservation = sold(make_event(), seats=["hall-A-1", "hall-A-2"])
    left = give(reservation.id, {line_of(reservation, "hall-A-1"): 1})
    assert [one.seat_id for one in left.seats] == ["hall-A-2"]
    assert (left.status, left.seat_count, left.total_minor) == ("confirmed", 1, SEAT_PRICE_MINOR)
    assert (seat("hall-A-1").status, seat("hall-A-2").status) == (0, 2)


def test_places_of_a_line_come_back_one_by_one_and_the_lines_say_when() -> None:
    reservation = sold(make_event(general_admission=10), ga_section="floor", ga_quantity=4)
    (floor,) = reservation.general_admission
    left = give(reservation.id, {floor.line_id: 1})
    assert [one.quantity for one in left.general_admission] == [3]
    left = give(reservation.id, {floor.line_id: 2})
    assert (left.seat_count, left.total_minor) == (1, PLACE_PRICE_MINOR)
    assert GeneralAdmissionInventory.objects.get().taken == 1
    returned = ReservationLine.objects.filter(returned_at__isnull=False).order_by("id")
    assert [(line.quantity, line.live) for line in returned] == [(1, False), (2, False)]


def test_who_gives_all_back_has_a_canceled_reservation() -> None:
    reservation = sold(make_event(general_admission=10), seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    (floor,) = reservation.general_admission
    left = give(reservation.id, {line_of(reservation, "hall-A-1"): 1, floor.line_id: 2})
    assert left.status == "canceled"
    assert (seat("hall-A-1").status, get_general_admission().taken) == (0, 0)


def test_a_reservation_that_gave_some_back_can_be_canceled_whole() -> None:
    reservation = sold(
        make_event(general_admission=10), seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=3
    )
    (floor,) = reservation.general_admission
    give(reservation.id, {line_of(reservation, "hall-A-1"): 1, floor.line_id: 1})
    cancel(reservation.id)
    assert (seat("hall-A-1").status, seat("hall-A-2").status, get_general_admission().taken) == (0, 0, 0)


@pytest.mark.parametrize("whole", [False, True])
def test_what_the_house_keeps_is_nobody_s_to_buy(whole: bool) -> None:
    event = make_event(general_admission=10)
    reservation = sold(event, seats=["hall-A-1", "hall-A-2"], ga_section="floor", ga_quantity=3)
    (floor,) = reservation.general_admission
    given = {line_of(reservation, "hall-A-1"): 1, floor.line_id: 2}
    if whole:
        given = {line_of(reservation, "hall-A-1"): 1, line_of(reservation, "hall-A-2"): 1, floor.line_id: 3}
    give(reservation.id, given, keep=True)
    row = GeneralAdmissionInventory.objects.get()
    assert (row.taken, row.blocked, row.house) == ((0, 3, 3) if whole else (1, 2, 2))
    assert (seat("hall-A-1").status, seat("hall-A-1").blocked_for) == (3, "house")
    assert InventoryChange.objects.filter(kind="blocked", who="staff:7", why=WHY).count() == len(given)


def test_a_seat_given_back_is_sold_again_and_its_story_names_both() -> None:
    event = make_event()
    first = sold(event, seats=["hall-A-1", "hall-A-2"])
    give(first.id, {line_of(first, "hall-A-1"): 1})
    second = sold(event, seats=["hall-A-1"])
    one = events.seats_by_guid(event.id, ["hall-A-1", "hall-A-2"])
    story = seat_history.timeline(event, one["hall-A-1"]).spans
    assert [(span.reservation_id, span.ended_as) for span in story if span.state == "sold"] == [
        (first.id, "returned"),
        (second.id, ""),
    ]
    (stays,) = (span for span in seat_history.timeline(event, one["hall-A-2"]).spans if span.state == "sold")
    assert (stays.reservation_id, stays.until) == (first.id, None)


def test_the_ledger_says_who_and_why() -> None:
    reservation = sold(make_event(), seats=["hall-A-1", "hall-A-2"])
    give(reservation.id, {line_of(reservation, "hall-A-1"): 1})
    step = ReservationTransition.objects.filter(reservation_id=reservation.id).last()
    assert step is not None
    assert (step.from_status, step.to_status, step.who, step.why) == (
        "confirmed", "confirmed", "staff:7", f"1 given back: {WHY}",
    )  # fmt: skip


def test_what_is_given_back_counts_for_no_cap() -> None:
    event = make_event(per_buyer_max=2)
    buyer = join(event, visitor_id="v" * 22)
    reservation = sold(event, buyer, seats=["hall-A-1", "hall-A-2"])
    give(reservation.id, {line_of(reservation, "hall-A-1"): 1})
    again = hold(event, join(event, visitor_id="v" * 22), seats=["hall-A-3"])
    reservations.prepare_payment(event.id, EMAIL)
    begin_payment(again.id)
    assert Reservation.objects.get(pk=again.id).status == "paying"


def test_whoever_keeps_counts_is_told_of_what_came_back_and_not_of_an_end(monkeypatch) -> None:
    told: list[Any] = []
    event = make_event(general_admission=10)
    reservation = sold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=3)
    (floor,) = reservation.general_admission
    monkeypatch.setattr(after_commit, "notify_stock_changed", told.extend)
    monkeypatch.setattr(after_commit, "notify_ended", told.extend)
    give(reservation.id, {floor.line_id: 2})
    assert told == [StockChange(event.id, {floor.section_pk: 2})]


@pytest.mark.parametrize("given", [{}, {0: 1}, {None: 2}, {None: 0}, {None: -1}])
def test_what_does_not_stand_is_not_given_back(given: dict[Any, int]) -> None:
    reservation = sold(make_event(), seats=["hall-A-1", "hall-A-2"])
    first = line_of(reservation, "hall-A-1")
    with pytest.raises(reservations.PlacesNotReturnable):
        give(reservation.id, {first if line is None else line: count for line, count in given.items()})
    assert reservations.get_reservation(reservation.id).seat_count == 2


def test_nobody_gives_back_what_is_not_paid_for() -> None:
    reservation = hold(make_event(), seats=["hall-A-1", "hall-A-2"])
    with pytest.raises(reservations.PlacesNotReturnable):
        give(reservation.id, {line_of(reservation, "hall-A-1"): 1})


# --- races -----------------------------------------------------------------------------------------------------------


def results(outcomes: list[Outcome]) -> list[str]:
    """`done`, or what each was refused with."""
    return sorted("done" if one.error is None else type(one.error).__name__ for one in outcomes)


def test_of_eight_returns_of_one_seat_one_is_done() -> None:
    """All wait for the reservation's row. The first frees the seat; the others read its line, under the lock, as given
    back."""
    reservation = sold(make_event(), seats=["hall-A-1", "hall-A-2"])
    given = {line_of(reservation, "hall-A-1"): 1}
    outcomes = storm(8, lambda _: give(reservation.id, given))
    assert results(outcomes) == ["PlacesNotReturnable"] * 7 + ["done"]
    assert reservations.get_reservation(reservation.id).seat_count == 1


def test_eight_returns_of_a_place_each_return_no_more_than_there_are() -> None:
    """Five places, eight returns of one: five are done, whichever; the fifth cancels the reservation."""
    reservation = sold(make_event(general_admission=10), ga_section="floor", ga_quantity=5)
    (floor,) = reservation.general_admission
    outcomes = storm(8, lambda _: give(reservation.id, {floor.line_id: 1}))
    assert results(outcomes) == ["PlacesNotReturnable"] * 3 + ["done"] * 5
    assert get_general_admission().taken == 0
    assert reservations.get_reservation(reservation.id).status == "canceled"


def test_a_return_that_waits_for_a_whole_cancel_finds_nothing_to_give_back() -> None:
    """A cancels and has the seats locked; B waits for the reservation. When A is through, B reads it as canceled."""
    reservation = sold(make_event(), seats=["hall-A-1", "hall-A-2"])
    given = {line_of(reservation, "hall-A-1"): 1}
    with rival_waiting_at("free_taken_seats", "before", lambda: give(reservation.id, given)) as rival:
        cancel(reservation.id)
    with pytest.raises(reservations.PlacesNotReturnable):
        rival.result()


def test_a_whole_cancel_that_waits_for_a_return_frees_the_rest() -> None:
    reservation = sold(make_event(), seats=["hall-A-1", "hall-A-2"])
    given = {line_of(reservation, "hall-A-1"): 1}
    with rival_waiting_at("free_taken_seats", "before", lambda: cancel(reservation.id)) as rival:
        give(reservation.id, given)
    rival.result()
    assert (seat("hall-A-1").status, seat("hall-A-2").status) == (0, 0)


def test_returns_and_holds_of_the_same_places_lose_none() -> None:
    """Four give a place back and four hold one, of a section that is full: the locks are taken in one order, so
    nobody waits in a circle, and each is seen by the count of the next."""
    event = make_event(general_admission=8)
    reservation = sold(event, ga_section="floor", ga_quantity=8)
    (floor,) = reservation.general_admission

    def act(number: int) -> object:
        if number % 2:
            return give(reservation.id, {floor.line_id: 1})
        return hold(event, ga_section="floor", ga_quantity=1)

    outcomes = storm(8, act)
    assert all(one.error is None for one in outcomes[1::2])
    held = sum(one.error is None for one in outcomes[::2])
    assert get_general_admission().taken == 4 + held


def test_the_locks_come_in_the_one_order() -> None:
    """The reservation, its seats, and general admission last."""
    event = make_event(general_admission=10)
    reservation = sold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    (floor,) = reservation.general_admission
    with statements() as seen:
        give(reservation.id, {line_of(reservation, "hall-A-1"): 1, floor.line_id: 1}, keep=True)
    locks = [name for name in seen if name.startswith("lock_")]
    assert locks == ["lock_reservation", "lock_seats_waiting", "lock_general_admission"]
    assert seen.index("standing_lines") > seen.index("lock_reservation")
