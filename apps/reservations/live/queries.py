"""Queries of live updates to PostgreSQL and Redis. All of them block: call them in threads."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec
from django.db import connection
from redis import Redis

from apps.events import facade as events
from apps.kernel import clock, redis
from apps.kernel.db import sql
from apps.reservations.gate import gate
from apps.reservations.inventory.availability import STATUS_NAMES, frame_key, free_counts
from apps.reservations.models import Reservation, SeatInventory

_relay_frames = sql.load("apps.reservations", "relay_frames")

RELAY_SECONDS_MAX = 12.0
"""An older frame in PostgreSQL means that no relay runs: a relay rewrites each after ten seconds."""
SEATS_KEPT_MAX = 200_000
"""Seats whose public ids a process keeps: some 40 MB."""


@dataclass(frozen=True, slots=True)
class CountsDocument:
    """The counts of one event, as one document."""

    frame_id: str
    data: bytes
    is_own: bool = False
    """Counted by this process, since no relay has counted lately; such counts are less frequent."""
    is_late: bool = False
    """No relay counts although the event is on sale."""


def read_counts(event_ids: Collection[int]) -> dict[int, CountsDocument]:
    """Return the counts of these events: the relay's last from Redis, else from PostgreSQL, else counted here."""
    found: dict[int, CountsDocument] = {}
    answers = redis.attempt(lambda client: _from_redis(client, list(event_ids)))
    for event_id, (frame_id, text) in zip(event_ids, answers or (), strict=False):
        if frame_id and text:
            found[event_id] = CountsDocument(gate.text(frame_id), gate.text(text).encode())
    if answers is None:
        found |= _from_ledger([one for one in event_ids if one not in found])
    missing = [one for one in event_ids if one not in found]
    if missing:
        found |= _count_documents(missing)
    return found


def _from_redis(client: Redis, event_ids: list[int]) -> list[Any]:
    with client.pipeline(transaction=False) as pipe:
        for event_id in event_ids:
            pipe.hmget(frame_key(event_id), "id", "frame")
        return pipe.execute()


def _from_ledger(event_ids: list[int]) -> dict[int, CountsDocument]:
    with connection.cursor() as cursor:
        rows = _relay_frames.rows(cursor, event_ids=event_ids, seconds=RELAY_SECONDS_MAX)
    return {event_id: CountsDocument(f"{epoch}-{sequence}", text.encode()) for event_id, epoch, sequence, text in rows}


def _count_documents(event_ids: list[int]) -> dict[int, CountsDocument]:
    slugs = {
        event_id: {section.id: section.slug for section in events.list_sections(event_id)} for event_id in event_ids
    }
    counts = free_counts(section_id for sections in slugs.values() for section_id in sections)
    return {
        event_id: _local_document(event_id, {slug: counts[section_id] for section_id, slug in sections.items()})
        for event_id, sections in slugs.items()
    }


def _local_document(event_id: int, free: Mapping[str, int]) -> CountsDocument:
    # A content hash: the same in every process.
    name = hashlib.sha256(msgspec.json.encode(free)).hexdigest()[:12]
    return CountsDocument(f"{name}-0", counts_document(free), is_own=True, is_late=_is_on_sale(event_id))


def _is_on_sale(event_id: int) -> bool:
    # Read again: the event may have been canceled since the listeners subscribed.
    try:
        return events.get_event_by_id(event_id).selling_state(clock.process_now()) == "on_sale"
    except events.EventNotFound:
        return False


def counts_document(free: Mapping[str, int]) -> bytes:
    """Return the free counts by section in the public format of a frame."""
    sections = [{"section_id": slug, "available_seats": count} for slug, count in free.items()]
    return msgspec.json.encode({"sections": sections, "timestamp": clock.iso(clock.process_now())})


class _PublicIds:
    """The public ids of the seats of the sections that were read last. A published plan does not change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sections: OrderedDict[int, dict[int, str]] = OrderedDict()
        self._seat_count = 0

    def of_section(self, section_id: int) -> dict[int, str]:
        """Return the public ids by seat id."""
        with self._lock:
            if section_id in self._sections:
                self._sections.move_to_end(section_id)
                return self._sections[section_id]
        found = events.seat_guids_of_section(section_id)
        with self._lock:
            if section_id not in self._sections:
                self._sections[section_id] = found
                self._seat_count += len(found)
            while self._seat_count > SEATS_KEPT_MAX and len(self._sections) > 1:
                _, oldest = self._sections.popitem(last=False)
                self._seat_count -= len(oldest)
        return found


_public_ids = _PublicIds()


def read_seats(section_ids: Collection[int]) -> dict[int, dict[str, str]]:
    """Return the status of each seat of these sections that is not free, by public id."""
    rows = SeatInventory.objects.filter(section_id__in=section_ids).exclude(status=SeatInventory.Status.AVAILABLE)
    found: dict[int, dict[str, str]] = {section_id: {} for section_id in section_ids}
    guids: dict[int, dict[int, str]] = {}
    for section_id, seat_id, status in rows.values_list("section_id", "seat_id", "status"):
        if section_id not in guids:
            guids[section_id] = _public_ids.of_section(section_id)
        guid = guids[section_id].get(seat_id)
        if guid is not None:
            found[section_id][guid] = STATUS_NAMES[status]
    return found


def read_reservations(ids: Collection[UUID]) -> dict[UUID, dict[str, Any]]:
    """Return the states of these reservations. An overdue one counts as expired even before the sweep."""
    rows = Reservation.objects.filter(pk__in=list(ids)).values_list("pk", "status", "expires_at", "pay_deadline")
    now, found = clock.now(), {}
    for pk, status, expires_at, pay_deadline in rows:
        until = pay_deadline or expires_at
        lapsed = status in Reservation.LIVE and until <= now
        shown = Reservation.Status.EXPIRED if lapsed else status
        found[pk] = {"reservation_id": str(pk), "status": str(shown), "reserved_until": clock.iso(until)}
    return found


OwnerReader = Callable[[Collection[UUID]], Mapping[UUID, Mapping[str, Any]]]
"""Returns the states of owned things by id; those that no longer exist are left out."""
