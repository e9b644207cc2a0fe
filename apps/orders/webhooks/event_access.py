"""The access of an organizer's systems and door staff to one event."""

from apps.kernel import clock
from apps.kernel.admin_lists import format_count
from apps.orders.models import DoorLink, FeedKey, WebhookEndpoint


def end_access(event_id: int, who: str) -> str:
    """End what the former organizer has set up for the event alone: webhook endpoints become inactive, feed keys and
    door links are revoked. Joins the caller's transaction. Return a sentence with their numbers, empty for none."""
    now = clock.now()
    ended = {
        "webhook endpoint": WebhookEndpoint.objects.filter(event=event_id, is_active=True).update(is_active=False),
        "feed key": FeedKey.objects.filter(event=event_id, revoked_at=None).update(revoked_at=now),
        "door link": DoorLink.objects.filter(event=event_id, revoked_at=None).update(revoked_at=now, revoked_by=who),
    }
    counts = [format_count(count, name) for name, count in ended.items() if count]
    return f"Ended, because they were the former organizer's: {', '.join(counts)}." if counts else ""
