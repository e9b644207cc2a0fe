"""The owner of a reservation: its account, or its queue entry, identified by a token or the browser's cookie."""

import uuid

from django.http import HttpRequest

from apps.kernel.http import problems
from apps.queue import facade as queue
from apps.reservations.facade import ReservationNotFound, ReservationView, get_reservation


def owned_reservation(request: HttpRequest, reservation_id: uuid.UUID) -> ReservationView:
    """Return the caller's reservation. Raises TokenMissing, ReservationNotFound, TokenWrongEvent and NotOwner."""
    return get_reservation_for(queue.authenticate(request), reservation_id)


def get_reservation_for(caller: queue.Caller, reservation_id: uuid.UUID) -> ReservationView:
    """Return the reservation if it belongs to `caller`. Raises the errors of `owned_reservation`."""
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
