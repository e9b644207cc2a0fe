"""The sections, categories and seats of events on sale, cached so that the names in a hold's payload are resolved to
ids without a query."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from apps.events import facade as events
from apps.kernel.db import reads
from apps.kernel.fastpath import cache
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.kernel.fastpath.cache import BatchRefreshingCache
from apps.reservations.holds.requests import EventAreas, EventLookup, guarded_of, named_seats

EVENTS_MAX = 1_000
PRICES_MAX = 10_000
"""An event with more pairs of section and category, which no plan may have any more, is read by itself."""
SEATS_MAX = 500_000
"""The most seats that a process caches, of all events together."""


class Seating(NamedTuple):
    """An event's sections and categories as they were read a moment ago."""

    sections: dict[str, events.SectionView]
    """By public name."""
    categories: dict[str, int]
    """Key to id."""
    guarded: dict[int, str]
    """The public names of the sections that require an access code, by id."""
    reserved_ids: tuple[int, ...]
    """Sections with reserved seats."""
    areas: EventAreas


class SeatPlace(NamedTuple):
    seat_id: int
    section_id: int


_AskedSeats = tuple[int, tuple[str, ...]]
"""An event, and public ids of seats."""


def _read_seating(event_ids: Sequence[int]) -> dict[int, Seating]:
    categories = events.list_categories_of(event_ids)
    return {
        event_id: _build_seating(sections, {category.key: category.id for category in categories[event_id]})
        for event_id, sections in events.list_sections_of(event_ids).items()
    }


def _build_seating(sections: Sequence[events.SectionView], categories: dict[str, int]) -> Seating:
    return Seating(
        sections={section.slug: section for section in sections},
        categories=categories,
        guarded=guarded_of(sections),
        reserved_ids=tuple(section.id for section in sections if not section.is_general_admission),
        areas=EventAreas(sections, categories),
    )


# Changes by staff (a section restricted or opened, a tier renamed) are known here within two seconds. The hold reads
# prices itself.
seating: BatchRefreshingCache[int, Seating] = BatchRefreshingCache(
    _read_seating,
    missing=KeyError,
    fresh_seconds=1.0,
    stale_seconds=1.0,
    most=EVENTS_MAX,
    is_large=lambda found: sum(len(section.prices) for section in found.sections.values()) > PRICES_MAX,
)
# A published seat never changes its public id, its id or its section.
_seats: dict[tuple[int, str], SeatPlace] = cache.register({})


def _read_seats(asked: Sequence[_AskedSeats]) -> reads.Read[list[dict[str, SeatPlace]]]:
    by_event: dict[int, set[str]] = {}
    for event_id, guids in asked:
        by_event.setdefault(event_id, set()).update(guids)
    found = {}
    for event_id, wanted in by_event.items():
        seats = yield from events.read_seats_by_guid(event_id, wanted)
        found[event_id] = {guid: SeatPlace(seat.id, seat.section_id) for guid, seat in seats.items()}
    return [{guid: found[event_id][guid] for guid in guids if guid in found[event_id]} for event_id, guids in asked]


_seat_loader: BatchLoader[_AskedSeats, dict[str, SeatPlace]] = BatchLoader(_read_seats)


def cached_seats(event_id: int, guids: Iterable[str]) -> dict[str, SeatPlace]:
    """Return those of the event's seats that are cached, by public id."""
    return {guid: seat for guid in guids if (seat := _seats.get((event_id, guid))) is not None}


def load_seats(asked: Sequence[_AskedSeats]) -> reads.Read[None]:
    """Read these seats of these events, so that `cached_seats` has those that exist."""
    read = yield from _read_seats(asked)
    for (event_id, _), found in zip(asked, read, strict=True):
        _keep_seats(event_id, found)


def _keep_seats(event_id: int, found: dict[str, SeatPlace]) -> None:
    if len(_seats) + len(found) > SEATS_MAX:
        _seats.clear()
    _seats.update({(event_id, guid): seat for guid, seat in found.items()})


async def load_lookup(event: events.EventView, payload: object) -> EventLookup:
    """Return the same as `requests.read_lookup`, from the cache if possible."""
    found = await seating.get(event.id)
    guids = named_seats(event, payload)
    seats = cached_seats(event.id, guids)
    missing = tuple(guid for guid in guids if guid not in seats)
    if missing:
        loaded = await _seat_loader.ask((event.id, missing))
        _keep_seats(event.id, loaded)
        seats |= loaded
    seat_ids = {guid: seat.seat_id for guid, seat in seats.items()}
    return EventLookup(found.sections, found.categories, seat_ids, found.guarded, found.areas)


def cache_named_seats(asked: Sequence[tuple[events.EventView, object]]) -> reads.Read[None]:
    """Read the seats that these payloads name, so that `load_lookup` need not wait for them."""
    missing = []
    for event, payload in asked:
        unknown = tuple(guid for guid in named_seats(event, payload) if (event.id, guid) not in _seats)
        if unknown:
            missing.append((event.id, unknown))
    yield from load_seats(missing)
