"""The lock of an organizer, for limits on what it owns."""

from apps.events.models.organizers import Organizer
from apps.kernel.db.transactions import require_transaction


def lock_organizer(organizer_id: int) -> None:
    """Lock the organizer's row until the end of the caller's transaction. Rows that refer to it can still be added by
    callers that do not lock it."""
    require_transaction()
    list(Organizer.objects.select_for_update(no_key=True).filter(pk=organizer_id).values_list("pk"))
