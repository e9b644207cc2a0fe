"""Confirms a list of paid reservations in one transaction, with a few statements however many they are.

Only plain cases are decided here: a paying reservation, paid in time, whose seats are all held for it. Everything else
is left to `payment.confirm`, which decides one reservation and may wait for locks.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import model_rows, sql, transactions
from apps.reservations.lifecycle.payment_starts import CountReceived
from apps.reservations.lifecycle.queue_slots import complete_slots
from apps.reservations.models import Reservation

_PACKAGE = "apps.reservations"
_lock_rows_skipping = sql.load(_PACKAGE, "lock_reservation_rows_skipping", prepared=True)
_lock_caps = sql.load(_PACKAGE, "lock_caps")
_paid_of_emails = sql.load(_PACKAGE, "paid_of_emails")
_lines_of_reservations = sql.load(_PACKAGE, "lines_of_reservations", prepared=True)
_lock_seats_waiting = sql.load(_PACKAGE, "lock_seats_waiting", prepared=True)
_sell_seats_of_all = sql.load(_PACKAGE, "sell_seats_of_all", prepared=True)
_confirm_reservations = sql.load(_PACKAGE, "confirm_reservations", prepared=True)
_insert_confirmations = sql.load(_PACKAGE, "insert_confirmations", prepared=True)

_HELD = 1
"""The status of a held seat."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A reservation to confirm, and the payment that confirms it."""

    reservation_id: UUID
    occurred_at: datetime
    event: events.EventView
    who: str
    why: str


def confirm_plain(confirmations: Sequence[Confirmation], count_received: CountReceived) -> list[Reservation]:
    """Confirm the plain cases among these, and return their reservations; nothing is changed for the others. Joins the
    caller's transaction, which has locked the orders.

    A reservation that another transaction has locked is left out, and so is the second of two with one email address
    and a purchase cap: each is decided alone afterwards. Locks are taken kind by kind, each kind in id order: the
    reservations, the cap rows, the seats. All verdicts precede the first write. `count_received` counts
    the tickets of an event that addresses have received from other buyers.
    """
    transactions.require_transaction()
    given = {one.reservation_id: one for one in confirmations}
    assert len(given) == len(confirmations)
    with connection.cursor() as cursor:
        locked = model_rows.build_instances(
            Reservation, _lock_rows_skipping.rows(cursor, reservation_ids=sorted(given))
        )
        plain = [row for row in locked if _is_paid_in_time(row, given[row.pk])]
        plain = _within_caps(cursor, plain, given, count_received)
        seats = _seats_of(cursor, plain)
        plain = _with_seats_held(cursor, plain, seats)
        if plain:
            _write(cursor, plain, given, Counter(seats.values()))
    entry_ids = [row.entry_id for row in plain]
    if entry_ids:
        transaction.on_commit(lambda: complete_slots(entry_ids), robust=True)
    return plain


def _is_paid_in_time(row: Reservation, confirmation: Confirmation) -> bool:
    if row.status not in Reservation.LIVE:
        return False
    grace = timedelta(seconds=confirmation.event.policy.grace_seconds)
    return confirmation.occurred_at <= (row.pay_deadline or row.expires_at) + grace


def _within_caps(
    cursor: sql.Cursor,
    rows: Sequence[Reservation],
    given: Mapping[UUID, Confirmation],
    count_received: CountReceived,
) -> list[Reservation]:
    """Return the rows whose email address has paid for few enough seats, as counted under the lock of its cap row."""
    caps = {
        row.pk: most
        for row in rows
        if row.email and (most := events.terms_at(given[row.pk].event, row.created_at).per_buyer_max) is not None
    }
    if not caps:
        return list(rows)
    # The list's own confirmations are not counted: one for each address.
    first: dict[tuple[int, str], Reservation] = {}
    for row in rows:
        if row.pk in caps:
            first.setdefault((row.event_id, row.email), row)
    keys = sorted(first)
    event_ids = [event_id for event_id, _ in keys]
    emails = [email for _, email in keys]
    locked, paid = sql.execute_batch(
        cursor,
        [
            _lock_caps.call(event_ids=event_ids, buyers=[f"email:{email}" for email in emails]),
            _paid_of_emails.call(event_ids=event_ids, emails=emails, apart_from=[first[key].pk for key in keys]),
        ],
    )
    found = {(event_id, buyer) for _, event_id, buyer in locked.rows}
    allowed = {row.pk for row in rows if row.pk not in caps}
    received = count_received(cursor, keys)
    for key, (_, seats), count in zip(keys, paid.rows, received, strict=True):
        row, (event_id, email) = first[key], key
        seats = int(seats) + count
        # As in `payment.confirm`: alone it was allowed.
        if (event_id, f"email:{email}") in found and (not seats or seats + row.seat_count <= caps[row.pk]):
            allowed.add(row.pk)
    return [row for row in rows if row.pk in allowed]


def _seats_of(cursor: sql.Cursor, rows: Iterable[Reservation]) -> dict[int, UUID]:
    """Return the reservation of each seat in these reservations. General-admission rows count held and sold tickets
    together; confirmations do not change them."""
    lines = _lines_of_reservations.rows(cursor, reservation_ids=[row.pk for row in rows])
    return {seat_id: reservation_id for _, reservation_id, _, seat_id, *_ in lines if seat_id is not None}


def _with_seats_held(cursor: sql.Cursor, rows: Sequence[Reservation], seats: Mapping[int, UUID]) -> list[Reservation]:
    """Lock the seats, and return the rows whose seats are all held for them."""
    if not seats:
        return list(rows)
    states = _lock_seats_waiting.rows(cursor, seat_ids=sorted(seats))
    held = {seat_id for seat_id, _, _, status, owner in states if status == _HELD and owner == seats[seat_id]}
    wrong = {reservation_id for seat_id, reservation_id in seats.items() if seat_id not in held}
    return [row for row in rows if row.pk not in wrong]


def _write(
    cursor: sql.Cursor,
    rows: Sequence[Reservation],
    given: Mapping[UUID, Confirmation],
    seat_counts: Mapping[UUID, int],
) -> None:
    ids = [row.pk for row in rows]
    now = clock.now()
    sold, _, done = sql.execute_batch(
        cursor,
        [
            _sell_seats_of_all.call(reservation_ids=ids),
            _insert_confirmations.call(
                reservation_ids=ids,
                from_statuses=[row.status for row in rows],
                whos=[given[row.pk].who[:120] for row in rows],
                whys=[given[row.pk].why[:200] for row in rows],
                now=now,
            ),
            _confirm_reservations.call(reservation_ids=ids, now=now),
        ],
    )
    if Counter(row[0] for row in sold.rows) != {pk: seat_counts[pk] for pk in ids if pk in seat_counts}:
        raise RuntimeError(f"{len(sold.rows)} seats of {len(rows)} reservations were held")
    assert done.touched == len(rows), f"{done.touched} of {len(rows)} reservations updated"
    for row in rows:
        row.status, row.confirmed_at = Reservation.Status.CONFIRMED, now
