"""Begins the payment of a list of reservations in one transaction, with a few statements however many they are.

Only plain cases are decided here: a reservation whose payment has not begun, before its deadline, within the purchase
cap of its email address. Everything else is left to `payment.begin_payment`, which decides one reservation and may wait
for locks. The functions take a cursor, because lists are decided on connections other than Django's.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from apps.kernel.db import arrays, model_rows, sql, transactions
from apps.reservations.lifecycle import after_commit
from apps.reservations.lifecycle.changes import DeadlineChange
from apps.reservations.lifecycle.queue_slots import refresh_slots
from apps.reservations.models import Reservation

logger = logging.getLogger(__name__)

_PACKAGE = "apps.reservations"
_create_caps = sql.load(_PACKAGE, "create_caps", prepared=True)
_lock_rows_skipping = sql.load(_PACKAGE, "lock_reservation_rows_skipping", prepared=True)
_lock_caps = sql.load(_PACKAGE, "lock_caps", prepared=True)
_paid_of_emails = sql.load(_PACKAGE, "paid_of_emails")
_read_clock = sql.load(_PACKAGE, "read_clock", prepared=True)
_begin_payments = sql.load(_PACKAGE, "begin_payments", prepared=True, exactly=True)
_insert_transitions = sql.load(_PACKAGE, "insert_transitions", prepared=True)

SLOT_WAIT_MS = 200

AddressOfEvent = tuple[int, str]
"""An event's id and a normalized email address."""
CountReceived = Callable[[sql.Cursor, Sequence[AddressOfEvent]], Sequence[int]]
"""Counts the tickets of an event that an address has received from other buyers, for each of these."""


@dataclass(frozen=True, slots=True)
class PlannedPayment:
    """A payment to begin, and what was read of its reservation before."""

    reservation_id: UUID
    event_id: int
    entry_id: UUID
    expires_at: datetime
    seat_count: int
    per_buyer_max: int | None
    """The purchase cap under which the reservation was made; None: no cap."""
    email: str
    """Normalized."""
    who: str
    pay_deadline: datetime

    @property
    def address(self) -> AddressOfEvent:
        return self.event_id, self.email


def prepare_caps(addresses: Iterable[AddressOfEvent], write: transactions.TransactionOpener) -> None:
    """Create the cap rows of these addresses, in a transaction before the one that locks them."""
    keys = sorted(set(addresses))
    if keys:
        with write() as cursor:
            call = _create_caps.call(
                event_ids=arrays.numbers(event_id for event_id, _ in keys),
                buyers=arrays.texts([f"email:{email}" for _, email in keys]),
            )
            sql.execute_batch_and_commit(cursor, [call])


def lock_plain(
    cursor: sql.Cursor, planned: Sequence[PlannedPayment], count_received: CountReceived
) -> tuple[set[UUID], datetime]:
    """Lock the reservations and the cap rows of their addresses, each in id order. Return the reservations whose
    payment may begin now, and the time, read under the locks. Joins the caller's transaction, which has locked the
    orders.

    A reservation that another transaction has locked is left out.
    """
    transactions.require_transaction(cursor)
    ids = arrays.uuids(sorted(one.reservation_id for one in planned))
    locked, clock = sql.execute_batch(cursor, [_lock_rows_skipping.call(reservation_ids=ids), _read_clock.call()])
    rows = {row.pk: row for row in model_rows.build_instances(Reservation, locked.rows)}
    ((now,),) = clock.rows
    plain = [one for one in planned if one.reservation_id in rows and _may_begin(rows[one.reservation_id], one, now)]
    capped = [one for one in plain if one.per_buyer_max is not None]
    if not capped:
        return {one.reservation_id for one in plain}, now
    paid, now = _lock_and_count(cursor, sorted({one.address for one in capped}), count_received)
    return {
        one.reservation_id
        for one in plain
        if now < one.expires_at and (one.per_buyer_max is None or _is_within_cap(one, paid, one.per_buyer_max))
    }, now


def _may_begin(row: Reservation, planned: PlannedPayment, now: datetime) -> bool:
    return row.status == Reservation.Status.PENDING_PAYMENT and now < row.expires_at == planned.expires_at


def _is_within_cap(planned: PlannedPayment, paid: dict[AddressOfEvent, int], most: int) -> bool:
    # As in `payment.begin_payment`, reservations that are not paid do not count, so those of one list do not either.
    return planned.address in paid and paid[planned.address] + planned.seat_count <= most


def _lock_and_count(
    cursor: sql.Cursor, addresses: Sequence[AddressOfEvent], count_received: CountReceived
) -> tuple[dict[AddressOfEvent, int], datetime]:
    """Lock the addresses' cap rows. Return how many seats each has paid for or received, without those whose row is
    missing because it was deleted a moment ago, and the time."""
    event_ids = [event_id for event_id, _ in addresses]
    emails = [email for _, email in addresses]
    locked, paid, clock = sql.execute_batch(
        cursor,
        [
            _lock_caps.call(event_ids=arrays.numbers(event_ids), buyers=arrays.texts([f"email:{e}" for e in emails])),
            _paid_of_emails.call(
                event_ids=arrays.numbers(event_ids),
                emails=arrays.texts(emails),
                apart_from=arrays.uuids([UUID(int=0)] * len(emails)),
            ),
            _read_clock.call(),
        ],
    )
    found = {(event_id, buyer) for _, event_id, buyer in locked.rows}
    received = count_received(cursor, addresses)
    counts = {
        address: int(seats) + count
        for address, (_, seats), count in zip(addresses, paid.rows, received, strict=True)
        if (address[0], f"email:{address[1]}") in found
    }
    return counts, clock.rows[0][0]


def begin_calls(planned: Sequence[PlannedPayment], now: datetime) -> list[sql.Call]:
    """Return the statements that begin these payments, in order. They belong to the transaction of `lock_plain`, and
    fail unless each changes its reservation."""
    ids = arrays.uuids([one.reservation_id for one in planned])
    return [
        _insert_transitions.call(
            reservation_ids=ids,
            from_statuses=arrays.texts([str(Reservation.Status.PENDING_PAYMENT)] * len(planned)),
            whos=arrays.texts([one.who[:120] for one in planned]),
            to_status=str(Reservation.Status.PAYING),
            why="checkout",
            now=now,
        ),
        _begin_payments.call(
            reservation_ids=ids,
            emails=arrays.texts([one.email for one in planned]),
            pay_deadlines=arrays.moments([one.pay_deadline for one in planned]),
            rows=len(planned),
        ),
    ]


def notify_begun(planned: Collection[PlannedPayment], write: transactions.TransactionOpener) -> None:
    """Update the copies in Redis and the entries' slots after the commit that began these payments. An error is only
    logged: the ledger is committed, and a slot that is not refreshed is free at the end of the hold."""
    after_commit.notify_deadline_changed(
        [DeadlineChange(one.event_id, one.reservation_id, one.pay_deadline) for one in planned]
    )
    try:
        refresh_slots([one.entry_id for one in planned], write, lock_ms=SLOT_WAIT_MS)
    except Exception:
        logger.exception("the slots of %s entries were not refreshed after a commit", len(planned))
