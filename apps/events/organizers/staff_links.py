"""The links that staff see in the header of the site's pages, to what they manage."""

from collections.abc import Sequence
from typing import Any

from django.urls import reverse

from apps.accounts import facade as accounts
from apps.events.models import Event
from apps.kernel.db import sql


def staff_links(user: Any, event_slug: str) -> Sequence[accounts.StaffLink]:
    """Return the admin's page of this event, if the user may see it, and the admin itself."""
    links = []
    is_event = bool(event_slug) and sql.is_text(event_slug)
    found = Event.objects.only("pk", "organizer_id").filter(slug=event_slug).first() if is_event else None
    if found is not None and user.has_perm("events.view_event", found):
        links.append(accounts.StaffLink("Manage this event", reverse("admin:events_event_change", args=[found.pk])))
    return [*links, accounts.StaffLink("Dashboard", reverse("admin:index"))]
