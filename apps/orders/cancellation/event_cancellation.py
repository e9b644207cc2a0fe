"""The mass cancellation of an event: every order given back, every hold ended, every buyer told; in small steps.

Each order is a transaction of its own, which finds what an earlier run did and does nothing twice. So whoever works on
it may be killed anywhere, and any number may work beside one another and beside a live sale. The outbox carries it from
one piece to the next, so it goes on by itself after a crash.
"""

import logging
import time
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

from django.db import InterfaceError, OperationalError, connection

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.http import problems
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.cancellation import order_cancellation
from apps.orders.errors import CancellationNotFound
from apps.orders.locks import lock_order
from apps.orders.models import CancellationFailure, EventCancellation, Order
from apps.reservations import facade as reservations

logger = logging.getLogger(__name__)

PIECE_MAX = 100
"""Orders between two counts."""
STEP_SECONDS_MAX = 20.0
"""Of one delivery; its claim lasts longer."""
STALE_CACHE_SECONDS = 10
"""Caches know of a cancellation after a few seconds at the latest; until then somebody may still hold or check out."""
RECHECK_INTERVAL = timedelta(seconds=2)
REASON = Order.Reason.EVENT_CANCELED

_count_cancellation = sql.load("apps.orders", "count_cancellation")
_orders_to_cancel = sql.load("apps.orders", "orders_to_cancel")
_orders_keeping_fees = sql.load("apps.orders", "orders_keeping_fees")


def begin(event_id: int, words: str, who: str) -> EventCancellation:
    """The event is canceled: nobody holds or checks out any more. Its orders are about to be given back, by the outbox.
    Begun once: asked again, nothing changes. Raises Invalid, EventNotFound."""
    words = words.strip()
    if not words:
        raise problems.Invalid({"reason": "say what the buyers are to be told"})
    with transactions.write():
        events.cancel_event(event_id)
        now = clock.now()
        # Whoever began it before us has committed: we waited for the event's lock.
        cancellation, is_new = EventCancellation.objects.get_or_create(
            event_id=event_id, defaults={"words": words, "started_by": who, "started_at": now, "counted_at": now}
        )
        if is_new:
            _publish_continuation(event_id)
    count(event_id)
    cancellation.refresh_from_db()
    return cancellation


def resume(event_id: int) -> EventCancellation:
    """The event's cancellation goes on, and with what failed again. Raises CancellationNotFound."""
    with transactions.write():
        if not EventCancellation.objects.filter(event_id=event_id).update(finished_at=None):
            raise CancellationNotFound
        CancellationFailure.objects.filter(cancellation=event_id).delete()
        _publish_continuation(event_id)
    count(event_id)
    return EventCancellation.objects.get(event_id=event_id)


def continue_cancellation(message: outbox.Message) -> None:
    """The outbox's handler: some of what is left is done, and another message carries on. Run twice, it only works
    twice at what is left."""
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
    """Orders are given back for about so long, piece by piece; whether there is more to do, and after what pause."""
    until = time.monotonic() + seconds_max
    while True:
        cancellation = EventCancellation.objects.get(event_id=event_id)
        if cancellation.finished_at is not None:
            return False, timedelta()
        ended = reservations.cancel_pending(event_id, PIECE_MAX, who=cancellation.started_by, why=REASON.label)
        found = _find(event_id)
        for order_id in found:
            _cancel_or_record_failure(cancellation, order_id)
        counted = count(event_id, ended)
        on_count(counted)
        if not ended and not found:
            is_quiet = clock.now() - counted.started_at >= timedelta(seconds=STALE_CACHE_SECONDS)
            if is_quiet:
                _finish(event_id)
            return not is_quiet, RECHECK_INTERVAL
        if time.monotonic() >= until:
            return True, timedelta()


def _find(event_id: int) -> list[UUID]:
    with connection.cursor() as cursor:
        rows = _orders_to_cancel.rows(cursor, event_id=event_id, limit=PIECE_MAX)
        # Fees kept of earlier returns come last: who still holds a ticket hears first.
        rows = rows or _orders_keeping_fees.rows(cursor, event_id=event_id, limit=PIECE_MAX)
    return [row[0] for row in rows]


def _cancel_or_record_failure(cancellation: EventCancellation, order_id: UUID) -> None:
    try:
        cancel_event_order(order_id, cancellation.started_by)
    except Exception as error:
        if isinstance(error, OperationalError | InterfaceError) and not transactions.is_transient(error):
            # The ledger is away, which is no fault of this order's: all of it goes on with the next delivery.
            raise
        # One order must not keep all others from being given back; what failed is on record, and tried when resumed.
        logger.exception("order %s could not be given back", order_id)
        said = {"cancellation": cancellation, "error": f"{type(error).__name__}: {error}"[:500], "at": clock.now()}
        CancellationFailure.objects.update_or_create(order_id=order_id, defaults=said)


def cancel_event_order(order_id: UUID, who: str) -> bool:
    """The order is given back because its event is canceled, and its buyer told; whether anything was left of it.

    Nothing is kept for an event that the organizer cancels: fees kept of what was returned before go back as well,
    whether some of the order's tickets were still valid or none.
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
    body = {"order": str(order.pk), "fees_back_minor": fees_back_minor}
    outbox.publish(topics.SEND_CANCELLATION_NOTICE, str(order.pk), body)


def count(event_id: int, reservations_more: int = 0) -> EventCancellation:
    """The cancellation says how far it has come, counted anew from the orders."""
    with transactions.write(), connection.cursor() as cursor:
        _count_cancellation.count(cursor, event_id=event_id, reservations_more=reservations_more)
    return EventCancellation.objects.get(event_id=event_id)


def _finish(event_id: int) -> None:
    EventCancellation.objects.filter(event_id=event_id, finished_at=None).update(finished_at=clock.now())
