"""The taken seats of an event, for its map."""

from apps.events import facade as events
from apps.kernel.fastpath.cache import RefreshingCache
from apps.reservations.inventory.availability import seat_statuses

LARGE_SEATS = 2_000
"""Of events with more seats, a process keeps the taken ones for a moment: to read them takes longer than most pages."""
FRESH_SECONDS = 0.5
EVENTS_MAX = 100


def read_taken(event_id: int) -> dict[int, int]:
    """Return the index in the event's plan of each seat that is not free, by seat id, in the plan's order."""
    taken = seat_statuses(event_id=event_id)
    if not taken:
        return {}
    seat_ids = events.seat_ids_in_plan_order(event_id)
    return {seat_id: index for index, seat_id in enumerate(seat_ids) if seat_id in taken}


_kept: RefreshingCache[int, dict[int, int]] = RefreshingCache(
    read_taken, fresh_seconds=FRESH_SECONDS, stale_seconds=0, most=EVENTS_MAX
)


def find_taken(event_id: int, seat_count: int) -> dict[int, int]:
    """Return `read_taken`, up to FRESH_SECONDS old if the event has many seats. Blocks."""
    return _kept.read(event_id) if seat_count > LARGE_SEATS else read_taken(event_id)
