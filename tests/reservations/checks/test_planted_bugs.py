"""Every constraint of this app is dropped in turn, a row that it forbids is planted, and the auditor names it: a fault
that the database no longer prevents is detected.

The constraints are read from the database: a new one without a case here fails.
"""

import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import F
from django.db.models.functions import Now

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.reservations.models import GeneralAdmissionInventory, Reservation, ReservationLine, SeatInventory
from tests.support.factories import assert_audit_clean, audit_breaches, hold, make_event
from tests.support.reservations.buyers import begin_payment, cancel, confirm, run_sql, seat

# Each test is rolled back with its transaction, the dropped constraints too.
pytestmark = pytest.mark.django_db

NOWHERE = 999_999_999

LEFT_OUT = {
    "reservations_accesscode": "the terms of a code, set by staff; its uses are counted from reservations",
    "reservations_availabilityframe": "the last published frame: shown, never used in a decision",
    "reservations_cleanuplog": "a log of sweeps: shown, never used in a decision",
    "reservations_inventorychange": "a log of staff's changes: shown, never used in a decision",
    "reservations_purchasecap": "a lock and no count: every transaction locks a duplicate row twice, in one order",
    "reservations_reservationtransition": "a number; a trigger protects the rows, and the audit checks their sequence",
    "reservations_toldpage": "the state last published to caches in front of the site: never used in a decision",
    "reservations_reservation_pkey": "the id by which the audit itself names reservations",
    "reservations_reservationline_pkey": "a number that nothing refers to",
    "reservations_reserva_account_id": "an account that nothing else refers to",
}
"""The reason why the auditor does not check it, by the beginning of a table's or a constraint's name."""


@dataclass(frozen=True)
class Bug:
    """`plant` violates the constraint; `says` are the words of the breach that names it. `also`: other
    constraints that it violates."""

    plant: Callable[[], object]
    says: tuple[str, ...]
    also: tuple[str, ...] = ()


def of_seat(**values: Any) -> Callable[[], object]:
    return lambda: SeatInventory.objects.filter(seat__guid="hall-D-1").update(**values)


def of_floor(**values: Any) -> Callable[[], object]:
    return lambda: GeneralAdmissionInventory.objects.update(**values)


def of_reservation(guid: str, **values: Any) -> Callable[[], object]:
    return lambda: Reservation.objects.filter(pk=owner_of(guid)).update(**values)


def of_line(**values: Any) -> Callable[[], object]:
    return lambda: ReservationLine.objects.filter(seat=seat("hall-B-1")).update(**values)


def of_tickets(**values: Any) -> Callable[[], object]:
    return lambda: ReservationLine.objects.filter(seat=None).update(**values)


def owner_of(guid: str) -> Any:
    line = ReservationLine.objects.get(seat=seat(guid))
    return line.reservation_id


def duplicate_first_row(table: str) -> Callable[[], object]:
    """Duplicate the table's first row."""
    return lambda: run_sql(f"INSERT INTO reservations_{table} SELECT * FROM reservations_{table} LIMIT 1")


_TAKEN = "reservations_generaladmissioninventory_taken_check"
_BLOCKED = "reservations_generaladmissioninventory_blocked_check"
_NOT_NEGATIVE = "general_admission_never_negative"
_NOT_OVERSOLD = "general_admission_never_oversold"
_HOUSE_IS_BLOCKED = "general_admission_house_is_blocked"
_HAS_OWNER = "seat_inventory_held_has_reservation"
_SAYS_WHY = "seat_inventory_blocked_says_why"

