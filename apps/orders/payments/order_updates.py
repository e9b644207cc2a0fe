"""Notifications that orders have changed, for the processes that serve their owners' open pages. One may be lost:
listeners also reread the state every few seconds."""

from collections.abc import Collection
from functools import partial
from uuid import UUID

from django.db import transaction

from apps.kernel.push import channel_layer
from apps.kernel.push.channel_names import group_of
from apps.orders.models import Order

KIND = "order"


def publish_changes(orders: Collection[Order]) -> None:
    """Notify after the commit that these orders or their payments have changed, where they were written by statements
    for many rows, which send no signal. Joins the caller's transaction."""
    by_event: dict[int, list[UUID]] = {}
    for order in orders:
        by_event.setdefault(order.event_id, []).append(order.pk)
    for event_id, order_ids in by_event.items():
        transaction.on_commit(partial(send, event_id, order_ids), robust=True)


def send(event_id: int, order_ids: Collection[UUID]) -> None:
    """Notify at once that these orders of the event have changed. Raises errors of the channel layer."""
    owned = [[KIND, str(order_id)] for order_id in order_ids]
    channel_layer.send_to_group(group_of(event_id), {"type": "news", "event": event_id, "owned": owned})
