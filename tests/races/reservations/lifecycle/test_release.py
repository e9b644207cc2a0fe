"""A reservation ends exactly once, whatever ends it concurrently; and no operation waits for the end of another
reservation."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import connection

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.checks import reconciler
from apps.kernel.db import sql
from apps.reservations import facade as reservations
from apps.reservations.models import ReservationTransition, SeatInventory
from apps.reservations.staff import stock
from apps.reservations.staff.selection import Selection
from tests.races.reservations.conftest import PATIENT_MS
from tests.support.factories import (
    assert_audit_clean,
    audit_breaches,
    backdate_deadline,
    hold,
    join,
    make_event,
    make_hold_request,
)
from tests.support.races import in_another_connection, rival_at, rival_waiting_at
from tests.support.reservations.buyers import (
    begin_payment,
    cancel,
    confirm,
    get_general_admission,
    is_held,
    seat,
    submit_hold,
)

pytestmark = pytest.mark.django_db(transaction=True)

release_general_admission = sql.load("apps.reservations", "release_general_admission")

BY: dict[str, Any] = {"who": "ann", "why": ""}
MIXED: dict[str, Any] = {"seats": ["hall-A-1"], "ga_section": "floor", "ga_quantity": 2}


def release(reservation_id: UUID) -> str:
    try:
        return reservations.release(reservation_id, who="test").status
    except reservations.PaymentInProgress:
        return "in progress"


def sweep(reservation_id: UUID) -> int:
    event_id = reservations.get_reservation(reservation_id).event_id
    return reservations.sweep(event_id=event_id, waiting=True).reservations


def endings(reservation_id: UUID) -> list[str]:
    ended = ReservationTransition.objects.filter(reservation_id=reservation_id, to_status__in=("canceled", "expired"))
    return list(ended.values_list("to_status", flat=True))


def test_control_a_release_decided_without_the_lock_releases_twice() -> None:
    """The naive way: read that it is live, then lower the count.

    A: reads the reservation as live, with two tickets
    B: releases it; COMMIT
    A: releases two tickets. They are another buyer's: the auditor names the section.
    """
    event = make_event(rows=0, general_admission=10)
    view = hold(event, ga_section="floor", ga_quantity=2)
    hold(event, ga_section="floor", ga_quantity=2)
    assert view.is_live
    in_another_connection(lambda: release(view.id))
    release_general_admission.count(connection.cursor(), section_ids=[get_general_admission().pk], quantities=[2])
    assert any(breach.startswith("I3") and "taken 0 against 2" in breach for breach in audit_breaches())


def test_the_second_of_two_concurrent_ends_finds_the_reservation_ended() -> None:
    """A: ends the reservation; it is locked
    B: wants to end it too; waits for it
    A: COMMIT
    B: reads its status under the lock: already ended. Its inventory was released once.
    """
    event = make_event(general_admission=10)
    hold(event, ga_section="floor", ga_quantity=4)

    def live() -> UUID:
        return hold(event, **MIXED).id

    def lapsed() -> UUID:
        backdate_deadline(view := live())
        return view

    def sold() -> UUID:
        confirm(begin_payment(view := live()).id, clock.now())
        return view

    meetings: list[tuple[Callable[[], UUID], Callable[[UUID], Any], Callable[[UUID], Any], str]] = [
        (live, release, release, "canceled"),
        (live, release, cancel, "canceled"),
        (lapsed, release, sweep, "canceled"),
        (lapsed, sweep, release, "expired"),
        (lapsed, sweep, sweep, "expired"),
        (lapsed, cancel, sweep, "canceled"),
        (sold, cancel, cancel, "canceled"),
    ]
    for make, first, second, final_status in meetings:
        reservation_id = make()
        with rival_waiting_at("end_lines", "before", partial(second, reservation_id)) as rival:
            first(reservation_id)
        rival.result()
        assert endings(reservation_id) == [final_status], (first, second)
        assert (seat("hall-A-1").status, get_general_admission().taken) == (0, 4), (first, second)
    assert_audit_clean()


def test_of_a_concurrent_payment_start_and_release_one_succeeds() -> None:
    """R: releases; the reservation is locked | P: begins to pay; waits; reads that it has ended
    P: begins to pay; the reservation is locked | R: releases; waits; reads paying, and it stays held
    """
    event = make_event(general_admission=10)
    view = hold(event, **MIXED)
    with rival_waiting_at("end_lines", "before", lambda: begin_payment(view.id)) as rival:
        assert release(view.id) == "canceled"
    with pytest.raises(reservations.ReservationExpired):
        rival.result()
    other = hold(event, **MIXED)
    with rival_waiting_at("insert_transitions", "before", lambda: release(other.id)) as rival:
        begin_payment(other.id)
    assert rival.result() == "in progress"
    assert (seat("hall-A-1").status, get_general_admission().taken) == (1, 2)
    assert_audit_clean()


def test_tickets_of_a_canceled_sale_go_to_the_hold_that_waits_for_their_row(long_lock_wait: None) -> None:
    """C: cancels a sale; has the section's row locked
    H: wants its tickets, the last ones; waits for the row
    C: COMMIT
    H: reads what is left under the lock: held
    """
    event = make_event(rows=0, general_admission=2)
    view = confirm(begin_payment(hold(event, ga_section="floor", ga_quantity=2).id).id, clock.now())
    request = make_hold_request(event, ga_section="floor", ga_quantity=2)
    with rival_waiting_at("release_general_admission", "before", lambda: submit_hold(request)) as rival:
        assert cancel(view.id).status == "canceled"
    assert is_held(rival.result())
    assert_audit_clean()


def make_late_payment(event: events.EventView) -> tuple[UUID, datetime]:
    """Create a reservation that was swept, and a payment for it that was made in time but arrives only now."""
    view = begin_payment(hold(event, **MIXED).id)
    occurred_at = clock.now()
    backdate_deadline(view.id)
    assert reservations.sweep().reservations == 1
    return view.id, occurred_at


def test_a_late_payment_gets_nothing_that_staff_took_off_sale_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """C: a payment in time locks the reservation: expired, its seat and tickets free
    S: blocks the seat, or some of the tickets, or shrinks the section; COMMIT
    C: has their locks: not all of it is available any more. The payment is refunded, and nothing was taken.

    And the other way round:
    C: has the seat locked, and takes it
    S: blocks it; waits; reads it as sold: refused
    """
    monkeypatch.setattr(stock, "LOCK_WAIT_MS", PATIENT_MS)
    event = make_event(general_admission=2)
    chosen = Selection(seats=("hall-A-1",))
    stock_changes: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
        (
            lambda: stock.block_seats(event, chosen, "house", **BY),
            lambda: stock.unblock_seats(event, chosen, **BY),
        ),
        (
            lambda: stock.block_general_admission(event, "floor", 1, "house", **BY),
            lambda: stock.unblock_general_admission(event, "floor", 1, "house", **BY),
        ),
        (lambda: stock.resize(event, "floor", 1, **BY), lambda: stock.resize(event, "floor", 2, **BY)),
    ]
    for take_off, put_back in stock_changes:
        reservation_id, occurred_at = make_late_payment(event)
        with (
            rival_at("all_lines", "before", take_off),
            pytest.raises(reservations.ReservationExpired),
        ):
            confirm(reservation_id, occurred_at)
        assert seat("hall-A-1").reservation_id is None
        assert get_general_admission().taken == 0
        put_back()
    reservation_id, occurred_at = make_late_payment(event)
    with rival_waiting_at("take_seats", "before", stock_changes[0][0]) as rival:
        assert confirm(reservation_id, occurred_at).status == "confirmed"
    with pytest.raises(reservations.SeatsUnavailable):
        rival.result()
    assert seat("hall-A-1").status == 2
    assert_audit_clean(without_money=True)


@pytest.mark.slow
def test_no_operation_waits_for_the_end_sale_change_or_repair_of_other_seats() -> None:
    """Each operation stops at its last line, holding all its locks on one row of seats; meanwhile every operation runs
    on another row, from beginning to end. One that had to wait would time out and fail."""
    event = make_event(rows=2, seats_per_row=10, general_admission=10)
    blocked = Selection(seats=("hall-A-9",))

    def replacing(old: str, new: str) -> Callable[[], Any]:
        entry = join(event)
        request = make_hold_request(event, entry, seats=[new], replace=str(hold(event, entry, seats=[old]).id))
        return lambda: submit_hold(request)

    def paying(guid: str) -> UUID:
        return begin_payment(hold(event, seats=[guid]).id).id

    def sold(guid: str) -> UUID:
        return confirm(paying(guid), clock.now()).id

    def run_every_operation() -> None:
        release(hold(event, seats=["hall-A-1"]).id)
        changed = replacing("hall-A-1", "hall-A-2")()
        assert is_held(changed)
        backdate_deadline(changed.reservation_id)
        assert reservations.sweep().reservations == 1
        assert cancel(sold("hall-A-3")).status == "canceled"
        assert stock.block_seats(event, blocked, "house", **BY) == stock.unblock_seats(event, blocked, **BY) == 1
        assert stock.resize(event, "floor", 11, **BY) != stock.resize(event, "floor", 10, **BY)

    mine = hold(event, seats=["hall-B-1"]).id
    backdate_deadline(hold(event, seats=["hall-B-2"]).id)
    change, bought, paid = replacing("hall-B-3", "hall-B-4"), sold("hall-B-5"), paying("hall-B-6")
    row = Selection(seats=("hall-B-7", "hall-B-8"))
    acts: list[tuple[str, Callable[[], Any]]] = [
        ("insert_cleanup_log", reservations.sweep),
        ("insert_transitions", lambda: reservations.release(mine, who="test")),
        ("remember_answers", change),
        ("insert_transitions", lambda: cancel(bought)),
        ("insert_transitions", lambda: confirm(paid, clock.now())),
        ("insert_inventory_changes", lambda: stock.block_seats(event, row, "house", **BY)),
        ("insert_inventory_changes", lambda: stock.unblock_seats(event, row, **BY)),
    ]
    for line, act in acts:
        with rival_at(line, "after", run_every_operation):
            act()
    SeatInventory.objects.filter(seat__guid="hall-B-6").update(status=0, reservation_id=None)
    with rival_at("set_seat", "after", run_every_operation):
        reconciler.run(repair_by="test")
    assert_audit_clean(without_money=True)
