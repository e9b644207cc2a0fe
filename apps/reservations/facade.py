"""The interface of the reservations app, for its own views and for the apps above it."""

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import connection

from apps.events import facade as events
from apps.kernel.db import sql
from apps.kernel.http.idempotency import Answer
from apps.queue import facade as queue
from apps.reservations import payment
from apps.reservations.checks.oversell_compensation import provide_compensation_hooks
from apps.reservations.checks.seat_history import provide_order_names
from apps.reservations.errors import (
    NotEnoughLeft,
    PaymentInProgress,
    PurchaseCapReached,
    ReservationExists,
    ReservationExpired,
    ReservationNotFound,
    SeatsUnavailable,
    SoldOut,
    TicketsNotReturnable,
)
from apps.reservations.gate import gate, rebuild
from apps.reservations.holds import access_codes, statements
from apps.reservations.holds.requests import HoldRequest, is_presale, resolve
from apps.reservations.holds.service import Held, HoldOutcome, Refused, hold, holds
from apps.reservations.inventory.availability import free_by_event, free_counts, seat_statuses
from apps.reservations.inventory.cache_invalidation import STOCK_REASONS as PAGE_CHANGED_BY_STOCK
from apps.reservations.inventory.cache_invalidation import TOPIC as PAGE_CHANGED
from apps.reservations.inventory.cache_invalidation import publish_page_changes, purge_page
from apps.reservations.lifecycle import confirmations, payment_starts
from apps.reservations.lifecycle import release as reservation_release
from apps.reservations.lifecycle.confirmations import Confirmation
from apps.reservations.lifecycle.payment_starts import PlannedPayment
from apps.reservations.lifecycle.release import SweepResult, cancel, cancel_pending, cancel_unpaid, sweep, sweep_all
from apps.reservations.lifecycle.ticket_returns import return_tickets
from apps.reservations.offers import Offer, propose_offers
from apps.reservations.payment import (
    begin_payment,
    change_email,
    count_email_seats,
    prepare_email_cap,
    prepare_payment,
    provide_received_tickets,
)
from apps.reservations.selectors import (
    ReservationView,
    find_reservations,
    get_reservation,
    has_live,
    held_times,
    list_transitions,
    live_reservation_of,
    view_reservations,
)
from apps.reservations.staff import erasure

HOLD_TIMEOUT_MS = 10_000
METRICS = (*gate.METRICS, *rebuild.METRICS)
"""The collectors of this process; the composition root registers them with the metrics."""
gate_states = rebuild.states
# The payments of a list; see apps/reservations/lifecycle/payment_starts.py.
prepare_payments = payment_starts.prepare_caps
begin_payments_calls = payment_starts.begin_calls
notify_payments_begun = payment_starts.notify_begun
# Personal data; see apps/reservations/staff/erasure.py.
export_reservations = erasure.export_reservations
count_reservations_of_accounts = erasure.count_reservations_of_accounts
entries_with_live_reservation = erasure.entries_with_live_reservation
erase_reservations = erasure.erase_reservations
delete_caps_of_email = erasure.delete_caps_of_email
delete_caps_of_event = erasure.delete_caps_of_event

__all__ = [
    "METRICS",
    "PAGE_CHANGED",
    "PAGE_CHANGED_BY_STOCK",
    "Confirmation",
    "Held",
    "HoldOutcome",
    "HoldRequest",
    "NotEnoughLeft",
    "Offer",
    "PaymentInProgress",
    "PlannedPayment",
    "PurchaseCapReached",
    "Refused",
    "ReservationExists",
    "ReservationExpired",
    "ReservationNotFound",
    "ReservationView",
    "SeatsUnavailable",
    "SoldOut",
    "SweepResult",
    "TicketsNotReturnable",
    "begin_payment",
    "begin_payments_calls",
    "cancel",
    "cancel_pending",
    "cancel_unpaid",
    "change_email",
    "confirm",
    "confirm_plain",
    "count_email_seats",
    "examine_access_code",
    "find_reservations",
    "free_by_event",
    "free_counts",
    "gate_states",
    "get_reservation",
    "has_live",
    "held_times",
    "hold",
    "hold_one",
    "list_transitions",
    "live_reservation_of",
    "lock_payments",
    "notify_payments_begun",
    "prepare_email_cap",
    "prepare_payment",
    "prepare_payments",
    "propose_offers",
    "provide_compensation_hooks",
    "provide_order_names",
    "provide_received_tickets",
    "publish_page_changes",
    "purge_page",
    "read_section_stock",
    "refuse_by_gate",
    "release",
    "report_figures",
    "resolve",
    "return_tickets",
    "seat_statuses",
    "sweep",
    "sweep_all",
    "ticket_limit",
]


