"""Live updates of an order for its owner's open page: payload, and notification of changes.

Changes that the reservation's ledger does not contain, such as a declined charge, are published to the processes that
serve listeners right after the commit. A notification may be lost; listeners also reread the state every few seconds.
"""

import logging
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models.signals import post_save

from apps.kernel import clock
from apps.orders.models import ATTEMPTS_MAX, Order, Payment
from apps.orders.payments import order_updates

logger = logging.getLogger(__name__)

UPDATE_KIND = order_updates.KIND


def read_order_updates(ids: Collection[UUID]) -> dict[UUID, dict[str, Any]]:
    """Return the state of these orders and of their latest payment attempts; unknown ids are omitted."""
    rows = (
        Order.objects.filter(pk__in=list(ids))
        .order_by("pk", "payments__attempt")
        .values_list(
            "pk", "status", "reservation_id", "pay_deadline", *(f"payments__{name}" for name in _PAYMENT_FIELDS)
        )
    )
    found: dict[UUID, dict[str, Any]] = {}
    for pk, status, reservation_id, pay_deadline, state, attempt, faults, refunded, action in rows:
        before = found.get(pk, {}).get("refunded_minor", 0)
        found[pk] = {
            "order_id": str(pk),
            "status": status,
            "reservation_id": str(reservation_id),
            "payment_state": state or "none",
            "attempt": (attempt or 0) + (faults or 0),
            "attempts_left": max(ATTEMPTS_MAX - (attempt or 0) - (faults or 0), 0),
            "pay_deadline": clock.iso(pay_deadline),
            "refunded_minor": before + (refunded or 0),
            "action": (action or {}).get("type"),
        }
    return found


_PAYMENT_FIELDS = ("status", "attempt", "faults_count", "refunded_minor", "next_action")


def connect_signals() -> None:
    """Publish a notification after the commit whenever an order or one of its payments is saved."""
    post_save.connect(_order_saved, sender=Order, dispatch_uid="orders.watching")
    post_save.connect(_payment_saved, sender=Payment, dispatch_uid="orders.watching")


def _order_saved(instance: Order, **signal: Any) -> None:
    _publish_on_commit(_OrderUpdate(instance.pk, instance.event_id))


def _payment_saved(instance: Payment, **signal: Any) -> None:
    order = instance.order if Payment.order.is_cached(instance) else None
    _publish_on_commit(_OrderUpdate(instance.order_id, order.event_id if order is not None else None))


def _publish_on_commit(update: "_OrderUpdate") -> None:
    """Publish once per order and transaction, however many of its rows are saved."""
    if update not in [callback for _, callback, _ in transaction.get_connection().run_on_commit]:
        transaction.on_commit(update)


@dataclass(frozen=True, slots=True)
class _OrderUpdate:
    """Commit callback that publishes one order's change. Two callbacks for the same order are equal."""

    order_id: UUID
    event_id: int | None = field(compare=False)

    def __call__(self) -> None:
        try:
            event_id = self.event_id
            if event_id is None:
                event_id = Order.objects.values_list("event_id", flat=True).get(pk=self.order_id)
            order_updates.send(event_id, [self.order_id])
        except Exception:
            # The order is committed already: a lost notification only delays listeners.
            logger.exception("order %s: its change was not published; listeners will reread it", self.order_id)
