"""Organizers who listen to a sale: rows as the admin makes them."""

from apps.events.facade import EventView
from apps.kernel import clock
from apps.orders.models import FeedKey, WebhookDelivery, WebhookEndpoint
from apps.orders.webhooks import delivery, feed


def make_endpoint(
    url: str = "https://hook.example/", event: EventView | None = None, **changes: object
) -> WebhookEndpoint:
    """An address that is told of the event's orders, or of all."""
    given = {
        "name": "the door", "url": url, "event_id": event and event.id, "secret": delivery.new_secret(),
        "created_at": clock.now(), **changes,
    }  # fmt: skip
    return WebhookEndpoint.objects.create(**given)


def make_feed_key(event: EventView | None = None, **changes: object) -> tuple[str, FeedKey]:
    """A key for the messages of the event, or of all: what its holder has, and the row."""
    key = feed.new_key()
    given = {
        "name": "the box office", "event_id": event and event.id, "digest": feed.key_digest(key),
        "beginning": feed.key_prefix(key), "created_at": clock.now(), **changes,
    }  # fmt: skip
    return key, FeedKey.objects.create(**given)


def delivery_of(endpoint: WebhookEndpoint) -> WebhookDelivery:
    return WebhookDelivery.objects.get(endpoint=endpoint)
