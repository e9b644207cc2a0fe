"""The audit of a running sale reports no false breach, whatever changes meanwhile, and misses no true one."""

import threading
from typing import Any

import pytest

from apps.kernel import clock
from apps.kernel.checks import auditor
from apps.reservations import facade as reservations
from apps.reservations.models import ReservationLine, SeatInventory
from tests.support.factories import (
    assert_audit_clean,
    audit_breaches,
    backdate_deadline,
    hold,
    make_event,
    make_hold_request,
)
from tests.support.races import rival_at, storm, values
from tests.support.reservations.buyers import begin_payment, cancel, confirm, run_sql, seat

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 6
BUYERS = 6
STATEMENTS = ["audit_seat_counts", "audit_seat_owners", "audit_sections", "audit_lines", "audit_ledger"]


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small pieces, so that much can happen between two of them."""
    monkeypatch.setattr(auditor, "PIECE_MAX", 8)
    monkeypatch.setattr(auditor, "PIECE_MIN", 4)


def test_control_counts_from_two_statements_report_a_false_breach() -> None:
    """The naive audit, which ours must not be.

    A: counts the held seats: one.
    B: releases it; COMMIT.
    A: counts the live lines: none. One against none, although nothing is wrong.
    """
    event = make_event()
    view = hold(event, seats=["hall-A-1"])
    ((held,),) = run_sql("SELECT count(*) FROM reservations_seatinventory WHERE status = 1")
    reservations.release(view.id, who="test")
    ((by_lines,),) = run_sql("SELECT count(*) FROM reservations_reservationline WHERE live")
    assert held != by_lines
    assert_audit_clean()


@pytest.mark.parametrize("statement", STATEMENTS)
def test_no_change_between_two_statements_is_reported_as_a_breach(statement: str) -> None:
    """A: audits; has reached this statement.
    B: releases one reservation, pays a second, cancels a third after its sale, lets a fourth lapse and revives it,
       holds the first one's seats again and seats at the other end of the hall, and publishes another event; COMMITs.
    A: continues with the rest. Nothing was ever wrong, and nothing is reported.
    """
    event = make_event(general_admission=20, per_buyer_max=8)
    released = hold(event, seats=["hall-A-1", "hall-E-10"], ga_section="floor", ga_quantity=2)
    paid = begin_payment(hold(event, seats=["hall-A-2", "hall-E-9"], ga_section="floor", ga_quantity=1).id, "a@x.org")
    canceled = begin_payment(hold(event, seats=["hall-A-3", "hall-E-8"]).id, "b@x.org")
    confirm(canceled.id, clock.now())
    revived = begin_payment(hold(event, seats=["hall-A-4"], ga_section="floor", ga_quantity=3).id, "c@x.org")

    def change_everything() -> None:
        reservations.release(released.id, who="test")
        confirm(paid.id, clock.now())
        cancel(canceled.id)
        paid_at = clock.now()
        backdate_deadline(revived.id)
        reservations.sweep_all()
        confirm(revived.id, paid_at)
        hold(event, seats=["hall-A-1", "hall-C-5", "hall-E-7"], ga_section="floor", ga_quantity=4)
        hold(make_event("opera", venue="The Other Venue", general_admission=5), seats=["hall-A-1"])

    with rival_at(statement, "after", change_everything):
        assert [breach for breach in audit_breaches() if not breach.startswith("I4")] == []
    assert_audit_clean(without_money=True)


def test_an_audit_during_a_storm_reports_no_false_breach() -> None:
    """Six buyers hold, release, pay, are refunded, let their time run out and are swept, all on the same fifty seats
    and twenty tickets, while two auditors run all the time. No audit reports anything."""
    event = make_event(rows=5, seats_per_row=10, general_admission=20)
    names = [f"hall-{row}-{number}" for row in "ABCDE" for number in range(1, 11)]
    requests = [
        [
            make_hold_request(event, seats=[names[(7 * buyer + 13 * turn + offset) % 50] for offset in (0, 25)])
            if turn % 3
            else make_hold_request(event, ga_section="floor", ga_quantity=1 + buyer % 3)
            for turn in range(ROUNDS)
        ]
        for buyer in range(BUYERS)
    ]
    done = threading.Semaphore(0)
    selling = threading.Event()
    selling.set()

    def shop(buyer: int) -> None:
        for turn, request in enumerate(requests[buyer]):
            (outcome,) = reservations.hold([request])
            if not isinstance(outcome, reservations.Held):
                continue
            reservation = outcome.reservation_id
            match (buyer + turn) % 4:
                case 0:
                    reservations.release(reservation, who="test")
                case 1:
                    confirm(begin_payment(reservation, f"{buyer}.{turn}@example.org").id, clock.now())
                case 2:
                    confirm(begin_payment(reservation, f"{buyer}.{turn}@example.org").id, clock.now())
                    cancel(reservation)
                case _:
                    backdate_deadline(reservation, seconds=0)
                    reservations.sweep_all()

    def act(number: int) -> list[str]:
        if number < BUYERS:
            try:
                shop(number)
            finally:
                done.release()
                if number == 0:
                    for _ in range(BUYERS):
                        done.acquire()
                    selling.clear()
            return []
        found: list[str] = []
        while selling.is_set():
            # This sale confirms without orders (I4), and lapsed holds are swept only by its buyers (I10).
            found += [breach for breach in audit_breaches() if not breach.startswith(("I4", "I10: overdue"))]
        return found

    outcomes: list[Any] = values(storm(BUYERS + 2, act))
    assert outcomes[BUYERS:] == [[], []]
    assert_audit_clean(without_money=True)


def test_every_audit_during_a_storm_reports_a_true_breach() -> None:
    """One seat is stranded before the storm and stays so: every audit reports it, whatever changes around it."""
    event = make_event()
    lost = hold(event, seats=["hall-E-10"])
    ReservationLine.objects.filter(reservation_id=lost.id).update(live=False)
    requests = [make_hold_request(event, seats=[f"hall-{row}-1"]) for row in "ABCD"]

    def act(number: int) -> Any:
        if number < len(requests):
            (outcome,) = reservations.hold([requests[number]])
            assert isinstance(outcome, reservations.Held)
            reservations.release(outcome.reservation_id, who="test")
            return None
        return audit_breaches()

    for found in values(storm(len(requests) + 2, act))[len(requests) :]:
        assert {breach.split(":")[0] for breach in found} == {"I1", "I2"}
        assert any(f"seat {seat('hall-E-10').pk} (status 1)" in breach for breach in found)
    assert SeatInventory.objects.filter(status=1).count() == 1
