"""The auditor while the sale goes on: whatever moves under its eyes, it cries wolf never, and misses nothing."""

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
STATEMENTS = [
    "audit_seats_end", "audit_seat_counts", "audit_seat_owners", "audit_sections", "audit_reservations_end",
    "audit_lines", "audit_ledger",
]  # fmt: skip


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many pieces, so that much can happen between two of them."""
    monkeypatch.setattr(auditor, "PIECE_MAX", 8)
    monkeypatch.setattr(auditor, "PIECE_MIN", 4)


def test_a_count_over_two_statements_sees_a_breach_that_there_is_not() -> None:
    """The naive audit, which the real one must not be.

    A: counts the seats that are held: one.
    B: releases it; COMMIT.
    A: counts the live lines: none. One against none, and nothing is wrong.
    """
    event = make_event()
    view = hold(event, seats=["hall-A-1"])
    ((held,),) = run_sql("SELECT count(*) FROM reservations_seatinventory WHERE status = 1")
    reservations.release(view.id, who="test")
    ((by_lines,),) = run_sql("SELECT count(*) FROM reservations_reservationline WHERE live")
    assert held != by_lines
    assert_audit_clean()


@pytest.mark.parametrize("statement", STATEMENTS)
def test_whatever_happens_between_two_statements_is_no_breach(statement: str) -> None:
    """A: audits; has come to this statement.
    B: releases one reservation, pays a second, gives a third back after its sale, lets a fourth lapse and revives it,
       holds anew what the first had and seats at the other end of the hall, and publishes another event; COMMITs.
    A: goes on with the rest. Nothing was ever wrong, and nothing is found.
    """
    event = make_event(general_admission=20, per_buyer_max=8)
    released = hold(event, seats=["hall-A-1", "hall-E-10"], ga_section="floor", ga_quantity=2)
    paid = begin_payment(hold(event, seats=["hall-A-2", "hall-E-9"], ga_section="floor", ga_quantity=1).id, "a@x.org")
    given = begin_payment(hold(event, seats=["hall-A-3", "hall-E-8"]).id, "b@x.org")
    confirm(given.id, clock.now())
    revived = begin_payment(hold(event, seats=["hall-A-4"], ga_section="floor", ga_quantity=3).id, "c@x.org")

    def sale() -> None:
        reservations.release(released.id, who="test")
        confirm(paid.id, clock.now())
        cancel(given.id)
        in_time = clock.now()
        backdate_deadline(revived.id)
        reservations.sweep_all()
        confirm(revived.id, in_time)
        hold(event, seats=["hall-A-1", "hall-C-5", "hall-E-7"], ga_section="floor", ga_quantity=4)
        hold(make_event("opera", venue="The Other Venue", general_admission=5), seats=["hall-A-1"])

    with rival_at(statement, "after", sale):
        assert [breach for breach in audit_breaches() if not breach.startswith("I4")] == []
    assert_audit_clean(without_money=True)


def test_an_audit_in_the_middle_of_a_storm_never_cries_wolf() -> None:
    """Six buyers hold, let go, pay, are paid back, let their time run out and are swept, all on the same fifty seats
    and twenty places; two auditors look the whole time. No audit finds anything."""
    event = make_event(rows=5, seats_per_row=10, general_admission=20)
    names = [f"hall-{row}-{number}" for row in "ABCDE" for number in range(1, 11)]
    wishes = [
        [
            make_hold_request(event, seats=[names[(7 * buyer + 13 * turn + place) % 50] for place in (0, 25)])
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
        for turn, request in enumerate(wishes[buyer]):
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
            # Orders stand beside this sale, which confirms without one; and who sweeps here is a buyer at a time.
            found += [breach for breach in audit_breaches() if not breach.startswith(("I4", "I10: overdue"))]
        return found

    outcomes: list[Any] = values(storm(BUYERS + 2, act))
    assert outcomes[BUYERS:] == [[], []]
    assert_audit_clean(without_money=True)


def test_a_breach_is_found_in_the_middle_of_a_storm_by_every_audit() -> None:
    """One seat is stranded before the storm and stays so: no audit misses it, whatever moves around it."""
    event = make_event()
    lost = hold(event, seats=["hall-E-10"])
    ReservationLine.objects.filter(reservation_id=lost.id).update(live=False)
    wishes = [make_hold_request(event, seats=[f"hall-{row}-1"]) for row in "ABCD"]

    def act(number: int) -> Any:
        if number < len(wishes):
            (outcome,) = reservations.hold([wishes[number]])
            assert isinstance(outcome, reservations.Held)
            reservations.release(outcome.reservation_id, who="test")
            return None
        return audit_breaches()

    for found in values(storm(len(wishes) + 2, act))[len(wishes) :]:
        assert {breach.split(":")[0] for breach in found} == {"I1", "I2"}
        assert any(f"seat {seat('hall-E-10').pk} (status 1)" in breach for breach in found)
    assert SeatInventory.objects.filter(status=1).count() == 1
