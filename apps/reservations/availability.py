"""What is free, counted from the inventory rows every time: a count that is recounted cannot drift."""

from collections.abc import Iterable
from dataclasses import dataclass

from django.db import connection

from apps.events import facade as events
from apps.reservations.models import SeatInventory
from ticketing.kernel import sql

_PACKAGE = "apps.reservations"
_count_seats = sql.load(_PACKAGE, "count_seats")
_count_places = sql.load(_PACKAGE, "count_places")
_count_free = sql.load(_PACKAGE, "count_free")

STATUS_NAMES = {status.value: status.label for status in SeatInventory.Status}


@dataclass(frozen=True, slots=True)
class Availability:
    """How a section stands; the four parts make up the total."""

    total: int = 0
    available: int = 0
    held: int = 0
    sold: int = 0
    blocked: int = 0


def availability(event_id: int) -> dict[int, Availability]:
    """How every section of the event stands, by section id."""
    sections = events.list_sections(event_id)
    ids = [section.id for section in sections]
    found: dict[int, dict[str, int]] = {section_id: {} for section_id in ids}
    with connection.cursor() as cursor:
        for section_id, status, count in _count_seats.rows(cursor, section_ids=ids):
            found[section_id][STATUS_NAMES[status]] = count
        for section_id, capacity, blocked, taken, sold in _count_places.rows(cursor, section_ids=ids):
            found[section_id] = {
                "available": capacity - blocked - taken,
                "held": taken - int(sold),
                "sold": int(sold),
                "blocked": blocked,
            }
    return {section_id: Availability(total=sum(parts.values()), **parts) for section_id, parts in found.items()}


def free_counts(section_ids: Iterable[int]) -> dict[int, int]:
    """What is free in each of these sections: the cheap count for display."""
    ids = list(section_ids)
    with connection.cursor() as cursor:
        counted = dict(_count_free.rows(cursor, section_ids=ids))
    return {section_id: counted.get(section_id, 0) for section_id in ids}


def free_by_event(event_ids: Iterable[int]) -> dict[int, dict[int, int]]:
    """What is free by event and section; events' own pages ask for it through the provider it registers."""
    by_event = events.section_ids(event_ids)
    counts = free_counts(section for ids in by_event.values() for section in ids)
    return {event_id: {section: counts[section] for section in ids} for event_id, ids in by_event.items()}


def seat_statuses(event_id: int) -> dict[int, str]:
    """How each seat of the event that is not free stands, by seat id: held, sold or blocked."""
    rows = SeatInventory.objects.filter(event_id=event_id).exclude(status=SeatInventory.Status.AVAILABLE)
    return {seat_id: STATUS_NAMES[status] for seat_id, status in rows.values_list("seat_id", "status")}


def section_statuses(section_id: int) -> dict[int, str]:
    """How each seat of the section that is not free stands, by seat id: held, sold or blocked."""
    rows = SeatInventory.objects.filter(section_id=section_id).exclude(status=SeatInventory.Status.AVAILABLE)
    return {seat_id: STATUS_NAMES[status] for seat_id, status in rows.values_list("seat_id", "status")}
