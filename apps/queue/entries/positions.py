"""Claiming an admission, leaving the queue, and finding a caller's entry. See join.py for joining."""

import uuid
from collections.abc import Collection

from django.db import connection

from apps.events import facade as events
from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.http import problems
from apps.queue.entries.entry import Entry, EntryView, apply_arrival, has_lapsed, view_of
from apps.queue.entries.join import (
    JOIN_LOCK_MS,
    JoinOutcome,
    JoinRequest,
    join,
    join_async,
    join_many,
    join_on_cursor,
    require_on_sale,
)
from apps.queue.errors import EntryNotFound, StillHolding
from apps.queue.identity.caller import Caller
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.snapshot import exceptions

__all__ = [
    "JOIN_LOCK_MS",
    "EntryView",
    "JoinOutcome",
    "JoinRequest",
    "claim_or_get_entry",
    "entry_by_id",
    "find_entry",
    "join",
    "join_async",
    "join_many",
    "join_on_cursor",
    "leave",
    "require_on_sale",
]

_entries_with_events = sql.load("apps.queue", "entries_with_events", prepared=True)


def leave(event: events.EventView, caller: Caller) -> EntryView:
    """End the caller's entry. Raises TokenMissing for an unidentified caller, EntryNotFound without an entry, and
    StillHolding while a reservation occupies its slot. A hold takes the same lock, so no visitor leaves with a
    reservation."""
    if not caller.is_known:
        raise problems.TokenMissing
    with transactions.write():
        entry = find_entry(event.id, caller, lock=True)
        if entry is None:
            raise EntryNotFound
        if entry.status in QueueEntry.LIVE:
            now = clock.now()
            if entry.busy_until is not None and entry.busy_until > now:
                raise StillHolding
            entry.status, entry.ended_at = QueueEntry.Status.LEFT, now
            entry.save(update_fields=["status", "ended_at"])
    exceptions.mark_exceptional(event.id, entry.number, entry.pk)
    return view_of(entry, event.slug)


def claim_or_get_entry(event: events.EventView, caller: Caller) -> EntryView | None:
    """Return the caller's entry, or None. An entry whose admission has lapsed is returned as expired, even if the sweep
    has not ended it yet.

    Polling counts as arrival: it claims the admission, or puts an entry that was away back in the queue.
    """
    entry = find_entry(event.id, caller)
    if entry is None:
        return None
    unclaimed = entry.status == QueueEntry.Status.READY and entry.admission_expires_at is None
    if unclaimed or entry.status == QueueEntry.Status.AWAY:
        entry = _save_arrival(entry.pk)
    return view_of(entry, event.slug, QueueEntry.Status.EXPIRED if has_lapsed(entry, clock.now()) else None)


def _save_arrival(entry_id: uuid.UUID) -> QueueEntry:
    # No lock on the room is needed: an unclaimed admission occupies its slot already, and an arrival can only free it.
    with transactions.write():
        entry = QueueEntry.objects.select_for_update(no_key=True).get(pk=entry_id)
        room = WaitingRoom.objects.get(event_id=entry.event_id)
        if entry.status in QueueEntry.LIVE and apply_arrival(entry, room.admission_seconds, clock.now()):
            entry.save(update_fields=["status", "admission_expires_at", "ended_at"])
    return entry


def entry_by_id(entry_id: uuid.UUID) -> EntryView | None:
    return entries_by_id([entry_id]).get(entry_id)


def entries_by_id(entry_ids: Collection[uuid.UUID]) -> dict[uuid.UUID, EntryView]:
    """Return these entries by id, without unknown ids."""
    with connection.cursor() as cursor:
        rows = _entries_with_events.rows(cursor, entry_ids=list(entry_ids))
    return {entry_id: view_of(Entry(entry_id, *values), slug) for entry_id, *values, slug in rows}


def find_entry(event_id: int, caller: Caller, *, lock: bool = False) -> QueueEntry | None:
    """Return the entry of the caller's token or, without a token, the live entry of the account or browser, else its
    latest ended one. None if there is none, or if the entry of a guest's token belongs to an account by now. Does not
    count as arrival and changes nothing."""
    rows = QueueEntry.objects.filter(event_id=event_id)
    if lock:
        rows = rows.select_for_update(no_key=True)
    if caller.entry_id is not None:
        entry = rows.filter(pk=caller.entry_id).first()
        return entry if entry is not None and caller.may_use_account(entry.account_id) else None
    if caller.account_id is not None:
        mine = rows.filter(account_id=caller.account_id)
    elif caller.visitor_id:
        mine = rows.filter(account__isnull=True, visitor_id=caller.visitor_id)
    else:
        return None
    live, ended = mine.filter(status__in=QueueEntry.LIVE), mine.filter(ended_at__isnull=False).order_by("-joined_at")
    # Both queries run twice: an entry may end, or be reopened in the lobby, between the first two.
    return live.first() or ended.first() or live.first() or ended.first()
