"""Creation of an event's inventory when it is published."""

from django.db import connection, transaction

from apps.kernel.db import sql
from apps.kernel.db.transactions import require_transaction

_create_seat_inventory = sql.load("apps.reservations", "create_seat_inventory")
_refresh_inventory = sql.load("apps.reservations", "refresh_inventory")
_create_general_admission_inventory = sql.load("apps.reservations", "create_general_admission_inventory")


def create_inventory(event_id: int) -> None:
    """Create the inventory rows of all seats and general-admission sections of the event. Joins the publishing
    transaction; idempotent."""
    require_transaction()
    with connection.cursor() as cursor:
        if _create_seat_inventory.count(cursor, event_id=event_id):
            # After the commit, because the lock of ANALYZE would make two publications wait for each other. If it
            # fails, autovacuum will do it.
            transaction.on_commit(_refresh, robust=True)
        _create_general_admission_inventory.count(cursor, event_id=event_id)


def _refresh() -> None:
    with connection.cursor() as cursor:
        _refresh_inventory.count(cursor)
