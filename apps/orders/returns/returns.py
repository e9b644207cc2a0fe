"""Returns of some or all tickets of an order, by its buyer or by staff, and goodwill refunds.

Everything is decided under the order's lock. If two returns of one ticket, or a return and a check-in, run at once, the
second sees the result of the first.
"""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.http import idempotency, problems
from apps.kernel.http.idempotency import Answer
from apps.kernel.outbox import facade as outbox
from apps.orders import lines, topics
from apps.orders.errors import (
    AmountChanged,
    AmountTooLarge,
    OrderNotReturnable,
    ReturnNotAllowed,
    TicketsCheckedIn,
    TicketsNotValid,
)
from apps.orders.locks import lock_order
from apps.orders.models import Order, OrderAdjustment, Ticket
from apps.orders.payments import refunds, settlement
from apps.orders.return_quotes import (
    TICKETS_MAX,
    ReturnOffer,
    ReturnQuote,
    adjusted_minor,
    fee_minor,
    get_return_terms,
    owed_minor,
    quote,
    quote_for,
)
from apps.orders.tickets import ticket_issuance
from apps.orders.webhooks import messages
from apps.reservations import facade as reservations

_Kind = OrderAdjustment.Kind


# --- by the buyer ----------------------------------------------------------------------------------------------------


def return_idempotently(order_id: UUID, payload: Mapping[str, Any], idempotency_key: str, network: str = "") -> Answer:
    """Void and refund the buyer's tickets under the event's return policy, and commit. Return the response, which is
    stored for the idempotency key.

    The same key with the same body gets the same response, byte for byte. `network` is a digest of the client's
    network, the origin of the mail. Raises Invalid, IdempotencyMismatch, IdempotencyInProgress, OrderNotFound,
    OrderNotReturnable, ReturnNotAllowed, TicketsNotValid, TicketsCheckedIn.
    """
    codes = _read_codes(payload)
    fingerprint = idempotency.fingerprint({"order": str(order_id), "body": dict(payload)})
    with transactions.write():
        order = lock_order(order_id)

        def act() -> Answer:
            # The policy and the time are read under the order's lock.
            offer = _require_return_terms(order)
            found = _require_tickets(order, codes, by_buyer=True)
            fees_back = () if offer.keeps_fees else {ticket.order_line_id for ticket in found}
            quoted = _return_tickets(
                order, found, fees_back, who=order.buyer, why="returned by the buyer", reason=Order.Reason.RETURNED,
                network=network,
            )  # fmt: skip
            body = {
                "order_id": str(order.pk),
                "status": order.status,
                "tickets": codes,
                "amount_minor": quoted.back_minor,
                "kept_minor": quoted.kept_minor,
                "currency": order.currency,
            }
            return Answer(202, json.dumps(body))

        return idempotency.run_once(f"refund:{order.buyer}", idempotency_key, fingerprint, act)


def quote_for_buyer(order_id: UUID, codes: Sequence[str]) -> ReturnQuote:
    """Return the refund that the buyer would get for these tickets now. Changes nothing. Raises the same errors as
    `return_idempotently`."""
    order = Order.objects.get(pk=order_id)
    offer = _require_return_terms(order)
    tickets = _require_tickets(order, codes, by_buyer=True)
    chosen = {ticket.order_line_id for ticket in tickets}
    return quote_for(order, chosen, () if offer.keeps_fees else chosen)


@dataclass(frozen=True, slots=True)
class ReturnableTicket:
    """A valid ticket and the refund for it alone."""

    id: int
    code: str = field(repr=False)
    label: str
    back_minor: int
    kept_minor: int
    fee_minor: int
    is_inside: bool


def list_returnable_tickets(order_id: UUID, *, fees_back: bool, by_buyer: bool = False) -> list[ReturnableTicket]:
    """Return the order's valid tickets, each with the refund for it alone. `by_buyer` leaves out transferred ones."""
    order = Order.objects.get(pk=order_id)
    order_lines, adjusted = list(order.lines.all()), adjusted_minor(order)
    by_id = {line.pk: line for line in order_lines}
    found = []
    for ticket in Ticket.objects.filter(order=order, voided_at=None).order_by("id"):
        if by_buyer and ticket.transfer_id is not None:
            continue
        chosen = {ticket.order_line_id}
        quoted = quote(order_lines, adjusted, chosen, chosen if fees_back else ())
        found.append(
            ReturnableTicket(
                ticket.pk,
                ticket.code,
                ticket.label,
                quoted.back_minor,
                quoted.kept_minor,
                fee_minor(by_id[ticket.order_line_id]),
                ticket.checked_in_at is not None,
            )
        )
    return found


