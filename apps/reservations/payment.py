"""Payment of a reservation: its start, and the confirmation by a payment made in time.

Except `prepare_payment`, every function joins the transaction of its caller, which has locked the order before, as the
lock order requires. Deadlines are compared with the database's clock, read after the lock.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from django.db import connection, transaction

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.reservations.errors import PurchaseCapReached, ReservationExpired
from apps.reservations.holds import access_codes
from apps.reservations.lifecycle import after_commit
from apps.reservations.lifecycle.changes import DeadlineChange
from apps.reservations.lifecycle.payment_starts import AddressOfEvent, CountReceived
from apps.reservations.lifecycle.queue_slots import complete_slots, refresh_slots
from apps.reservations.lifecycle.release import lock
from apps.reservations.models import AccessCode, Reservation

_PACKAGE = "apps.reservations"
_create_caps = sql.load(_PACKAGE, "create_caps")
_lock_caps = sql.load(_PACKAGE, "lock_caps")
_count_of_email = sql.load(_PACKAGE, "count_of_email")
_count_of_buyers = sql.load(_PACKAGE, "count_of_buyers")
_all_lines = sql.load(_PACKAGE, "all_lines")
_lock_seats_waiting = sql.load(_PACKAGE, "lock_seats_waiting")
_lock_general_admission = sql.load(_PACKAGE, "lock_general_admission")
_take_seats = sql.load(_PACKAGE, "take_seats")
_take_general_admission = sql.load(_PACKAGE, "take_general_admission")
_sell_seats = sql.load(_PACKAGE, "sell_seats")
_revive_lines = sql.load(_PACKAGE, "revive_lines")
_save_payment_step = sql.load(_PACKAGE, "save_payment_step")
_insert_transitions = sql.load(_PACKAGE, "insert_transitions")

_received: list[CountReceived] = []


def provide_received_tickets(count: CountReceived) -> None:
    """Register the function that counts the tickets of an event that an email address has received from other buyers:
    they count for its limit. It is called under the lock of the address's cap row, which an acceptance takes too."""
    _received[:] = [count]


def prepare_payment(event_id: int, email: str, event: events.EventView | None = None) -> None:
    """Create the email address's cap row. Called outside transactions: a row inserted within one would make
    concurrent transactions wait. `event` saves reading it again."""
    if (event or events.get_event_by_id(event_id)).policy.per_buyer_max is None:
        return
    with transactions.write(), connection.cursor() as cursor:
        _create_caps.count(cursor, event_ids=[event_id], buyers=[f"email:{email}"])


def prepare_email_cap(event_id: int, email: str) -> None:
    """Create the email address's cap row for `count_email_seats`, whether or not the event has a purchase cap. Called
    outside transactions, like `prepare_payment`."""
    with transactions.write(), connection.cursor() as cursor:
        _create_caps.count(cursor, event_ids=[event_id], buyers=[f"email:{email}"])


def count_email_seats(event_id: int, email: str) -> int:
    """Lock the address's cap row and return how many of the event's seats are in its confirmed reservations. Those that
    are not paid do not count: their payment is checked again. The caller holds at most locks of orders and
    reservations."""
    with connection.cursor() as cursor:
        _lock_email_cap(cursor, event_id, email)
        ((paid,),) = _count_of_email.rows(cursor, event_id=event_id, email=email, apart_from=UUID(int=0))
    return int(paid)


class PaymentStart(NamedTuple):
    pay_deadline: datetime
    at: datetime
    """The time, read under the reservation's lock."""


def begin_payment(reservation_id: UUID, *, email: str, who: str, event: events.EventView | None = None) -> PaymentStart:
    """Begin payment, and set its deadline: the end of the hold, or the policy's minutes from now if that is later. A
    reservation that is paying already stays unchanged, so further attempts do not extend the deadline.

    Raises ReservationExpired after its deadline, PurchaseCapReached if the email address would have too many seats: the
    hold then stays live. Other reservations with this address count once they are paid: any visitor can type any
    address. The caller has normalized `email` and called `prepare_payment`. `event` saves reading it again.
    """
    reservation = lock(reservation_id)
    now = clock.now()
    deadline = _deadline(reservation)
    if reservation.status not in Reservation.LIVE or deadline <= now:
        raise ReservationExpired
    if reservation.status == Reservation.Status.PAYING:
        return PaymentStart(deadline, now)
    event = event or events.get_event_by_id(reservation.event_id)
    per_buyer_max = events.terms_at(event, reservation.created_at).per_buyer_max
    if per_buyer_max is not None:
        _check_email_cap(reservation, email, per_buyer_max)
    reservation.email = email
    deadline = max(reservation.expires_at, now + timedelta(seconds=event.policy.payment_seconds))
    reservation.pay_deadline = deadline
    _change_status(reservation, Reservation.Status.PAYING, who=who, why="checkout", now=now)
    entry_id, moved = reservation.entry_id, DeadlineChange(reservation.event_id, reservation.pk, deadline)
    transaction.on_commit(lambda: after_commit.notify_deadline_changed([moved]), robust=True)
    transaction.on_commit(lambda: refresh_slots([entry_id]), robust=True)
    return PaymentStart(deadline, now)


