"""The links that staff see in the header of the site's pages, to what they manage."""

from collections.abc import Sequence
from typing import Any

from django.urls import reverse

from apps.accounts import facade as accounts
from apps.events.models import Event
from apps.kernel.db import sql


def staff_links(user: Any, event_slug: str) -> Sequence[accounts.StaffLink]:
    """Return the pages of this event that the user may open, and the staff's home page; on pages of no event also the
    form that creates one. The pages belong to apps above, so only their URL names are used here."""
    links = []
    is_event = bool(event_slug) and sql.is_text(event_slug)
    found = Event.objects.only("pk", "organizer_id", "status").filter(slug=event_slug).first() if is_event else None
    if found is not None and user.has_perm("events.view_event", found):
        links.append(accounts.StaffLink("Event dashboard", reverse("admin:event_dashboard", args=[found.pk])))
        if user.has_perm("events.change_event", found):
            links.append(accounts.StaffLink("Edit event", reverse("admin:events_event_change", args=[found.pk])))
        if found.status == Event.Status.PUBLISHED and user.has_perm("orders.check_in", found):
            links.append(accounts.StaffLink("Check in", reverse("orders:check_in", args=[event_slug])))
    links.append(accounts.StaffLink("Dashboard", reverse("admin:index")))
    if found is None and user.has_perm("events.add_event"):
        links.append(accounts.StaffLink("Create event", reverse("admin:events_event_add")))
    return links