def _require_return_terms(order: Order) -> ReturnOffer:
    held_at = reservations.held_times([order.reservation_id])[order.reservation_id]
    offer = get_return_terms(events.get_event_by_id(order.event_id), clock.now()).of_order(held_at)
    if offer is None:
        raise ReturnNotAllowed
    if not offer.is_open:
        raise ReturnNotAllowed("The return period for this event has ended.", until=clock.iso(offer.until))
    return offer


def _read_codes(payload: Mapping[str, Any]) -> list[str]:
    errors = {str(field)[:80]: "unknown field" for field in payload if field != "tickets"}
    codes = payload.get("tickets")
    if not isinstance(codes, list) or not codes or not all(isinstance(code, str) for code in codes):
        errors["tickets"] = "must be a list of ticket codes"
    elif len(codes) > TICKETS_MAX:
        errors["tickets"] = f"must be at most {TICKETS_MAX} tickets"
    elif len(set(codes)) < len(codes):
        errors["tickets"] = "contains a ticket twice"
    if errors or not isinstance(codes, list):
        raise problems.Invalid(errors)
    return codes


# --- by staff --------------------------------------------------------------------------------------------------------


def quote_for_staff(
    order_id: UUID, codes: Sequence[str], fees_back: Collection[str], *, also_checked_in: bool = False
) -> ReturnQuote:
    """Return the refund if staff returned these tickets now. Changes nothing. Raises the same errors as
    `return_by_staff`."""
    order = Order.objects.get(pk=order_id)
    found = _require_tickets(order, codes, also_checked_in=also_checked_in)
    fees = {ticket.order_line_id for ticket in found if ticket.code in fees_back}
    return quote_for(order, {ticket.order_line_id for ticket in found}, fees)


def return_by_staff(
    order_id: UUID,
    codes: Sequence[str],
    fees_back: Collection[str],
    *,
    who: str,
    why: str,
    keep_off_sale: bool = False,
    also_checked_in: bool = False,
    seen_minor: int | None = None,
) -> ReturnQuote:
    """Void and refund these tickets, and commit. Tickets in `fees_back` are refunded with their fee. `keep_off_sale`
    keeps their seats unreleased, and `also_checked_in` allows checked-in tickets. `seen_minor` is the refund that staff
    saw; if the amount has changed since, the return is refused.

    Raises OrderNotFound, OrderNotReturnable, TicketsNotValid, TicketsCheckedIn, AmountChanged, Invalid.
    """
    with transactions.write():
        order = lock_order(order_id)
        found = _require_tickets(order, codes, also_checked_in=also_checked_in)
        fees = {ticket.order_line_id for ticket in found if ticket.code in fees_back}
        if seen_minor is not None:
            now_minor = quote_for(order, {ticket.order_line_id for ticket in found}, fees).back_minor
            if now_minor != seen_minor:
                raise AmountChanged(now_minor=now_minor)
        return _return_tickets(
            order, found, fees, who=who, why=why or "returned by the organizer",
            reason=Order.Reason.CANCELED_BY_STAFF, keep_off_sale=keep_off_sale,
        )  # fmt: skip


def give_goodwill(order_id: UUID, amount_minor: int, *, who: str, why: str, seen_minor: int | None = None) -> None:
    """Refund this amount and commit; the order's tickets stay valid. `seen_minor` is the amount that the order kept
    when staff decided, so that a form submitted twice refunds once.

    Raises OrderNotFound, OrderNotReturnable, AmountTooLarge, AmountChanged, Invalid.
    """
    if amount_minor < 1:
        raise problems.Invalid({"amount": "must be greater than 0"})
    with transactions.write():
        order = lock_order(order_id)
        if order.status not in (*Order.STANDING, Order.Status.REFUNDED):
            raise OrderNotReturnable(order_status=order.status)
        left_minor = owed_minor(order)
        if seen_minor is not None and seen_minor != left_minor:
            raise AmountChanged(now_minor=left_minor)
        if amount_minor > left_minor:
            raise AmountTooLarge(left_minor=left_minor)
        now = clock.now()
        _create_adjustment(order, _Kind.GOODWILL, -amount_minor, who, why, now)
        refunds.request_of_order(order, amount_minor, why or "goodwill", who)
        if order.status == Order.Status.CONFIRMED:
            order.status = Order.Status.PARTLY_REFUNDED
            order.save(update_fields=["status"])
        if order.status == Order.Status.PARTLY_REFUNDED:
            messages.publish_message(order, messages.Kind.ORDER_PARTLY_REFUNDED, [])
        _publish_return(order, [], amount_minor, 0)


