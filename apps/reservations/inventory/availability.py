"""Counts of free seats and tickets. They are counted from the inventory rows each time, so they cannot become wrong
gradually. Pages use the relay's latest counts if there are any."""

from collections.abc import Collection, Iterable, Mapping

import msgspec
from django.db import connection

from apps.events import facade as events
from apps.kernel import redis
from apps.kernel.db import sql
from apps.reservations.models import SeatInventory

_count_free = sql.load("apps.reservations", "count_free")
_last_frames = sql.load("apps.reservations", "last_frames")

FRAME_SECONDS_MAX = 15.0
"""A running relay rewrites each frame at least every ten seconds, so an older frame means that no relay is running."""

STATUS_NAMES = {status.value: status.label for status in SeatInventory.Status}


def free_counts(section_ids: Iterable[int]) -> dict[int, int]:
    """Return the free count of each of these sections, by a query that is cheap enough for display."""
    ids = list(section_ids)
    if not ids:
        return {}
    with connection.cursor() as cursor:
        counted = dict(_count_free.rows(cursor, section_ids=ids))
    return {section_id: counted.get(section_id, 0) for section_id in ids}


def free_by_event(by_event: events.SectionSlugs) -> dict[int, dict[int, int]]:
    """Return the free counts by event id and section id, for these events and the slugs of their sections. The pages of
    `apps/events` call this through the registry that provides availability.

    These are the relay's last counts, or a new count if the relay has written none lately. Relay counts that disagree
    with the current stock on whether anything is left are not used: caches are purged when that changes, and must not
    be refilled with the previous state.
    """
    found = _read_relay_counts(by_event)
    unknown = {event_id: sections for event_id, sections in by_event.items() if event_id not in found}
    if not unknown:
        return found
    counts = free_counts(section for sections in unknown.values() for section in sections)
    return found | {event_id: {section: counts[section] for section in ids} for event_id, ids in unknown.items()}


class _SectionCount(msgspec.Struct):
    """A section in a frame."""

    section_id: str
    available_seats: int


class _Frame(msgspec.Struct):
    sections: list[_SectionCount]


_read_frame = msgspec.json.Decoder(_Frame).decode


def _free_in(frame: str | bytes) -> dict[str, int]:
    return {section.section_id: section.available_seats for section in _read_frame(frame).sections}


def _read_relay_counts(by_event: events.SectionSlugs) -> dict[int, dict[int, int]]:
    if not by_event:
        return {}
    with connection.cursor() as cursor:
        rows = _last_frames.rows(cursor, event_ids=list(by_event), seconds=FRAME_SECONDS_MAX)
    found = {}
    for event_id, text, any_left in rows:
        free = _free_in(text)
        slugs = by_event[event_id]
        if any(free.values()) == any_left and free.keys() == set(slugs.values()):
            found[event_id] = {section_id: free[slug] for section_id, slug in slugs.items()}
    return found


def frame_key(event_id: int) -> str:
    """Return the Redis key of the relay's latest frame, which expires."""
    return f"frame:{{{event_id}}}"


def latest_free_counts(event_id: int, sections: Mapping[int, str]) -> dict[int, int]:
    """Return the free count of each of these sections (slugs by id) from the relay's frame in Redis. They are counted
    here if there is no such frame or Redis is unavailable."""
    text = redis.attempt(lambda client: client.hget(frame_key(event_id), "frame"))
    try:
        free = _free_in(text) if text is not None else {}
    except msgspec.MsgspecError:
        free = {}  # The value was not written by a relay.
    if free.keys() == set(sections.values()):
        return {section_id: free[slug] for section_id, slug in sections.items()}
    return free_counts(sections)


def seat_statuses(**where: int | Collection[int]) -> dict[int, str]:
    """Return the status of each seat that is not free, by seat id: held, sold or blocked. `where` is an `event_id`, a
    `section_id` or `seat_id__in`."""
    rows = SeatInventory.objects.filter(**where).exclude(status=SeatInventory.Status.AVAILABLE)
    return {seat_id: STATUS_NAMES[status] for seat_id, status in rows.values_list("seat_id", "status")}
