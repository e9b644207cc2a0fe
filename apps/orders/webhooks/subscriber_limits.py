"""The limits on the webhook endpoints and feed keys of one organizer: each message about an order is stored for all."""

from django.db.models import Q, QuerySet

from apps.events import facade as events
from apps.orders.models import FeedKey, WebhookEndpoint

ACTIVE_MAX = 10
"""Active endpoints of one organizer, and as many keys that are not revoked, those of its events included."""


class TooMany(ValueError):
    """The organizer has its limit of these."""


def require_room_for_endpoint(organizer_id: int, endpoint_id: int | None) -> None:
    """Raise TooMany unless the organizer may have this active endpoint; None: a new one.

    An endpoint that is active at the organizer already is allowed, also above the limit. Joins the caller's
    transaction and locks the organizer: of two concurrent additions, the second counts the first.
    """
    _require_room(
        WebhookEndpoint.objects.filter(is_active=True),
        organizer_id,
        endpoint_id,
        "active webhook endpoints",
        "Deactivate",
    )


def require_room_for_key(organizer_id: int, key_id: int | None) -> None:
    """Like `require_room_for_endpoint`, for a feed key that is not revoked."""
    _require_room(FeedKey.objects.filter(revoked_at=None), organizer_id, key_id, "feed keys", "Revoke")


def _require_room(active: QuerySet, organizer_id: int, own_id: int | None, what: str, remedy: str) -> None:
    events.lock_organizer(organizer_id)
    of_organizer = Q(organizer_id=organizer_id) | Q(organizer=None, event__organizer_id=organizer_id)
    active_ids = set(active.filter(of_organizer).values_list("pk", flat=True))
    if own_id not in active_ids and len(active_ids) >= ACTIVE_MAX:
        raise TooMany(
            f"An organizer can have at most {ACTIVE_MAX} {what}, those of its events included. "
            f"{remedy} another one first."
        )
