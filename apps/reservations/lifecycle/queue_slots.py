"""How long a reservation keeps its queue entry's slot busy: told to the queue after whatever changed it."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from apps.kernel.db import sql, transactions
from apps.queue import facade as queue

_deadlines_of_entries = sql.load("apps.reservations", "deadlines_of_entries")
_paid_entries = sql.load("apps.reservations", "paid_entries")


def complete_slot(entry_id: UUID) -> None:
    """The entry is completed, its slot free: its reservation is paid. A transaction of its own, after the sale's; lost
    with its process it is made up for by the entry's own deadline, and no hold starts meanwhile, because the hold sees
    the paid reservation.

    A payment may come late and revive an expired reservation whose buyer has held anew since: that hold keeps the
    entry, and its slot, until it ends.
    """
    with transactions.write_on_django() as cursor:
        deadlines = _lock_and_read(cursor, [entry_id])
        if entry_id in deadlines:
            queue.set_busy_until(cursor, deadlines)
        else:
            queue.complete_entry(cursor, entry_id)


def refresh_slots(
    entry_ids: Collection[UUID],
    write: transactions.TransactionOpener = transactions.write_on_django,
    *,
    lock_ms: int | None = None,
) -> None:
    """Each entry's slot is busy until its live reservation's deadline; without one, what is left of its admission may
    start another, unless the entry has bought something by then (a payment came late, while this hold lived): it is
    completed. A transaction of its own, after the one that ended or paid a reservation: entries come before
    reservations in the order of locks.

    It says what is, not what changed, and reads it under the entry's lock. So it may come late, twice, or after the
    buyer has held anew, and whichever comes last is right.
    """
    with write(lock_ms=lock_ms) as cursor:
        deadlines = _lock_and_read(cursor, entry_ids)
        ended = sorted(set(entry_ids) - deadlines.keys())
        paid = {row[0] for row in _paid_entries.rows(cursor, entry_ids=ended)} if ended else set()
        queue.set_busy_until(cursor, {one: deadlines.get(one) for one in entry_ids if one not in paid})
        for entry_id in sorted(paid):
            queue.complete_entry(cursor, entry_id)


def _lock_and_read(cursor: sql.Cursor, entry_ids: Collection[UUID]) -> dict[UUID, datetime]:
    """These entries are locked; the deadline of each one's live reservation, read by a statement of its own, though in
    one journey: its snapshot is taken after the last lock came."""
    locking = queue.lock_entries_call(list(entry_ids))
    _, deadlines = sql.execute_batch(cursor, [locking, _deadlines_of_entries.call(entry_ids=sorted(entry_ids))])
    return dict(deadlines.rows)
