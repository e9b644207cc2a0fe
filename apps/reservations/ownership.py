"""Whose reservation it is: its account's, or its queue entry's, known by its buyer's token or the browser's cookie."""

import uuid

from django.http import HttpRequest

from apps.kernel.http import problems
from apps.queue import facade as queue
from apps.reservations.facade import ReservationNotFound, ReservationView, get_reservation


def owned_reservation(request: HttpRequest, reservation_id: uuid.UUID) -> ReservationView:
    """The caller's reservation. Raises TokenMissing for nobody, ReservationNotFound, TokenWrongEvent, NotOwner."""
    return get_reservation_for(queue.authenticate(request), reservation_id)


def get_reservation_for(caller: queue.Caller, reservation_id: uuid.UUID) -> ReservationView:
    """The same for a caller who is known."""
    if not caller.is_known:
        raise problems.TokenMissing
    reservation = get_reservation(reservation_id)
    if caller.event_slug not in ("", reservation.event_slug):
        raise problems.TokenWrongEvent
    entry = queue.entry_by_id(reservation.entry_id)
    if entry is None:
        raise ReservationNotFound
    queue.require_owner(caller, entry)
    return reservation


def ledger_name(reservation: ReservationView) -> str:
    """The owner, as the ledger writes it."""
    return reservation.buyer
