"""The event's inventory, made when it is published."""

from django.db import connection

from ticketing.kernel import sql
from ticketing.kernel.transactions import require

_materialise_seats = sql.load("apps.reservations", "materialise_seats")
_materialise_general_admission = sql.load("apps.reservations", "materialise_general_admission")


def materialise(event_id: int) -> None:
    """Every seat and every general-admission section of the event has its inventory row. Joins the transaction that
    publishes; doing it twice changes nothing."""
    require()
    with connection.cursor() as cursor:
        _materialise_seats.count(cursor, event_id=event_id)
        _materialise_general_admission.count(cursor, event_id=event_id)
