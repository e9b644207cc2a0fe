"""Write messages about an order for its organizer, in the transaction of the change."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import Q, Sum

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.outbox import facade as outbox
from apps.orders import topics
from apps.orders.models import (
    FeedKey,
    FeedMessage,
    Order,
    OrganizerMessage,
    Payment,
    Ticket,
    WebhookDelivery,
    WebhookEndpoint,
)

_listeners = sql.load("apps.orders", "listeners", prepared=True)
Kind = OrganizerMessage.Kind
_END_KINDS = {Order.Status.CANCELED: Kind.ORDER_CANCELED, Order.Status.REFUNDED: Kind.ORDER_REFUNDED}


def publish_messages(orders: Sequence[Order], kind: OrganizerMessage.Kind) -> None:
    """Publish a message about each of these orders; see `publish_message`."""
    transactions.require_transaction()
    has_listeners = {event_id: _has_listeners(event_id) for event_id in {order.event_id for order in orders}}
    for order in orders:
        if has_listeners[order.event_id]:
            _publish(order, kind, None)


def publish_message(order: Order, kind: OrganizerMessage.Kind, tickets: Sequence[Ticket] | None = None) -> None:
    """Publish a message to all endpoints and feeds that are subscribed to the order's event and this kind.

    Joins the caller's transaction, which holds the order's lock, so that messages have the same sequence as the order's
    changes. `tickets` are the tickets that the message is about, by default all of the order's. Without a subscriber
    nothing is written.
    """
    transactions.require_transaction()
    if _has_listeners(order.event_id):
        _publish(order, kind, tickets)


def _has_listeners(event_id: int) -> bool:
    with connection.cursor() as cursor:
        ((has_listeners,),) = _listeners.rows(cursor, event_id=event_id)
    return bool(has_listeners)


def _publish(order: Order, kind: OrganizerMessage.Kind, tickets: Sequence[Ticket] | None) -> None:
    organizer_id = events.get_event_by_id(order.event_id).organizer_id
    of_event = Q(event_id=order.event_id) | (Q(event=None) & (Q(organizer=None) | Q(organizer_id=organizer_id)))
    active = WebhookEndpoint.objects.filter(of_event, is_active=True)
    endpoints = [endpoint for endpoint in active if endpoint.is_subscribed_to(kind)]
    feed_keys = FeedKey.objects.filter(of_event, revoked_at=None)
    keys = [key for key in feed_keys if key.has_scope(FeedKey.Scope.ORDERS) and key.is_subscribed_to(kind)]
    if not (endpoints or keys):
        return
    now = clock.now()
    message = OrganizerMessage(kind=kind, order=order, created_at=now)
    message.body = _body(message, order, tickets)
    message.save(force_insert=True)
    FeedMessage.objects.bulk_create([FeedMessage(feed_key=key, message=message, visible_at=now) for key in keys])
    deliveries = [WebhookDelivery(endpoint=endpoint, message=message) for endpoint in endpoints]
    for delivery in WebhookDelivery.objects.bulk_create(deliveries):
        publish_delivery(delivery, order.pk)


def publish_end(order: Order) -> None:
    """Publish the message for a canceled or refunded order. A failed order never was a sale and has no message."""
    kind = _END_KINDS.get(Order.Status(order.status))
    if kind is not None:
        publish_message(order, kind)


def publish_delivery(delivery: WebhookDelivery, order_id: UUID) -> None:
    """Schedule the delivery. Joins the caller's transaction.

    The outbox key is made of the endpoint and the order: an order's messages arrive in sequence, and a stuck message
    delays neither other orders nor other endpoints.
    """
    outbox.publish(topics.WEBHOOK, _key(delivery, order_id), {"delivery": delivery.pk})


def is_queued(delivery: WebhookDelivery, order_id: UUID) -> bool:
    """Return whether the outbox still has to make the delivery."""
    return outbox.is_unsettled(topics.WEBHOOK, _key(delivery, order_id), {"delivery": delivery.pk})


def _key(delivery: WebhookDelivery, order_id: UUID) -> str:
    return f"{delivery.endpoint_id}:{order_id}"


def _body(message: OrganizerMessage, order: Order, tickets: Sequence[Ticket] | None) -> dict[str, Any]:
    refunded = Payment.objects.filter(order=order).aggregate(minor=Sum("refunded_minor"))["minor"]
    if tickets is None:
        tickets = list(Ticket.objects.filter(order=order).order_by("pk"))
    return {
        "message_id": str(message.pk),
        "kind": str(message.kind),
        "created_at": clock.iso(message.created_at),
        "event": events.get_event_by_id(order.event_id).slug,
        "order": {
            "order_id": str(order.pk),
            "number": order.number,
            "status": str(order.status),
            "reason": str(order.reason),
            "email": order.email,
            "name": order.name,
            "total_minor": order.total_minor,
            "refunded_minor": refunded or 0,
            "currency": order.currency,
        },
        "tickets": [
            {
                "code": ticket.code,
                "section": ticket.section,
                "row": ticket.row,
                "number": ticket.number,
                "category": ticket.category,
                "price_minor": ticket.price_minor,
                "holder": ticket.holder,
                "valid": ticket.voided_at is None,
                "checked_in_at": None if ticket.checked_in_at is None else clock.iso(ticket.checked_in_at),
            }
            for ticket in tickets
        ],
    }
