"""What the waiting room knows of the interest in an event, reported to the organizer's page of demand."""

from datetime import timedelta

from apps.events import facade as events
from apps.queue.models import QueueEntry, SignUp, WaitingRoom

FIRST_HOUR = timedelta(hours=1)
COUNTED_MAX = 500_000


def read_room_interest(event_id: int) -> events.RoomInterest | None:
    """Return the event's lobby, sign-ups, and entries until an hour after the opening of sales; None without a room."""
    room = WaitingRoom.objects.select_related("event__on_sale").filter(pk=event_id).first()
    if room is None:
        return None
    first = QueueEntry.objects.filter(event_id=event_id, joined_at__lt=room.event.on_sale.opens_at + FIRST_HOUR)
    return events.RoomInterest(
        in_lobby=room.lobby_count if room.state == WaitingRoom.State.LOBBY else 0,
        sign_ups=SignUp.objects.filter(event_id=event_id)[:COUNTED_MAX].count(),
        joined_first_hour=first[:COUNTED_MAX].count(),
    )