def report_figures() -> Any:
    """Return the module that counts a sale for its report. Imported here because the fast path needs none of it."""
    from apps.reservations.staff import sale_figures

    return sale_figures


def read_section_stock(event_id: int) -> Any:
    """Return the counts of the event's sections (`SectionStock`), in the order of the plan. Imported here because the
    fast path needs none of it."""
    from apps.reservations.staff import stock_summary

    return stock_summary.read_section_stock(event_id)


def refuse_by_gate(event_slug: str, caller: queue.Caller, payload: Any, idempotency_key: str) -> bool:
    """Raise the gate's refusal of a caller with an admission token, before PostgreSQL is asked about the caller.
    Otherwise return whether the gate was asked. Raises EventNotFound."""
    if caller.entry_id is None or caller.in_line:
        return False
    refusal = gate.refusal(events.read_cached_event(event_slug), caller.entry_id, payload, idempotency_key)
    if refusal is not None:
        raise refusal
    return True


def hold_one(
    event: events.EventView,
    entry: queue.EntryView,
    payload: Any,
    idempotency_key: str,
    *,
    address: str = "",
    gate_asked: bool = False,
) -> Answer:
    """Hold what the entry's API payload requests; return the response, which is the same for all requests with one key.
    `address` is the client's, if it is known.

    Raises the Problem that refuses the hold, and OutcomeUnknown if it may have been committed: repeating the request
    with the same key returns the outcome. Holds that arrive at the same time are decided in one batch; the gate refuses
    requests for sold-out stock before that.
    """
    if entry.is_ready and not gate_asked:
        refusal = gate.refusal(event, entry.id, payload, idempotency_key)
        if refusal is not None:
            raise refusal
    is_invited = is_presale(event, entry) and queue.has_vip_link(entry.id)
    request = resolve(event, entry, payload, idempotency_key, is_invited=is_invited)
    begun = time.monotonic()
    try:
        outcome = holds.submit_sync(request, HOLD_TIMEOUT_MS)
    finally:
        # Whatever the outcome: slow refusals and failures count as slow holds.
        queue.observe_hold(time.monotonic() - begun, event.id, address)
    if isinstance(outcome, Refused):
        if outcome.is_final:
            gate.forget_request(event.id, entry.id, idempotency_key)
        raise outcome.problem
    return outcome.answer


def examine_access_code(event: events.EventView, code: str, buyer: str) -> list[str]:
    """Return the names of the sections that the code opens for the buyer now. Neither holds nor uses the code. Raises
    AccessCodeWrong and the other errors of access codes."""
    guarded = {section.id: section.name for section in events.list_sections(event.id) if section.needs_access}
    return [guarded[one] for one in access_codes.opened_sections(event.id, code, buyer, guarded)]


def ticket_limit(event: events.EventView, buyer: str, held: ReservationView | None) -> int:
    """Return how many tickets the buyer's next reservation may have, for display; 0: the purchase cap is reached.
    `held`: the reservation that it would replace."""
    limit, cap = event.policy.seats_per_reservation_max, event.policy.per_buyer_max
    if cap is None:
        return limit
    with connection.cursor() as cursor:
        standing = statements.count_standing_seats(cursor, event.id, buyer)
    released = held.seat_count if held is not None and held.buyer == buyer else 0
    return max(0, min(limit, cap - standing + released))


def release(reservation_id: UUID, who: str) -> ReservationView:
    """Cancel the reservation and release its stock; an ended one stays unchanged. Raises ReservationNotFound and
    PaymentInProgress."""
    reservation_release.release(reservation_id, who)
    return get_reservation(reservation_id)


def confirm(
    reservation_id: UUID, *, occurred_at: datetime, who: str, why: str, event: events.EventView | None = None
) -> ReservationView:
    """See `payment.confirm`. Joins the caller's transaction."""
    reservation = payment.confirm(reservation_id, occurred_at=occurred_at, who=who, why=why, event=event)
    return view_reservations([reservation], {} if event is None else {event.id: event})[0]


def lock_payments(cursor: sql.Cursor, planned: Sequence[PlannedPayment]) -> tuple[set[UUID], datetime]:
    """See `payment_starts.lock_plain`."""
    return payment_starts.lock_plain(cursor, planned, payment.count_received)


def confirm_plain(given: Sequence[Confirmation]) -> dict[UUID, ReservationView]:
    """See `confirmations.confirm_plain`: return the confirmed ones, by reservation. Joins the caller's transaction."""
    rows = confirmations.confirm_plain(given, payment.count_received)
    return {view.id: view for view in view_reservations(rows, {one.event.id: one.event for one in given})}
