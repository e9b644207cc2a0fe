"""Mails that an organizer's staff can cause by the hundred with one action.

All organizers share a few threads for them, in the order of due times. So those of one organizer are due one after the
other: a single mail of another organizer waits for few of them.
"""

from datetime import timedelta
from math import ceil
from typing import Any

from django.db.models import QuerySet

from apps.kernel import clock
from apps.kernel.formatting import format_duration
from apps.kernel.outbox import facade as outbox
from apps.orders.models import Order

AT_ONCE_MAX = 5
"""Mails of an organizer and topic that may wait before further ones are due later."""
INTERVAL = timedelta(seconds=1)
"""Between two of these further ones."""
MENTIONED_FROM = timedelta(seconds=5)


def publish(topic: str, key: str, body: dict[str, Any], order: Order) -> None:
    """Write a message about the order that staff of its organizer caused: due now, or, if several of the organizer
    wait already, after the last of them. Joins the caller's transaction.

    Concurrent actions of one organizer may read the same last one: then as many messages are due together, and the next
    one is due after them.
    """
    source = _source(order.event.organizer_id)
    waiting = outbox.read_waiting(topic, source)
    delay = timedelta()
    if waiting.last_at is not None and waiting.message_count >= AT_ONCE_MAX:
        delay = max(waiting.last_at - clock.now(), timedelta()) + INTERVAL
    origin = f"{source}/event {order.event_id}"
    outbox.publish(topic, key, {**body, outbox.SOURCE_FIELD: source, outbox.ORIGIN_FIELD: origin}, delay=delay)


def describe_wait(topic: str, orders: QuerySet[Order]) -> str:
    """Return a sentence, with a space before it, about how long the mails of this topic take that the organizers of
    these orders have caused; empty if they take few seconds."""
    now = clock.now()
    organizers = orders.order_by().values_list("event__organizer", flat=True).distinct()
    found = [outbox.read_waiting(topic, _source(organizer_id)).last_at for organizer_id in organizers]
    wait = max((last_at - now for last_at in found if last_at is not None), default=timedelta())
    if wait < MENTIONED_FROM:
        return ""
    minutes = ceil(wait / timedelta(minutes=1))
    return f" Emails go out one after the other: the last one in about {format_duration(60 * minutes)}."


def _source(organizer_id: int) -> str:
    return f"organizer {organizer_id}"
