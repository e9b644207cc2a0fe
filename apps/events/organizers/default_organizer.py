"""The organizer of events for which none is named."""

from apps.events.models.organizers import DEFAULT_NAME, DEFAULT_SLUG, Organizer


def get_default_organizer() -> Organizer:
    """Return the default organizer. The first call creates it."""
    organizer, _ = Organizer.objects.get_or_create(slug=DEFAULT_SLUG, defaults={"name": DEFAULT_NAME})
    return organizer
