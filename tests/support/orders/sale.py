"""A sale step by step, through the product's services."""

import json
import uuid
from datetime import datetime, timedelta
from typing import Any

from django.test import Client

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.outbox import facade as outbox
from apps.orders.checkout.checkout import check_out
from apps.orders.models import Order, Payment, PromoCode
from apps.orders.payments.providers import sandbox
from apps.orders.payments.providers.sandbox import rows
from apps.orders.provider_sync import event_storage
from apps.reservations import facade as reservations
from apps.reservations.models import Reservation
from tests.support.event_loops import outside_event_loop
from tests.support.orders.sandbox_rows import SandboxCharge

EMAIL = "buyer@example.org"
SAME_ORIGIN = {"sec-fetch-site": "same-origin"}


def checkout_body(**changes: Any) -> dict[str, Any]:
    return {"email": EMAIL, "name": "Ada Buyer", **changes}


def place_order(
    reservation: reservations.ReservationView, method: str = sandbox.APPROVES, *, key: str = "", **changes: Any
) -> Order:
    """Check out, and return the order; its charge still waits in the outbox."""
    # A browser test runs in the thread of Playwright's event loop, in which group commit would refuse to wait.
    with outside_event_loop():
        answer = check_out(reservation, checkout_body(payment_method=method, **changes), key or uuid.uuid4().hex)
    return Order.objects.get(pk=json.loads(answer.body)["order_id"])


def make_code(event: events.EventView, **values: Any) -> PromoCode:
    """Create a promo code of the event: by default HALFPRICE, half of every ticket's price, for every buyer."""
    values = {"code": "HALFPRICE", "rate": 5_000, "created_at": clock.now(), **values}
    return PromoCode.objects.create(event_id=event.id, **values)


def joined_browser(slug: str) -> Client:
    """Return a browser that has joined the event's queue; it gets its cookie first, as browsers do."""
    client = Client()
    answer = client.post(f"/events/{slug}/join", headers=SAME_ORIGIN, follow=True)
    assert answer.status_code == 200, answer.content
    return client


def deliver_outbox() -> int:
    """Deliver every due message, and those that they lead to."""
    delivered = 0
    while count := outbox.deliver():
        delivered += count
    return delivered


def buy(reservation: reservations.ReservationView, method: str = sandbox.APPROVES, **changes: Any) -> Order:
    """Check out, deliver the outbox, and return the order."""
    order = place_order(reservation, method, **changes)
    deliver_outbox()
    order.refresh_from_db()
    return order


def payment_of(order: Order, attempt: int = 1) -> Payment:
    return Payment.objects.get(order=order, attempt=attempt)


def late_webhook(order: Order, occurred_at: datetime) -> bytes:
    """Settle the late charge in the sandbox at that moment, and return its message, unsigned."""
    return sandbox.settle(str(payment_of(order).pk), "succeeded", occurred_at)


def refund_webhook(refund: rows.Refund) -> bytes:
    """Return a webhook with the refund's current state, unsigned. The sandbox itself sends none for refunds."""
    charge = SandboxCharge.objects.get(pk=refund.charge_pk)
    body = {
        "id": f"se_r{refund.pk}_{refund.status}",
        "type": f"refund.{refund.status}",
        "occurred_at": refund.occurred_at.isoformat(),
        "charge": json.loads(sandbox.messages.charge_event(charge).raw)["charge"],
        "refund": {
            "id": f"sr_{refund.pk}",
            "idempotency_key": refund.idempotency_key,
            "amount_minor": refund.amount_minor,
            "failure": refund.failure,
        },
    }
    return json.dumps(body).encode()


def receive_webhook(raw: bytes) -> bool:
    """Receive the message as a signed webhook and deliver the outbox. Return whether it was new."""
    is_new = event_storage.receive(sandbox.NAME, raw, {sandbox.SIGNATURE_HEADER: sandbox.sign(raw)})
    deliver_outbox()
    return is_new


def backdate_pay_deadline(order: Order, seconds: float = 1) -> None:
    """Move the payment deadline into the past; no sweep has run yet."""
    past = clock.now() - timedelta(seconds=seconds)
    Reservation.objects.filter(pk=order.reservation_id).update(expires_at=past, pay_deadline=past)
    Order.objects.filter(pk=order.pk).update(pay_deadline=past)
    Payment.objects.filter(order=order).update(counts_until=past + timedelta(seconds=60))
