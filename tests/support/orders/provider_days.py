"""Sales whose provider messages were lost: age them, run the reconciler, and compare days."""

import uuid
from datetime import timedelta
from typing import Any

from apps.kernel import clock
from apps.orders.models import Order, Payment, PaymentDifference, Refund
from apps.orders.payments.providers import sandbox
from apps.orders.payments.providers.sandbox import rows
from apps.orders.provider_sync import daily_comparison, status_inquiries
from tests.support.factories import hold, make_event
from tests.support.orders.sale import buy, deliver_outbox
from tests.support.orders.sandbox_rows import add_charge

SEAT = "hall-A-1"


def status_of(order: Order) -> str:
    order.refresh_from_db()
    return str(order.status)


def grow_old(hours: float = 0.1) -> None:
    """Make all payments and refunds at the provider this old, without an inquiry so far."""
    moment = clock.now() - timedelta(hours=hours)
    Payment.objects.filter(started_at__isnull=False).update(started_at=moment, asked_at=None)
    Refund.objects.update(requested_at=moment, asked_at=None)


def run_inquiries() -> int:
    """Make the due inquiries and process their results. Return their count."""
    count = status_inquiries.schedule_inquiries()
    deliver_outbox()
    return count


def compare(days_ago: int = 0) -> tuple[int, int]:
    counts = daily_comparison.compare_day(sandbox.NAME, clock.now().date() - timedelta(days=days_ago))
    deliver_outbox()
    return counts


def listed() -> list[str]:
    return [str(one.kind) for one in PaymentDifference.objects.filter(settled_at=None).order_by("kind")]


def paid(slug: str = "concert") -> Order:
    order = buy(hold(make_event(slug), seats=[SEAT]))
    assert order.status == Order.Status.CONFIRMED
    return order


def stray_charge(**changes: Any) -> rows.Charge:
    fields = {
        "idempotency_key": uuid.uuid4().hex,
        "method": sandbox.APPROVES,
        "amount_minor": 700,
        "currency": "USD",
        "status": "succeeded",
        "occurred_at": clock.now(),
    }
    return add_charge(**fields | changes)
