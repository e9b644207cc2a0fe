"""The venues that a form offers. All organizers share them, so there may be more than a page can list."""

from django.db.models import QuerySet

from apps.events.models.catalog import Event, SeatingPlan, Venue

VENUES_MAX = 200
_LATEST_MAX = 1_000
"""Events, and seating plans, among whose venues the offered ones are."""


def offered_venues(organizer_ids: frozenset[int] | None, chosen: object = None) -> QuerySet[Venue]:
    """Return at most VENUES_MAX venues: the chosen one, those of the latest events and plans of these organizers (None:
    of all), then others by name."""
    ids: dict[int, None] = {}
    if str(chosen).isdecimal() and len(str(chosen)) < 18:
        ids[int(str(chosen))] = None
    for model in (Event, SeatingPlan):
        rows = model.objects.all() if organizer_ids is None else model.objects.filter(organizer__in=organizer_ids)
        ids |= dict.fromkeys(rows.order_by("-pk").values_list("venue_id", flat=True)[:_LATEST_MAX])
    ids |= dict.fromkeys(Venue.objects.order_by("name").values_list("pk", flat=True)[:VENUES_MAX])
    return Venue.objects.filter(pk__in=list(ids)[:VENUES_MAX])
