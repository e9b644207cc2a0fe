"""The rows of new orders, as a checkout alone and a list of checkouts write them."""

import uuid
from collections.abc import Sequence
from typing import Any

from apps.events import facade as events
from apps.kernel import random_bytes
from apps.kernel.db import sql
from apps.orders.checkout.buyer_details import CheckoutDetails
from apps.orders.models import Order
from apps.reservations import facade as reservations

NUMBER_ONCE = "order_number_once"
"""The constraint that a second order with one number violates."""
_NUMBER_ALPHABET = "23456789ABCDEFGHJKLMNPQRSTUVWXYZ"
_place_orders = sql.load("apps.orders", "place_orders", prepared=True)


def new_number() -> str:
    """Return an order number that is easy to read aloud: fifty random bits, without letters that look alike."""
    text = random_bytes.new_code(10, _NUMBER_ALPHABET)
    return f"{text[:5]}-{text[5:]}"


def new_order(
    reservation: reservations.ReservationView,
    details: CheckoutDetails,
    *,
    account_id: int | None,
    bill: events.Bill,
    terms_version: str,
    origin: str,
) -> Order:
    """Return the reservation's order, which is not written yet: `place` sets its times."""
    return Order(
        id=uuid.uuid4(),
        number=new_number(),
        reservation_id=reservation.id,
        event_id=reservation.event_id,
        entry_id=reservation.entry_id,
        account_id=account_id if reservation.account_id is None else reservation.account_id,
        buyer=reservation.buyer,
        email=details.email,
        name=details.name,
        status=Order.Status.PLACED,
        total_minor=bill.total_minor,
        currency=reservation.currency,
        terms_version=terms_version,
        origin=origin,
    )


def place_call(new: Sequence[tuple[Order, reservations.ReservationView, int]]) -> sql.Call:
    """Return the statement that writes these orders, each with its reservation and its event's time to pay in seconds.
    It returns the rows for `read_placed`; an order whose reservation has another order is not among them."""
    orders = [order for order, _, _ in new]
    return _place_orders.call(
        ids=[order.pk for order in orders],
        numbers=[order.number for order in orders],
        reservation_ids=[order.reservation_id for order in orders],
        event_ids=[order.event_id for order in orders],
        entry_ids=[order.entry_id for order in orders],
        account_ids=[order.account_id for order in orders],
        buyers=[order.buyer for order in orders],
        emails=[order.email for order in orders],
        names=[order.name for order in orders],
        totals_minor=[order.total_minor for order in orders],
        currencies=[order.currency for order in orders],
        expiry_times=[reservation.expires_at for _, reservation, _ in new],
        payment_seconds=[seconds for _, _, seconds in new],
        terms_versions=[order.terms_version for order in orders],
        origins=[order.origin for order in orders],
    )


def read_placed(orders: Sequence[Order], rows: Sequence[tuple[Any, ...]]) -> list[Order]:
    """Return those of the orders that `place_call` has written, with their times."""
    times = {order_id: row for order_id, *row in rows}
    placed = [order for order in orders if order.pk in times]
    for order in placed:
        order.placed_at, order.terms_accepted_at, order.pay_deadline = times[order.pk]
        order._state.adding = False
    return placed