BUGS: dict[str, Bug] = {
    # Seats.
    _HAS_OWNER: Bug(of_seat(status=1), ("I2: concert: seat {seat} (status 1) belongs to None",)),
    _SAYS_WHY: Bug(of_seat(status=3), ("I1: concert: seat {seat} has status 3, blocked for nothing",)),
    "reservations_seatinventory_status_check": Bug(
        of_seat(status=-1), ("I1: concert: seat {seat} has status -1",), (_HAS_OWNER,)
    ),
    "reservations_seatinventory_row_index_check": Bug(of_seat(row_index=-1), ("seat {seat}", "another location")),
    "reservations_seatinventory_place_index_check": Bug(of_seat(place_index=-1), ("seat {seat}", "another location")),
    "reservations_seatinventory_rank_check": Bug(of_seat(rank=-1), ("seat {seat}", "another location")),
    "reservations_seatinv_category_id_…": Bug(of_seat(category_id=NOWHERE), ("seat {seat}", "or price")),
    "reservations_seatinv_section_id_…": Bug(of_seat(section_id=NOWHERE), ("its section is 999999999",)),
    "reservations_seatinventory_event_id_…": Bug(of_seat(event_id=NOWHERE), ("event 999999999: seat {seat}",)),
    "reservations_seatinventory_seat_id_…": Bug(
        of_seat(seat_id=NOWHERE), ("I1: concert: seat 999999999", "the plan's None")
    ),
    "reservations_seatinventory_pkey": Bug(
        duplicate_first_row("seatinventory"), ("I1: concert/hall: capacity 50, 51 inventory",)
    ),
    "reservation_line_returned_holds_nothing": Bug(
        of_line(returned_at=Now()), ("I1: concert: reservation", "with 0 of 0 lines live")
    ),
    # General admission.
    _NOT_OVERSOLD: Bug(of_floor(taken=11), ("I3: concert: general admission floor: taken 11",)),
    _NOT_NEGATIVE: Bug(of_floor(taken=-1), ("I3: concert: general admission floor: taken -1",), (_TAKEN,)),
    _TAKEN: Bug(of_floor(taken=-1), ("I3: concert: general admission floor: taken -1",), (_NOT_NEGATIVE,)),
    _BLOCKED: Bug(of_floor(blocked=-1), ("I3: concert", "blocked -1"), (_NOT_NEGATIVE, _HOUSE_IS_BLOCKED)),
    "reservations_generaladmissioninventory_capacity_check": Bug(
        of_floor(capacity=-1), ("I1: concert: general admission floor: capacity -1",), (_NOT_OVERSOLD,)
    ),
    _HOUSE_IS_BLOCKED: Bug(of_floor(house=1), ("I1: concert", "house seats 1 of 0 blocked")),
    "reservations_generaladmissioninventory_house_check": Bug(
        of_floor(house=-1), ("I1: concert", "house seats -1 of 0 blocked")
    ),
    "reservations_general_event_id_…": Bug(
        of_floor(event_id=NOWHERE), ("I1: concert: general admission floor: its inventory belongs to event 999999999",)
    ),
    "reservations_general_section_id_…": Bug(
        of_floor(section_id=NOWHERE), ("I1: concert: capacity 10, 2 taken, of section 999999999: this is not",)
    ),
    "reservations_generaladmissioninventory_pkey": Bug(
        duplicate_first_row("generaladmissioninventory"), ("I1: concert: capacity 10", "there are 2 such rows")
    ),
    # Reservations.
    "reservation_one_live_per_admission": Bug(
        lambda: Reservation.objects.filter(pk=owner_of("hall-B-1")).update(
            entry=Reservation.objects.get(pk=owner_of("hall-A-1")).entry_id
        ),
        ("I5: concert: admission", "has 2 live reservations"),
    ),
    "reservation_paying_has_deadline": Bug(
        of_reservation("hall-D-5", pay_deadline=None), ("I8: concert: reservation", "is paying without the time")
    ),
    "reservation_paying_keeps_hold": Bug(
        of_reservation("hall-D-5", pay_deadline=F("expires_at") - timedelta(minutes=7)),
        ("I8: concert: reservation", "before its hold ended"),
    ),
    "reservation_confirmed_has_time": Bug(
        of_reservation("hall-C-1", confirmed_at=None), ("I8: concert: reservation", "is confirmed without the time")
    ),
    "reservation_ended_has_time": Bug(
        of_reservation("hall-D-6", ended_at=None), ("I8: concert: reservation", "is canceled without the time")
    ),
    "reservation_not_empty": Bug(of_reservation("hall-B-1", seat_count=0), ("I1: concert", "has 0 tickets for")),
    "reservations_reservation_seat_count_check": Bug(
        of_reservation("hall-B-1", seat_count=-1), ("I1: concert", "has -1 tickets for"), ("reservation_not_empty",)
    ),
    "reservations_reservation_total_minor_check": Bug(
        of_reservation("hall-B-1", total_minor=-1), ("I1: concert", "has 1 tickets for -1")
    ),
    # Lines of reservations.
    "reservation_line_seat_held_once": Bug(
        lambda: ReservationLine.objects.filter(seat=seat("hall-B-1")).update(seat=seat("hall-A-1")),
        ("I2: concert: seat", "is on 2 live lines"),
    ),
    "reservation_line_quantity": Bug(of_line(quantity=2), ("I1: concert", "1 lines are invalid")),
    "reservations_reservationline_quantity_check": Bug(
        of_tickets(quantity=-1), ("I1: concert", "1 lines are invalid"), ("reservation_line_quantity",)
    ),
    "reservations_reservationline_price_minor_check": Bug(
        of_line(price_minor=-1), ("I1: concert", "-1 against 5000 to pay; 1 lines are invalid")
    ),
}
UNKNOWN = uuid.UUID("00000000-0000-4000-8000-000000000000")
UNCONSTRAINED: dict[str, Bug] = {
    "a line of no reservation": Bug(
        of_line(reservation_id=UNKNOWN),
        ("I2: concert: seat", f"its live line to {UNKNOWN}"),
    ),
    "a reservation of no entry": Bug(
        of_reservation("hall-B-1", entry_id=UNKNOWN), ("I5: concert: reservation", f"{UNKNOWN} is not an entry")
    ),
    "a reservation of another event": Bug(
        of_reservation("hall-B-1", event_id=NOWHERE),
        ("I5: event 999999999: reservation", "is not an entry of this event"),
    ),
}
"""Breaches that no constraint forbids, since it would slow down every hold: the locks of a hold prevent them."""


