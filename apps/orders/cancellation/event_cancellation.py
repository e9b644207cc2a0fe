"""Mass cancellation of an event: refund every order, end every hold, notify every buyer, in small steps.

Each order is processed in a transaction of its own, which skips what an earlier run has committed. So a worker may be
killed at any line, and any number of workers may run at once, even during a live sale. An outbox message runs each step
and publishes the message for the next one, so that the cancellation continues after a crash.
"""

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from django.db import InterfaceError, OperationalError, connection
from django.db.models import QuerySet, Sum

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.admin_lists import format_count
from apps.kernel.db import sql, transactions
from apps.kernel.formatting import format_money
from apps.kernel.http import problems
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.cancellation import order_cancellation
from apps.orders.errors import CancellationNotFound
from apps.orders.locks import lock_order
from apps.orders.models import CancellationFailure, EventCancellation, Order, Payment, Ticket
from apps.reservations import facade as reservations

logger = logging.getLogger(__name__)

BATCH_MAX = 100
"""Maximum number of orders processed between two updates of the counts."""
STEP_SECONDS_MAX = 20.0
"""About the duration of one outbox delivery. The message's claim lasts longer."""
STALE_CACHE_SECONDS = 10
"""Caches show a cancellation within a few seconds; until then holds and checkouts may still succeed."""
RECHECK_INTERVAL = timedelta(seconds=2)
REASON = Order.Reason.EVENT_CANCELED

_count_cancellation = sql.load("apps.orders", "count_cancellation")
_orders_to_cancel = sql.load("apps.orders", "orders_to_cancel")
_orders_keeping_fees = sql.load("apps.orders", "orders_keeping_fees")


def describe(orders: QuerySet[Order]) -> list[str]:
    """Return what the cancellation of an event with these orders means, as sentences. Only reads."""
    standing = orders.filter(status__in=Order.STANDING)
    open_count = orders.filter(status__in=Order.OPEN).count()
    tickets = Ticket.objects.filter(order__in=standing, voided_at=None).count()
    sums = Payment.objects.filter(order__in=standing).aggregate(
        captured=Sum("captured_minor"), refunded=Sum("refunded_minor")
    )
    back_minor = (sums["captured"] or 0) - (sums["refunded"] or 0)
    first = standing.first()
    found = []
    if first is not None:
        money = format_money(back_minor, first.currency)
        orders_text = format_count(standing.count(), "order")
        found.append(f"{orders_text} with {format_count(tickets, 'ticket')}: {money} will be refunded.")
        found.append("Each buyer gets one email with your message for each order.")
    if open_count:
        found.append(f"{format_count(open_count, 'unpaid order')} will be canceled.")
    return found or ["There are no orders yet."]


def begin(event_id: int, words: str, who: str) -> EventCancellation:
    """Cancel the event, which ends holds and checkouts, and schedule the refund of its orders. Idempotent. `words` is
    the organizer's text for the buyers. Raises Invalid."""
    words = words.strip()
    if not words:
        raise problems.Invalid({"reason": "enter a message to the buyers"})
    with transactions.write():
        events.cancel_event(event_id)
        now = clock.now()
        # `cancel_event` waited for the event's lock, so a concurrent earlier call has committed its row.
        _, is_new = EventCancellation.objects.get_or_create(
            event_id=event_id, defaults={"words": words, "started_by": who, "started_at": now, "counted_at": now}
        )
        if is_new:
            _publish_continuation(event_id)
    return count(event_id)


def resume(event_id: int) -> EventCancellation:
    """Continue the event's cancellation and retry the orders that failed. Raises CancellationNotFound."""
    with transactions.write():
        if not EventCancellation.objects.filter(event_id=event_id).update(finished_at=None):
            raise CancellationNotFound
        CancellationFailure.objects.filter(cancellation=event_id).delete()
        _publish_continuation(event_id)
    return count(event_id)


def continue_cancellation(message: outbox.Message) -> None:
    """Outbox handler: process some of the remaining orders and publish a message for the rest. Safe to run twice."""
    event_id: int = message.body["event"]
    more, pause = step(event_id)
    if more:
        with transactions.write():
            _publish_continuation(event_id, pause)