def change_email(reservation_id: UUID, email: str) -> None:
    """Give the reservation another email address, for staff. Joins the caller's transaction, which has locked the
    order. The caller has normalized `email` and called `prepare_payment`. Raises PurchaseCapReached if the address
    would have too many seats."""
    reservation = lock(reservation_id)
    event = events.get_event_by_id(reservation.event_id)
    per_buyer_max = events.terms_at(event, reservation.created_at).per_buyer_max
    if reservation.status in Reservation.LIVE_OR_CONFIRMED and per_buyer_max is not None:
        _check_email_cap(reservation, email, per_buyer_max)
    reservation.email = email
    reservation.save(update_fields=["email"])


def confirm(
    reservation_id: UUID, *, occurred_at: datetime, who: str, why: str, event: events.EventView | None = None
) -> Reservation:
    """Confirm the reservation by a payment that occurred at `occurred_at`, and mark its seats sold.

    The payment counts if it occurred no later than the deadline plus the grace period. An expired reservation is
    confirmed only if all its stock can be taken again under the locks, within its buyer's cap (the buyer may hold other
    seats by now) and the limits of its access code. A confirmed reservation is returned unchanged. Raises
    ReservationExpired if the payment must be refunded, and PurchaseCapReached if it must be because other payments with
    its email address have reached the cap since the checkout. `event` saves reading it again.
    """
    reservation = lock(reservation_id)
    if reservation.status == Reservation.Status.CONFIRMED:
        return reservation
    event = event or events.get_event_by_id(reservation.event_id)
    if reservation.status == Reservation.Status.CANCELED:
        raise ReservationExpired("This reservation was canceled before the payment arrived.")
    if occurred_at > _deadline(reservation) + timedelta(seconds=event.policy.grace_seconds):
        raise ReservationExpired
    per_buyer_max = events.terms_at(event, reservation.created_at).per_buyer_max
    with connection.cursor() as cursor:
        if reservation.status == Reservation.Status.EXPIRED:
            if per_buyer_max is not None:
                _check_caps_again(cursor, reservation, per_buyer_max)
            if reservation.access_code_id is not None:
                _check_code_again(cursor, reservation, reservation.access_code_id)
            _take_again(cursor, reservation)
            reservation.ended_at = None
        else:
            if per_buyer_max is not None and reservation.email:
                _check_paid_seats(cursor, reservation, per_buyer_max)
            _sell_held(cursor, reservation)
    now = clock.now()
    reservation.confirmed_at = now
    _change_status(reservation, Reservation.Status.CONFIRMED, who=who, why=why, now=now)
    entry_id = reservation.entry_id
    transaction.on_commit(lambda: complete_slots([entry_id]), robust=True)
    return reservation


def _deadline(reservation: Reservation) -> datetime:
    """Return the current deadline: the payment's once paying has begun, else the hold's."""
    return reservation.pay_deadline or reservation.expires_at


def _check_paid_seats(cursor: sql.Cursor, reservation: Reservation, most: int) -> None:
    """Raise PurchaseCapReached if the email address's paid seats leave no room for this reservation. Its checkout did
    not count the unpaid reservations of other buyers with the same address, so that a stranger's cannot block it. Of
    two that are paid at the same time, the second waits for the address's cap row and then counts the first."""
    _lock_email_cap(cursor, reservation.event_id, reservation.email)
    paid = _count_paid_seats(cursor, reservation, reservation.email)
    # Alone it was allowed: the limit may have been lowered since.
    if paid and paid + reservation.seat_count > most:
        raise PurchaseCapReached(f"The limit for this event is {most} tickets per buyer.", cap=most)


def _check_email_cap(reservation: Reservation, email: str, most: int) -> None:
    with connection.cursor() as cursor:
        _lock_email_cap(cursor, reservation.event_id, email)
        paid = _count_paid_seats(cursor, reservation, email)
    if paid + reservation.seat_count > most:
        raise PurchaseCapReached(f"The limit for this event is {most} tickets per buyer.", cap=most)


def _lock_email_cap(cursor: sql.Cursor, event_id: int, email: str) -> None:
    key = {"event_ids": [event_id], "buyers": [f"email:{email}"]}
    if not _lock_caps.rows(cursor, **key):
        # The row was deleted a moment ago: the address was erased from its earlier reservations.
        _create_caps.count(cursor, **key)
        _lock_caps.rows(cursor, **key)