@pytest.fixture(autouse=True)
def _sale() -> None:
    """A hold of a seat and two tickets, one of a seat, a sale, a payment under way, and a hold that was released."""
    event = make_event(general_admission=10)
    hold(event, seats=["hall-A-1"], ga_section="floor", ga_quantity=2)
    hold(event, seats=["hall-B-1"])
    confirm(begin_payment(hold(event, seats=["hall-C-1"]).id).id, clock.now())
    begin_payment(hold(event, seats=["hall-D-5"]).id)
    cancel(hold(event, seats=["hall-D-6"]).id)
    assert_audit_clean(without_money=True)


def constraints() -> dict[str, str]:
    """Return the constraints and unique indexes of the app's tables, with the statement that drops each."""
    found = run_sql(
        "SELECT conname, conrelid::regclass::text, false FROM pg_constraint"
        " WHERE conrelid::regclass::text LIKE 'reservations\\_%%' AND contype IN ('c', 'u', 'p', 'f', 'x')"
        " UNION ALL SELECT indexrelid::regclass::text, indrelid::regclass::text, true FROM pg_index"
        " WHERE indisunique AND indrelid::regclass::text LIKE 'reservations\\_%%'"
        " AND NOT EXISTS (SELECT FROM pg_constraint WHERE conindid = indexrelid)"
    )
    return {
        name: f"DROP INDEX {name}" if is_index else f"ALTER TABLE {table} DROP CONSTRAINT {name} CASCADE"
        for name, table, is_index in found
        if not any(f"{table} {name}".startswith(left) or name.startswith(left) for left in LEFT_OUT)
    }


def is_named(name: str, case: str) -> bool:
    """Return whether the case is this constraint. Django ends the names of foreign keys with a hash, written as …"""
    return name.startswith(case.removesuffix("…")) if case.endswith("…") else name == case


def test_every_constraint_has_its_bug() -> None:
    cases = {name: [case for case in BUGS if is_named(name, case)] for name in constraints()}
    assert {name: found for name, found in cases.items() if len(found) != 1} == {}
    assert set(BUGS) == {case for found in cases.values() for case in found}


@pytest.mark.parametrize("case", BUGS)
def test_the_auditor_names_the_breach_that_a_dropped_constraint_allowed(case: str) -> None:
    bug, statements = BUGS[case], constraints()
    place = str(seat("hall-D-1").pk)
    run_sql("SET CONSTRAINTS ALL IMMEDIATE")
    for name in (case, *bug.also):
        (drop,) = [statement for called, statement in statements.items() if is_named(called, name)]
        run_sql(drop)
    bug.plant()
    breaches = audit_breaches()
    words = [word.format(seat=place) for word in bug.says]
    assert any(all(word in breach for word in words) for breach in breaches), breaches


@pytest.mark.parametrize("case", UNCONSTRAINED)
def test_the_auditor_names_breaches_that_no_constraint_forbids(case: str) -> None:
    bug = UNCONSTRAINED[case]
    bug.plant()
    breaches = audit_breaches()
    assert any(all(word in breach for word in bug.says) for breach in breaches), breaches


def test_an_entry_with_reservations_cannot_be_deleted() -> None:
    entry_id = Reservation.objects.get(pk=owner_of("hall-B-1")).entry_id
    with pytest.raises(IntegrityError) as refused, transaction.atomic():
        run_sql("DELETE FROM queue_queueentry WHERE id = %s", [entry_id])
    assert transactions.violated_constraint(refused.value) == "reservation_keeps_its_entry"
    assert_audit_clean(without_money=True)