def _publish_continuation(event_id: int, delay: timedelta = timedelta()) -> None:
    outbox.publish(topics.CANCEL_EVENT, f"event:{event_id}", {"event": event_id}, delay=delay)


def step(
    event_id: int,
    seconds_max: float = STEP_SECONDS_MAX,
    on_count: Callable[[EventCancellation], None] = lambda _: None,
) -> tuple[bool, timedelta]:
    """Cancel and refund orders in batches for about this long. Return whether work is left, and the pause before it."""
    until = time.monotonic() + seconds_max
    while True:
        cancellation = EventCancellation.objects.get(event_id=event_id)
        if cancellation.finished_at is not None:
            return False, timedelta()
        ended = reservations.cancel_pending(event_id, BATCH_MAX, who=cancellation.started_by, why=REASON.label)
        found = _find(event_id)
        for order_id in found:
            _cancel_or_record_failure(cancellation, order_id)
        counted = count(event_id, ended)
        on_count(counted)
        if not ended and not found:
            is_quiet = clock.now() - counted.started_at >= timedelta(seconds=STALE_CACHE_SECONDS)
            if is_quiet:
                unfinished = EventCancellation.objects.filter(event_id=event_id, finished_at=None)
                unfinished.update(finished_at=clock.now())
            return not is_quiet, RECHECK_INTERVAL
        if time.monotonic() >= until:
            return True, timedelta()


def _find(event_id: int) -> list[UUID]:
    with connection.cursor() as cursor:
        rows = _orders_to_cancel.rows(cursor, event_id=event_id, limit=BATCH_MAX)
        # Refunded orders that still keep fees come last, so that buyers who still have tickets are notified first.
        rows = rows or _orders_keeping_fees.rows(cursor, event_id=event_id, limit=BATCH_MAX)
    return [row[0] for row in rows]


def _cancel_or_record_failure(cancellation: EventCancellation, order_id: UUID) -> None:
    try:
        cancel_event_order(order_id, cancellation.started_by)
    except Exception as error:
        if isinstance(error, OperationalError | InterfaceError) and not transactions.is_transient(error):
            # PostgreSQL is unavailable, which is not this order's fault: the next delivery continues.
            raise
        # One order must not block all others. The failure is recorded, and retried by `resume`.
        logger.exception("order %s could not be canceled or refunded", order_id)
        failure = {"cancellation": cancellation, "error": f"{type(error).__name__}: {error}"[:500], "at": clock.now()}
        CancellationFailure.objects.update_or_create(order_id=order_id, defaults=failure)


def cancel_event_order(order_id: UUID, who: str) -> bool:
    """Cancel or refund the order because its event is canceled, and notify its buyer. Return whether anything changed.

    The organizer keeps nothing of a canceled event: fees kept from earlier returns are refunded too, whether or not any
    of the order's tickets are still valid.
    """
    with transactions.write():
        order = lock_order(order_id)
        if order.status == Order.Status.REFUNDED:
            kept_minor = order_cancellation.refund_kept_fees(order, who, REASON)
            if kept_minor:
                _publish_notice(order, fees_back_minor=kept_minor)
            return kept_minor > 0
        if order.status not in (*Order.OPEN, *Order.STANDING):
            return False
        reservations.cancel(order.reservation_id, who=who, why=f"order {order.number}: {REASON.label}")
        order_cancellation.cancel_or_refund(order, who, REASON)
        _publish_notice(order)
        return True


def _publish_notice(order: Order, fees_back_minor: int = 0) -> None:
    origin = topics.origin_of_event(order.event_id)
    body = {"order": str(order.pk), "fees_back_minor": fees_back_minor, outbox.ORIGIN_FIELD: origin}
    outbox.publish(topics.SEND_CANCELLATION_NOTICE, str(order.pk), body)


def count(event_id: int, reservations_more: int = 0) -> EventCancellation:
    """Recount the cancellation's orders, add `reservations_more` to its ended holds, and return the cancellation."""
    with transactions.write(), connection.cursor() as cursor:
        _count_cancellation.count(cursor, event_id=event_id, reservations_more=reservations_more)
    return EventCancellation.objects.get(event_id=event_id)
