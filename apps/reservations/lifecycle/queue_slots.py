"""Reports to the queue how long a reservation occupies its entry's slot."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from apps.kernel.db import sql, transactions
from apps.queue import facade as queue

_deadlines_of_entries = sql.load("apps.reservations", "deadlines_of_entries", prepared=True)
_paid_entries = sql.load("apps.reservations", "paid_entries")


def complete_slots(entry_ids: Collection[UUID]) -> None:
    """Complete the entries of paid reservations, which frees their slots. Own transaction, after the sale's.

    If the process ends before, the entry's own deadline frees the slot, and no hold starts meanwhile, because holds see
    the paid reservation. If a late payment revived an expired reservation and its buyer has a new hold, that hold keeps
    the entry and its slot until it ends.
    """
    with transactions.write_on_django() as cursor:
        deadlines = _lock_and_read(cursor, entry_ids)
        if deadlines:
            queue.set_busy_until(cursor, deadlines)
        queue.complete_entries(cursor, sorted(set(entry_ids) - deadlines.keys()))


def refresh_slots(
    entry_ids: Collection[UUID],
    write: transactions.TransactionOpener = transactions.write_on_django,
    *,
    lock_ms: int | None = None,
) -> None:
    """Set how long each entry's slot is occupied: until the deadline of its live reservation, if it has one.

    Without one, the entry may start another reservation while its admission lasts. But an entry with a paid one (whose
    payment came late, during a later hold) is completed. Own transaction, after the one that ended or paid a
    reservation, because entries precede reservations in the lock order. It writes the state read under the entry's
    lock, not a change, so it may run late, twice, or after a new hold.
    """
    with write(lock_ms=lock_ms) as cursor:
        deadlines = _lock_and_read(cursor, entry_ids)
        ended = sorted(set(entry_ids) - deadlines.keys())
        paid = {row[0] for row in _paid_entries.rows(cursor, entry_ids=ended)} if ended else set()
        queue.set_busy_until(cursor, {one: deadlines.get(one) for one in entry_ids if one not in paid})
        queue.complete_entries(cursor, sorted(paid))


def _lock_and_read(cursor: sql.Cursor, entry_ids: Collection[UUID]) -> dict[UUID, datetime]:
    """Lock these entries, and return the deadlines of their live reservations. The read is a separate statement in the
    same round trip, so that its snapshot is taken after all locks."""
    locking = queue.lock_entries_call(list(entry_ids))
    _, deadlines = sql.execute_batch(cursor, [locking, _deadlines_of_entries.call(entry_ids=sorted(entry_ids))])
    return dict(deadlines.rows)
