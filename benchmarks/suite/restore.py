"""Removes all traces of a slice of holds and checkouts, so that the next slice starts from the same state.

The system would cancel reservations and keep them, but buyers with fifty canceled reservations each would be another
load. So the benchmark deletes the rows itself, with the ledger's triggers disabled.
"""

import time
from typing import Any

import psycopg

from benchmarks.suite.systems import Deployment

_KEPT = "interval '12 hours'"
"""Longer holds belong to the prepared data (the sold-out event)."""
_STATEMENTS = [
    "SET session_replication_role = replica",
    "SET statement_timeout = 0",
    f"""CREATE TEMPORARY TABLE made ON COMMIT PRESERVE ROWS AS
        SELECT id FROM reservations_reservation
        WHERE status IN ('pending_payment', 'paying') AND expires_at < clock_timestamp() + {_KEPT}""",  # noqa: S608
    "ANALYZE made",
    """CREATE TEMPORARY TABLE ordered ON COMMIT PRESERVE ROWS AS
        SELECT id FROM orders_order WHERE reservation_id IN (SELECT id FROM made)""",
    "DELETE FROM orders_payment WHERE order_id IN (SELECT id FROM ordered)",
    "DELETE FROM orders_orderline WHERE order_id IN (SELECT id FROM ordered)",
    "DELETE FROM orders_changedorder WHERE order_id IN (SELECT id FROM ordered)",
    "DELETE FROM outbox_outboxmessage WHERE key IN (SELECT id::text FROM ordered)",
    "DELETE FROM orders_order WHERE id IN (SELECT id FROM ordered)",
    "DELETE FROM reservations_reservationtransition WHERE reservation_id IN (SELECT id FROM made)",
    "DELETE FROM reservations_reservationline WHERE reservation_id IN (SELECT id FROM made)",
    "DELETE FROM reservations_reservation WHERE id IN (SELECT id FROM made)",
    "UPDATE reservations_seatinventory SET status = 0, reservation_id = NULL WHERE status = 1",
    """UPDATE reservations_generaladmissioninventory AS row SET taken = live.quantity
       FROM (SELECT inventory.section_id, coalesce(sum(line.quantity), 0) AS quantity
             FROM reservations_generaladmissioninventory AS inventory
             LEFT JOIN reservations_reservationline AS line
                 ON line.section_id = inventory.section_id AND line.live AND line.seat_id IS NULL
             GROUP BY inventory.section_id) AS live
       WHERE live.section_id = row.section_id AND row.taken <> live.quantity""",
    "UPDATE queue_queueentry SET busy_until = NULL WHERE busy_until IS NOT NULL AND status = 'ready'",
    "DELETE FROM kernel_idempotentanswer",
    "DROP TABLE made, ordered",
    """VACUUM orders_payment, orders_orderline, orders_changedorder, orders_order, outbox_outboxmessage,
              reservations_reservationtransition, reservations_reservationline, reservations_reservation,
              reservations_seatinventory, reservations_generaladmissioninventory, queue_queueentry,
              kernel_idempotentanswer""",
]


_QUIET_SECONDS = 0.4
_QUIET_SECONDS_MAX = 10.0


def remove_holds(deployment: Deployment) -> int:
    """Remove the slice's rows, including those of requests in progress at its end, and return how many reservations
    there were."""
    with deployment.ledger() as on:
        wait_until_quiet(on, "reservations_reservationtransition_id_seq")
        count = 0
        for statement in _STATEMENTS:
            done = on.execute(statement)  # type: ignore[call-overload]
            if statement.startswith("DELETE FROM reservations_reservation WHERE"):
                count = done.rowcount
    return count


def wait_until_quiet(on: psycopg.Connection[Any], sequence: str) -> None:
    """Wait until requests without a response have finished writing, as seen in that sequence."""
    written = -1
    until = time.monotonic() + _QUIET_SECONDS_MAX
    while time.monotonic() < until:
        before = written
        ((written,),) = on.execute(f"SELECT last_value FROM {sequence}").fetchall()  # type: ignore[call-overload]  # noqa: S608
        if written == before:
            return
        time.sleep(_QUIET_SECONDS)
