"""Checkout: a live reservation becomes an order whose charge is on its way, once, however often it is asked for."""

import json
import secrets
import uuid
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import connection

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.http import idempotency, problems
from apps.kernel.http.idempotency import Answer
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.checkout.buyer_details import CheckoutDetails, read_details
from apps.orders.errors import PaymentTimeExpired
from apps.orders.lines import create_order_lines
from apps.orders.locks import lock_order_of_reservation
from apps.orders.models import CodeUse, Order, Payment
from apps.orders.payments import settlement
from apps.orders.payments.providers import chosen_provider
from apps.orders.promo_codes import promo_codes
from apps.orders.selectors import order_view, placed_contract
from apps.reservations import facade as reservations

_NUMBER_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
_place_order = sql.load("apps.orders", "place_order")
_set_pay_deadline = sql.load("apps.orders", "set_pay_deadline")


def check_out(
    reservation: reservations.ReservationView,
    payload: Mapping[str, Any],
    idempotency_key: str,
    *,
    email: str = "",
    name: str = "",
    account_id: int | None = None,
) -> Answer:
    """The reservation is paying and its order's charge is on its way, committed; the answer as it will be repeated.

    Same key, same body: the same answer, byte for byte. Another key finds the order that exists already, and starts
    another attempt only if the last one was declined. `email` and `name` stand in for what the body leaves out.
    The order is recorded for the account `account_id` where its reservation, begun by a guest, has none: who logs in
    between hold and checkout finds it there. Caps go on counting the reservation's buyer.
    A promo code in the body lowers a new order's price, and has then been used once more; an order that exists already
    keeps its price. Raises Invalid, IdempotencyMismatch, ReservationExpired, PaymentTimeExpired, PurchaseCapReached and
    CodeRefused; after the last two the hold lives on.

    Two at once meet at the order's unique reservation: the second waits for the first one's commit, locks that order
    and reads what it says. The order's lock is taken before the reservation's (rule 3).
    """
    scope = f"checkout:{reservation.entry_id}"
    fingerprint = idempotency.fingerprint({"reservation": str(reservation.id), "body": dict(payload)})
    known = idempotency.find_answer(scope, idempotency_key, fingerprint)
    if known is not None:
        return known
    provider = chosen_provider()
    details = read_details(payload, methods=provider.methods, email=email, name=name)
    event = events.get_event_by_id(reservation.event_id)
    grace = timedelta(seconds=event.policy.grace_seconds)
    if event.status == "canceled":
        raise reservations.ReservationExpired("The organizer canceled this event.")
    # Read without a lock, for the bill; whether it may still be used is judged under its lock below.
    offer = promo_codes.find_offer(reservation, details.code) if details.code else None
    bill = promo_codes.bill_reservation(reservation, offer)
    # The cap's row must exist before the transaction that locks it: creating it there would wait on rivals' commits.
    reservations.prepare_payment(reservation.event_id, details.email, event)
    with transactions.write():
        order, is_new = _create_or_lock_order(reservation, details, account_id, bill)
        if is_new:
            # Nobody has asked for this order before, with whatever key.
            begun = reservations.begin_payment(reservation.id, email=details.email, who=order.buyer, event=event)
            _set_deadline(order, begun.pay_deadline)
            if details.code:
                # After the address's cap row, before any seat's.
                promo_codes.use_code(order, offer, bill)
            if order.total_minor == 0:
                settlement.confirm_free_order(order)
                answered = placed_contract(order, None, bill)
            else:
                payment = _start_attempt(order, 1, provider.name, details, grace, begun.at)
                answered = placed_contract(order, payment, bill)
        else:
            known = idempotency.find_answer(scope, idempotency_key, fingerprint)
            if known is not None:
                return known
            if order.status in (Order.Status.FAILED, Order.Status.CANCELED):
                raise reservations.ReservationExpired
            if _may_try_again(order):
                _try_again(order, provider.name, details, grace)
            answered = order_view(order).checkout_contract()
        answer = Answer(202, json.dumps(answered))
        # Remembered also where nothing changed: a second tab's lost answer, asked for again after a decline, must not
        # become a new charge.
        idempotency.store_answer(scope, idempotency_key, fingerprint, answer)
    return answer


def _create_or_lock_order(
    reservation: reservations.ReservationView, details: CheckoutDetails, account_id: int | None, bill: events.Bill
) -> tuple[Order, bool]:
    """The reservation's order and whether it is new, locked: a row that nobody else can see yet needs no lock."""
    said = {
        "id": uuid.uuid4(),
        "number": new_number(),
        "reservation_id": reservation.id,
        "event_id": reservation.event_id,
        "entry_id": reservation.entry_id,
        "account_id": account_id if reservation.account_id is None else reservation.account_id,
        "buyer": reservation.buyer,
        "email": details.email,
        "name": details.name,
        "total_minor": bill.total_minor,
        "currency": reservation.currency,
    }
    with connection.cursor() as cursor:
        placed = _place_order.rows(cursor, **said)
    if not placed:
        order = lock_order_of_reservation(reservation.id)
        assert order is not None
        return order, False
    ((placed_at,),) = placed
    order = Order(**said, status=Order.Status.PLACED, placed_at=placed_at, pay_deadline=placed_at)
    order._state.adding = False
    create_order_lines(order, bill)
    return order, True


def _set_deadline(order: Order, pay_deadline: datetime) -> None:
    order.pay_deadline = pay_deadline
    with connection.cursor() as cursor:
        written = _set_pay_deadline.count(cursor, order_id=order.pk, pay_deadline=pay_deadline)
    assert written == 1, f"{written} orders are {order.pk}"


def new_number() -> str:
    """A number to read out: fifty random bits, no letter that looks like another."""
    text = "".join(secrets.choice(_NUMBER_ALPHABET) for _ in range(10))
    return f"{text[:5]}-{text[5:]}"


def _start_attempt(
    order: Order, attempt: int, provider: str, details: CheckoutDetails, grace: timedelta, now: datetime
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
    outbox.publish(topics.CHARGE, str(order.pk), {"payment": str(payment.pk)})
    return payment


def _last_payment(order: Order) -> Payment | None:
    return Payment.objects.filter(order=order).order_by("-attempt").first()


def _may_try_again(order: Order) -> bool:
    last = _last_payment(order)
    return order.status == Order.Status.PLACED and last is not None and last.status == Payment.Status.DECLINED


def _try_again(order: Order, provider: str, details: CheckoutDetails, grace: timedelta) -> None:
    if details.email_given and details.email != order.email:
        # The e-mail's purchase cap was judged when paying began; another address would get round it.
        raise problems.Invalid({"email": "cannot change between two tries of one order"})
    if details.code and not CodeUse.objects.filter(order=order, code__code=details.code).exists():
        raise problems.Invalid({"code": "cannot change between two tries of one order"})
    now = clock.now()
    if not settlement.has_time_for_attempt(order, now):
        raise PaymentTimeExpired
    last = _last_payment(order)
    assert last is not None
    _start_attempt(order, last.tries + 1, provider, details, grace, now)
