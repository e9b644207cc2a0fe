"""Creation of an event's inventory when it is published."""

from django.db import connection, transaction

from apps.kernel.db import sql
from apps.kernel.db.transactions import require_transaction

_materialise_seats = sql.load("apps.reservations", "materialise_seats")
_refresh_inventory = sql.load("apps.reservations", "refresh_inventory")
_materialise_general_admission = sql.load("apps.reservations", "materialise_general_admission")


def create_inventory(event_id: int) -> None:
    """Create the inventory rows of all seats and general-admission sections of the event. Joins the publishing
    transaction; idempotent."""
    require_transaction()
    with connection.cursor() as cursor:
        if _materialise_seats.count(cursor, event_id=event_id):
            # After the commit: its lock would make two publications wait for each other. If it fails, autovacuum will
            # do it.
            transaction.on_commit(_refresh, robust=True)
        _materialise_general_admission.count(cursor, event_id=event_id)


def _refresh() -> None:
    with connection.cursor() as cursor:
        _refresh_inventory.count(cursor)
