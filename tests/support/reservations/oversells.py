"""An oversell, which must be impossible, planted: with what stands before it out of the way."""

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
    """Nothing in the database stands before an oversell any more."""
    run_sql(f"ALTER TABLE reservations_generaladmissioninventory DROP CONSTRAINT {NEVER_OVERSOLD}")
    for name in ONE_BUYER_PER_SEAT:
        run_sql(f"DROP INDEX {name}")


@contextmanager
def without_constraints() -> Iterator[None]:
    """The same for every connection, and all is back at the end as it was: these tests' rows are committed. Where the
    test left rows that cannot stand beside it, they go first."""
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
    """The house is smaller than what was sold, as if nothing had stood in the way."""
    GeneralAdmissionInventory.objects.update(capacity=capacity)
    run_sql("UPDATE events_section SET capacity = %s WHERE kind = 'general_admission'", [capacity])


def share_seat(first: UUID, second: UUID, guid: str) -> None:
    """The second reservation's only seat is the first one's too."""
    line = ReservationLine.objects.get(reservation_id=second)
    SeatInventory.objects.filter(pk=line.seat_id).update(status=0, reservation_id=None)
    ReservationLine.objects.filter(pk=line.pk).update(seat=seat(guid))
    Ticket.objects.filter(line=line).update(seat=seat(guid))
    assert Reservation.objects.filter(pk=first).exists()
