"""The checkout on the fast path. `api_views.Checkout` serves the same endpoint on the site, and decides every request
that is not plain: one with a promo code, an existing order, an error, a refusal."""

import uuid
from collections.abc import Sequence
from typing import NamedTuple

from django.conf import settings

from apps.events import facade as events
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.kernel.fastpath.concurrency_limit import WAIT_SECONDS_MAX, ConcurrencyLimit
from apps.kernel.fastpath.dispatcher import Route
from apps.kernel.fastpath.request import ForwardToSite, Request
from apps.kernel.fastpath.response import Reply, private_reply_of_json
from apps.kernel.http import client_address, idempotency, problems
from apps.kernel.rate_limits import mail_caps
from apps.orders.checkout.buyer_details import read_details
from apps.orders.checkout.checkout_lists import PlainCheckout, checkouts, fingerprint_of, plain_checkout
from apps.orders.payments.providers import chosen_provider
from apps.queue import facade as queue
from apps.reservations import facade as reservations

CHECKOUTS_MAX = 128
"""Checkouts that a process handles at once."""
CHECKOUTS_WAITING_MAX = 1_000
_ALL = ""
"""The checkouts of all events wait in one queue."""
LARGE_MAX = 16
LARGE_WAITING_MAX = 48
"""Checkouts of large orders that a process handles at once, and that wait. Both are among CHECKOUTS_MAX, half of
which is left to other orders, however long the large ones take."""


class LoadedReservation(NamedTuple):
    """A reservation and what its checkout reads with it."""

    reservation: reservations.ReservationView
    entry: queue.EntryView
    terms: events.Terms | None


def load_reservations(reservation_ids: Sequence[uuid.UUID]) -> list[LoadedReservation | None]:
    """Return these reservations in order; None for an unknown one. Blocks."""
    found = reservations.find_reservations(set(reservation_ids))
    entries = queue.entries_by_id({one.entry_id for one in found.values()})
    organizers = {one.event.organizer_id for one in found.values()}
    terms = {organizer: events.current_terms(organizer) for organizer in organizers}
    return [_loaded(found.get(one), entries, terms) for one in reservation_ids]


def _loaded(
    reservation: reservations.ReservationView | None,
    entries: dict[uuid.UUID, queue.EntryView],
    terms: dict[int, events.Terms | None],
) -> LoadedReservation | None:
    if reservation is None or reservation.entry_id not in entries:
        return None
    return LoadedReservation(reservation, entries[reservation.entry_id], terms[reservation.event.organizer_id])


_loader: BatchLoader[uuid.UUID, LoadedReservation | None] = BatchLoader(load_reservations)


async def check_out(request: Request, reservation_id: str) -> Reply:
    """The fast path's version of `api_views.Checkout.post`. Raises Busy and OutcomeUnknown."""
    await request.gather()
    try:
        caller = await queue.authenticate_async(request)
        if not caller.is_known:
            raise ForwardToSite
        body = await request.json_object()
        key = idempotency.key_of(request)
        provider = chosen_provider()
        # The account's address and name, which the body may omit, are left to the site.
        details = read_details(body, methods=provider.methods)
    except problems.Problem as problem:
        raise ForwardToSite from problem
    loaded = await _loader.ask(uuid.UUID(reservation_id))
    if loaded is None or not _is_owner(caller, loaded):
        raise ForwardToSite
    plain = plain_checkout(
        loaded.reservation,
        details,
        loaded.terms,
        provider=provider.name,
        account_id=caller.account_id or loaded.reservation.account_id,
        origin=mail_caps.origin_of(client_address.address_from_scope(request.scope)),
        idempotency_key=key,
        fingerprint=fingerprint_of(loaded.reservation, body),
    )
    answer = None if plain is None else await submit(plain)
    if answer is None:
        raise ForwardToSite
    return private_reply_of_json(answer.body.encode(), answer.status)


async def submit(checkout: PlainCheckout) -> idempotency.Answer | None:
    """Place the checkout together with others, and return its answer, or None if it must be decided alone. One of a
    large order first waits until few others are under way. Raises Busy and OutcomeUnknown."""
    if not checkout.is_large:
        return await checkouts.submit(checkout)
    await _large_limit.acquire(_ALL)
    try:
        return await checkouts.submit(checkout)
    finally:
        _large_limit.leave(_ALL)


def _is_owner(caller: queue.Caller, loaded: LoadedReservation) -> bool:
    is_same_event = caller.event_slug in ("", loaded.reservation.event_slug)
    return is_same_event and queue.owns_without_lookup(caller, loaded.entry)


_large_limit = ConcurrencyLimit(
    "large-checkouts",
    alone_max=LARGE_MAX,
    waiting_max=LARGE_WAITING_MAX,
    late_seconds=WAIT_SECONDS_MAX,
    find_key=lambda _: _ALL,
)
checkout_limit = ConcurrencyLimit(
    "checkouts",
    alone_max=CHECKOUTS_MAX,
    waiting_max=CHECKOUTS_WAITING_MAX,
    late_seconds=settings.OVERLOAD_WAIT_MS / 1_000,
    find_key=lambda _: _ALL,
)

ROUTES = (Route("POST", "reservations/<uuid>/checkout", check_out, "checkout", "write", checkout_limit),)