def settle_adjustments(order: Order, who: str, why: str) -> None:
    """Offset the adjustments of an order whose lines are all canceled, so that the order keeps nothing: kept fees are
    refunded with the rest. Joins the caller's transaction, which holds the order's lock."""
    transactions.require_transaction()
    left_minor = adjusted_minor(order)
    if left_minor:
        _create_adjustment(order, _Kind.SETTLED, -left_minor, who, why, clock.now())


# --- shared ----------------------------------------------------------------------------------------------------------


def _require_tickets(
    order: Order, codes: Sequence[str], *, also_checked_in: bool = False, by_buyer: bool = False
) -> list[Ticket]:
    if order.status not in Order.STANDING:
        raise OrderNotReturnable(order_status=order.status)
    if not codes:
        raise problems.Invalid({"tickets": "choose at least one"})
    if len(set(codes)) < len(codes):
        raise problems.Invalid({"tickets": "contains a ticket twice"})
    usable = [code for code in codes if code.isascii() and code.isprintable()]
    rows = Ticket.objects.filter(order=order, code__in=usable)
    # A buyer who has passed a ticket on must not take it from its recipient for a refund; staff may.
    found = {ticket.code: ticket for ticket in rows if not (by_buyer and ticket.transfer_id is not None)}
    unknown = [code[:80] for code in codes if code not in found]
    if unknown:
        raise problems.Invalid({"tickets": "not tickets of this order: " + ", ".join(ascii(code) for code in unknown)})
    void = [code for code in codes if found[code].voided_at is not None]
    if void:
        raise TicketsNotValid(tickets=void)
    inside = [code for code in codes if found[code].checked_in_at is not None]
    if inside and not also_checked_in:
        raise TicketsCheckedIn(tickets=inside)
    return [found[code] for code in codes]


def _return_tickets(
    order: Order,
    found: Sequence[Ticket],
    fees_back: Collection[int],
    *,
    who: str,
    why: str,
    reason: Order.Reason,
    keep_off_sale: bool = False,
    network: str = "",
) -> ReturnQuote:
    """Void and refund these valid tickets. Joins the caller's transaction, which has read the tickets under the order's
    lock."""
    quoted = quote_for(order, {ticket.order_line_id for ticket in found}, fees_back)
    now = clock.now()
    voided = Ticket.objects.filter(pk__in=[ticket.pk for ticket in found], voided_at=None).update(voided_at=now)
    assert voided == len(found), f"{voided} of {len(found)} tickets were valid"
    for ticket in found:
        ticket.voided_at = now
    ticket_issuance.notify_recipients(found, "ended", network)
    lines.cancel_some(order, [*(line.line_id for line in quoted.lines), *quoted.order_fees], now)
    for line in quoted.lines:
        if line.kept_minor:
            _create_adjustment(order, _Kind.KEPT_FEE, line.kept_minor, who, why, now, line_id=line.line_id)
    if quoted.settled_minor:
        _create_adjustment(order, _Kind.SETTLED, quoted.settled_minor, who, why, now)
    quantities = Counter(ticket.line_id for ticket in found)
    reservations.return_tickets(
        order.reservation_id, quantities, who=who, why=f"order {order.number}: {why}", keep=keep_off_sale
    )
    if quoted.back_minor:
        refunds.request_of_order(order, quoted.back_minor, why, who)
    if quoted.is_whole:
        settlement.end_order(order, Order.Status.REFUNDED, reason)
    else:
        order.status = Order.Status.PARTLY_REFUNDED
        order.save(update_fields=["status"])
        messages.publish_message(order, messages.Kind.ORDER_PARTLY_REFUNDED, found)
    _publish_return(order, [ticket.label for ticket in found], quoted.back_minor, quoted.kept_minor, network)
    return quoted


def _create_adjustment(
    order: Order,
    kind: OrderAdjustment.Kind,
    amount_minor: int,
    who: str,
    why: str,
    now: datetime,
    line_id: int | None = None,
) -> None:
    OrderAdjustment.objects.create(
        order=order, kind=kind, amount_minor=amount_minor, line_id=line_id, who=who[:120], why=why[:200], at=now
    )


def _publish_return(order: Order, labels: Sequence[str], back_minor: int, kept_minor: int, network: str = "") -> None:
    body = {
        "order": str(order.pk),
        "tickets": list(labels),
        "back_minor": back_minor,
        "kept_minor": kept_minor,
        outbox.ORIGIN_FIELD: network or topics.origin_of_event(order.event_id),
    }
    outbox.publish(topics.SEND_RETURN_NOTICE, str(order.pk), body)
