"""What a process remembers of the houses on sale, so that a hold's words become ids without a query each."""

from collections.abc import Sequence

from apps.events import facade as events
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.kernel.fastpath.cache import BatchRefreshingCache
from apps.reservations.holds.requests import House, guarded_of, named_seats

HOUSES_MAX = 200
SEATS_MAX = 500_000
"""Seats that a process remembers, of all houses."""

_Words = tuple[dict[str, events.SectionView], dict[str, int], dict[int, str]]
"""Sections, categories, and what wants an access code."""


def _read_words(event_ids: Sequence[int]) -> dict[int, _Words]:
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
_words: BatchRefreshingCache[int, _Words] = BatchRefreshingCache(
    _read_words, missing=KeyError, fresh_seconds=1.0, stale_seconds=1.0, most=HOUSES_MAX
)
_seat_reads: BatchLoader[tuple[int, tuple[str, ...]], dict[str, int]] = BatchLoader(_read_seats)
# A published seat keeps its name and its id for ever.
_seats: dict[tuple[int, str], int] = {}


async def house_for(event: events.EventView, payload: object) -> House:
    """The house as this payload needs it: as `read_house`."""
    sections, categories, guarded = await _words.get(event.id)
    guids = named_seats(event, payload)
    seats = _known(event.id, guids)
    missing = tuple(guid for guid in guids if guid not in seats)
    if missing:
        found = await _seat_reads.ask((event.id, missing))
        _keep(event.id, found)
        seats |= found
    return House(sections, categories, seats, guarded)


def learn(asked: Sequence[tuple[events.EventView, object]]) -> None:
    """The seats that these payloads name are known, of those that there are: so many `at_hand` later. For threads."""
    missing = []
    for event, payload in asked:
        guids = named_seats(event, payload)
        unknown = tuple(guid for guid in guids if (event.id, guid) not in _seats)
        if unknown:
            missing.append((event.id, unknown))
    for (event_id, _), found in zip(missing, _read_seats(missing), strict=True):
        _keep(event_id, found)


def _keep(event_id: int, found: dict[str, int]) -> None:
    if len(_seats) + len(found) > SEATS_MAX:
        _seats.clear()
    _seats.update({(event_id, guid): seat for guid, seat in found.items()})


def at_hand(event: events.EventView, payload: object) -> House | None:
    """The same, if nobody has to be waited for."""
    words = _words.peek(event.id)
    if words is None:
        return None
    guids = named_seats(event, payload)
    seats = _known(event.id, guids)
    if len(seats) < len(guids):
        return None
    sections, categories, guarded = words
    return House(sections, categories, seats, guarded)


def _known(event_id: int, guids: Sequence[str]) -> dict[str, int]:
    return {guid: seat for guid in guids if (seat := _seats.get((event_id, guid))) is not None}


def forget_everything() -> None:
    """As in a process that has just started."""
    _words.forget()
    _seats.clear()
