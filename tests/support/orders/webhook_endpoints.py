"""Webhook endpoints and feed keys of organizers: rows as the admin creates them."""

from apps.events.facade import EventView
from apps.kernel import clock
from apps.orders.models import FeedKey, WebhookDelivery, WebhookEndpoint
from apps.orders.webhooks import delivery, feed


def make_endpoint(
    url: str = "https://hook.example/", event: EventView | None = None, **changes: object
) -> WebhookEndpoint:
    """Create an endpoint for messages about the event's orders, or all orders."""
    given = {
        "name": "the door", "url": url, "event_id": event and event.id, "secret": delivery.new_secret(),
        "created_at": clock.now(), **changes,
    }  # fmt: skip
    return WebhookEndpoint.objects.create(**given)


def make_feed_key(event: EventView | None = None, **changes: object) -> tuple[str, FeedKey]:
    """Create a key for the messages of the event, or of all: return the secret and the row."""
    key = feed.new_key()
    given = {
        "name": "the box office", "event_id": event and event.id, "digest": feed.key_digest(key),
        "beginning": feed.key_prefix(key), "created_at": clock.now(), **changes,
    }  # fmt: skip
    return key, FeedKey.objects.create(**given)


def delivery_of(endpoint: WebhookEndpoint) -> WebhookDelivery:
    return WebhookDelivery.objects.get(endpoint=endpoint)
