"""Plants an oversell, which must be impossible, by dropping the constraints that prevent it."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from django.core.management import call_command
from django.db import DatabaseError

from apps.orders.models import Ticket
from apps.reservations.models import GeneralAdmissionInventory, Reservation, ReservationLine, SeatInventory
from tests.support.reservations.buyers import run_sql, seat

NEVER_OVERSOLD = "general_admission_never_oversold"
ONE_BUYER_PER_SEAT = ("reservation_line_seat_held_once", "ticket_one_live_per_seat")


def drop_constraints() -> None:
    """Drop the constraints that prevent an oversell."""
    run_sql(f"ALTER TABLE reservations_generaladmissioninventory DROP CONSTRAINT {NEVER_OVERSOLD}")
    for name in ONE_BUYER_PER_SEAT:
        run_sql(f"DROP INDEX {name}")


@contextmanager
def without_constraints() -> Iterator[None]:
    """Drop them for every connection and restore them at the end, since these tests commit their rows. Rows left by the
    test that violate them are deleted first."""
    ((check,),) = run_sql("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", [NEVER_OVERSOLD])
    indexes = [run_sql("SELECT pg_get_indexdef(%s::regclass)", [name])[0][0] for name in ONE_BUYER_PER_SEAT]
    add = f"ALTER TABLE reservations_generaladmissioninventory ADD CONSTRAINT {NEVER_OVERSOLD} {check}"
    drop_constraints()
    try:
        yield
    finally:
        for statement in (add, *indexes):
            try:
                run_sql(statement)
            except DatabaseError:
                call_command("flush", interactive=False, verbosity=0)
                run_sql(statement)


def shrink(capacity: int) -> None:
    """Make the section smaller than what was sold, as if no constraint existed."""
    GeneralAdmissionInventory.objects.update(capacity=capacity)
    run_sql("UPDATE events_section SET capacity = %s WHERE kind = 'general_admission'", [capacity])


def share_seat(first: UUID, second: UUID, guid: str) -> None:
    """Give the first reservation's seat to the second one too."""
    line = ReservationLine.objects.get(reservation_id=second)
    SeatInventory.objects.filter(pk=line.seat_id).update(status=0, reservation_id=None)
    ReservationLine.objects.filter(pk=line.pk).update(seat=seat(guid))
    Ticket.objects.filter(line=line).update(seat=seat(guid))
    assert Reservation.objects.filter(pk=first).exists()
