"""Whose reservation it is: its buyer's, known by account, by the token of a queue entry, or by the browser's cookie."""

import uuid

from django.http import HttpRequest

from apps.queue import facade as queue
from apps.reservations.facade import ReservationNotFound, ReservationView, get_reservation
from ticketing.kernel import problems


def owned_reservation(request: HttpRequest, reservation_id: uuid.UUID) -> ReservationView:
    """The caller's reservation. Raises TokenMissing for nobody, ReservationNotFound, TokenWrongEvent, NotOwner."""
    caller = queue.caller_of(request)
    if not caller.is_known:
        raise problems.TokenMissing
    reservation = get_reservation(reservation_id)
    if caller.event_slug not in ("", reservation.event_slug):
        raise problems.TokenWrongEvent
    entry = queue.entry_by_id(reservation.entry_id)
    if entry is None:
        raise ReservationNotFound
    if not _is_of_later_entry(caller, reservation):
        queue.require_owner(caller, entry)
    return reservation


def _is_of_later_entry(caller: queue.Caller, reservation: ReservationView) -> bool:
    """Whether the caller has left the line with the reservation in hand and joined it again: its token names another
    entry, of the same buyer."""
    if caller.entry_id is None or caller.entry_id == reservation.entry_id:
        return False
    entry = queue.entry_by_id(caller.entry_id)
    return entry is not None and (entry.event_id, entry.buyer) == (reservation.event_id, reservation.buyer)


def who_of(reservation: ReservationView) -> str:
    """The owner, as the ledger writes it."""
    return reservation.buyer
