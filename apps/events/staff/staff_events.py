"""Events as the staff's dashboards show them, drafts included, confined to the organizers of the user."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import QuerySet

from apps.events.event_views import selling_state
from apps.events.models import Event
from apps.events.organizers.membership_backend import permitted_organizers
from apps.kernel import clock

_SEE_EVENT = "events.view_event"
RECENT_DAYS = 2
"""How long after its start an event stays among the current ones."""


@dataclass(frozen=True, slots=True)
class StaffEvent:
    """An event for staff. `has_perm(permission, event)` reads `organizer_id`."""

    id: int
    slug: str
    name: str
    venue_name: str
    city: str
    timezone: str
    starts_at: datetime
    currency: str
    organizer_id: int
    organizer_name: str
    state: str
    """draft, upcoming, on_sale, closed or canceled."""
    has_room: bool
    opens_at: datetime | None

    @property
    def is_draft(self) -> bool:
        return self.state == "draft"


def get_staff_event(event_id: int) -> StaffEvent | None:
    """Return the event, drafts included. The caller checks the user's permission."""
    return next(map(_view, _rows().filter(pk=event_id)), None)


def list_staff_events(user: Any, limit: int) -> tuple[list[StaffEvent], int]:
    """Return the user's current and coming events, soonest first, and how many more there are."""
    rows = _rows().filter(starts_at__gt=clock.now() - timedelta(days=RECENT_DAYS)).order_by("starts_at", "pk")
    organizer_ids = permitted_organizers(user, _SEE_EVENT)
    if organizer_ids is not None:
        rows = rows.filter(organizer__in=organizer_ids)
    return [_view(row) for row in rows[:limit]], max(0, rows.count() - limit)


def _rows() -> QuerySet[Event]:
    return Event.objects.select_related("venue", "organizer", "on_sale").defer("poster", "description")


def _view(row: Event) -> StaffEvent:
    on_sale = getattr(row, "on_sale", None)
    if row.status == Event.Status.DRAFT or on_sale is None:
        state = "draft"
    else:
        state = selling_state(row.status, row.starts_at, on_sale.opens_at, on_sale.closes_at, clock.process_now())
    return StaffEvent(
        id=row.pk,
        slug=row.slug,
        name=row.name,
        venue_name=row.venue.name,
        city=row.venue.city,
        timezone=row.venue.timezone,
        starts_at=row.starts_at,
        currency=row.currency,
        organizer_id=row.organizer_id,
        organizer_name=row.organizer.name,
        state=state,
        has_room=on_sale is not None and on_sale.room_rate_per_second is not None,
        opens_at=None if on_sale is None else on_sale.opens_at,
    )
