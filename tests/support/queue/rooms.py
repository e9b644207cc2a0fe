"""Rooms for tests: open ones with a queue; time passes in them by changing rows."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import connection
from django.db.models import F

from apps.events import facade as events
from apps.events.facade import EventView, WaitingRoomSettings
from apps.kernel.db import transactions
from apps.queue import facade
from apps.queue.entries import positions
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.room import admission
from tests.support.factories import join, make_event

EPOCH = 1


def complete_admission(entry_id: UUID) -> None:
    """Complete the entry's admission, as after a sale."""
    with transactions.write(), connection.cursor() as cursor:
        facade.lock_entries(cursor, [entry_id])
        facade.complete_entries(cursor, [entry_id])


def make_room(slug: str = "concert", *, rate: int = 10, active: int = 3, **spec: Any) -> EventView:
    """Create an event with a room that opens with the first join or tick."""
    return make_event(slug, room=WaitingRoomSettings(rate_per_second=rate, active_max=active), **spec)


def join_entries(event: EventView, count: int) -> list[facade.EntryView]:
    """Let this many visitors join, in the order of their numbers. The caps admit some of them immediately."""
    return [join(event) for _ in range(count)]


def join_waiting_entries(event: EventView, count: int) -> list[facade.EntryView]:
    """Let this many visitors join without admitting any: the room is paused meanwhile, and then open again."""
    open_now(event)
    WaitingRoom.objects.filter(event_id=event.id).update(state="paused")
    entries = join_entries(event, count)
    WaitingRoom.objects.filter(event_id=event.id).update(state="open")
    return entries


def open_now(event: EventView) -> None:
    WaitingRoom.objects.filter(event_id=event.id).update(state="open")


def backdate_tick(event: EventView, seconds: float = 60) -> None:
    """Let this many seconds pass for the admission rate."""
    WaitingRoom.objects.filter(event_id=event.id).update(ticked_at=F("ticked_at") - timedelta(seconds=seconds))


def tick(event: EventView, *, seconds: float = 60, epoch: int = EPOCH) -> int:
    """Tick after this many seconds; with 0, no time passes, however slow the machine is."""
    if seconds:
        backdate_tick(event, seconds)
        return admission.tick(event.id, epoch)
    row = WaitingRoom.objects.filter(event_id=event.id)
    row.update(ticked_at=admission.clock.now() + timedelta(hours=1))
    admitted = admission.tick(event.id, epoch)
    row.update(ticked_at=admission.clock.now())
    return admitted


def backdate_claims(*entries: facade.EntryView, seconds: float = 1) -> None:
    """Move the claim deadlines of these entries into the past."""
    rows = QueueEntry.objects.filter(pk__in=[entry.id for entry in entries])
    rows.update(claim_expires_at=admission.clock.now() - timedelta(seconds=seconds))


def backdate_admissions(*entries: facade.EntryView) -> None:
    rows = QueueEntry.objects.filter(pk__in=[entry.id for entry in entries])
    rows.update(admission_expires_at=admission.clock.now() - timedelta(seconds=1))


def claim_or_get_entry(entry: facade.EntryView) -> facade.EntryView:
    """Poll the status of the entry, as its visitor."""
    caller = facade.Caller(account_id=entry.account_id, entry_id=entry.id)
    found = positions.claim_or_get_entry(events.get_event_by_id(entry.event_id), caller)
    assert found is not None
    return found


def statuses(event: EventView) -> list[str]:
    """Return the statuses in the order of the numbers."""
    return list(QueueEntry.objects.filter(event_id=event.id).order_by("number").values_list("status", flat=True))


def row(entry: facade.EntryView) -> QueueEntry:
    return QueueEntry.objects.get(pk=entry.id)


def numbers(entries: Iterable[QueueEntry]) -> list[int]:
    return sorted(entry.number for entry in entries)
