"""Checkout: a live reservation becomes an order whose charge is on its way, once, however often it is asked for."""

import json
import secrets
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from django.db import connection

from apps.events import facade as events
from apps.orders import codes, settlement, topics
from apps.orders.buyer import CheckoutDetails, read_details
from apps.orders.errors import PaymentTimeOver
from apps.orders.lines import freeze
from apps.orders.locks import lock_order_of_reservation
from apps.orders.models import CodeUse, Order, Payment
from apps.orders.providers import chosen_provider
from apps.orders.selectors import order_view
from apps.reservations import facade as reservations
from ticketing.kernel import clock, idempotency, problems, sql, transactions
from ticketing.kernel.idempotency import Answer
from ticketing.kernel.outbox import facade as outbox

_NUMBER_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
_place_order = sql.load("apps.orders", "place_order")


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
    keeps its price. Raises Invalid, IdempotencyMismatch, ReservationExpired, PaymentTimeOver, PurchaseCapReached and
    CodeRefused; after the last two the hold lives on.

    Two at once meet at the order's unique reservation: the second waits for the first one's commit, locks that order
    and reads what it says. The order's lock is taken before the reservation's (rule 3).
    """
    scope = f"checkout:{reservation.entry_id}"
    fingerprint = idempotency.fingerprint({"reservation": str(reservation.id), "body": dict(payload)})
    known = idempotency.recall(scope, idempotency_key, fingerprint)
    if known is not None:
        return known
    provider = chosen_provider()
    details = read_details(payload, methods=provider.methods, email=email, name=name)
    event = events.get_event_by_id(reservation.event_id)
    grace = timedelta(seconds=event.policy.grace_seconds)
    if event.status == "canceled":
        raise reservations.ReservationExpired("The organizer canceled this event.")
    # Read without a lock, for the bill; whether it may still be used is judged under its lock below.
    offer = codes.look_up(reservation, details.code) if details.code else None
    bill = codes.bill_of(reservation, offer)
    # The cap's row must exist before the transaction that locks it: creating it there would wait on rivals' commits.
    reservations.prepare_payment(reservation.event_id, details.email)
    with transactions.write():
        order, is_new = _place(reservation, details, account_id, bill)
        known = idempotency.recall(scope, idempotency_key, fingerprint)
        if known is not None:
            return known
        if is_new:
            held = reservations.begin_payment(reservation.id, email=details.email, who=order.buyer)
            assert held.pay_deadline is not None
            order.pay_deadline = held.pay_deadline
            order.save(update_fields=["pay_deadline"])
            if details.code:
                # After the address's cap row, before any seat's.
                codes.use(order, offer, bill)
            if order.total_minor == 0:
                settlement.confirm_free(order)
            else:
                _start_attempt(order, provider.name, details, grace)
        elif order.status in (Order.Status.FAILED, Order.Status.CANCELED):
            raise reservations.ReservationExpired
        elif _may_try_again(order):
            _try_again(order, provider.name, details, grace)
        answer = Answer(202, json.dumps(order_view(order).checkout_contract()))
        # Remembered also where nothing changed: a second tab's lost answer, asked for again after a decline, must not
        # become a new charge.
        idempotency.remember(scope, idempotency_key, fingerprint, answer)
    return answer


def _place(
    reservation: reservations.ReservationView, details: CheckoutDetails, account_id: int | None, bill: events.Bill
) -> tuple[Order, bool]:
    with connection.cursor() as cursor:
        placed = _place_order.count(
            cursor,
            id=uuid.uuid4(),
            number=new_number(),
            reservation_id=reservation.id,
            event_id=reservation.event_id,
            entry_id=reservation.entry_id,
            account_id=account_id if reservation.account_id is None else reservation.account_id,
            buyer=reservation.buyer,
            email=details.email,
            name=details.name,
            total_minor=bill.total_minor,
            currency=reservation.currency,
        )
    order = lock_order_of_reservation(reservation.id)
    assert order is not None
    if placed:
        freeze(order, bill)
    return order, placed == 1


def new_number() -> str:
    """A number to read out: fifty random bits, no letter that looks like another."""
    text = "".join(secrets.choice(_NUMBER_ALPHABET) for _ in range(10))
    return f"{text[:5]}-{text[5:]}"


def _start_attempt(order: Order, provider: str, details: CheckoutDetails, grace: timedelta) -> None:
    last = _last_payment(order)
    payment = Payment.objects.create(
        order=order,
        attempt=1 if last is None else last.tries + 1,
        provider=provider,
        method=details.payment_method,
        amount_minor=order.total_minor,
        currency=order.currency,
        counts_until=order.pay_deadline + grace,
        created_at=clock.now(),
    )
    outbox.publish(topics.CHARGE, str(order.pk), {"payment": str(payment.pk)})


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
    if not settlement.has_time_for_attempt(order):
        raise PaymentTimeOver
    _start_attempt(order, provider, details, grace)
