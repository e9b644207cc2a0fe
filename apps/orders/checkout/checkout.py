"""Checkout: turn a live reservation into exactly one order, with a charge in the outbox, however often checkout is
requested."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from apps.events import facade as events
from apps.kernel.db import sql, transactions
from apps.kernel.http import idempotency, problems
from apps.kernel.http.idempotency import Answer
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.checkout.buyer_details import CheckoutDetails, read_details
from apps.orders.checkout.checkout_lists import checkouts, fingerprint_of, plain_checkout, scope_of
from apps.orders.checkout.new_orders import new_order, place_call, read_placed
from apps.orders.checkout.quote import terms_contract
from apps.orders.errors import PaymentTimeExpired, TermsNotAccepted
from apps.orders.lines import create_order_lines, replace_order_lines
from apps.orders.locks import lock_order_of_reservation
from apps.orders.models import Order, Payment
from apps.orders.payments import large_orders, settlement
from apps.orders.payments.providers import chosen_provider
from apps.orders.promo_codes import promo_codes
from apps.orders.selectors import order_view, placed_contract
from apps.reservations import facade as reservations

CHECKOUT_TIMEOUT_MS = 10_000
_set_pay_deadline = sql.load("apps.orders", "set_pay_deadline")


def check_out(
    reservation: reservations.ReservationView,
    payload: Mapping[str, Any],
    idempotency_key: str,
    *,
    email: str = "",
    name: str = "",
    account_id: int | None = None,
    origin: str = "",
) -> Answer:
    """Place the reservation's order, start its payment, and commit both. Return the response, which is stored for the
    idempotency key.

    The same key with the same body gets the same response, byte for byte. Another key finds the existing order, and
    starts a new payment attempt only if the last one was declined. `email` and `name` are defaults for fields that the
    body omits. A guest's reservation has no account; its order gets `account_id`, so that a buyer who logs in between
    hold and checkout finds the order in the account. Purchase caps still count the tickets for the reservation's buyer.
    A promo code in the body lowers the price and counts as one use. A retry may name another code, or an empty one to
    use none: the order then gets a new bill for the new attempt. Without such a change it keeps its price.
    `origin` is a digest of the client's network (`mail_caps.origin_of`), the origin of the mail about a free order, or
    one that was not paid.
    If the organizer has terms or a privacy notice, a new order needs their current version, which is stored with it.
    Raises Invalid, TermsNotAccepted, IdempotencyMismatch, ReservationExpired, PaymentTimeExpired, PurchaseCapReached
    and CodeRefused; after the last two the seats stay held.

    A plain checkout is placed by group commit (`checkout_lists`), every other one in a transaction of its own. There,
    two concurrent checkouts conflict on the order's unique reservation: the second waits for the first to commit, then
    locks and reads that order. The order's lock is taken before the reservation's (docs/locking.md, rule 3).
    """
    scope, fingerprint = scope_of(reservation), fingerprint_of(reservation, dict(payload))
    known = idempotency.find_answer(scope, idempotency_key, fingerprint)
    if known is not None:
        return known
    provider = chosen_provider()
    details = read_details(payload, methods=provider.methods, email=email, name=name)
    # The event may have been canceled since the reservation was read.
    event = events.get_event_by_id(reservation.event_id)
    reservation = replace(reservation, event=event)
    terms = events.current_terms(event.organizer_id)
    plain = plain_checkout(
        reservation,
        details,
        terms,
        provider=provider.name,
        account_id=account_id,
        origin=origin,
        idempotency_key=idempotency_key,
        fingerprint=fingerprint,
    )
    answer = None if plain is None else checkouts.submit_sync(plain, CHECKOUT_TIMEOUT_MS)
    if answer is not None:
        return answer
    grace, tickets = timedelta(seconds=event.policy.grace_seconds), reservation.seat_count
    if event.status == "canceled":
        raise reservations.ReservationExpired("The organizer canceled this event.")
    # The offer is read without a lock, for the bill. `use_code` decides under the code's lock whether it still applies.
    offer = promo_codes.find_offer(reservation, details.code) if details.code else None
    bill = promo_codes.bill_reservation(reservation, offer)
    # Create the purchase cap's row before the transaction that locks it: creating it there would wait for concurrent
    # checkouts to commit.
    reservations.prepare_payment(reservation.event_id, details.email, event)
    with transactions.write():
        order, is_new = _create_or_lock_order(
            reservation,
            details,
            account_id,
            bill,
            "" if terms is None else terms.version,
            origin,
            event.policy.payment_seconds,
        )
        if is_new:
            if terms is not None and details.terms != terms.version:
                # The transaction is rolled back. An existing order was placed with its terms.
                raise TermsNotAccepted(terms_contract(terms))
            # A new order has no stored answer under any key.
            begun = reservations.begin_payment(reservation.id, email=details.email, who=order.buyer, event=event)
            order.pay_deadline = begun.pay_deadline
            with connection.cursor() as cursor:
                written = _set_pay_deadline.count(cursor, order_id=order.pk, pay_deadline=order.pay_deadline)
            assert written == 1, f"{written} orders have the id {order.pk}"
            if details.code:
                # Lock order: after the address's cap row, before any seat.
                promo_codes.use_code(order, offer, bill)
            if order.total_minor == 0:
                settlement.confirm_free_order(order)
                body = placed_contract(order, None, bill)
            else:
                payment = _start_attempt(order, tickets, 1, provider.name, details, grace, begun.at)
                body = placed_contract(order, payment, bill)
        else:
            known = idempotency.find_answer(scope, idempotency_key, fingerprint)
            if known is not None:
                return known
            if order.status in (Order.Status.FAILED, Order.Status.CANCELED):
                raise reservations.ReservationExpired
            last = Payment.objects.filter(order=order).order_by("-attempt").first()
            if order.status == Order.Status.PLACED and last is not None and last.status == Payment.Status.DECLINED:
                # The reservation's lock comes after the order's. Under it, a sweep has ended the reservation or waits.
                now = reservations.begin_payment(reservation.id, email=order.email, who=order.buyer, event=event).at
                _require_retry(order, details, now)
                if details.code_given and details.code != promo_codes.used_code(order):
                    _change_code(order, details.code, offer, bill)
                if order.total_minor == 0:
                    settlement.confirm_free_order(order)
                else:
                    _start_attempt(order, tickets, last.tries + 1, provider.name, details, grace, now)
            body = order_view(order).checkout_contract()
        answer = Answer(202, json.dumps(body))
        # Store the answer even if this request changed nothing. A second tab may lose this response and repeat the
        # request after the payment was declined: the repetition must not start a new charge.
        idempotency.store_answer(scope, idempotency_key, fingerprint, answer)
    return answer


def _create_or_lock_order(
    reservation: reservations.ReservationView,
    details: CheckoutDetails,
    account_id: int | None,
    bill: events.Bill,
    terms_version: str,
    origin: str,
    payment_seconds: int,
) -> tuple[Order, bool]:
    """Return the reservation's order and whether it is new. An existing order is locked; a new one needs no lock,
    because no other transaction can see it yet."""
    order = new_order(
        reservation, details, account_id=account_id, bill=bill, terms_version=terms_version, origin=origin
    )
    with connection.cursor() as cursor:
        (inserted,) = sql.execute_batch(cursor, [place_call([(order, reservation, payment_seconds)])])
    if not read_placed([order], inserted.rows):
        existing = lock_order_of_reservation(reservation.id)
        assert existing is not None
        return existing, False
    create_order_lines(order, bill)
    return order, True


def _start_attempt(
    order: Order,
    ticket_count: int,
    attempt: int,
    provider: str,
    details: CheckoutDetails,
    grace: timedelta,
    now: datetime,
) -> Payment:
    payment = Payment.objects.create(
        order=order,
        attempt=attempt,
        provider=provider,
        method=details.payment_method,
        amount_minor=order.total_minor,
        currency=order.currency,
        counts_until=order.pay_deadline + grace,
        created_at=now,
    )
    topic = large_orders.topic_for(topics.CHARGE, ticket_count)
    outbox.publish(topic, str(order.pk), {"payment": str(payment.pk)})
    return payment


def _require_retry(order: Order, details: CheckoutDetails, now: datetime) -> None:
    if details.email_given and details.email != order.email:
        # The purchase cap was checked for this address when the payment began; another address would evade the cap.
        raise problems.Invalid({"email": "cannot be changed when retrying a payment"})
    if not order.has_time_for_attempt(now):
        raise PaymentTimeExpired


def _change_code(order: Order, code: str, offer: promo_codes.Offer | None, bill: events.Bill) -> None:
    """Give the declined order the bill with this code, or without one. Earlier attempts keep their amounts: if one of
    them is paid after all, `settlement` refunds it. Raises CodeRefused; then nothing changes."""
    if bill.total_minor == 0:
        # The order is confirmed in this transaction, which counts the address's seats. Lock order: its cap row precedes
        # the code's.
        reservations.count_email_seats(order.event_id, order.email)
    promo_codes.change_use(order, code, offer, bill)
    replace_order_lines(order, bill)
    order.total_minor = bill.total_minor
    order.save(update_fields=["total_minor"])
