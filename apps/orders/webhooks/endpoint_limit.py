"""The limit on the active webhook endpoints of one organizer."""

from django.db.models import Q

from apps.events import facade as events
from apps.orders.models import WebhookEndpoint

ACTIVE_MAX = 10
"""Active endpoints of one organizer, those of its events included. Every message about an order is posted to each."""


class TooManyEndpoints(ValueError):
    """The organizer has its limit of active webhook endpoints."""


def require_room(organizer_id: int, endpoint_id: int | None) -> None:
    """Raise TooManyEndpoints unless the organizer may have this active endpoint; None: a new one.

    An endpoint that is active at the organizer already is allowed, also above the limit. Joins the caller's
    transaction and locks the organizer: of two concurrent additions, the second counts the first.
    """
    events.lock_organizer(organizer_id)
    of_organizer = Q(organizer_id=organizer_id) | Q(organizer=None, event__organizer_id=organizer_id)
    active_ids = set(WebhookEndpoint.objects.filter(of_organizer, is_active=True).values_list("pk", flat=True))
    if endpoint_id not in active_ids and len(active_ids) >= ACTIVE_MAX:
        raise TooManyEndpoints(
            f"An organizer can have at most {ACTIVE_MAX} active webhook endpoints, those of its events included. "
            "Deactivate another one first."
        )
