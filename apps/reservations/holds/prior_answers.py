"""Stored answers to the idempotency keys of a batch, and existing reservations that prevent new ones."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from apps.kernel.db import arrays, roundtrip, sql
from apps.kernel.http import idempotency
from apps.reservations.holds.requests import HoldRequest, hold_scope
from apps.reservations.models import Reservation

_PACKAGE = "apps.reservations"
_reservations_of_entries = sql.load(_PACKAGE, "reservations_of_entries", prepared=True)

_CONFIRMED = str(Reservation.Status.CONFIRMED)
_BLOCKING_STATUSES = frozenset(map(str, Reservation.LIVE_OR_CONFIRMED))

StoredAnswer = tuple[str, int, str]
"""Fingerprint, status, body."""


class BlockingReservation(NamedTuple):
    """A live reservation, or a paid one, which ends the admission."""

    reservation_id: UUID
    is_paid: bool
    has_lapsed: bool


def read_calls(requests: Sequence[HoldRequest]) -> dict[str, sql.Call]:
    """Return the reads of remembered answers and of reservations, for `answers_of` and `find_blocking_reservations`."""
    return {
        "answers": _answers_call([request.scope for request in requests], requests),
        "reservations": _reservations_of_entries.call(
            entry_ids=arrays.uuids([request.entry_id for request in requests]),
            event_ids=arrays.numbers([request.event.id for request in requests]),
            buyers=arrays.texts([request.buyer for request in requests]),
        ),
    }


def _answers_call(scopes: list[str], requests: Sequence[HoldRequest]) -> sql.Call:
    keys = arrays.texts([request.idempotency_key for request in requests])
    return idempotency.find_answers_call(arrays.texts(scopes), keys)


def answers_of(
    cursor: sql.Cursor,
    requests: Sequence[HoldRequest],
    recalled: roundtrip.StatementResult,
    found: roundtrip.StatementResult,
) -> Mapping[tuple[str, str], StoredAnswer]:
    """Return the remembered answers by scope and key. A guest who logs in becomes another buyer and may repeat a
    request, so the answers to all buyers that have held with the entry are read."""
    known: dict[tuple[str, str], StoredAnswer] = {(row[0], row[1]): row[2:] for row in recalled.rows}
    scopes_of_entry: dict[UUID, set[str]] = {}
    for _, entry_id, event_id, buyer, _, _ in found.rows:
        scopes_of_entry.setdefault(entry_id, set()).add(hold_scope(event_id, buyer))
    others = [
        (request, scope)
        for request in requests
        for scope in scopes_of_entry.get(request.entry_id, ())
        if scope != request.scope
    ]
    if others:
        call = _answers_call([scope for _, scope in others], [request for request, _ in others])
        (again,) = sql.execute_batch(cursor, [call])
        by_scope = {(row[0], row[1]): row[2:] for row in again.rows}
        for request, scope in others:
            answer = by_scope.get((scope, request.idempotency_key))
            if answer is not None:
                known.setdefault((request.scope, request.idempotency_key), answer)
    return known


def find_blocking_reservations(
    requests: Sequence[HoldRequest], found: roundtrip.StatementResult
) -> Mapping[UUID, BlockingReservation]:
    """Return the reservation that prevents a new hold by each entry: its own or its buyer's; an unpaid one if any."""
    by_entry: dict[UUID, BlockingReservation] = {}
    by_buyer: dict[tuple[int, str], BlockingReservation] = {}
    for id_, entry_id, event_id, buyer, status, lapsed in found.rows:
        if status not in _BLOCKING_STATUSES:
            continue
        one = BlockingReservation(id_, status == _CONFIRMED, lapsed)
        if not one.is_paid:
            by_entry[entry_id] = by_buyer[event_id, buyer] = one
        else:
            by_entry.setdefault(entry_id, one)
    if not by_entry:
        return by_entry
    blocking = {}
    for request in requests:
        own = by_entry.get(request.entry_id)
        if own is None or own.is_paid:
            own = by_buyer.get((request.event.id, request.buyer), own)
        if own is not None:
            blocking[request.entry_id] = own
    return blocking
