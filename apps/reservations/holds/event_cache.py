"""What a process remembers of the houses on sale, so that a hold's words become ids without a query each."""

from collections.abc import Sequence

from apps.events import facade as events
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.kernel.fastpath.cache import BatchRefreshingCache
from apps.reservations.holds.requests import EventLookup, guarded_of, named_seats

EVENTS_MAX = 200
SEATS_MAX = 500_000
"""Seats that a process remembers, of all houses."""

_EventData = tuple[dict[str, events.SectionView], dict[str, int], dict[int, str]]
"""Sections, categories, and what wants an access code."""


def _read_event_data(event_ids: Sequence[int]) -> dict[int, _EventData]:
    categories = events.list_categories_of(event_ids)
    return {
        event_id: (
            {section.slug: section for section in sections},
            {category.key: category.id for category in categories[event_id]},
            guarded_of(sections),
        )
        for event_id, sections in events.list_sections_of(event_ids).items()
    }


def _read_seats(asked: list[tuple[int, tuple[str, ...]]]) -> list[dict[str, int]]:
    by_event: dict[int, set[str]] = {}
    for event_id, guids in asked:
        by_event.setdefault(event_id, set()).update(guids)
    found = {
        event_id: {guid: seat.id for guid, seat in events.seats_by_guid(event_id, guids).items()}
        for event_id, guids in by_event.items()
    }
    return [{guid: found[event_id][guid] for guid in guids if guid in found[event_id]} for event_id, guids in asked]


# A section that staff guard or open, or a tier they rename, is known within two seconds. Prices are read by the hold
# itself.
_event_data: BatchRefreshingCache[int, _EventData] = BatchRefreshingCache(
    _read_event_data, missing=KeyError, fresh_seconds=1.0, stale_seconds=1.0, most=EVENTS_MAX
)
_seat_reads: BatchLoader[tuple[int, tuple[str, ...]], dict[str, int]] = BatchLoader(_read_seats)
# A published seat keeps its name and its id for ever.
_seats: dict[tuple[int, str], int] = {}


async def load_lookup(event: events.EventView, payload: object) -> EventLookup:
    """The house as this payload needs it: as `read_lookup`."""
    sections, categories, guarded = await _event_data.get(event.id)
    guids = named_seats(event, payload)
    seats = _cached_seats(event.id, guids)
    missing = tuple(guid for guid in guids if guid not in seats)
    if missing:
        found = await _seat_reads.ask((event.id, missing))
        _cache_seats(event.id, found)
        seats |= found
    return EventLookup(sections, categories, seats, guarded)


def cache_named_seats(asked: Sequence[tuple[events.EventView, object]]) -> None:
    """The seats that these payloads name are known, of those that there are: so many
    `cached_lookup` later. For threads."""
    missing = []
    for event, payload in asked:
        guids = named_seats(event, payload)
        unknown = tuple(guid for guid in guids if (event.id, guid) not in _seats)
        if unknown:
            missing.append((event.id, unknown))
    for (event_id, _), found in zip(missing, _read_seats(missing), strict=True):
        _cache_seats(event_id, found)


def _cache_seats(event_id: int, found: dict[str, int]) -> None:
    if len(_seats) + len(found) > SEATS_MAX:
        _seats.clear()
    _seats.update({(event_id, guid): seat for guid, seat in found.items()})


def cached_lookup(event: events.EventView, payload: object) -> EventLookup | None:
    """The same, if nobody has to be waited for."""
    words = _event_data.peek(event.id)
    if words is None:
        return None
    guids = named_seats(event, payload)
    seats = _cached_seats(event.id, guids)
    if len(seats) < len(guids):
        return None
    sections, categories, guarded = words
    return EventLookup(sections, categories, seats, guarded)


def _cached_seats(event_id: int, guids: Sequence[str]) -> dict[str, int]:
    return {guid: seat for guid in guids if (seat := _seats.get((event_id, guid))) is not None}


def clear_cache() -> None:
    """As in a process that has just started."""
    _event_data.forget()
    _seats.clear()