def _check_caps_again(cursor: sql.Cursor, reservation: Reservation, most: int) -> None:
    """Check the cap again: an expired reservation did not count, and its buyer may hold others now. Raises
    ReservationExpired."""
    keys = [reservation.buyer, *([f"email:{reservation.email}"] if reservation.email else [])]
    event_ids = [reservation.event_id] * len(keys)
    # The rows exist, unless the cap was set after the hold.
    _create_caps.count(cursor, event_ids=event_ids, buyers=keys)
    _lock_caps.rows(cursor, event_ids=event_ids, buyers=keys)
    counts = [
        row[4] for row in _count_of_buyers.rows(cursor, event_ids=[reservation.event_id], buyers=[reservation.buyer])
    ]
    if reservation.email:
        counts.append(_count_paid_seats(cursor, reservation, reservation.email))
    if any(count + reservation.seat_count > most for count in counts):
        raise ReservationExpired("The payment arrived too late, and these tickets would exceed the limit per buyer.")


def _check_code_again(cursor: sql.Cursor, reservation: Reservation, code_id: int) -> None:
    """Check the access code again: other buyers may have used it since this reservation expired. Raises
    ReservationExpired."""
    code = AccessCode.objects.filter(pk=code_id).first()
    if code is not None and not access_codes.has_room(cursor, (code.event_id, code.code), reservation.buyer):
        raise ReservationExpired(
            "The payment arrived too late, and the access code has been used by other buyers since."
        )


def _count_paid_seats(cursor: sql.Cursor, reservation: Reservation, email: str) -> int:
    """Return the address's seats without those of this reservation: those that are confirmed or were received from
    other buyers. Seats that it passed on still count for it."""
    ((paid,),) = _count_of_email.rows(cursor, event_id=reservation.event_id, email=email, apart_from=reservation.pk)
    return int(paid) + count_received(cursor, [(reservation.event_id, email)])[0]


def count_received(cursor: sql.Cursor, addresses: Sequence[AddressOfEvent]) -> list[int]:
    """Return how many of the event's tickets each of these addresses has received from other buyers. The caller has
    locked the cap rows of the addresses."""
    return list(_received[0](cursor, addresses)) if _received else [0] * len(addresses)


def _seat_ids(cursor: sql.Cursor, reservation: Reservation) -> tuple[list[int], dict[int, int]]:
    """Return the reservation's seats in id order, and its general-admission quantities by section in id order."""
    lines = _all_lines.rows(cursor, reservation_id=reservation.pk)
    seats = sorted(seat_id for _, _, seat_id, _ in lines if seat_id is not None)
    quantities: dict[int, int] = {}
    for _, section_id, seat_id, quantity in lines:
        if seat_id is None:
            quantities[section_id] = quantities.get(section_id, 0) + quantity
    return seats, dict(sorted(quantities.items()))


def _sell_held(cursor: sql.Cursor, reservation: Reservation) -> None:
    seats, _ = _seat_ids(cursor, reservation)
    if seats:
        _lock_seats_waiting.rows(cursor, seat_ids=seats)
        sold = _sell_seats.count(cursor, reservation_id=reservation.pk)
        if sold != len(seats):
            raise RuntimeError(f"{sold} of {len(seats)} seats of {reservation.pk} were held")


def _take_again(cursor: sql.Cursor, reservation: Reservation) -> None:
    """Take all stock of an expired reservation again. Raises ReservationExpired, with nothing taken."""
    seats, quantities = _seat_ids(cursor, reservation)
    if seats:
        states = _lock_seats_waiting.rows(cursor, seat_ids=seats)
        if len(states) != len(seats) or any(status != 0 for _, _, _, status, _ in states):
            raise ReservationExpired
    if quantities:
        left = dict(_lock_general_admission.rows(cursor, section_ids=list(quantities)))
        if any(left.get(section, 0) < quantity for section, quantity in quantities.items()):
            raise ReservationExpired
    if seats:
        taken = _take_seats.count(cursor, seat_ids=seats, reservation_ids=[reservation.pk] * len(seats))
        sold = _sell_seats.count(cursor, reservation_id=reservation.pk)
        if taken != len(seats) or sold != len(seats):
            raise RuntimeError(f"{taken} of {len(seats)} seats of {reservation.pk} were free")
    if quantities:
        count = _take_general_admission.count(
            cursor, section_ids=list(quantities), quantities=list(quantities.values())
        )
        if count != len(quantities):
            raise RuntimeError(f"{count} of {len(quantities)} general-admission rows updated")
    _revive_lines.count(cursor, reservation_id=reservation.pk)


def _change_status(reservation: Reservation, to_status: str, *, who: str, why: str, now: datetime) -> None:
    transition = _insert_transitions.call(
        reservation_ids=[reservation.pk],
        from_statuses=[reservation.status],
        whos=[who[:120]],
        to_status=to_status,
        why=why[:200],
        now=now,
    )
    reservation.status = to_status
    saved = _save_payment_step.call(
        reservation_id=reservation.pk,
        status=to_status,
        email=reservation.email,
        pay_deadline=reservation.pay_deadline,
        confirmed_at=reservation.confirmed_at,
        ended_at=reservation.ended_at,
    )
    with connection.cursor() as cursor:
        _, done = sql.execute_batch(cursor, [transition, saved])
    assert done.touched == 1, f"{done.touched} rows of reservation {reservation.pk} updated"
