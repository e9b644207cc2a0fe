"""A visitor's status for the event loop: decided as in `status`, from the values that this process has cached.

An expired value is read again in a thread, once for all requests that arrive meanwhile. If it has expired only just
now, these requests still use it; otherwise they wait for the new one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from apps.events import facade as events
from apps.kernel.db import arrays, reads, sql
from apps.kernel.fastpath import thread_pool
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.kernel.fastpath.cache import InFlightReads
from apps.kernel.http import problems
from apps.kernel.tokens import jwt
from apps.queue.entries import positions
from apps.queue.entries.entry import Entry, EntryView, has_lapsed, view_of
from apps.queue.identity import entry_lookup
from apps.queue.identity.caller import QUEUE_TOKEN_TYPES, Caller, number_of
from apps.queue.models import QueueEntry, WaitingRoom
from apps.queue.snapshot import exceptions, room_snapshot
from apps.queue.status import drawn_numbers, status_json
from apps.queue.status import status as entry_status
from apps.queue.status.estimates import estimate, estimate_for_number, estimate_in_review, expected_rate
from apps.queue.status.status import QueueStatus

SNAPSHOT_STALE_SHARE = 0.8
"""An expired snapshot is used for this share of CACHE_SECONDS longer, while the next one is read. Its age stays below
the shortest `next_poll` (see room_snapshot.py)."""
FEED_STALE_SHARE = 0.5

_snapshot_reads: InFlightReads[int] = InFlightReads()
_feed_reads: InFlightReads[int] = InFlightReads()


@dataclass(frozen=True, slots=True)
class LoadedEntry:
    """An entry, with its deadlines compared with the database's clock when it was read."""

    entry: Entry
    is_claimable: bool
    """Whether a poll would claim its admission, or put it back in the queue after it was away."""
    has_lapsed: bool


def load_entries(entry_ids: Sequence[UUID]) -> reads.Read[list[LoadedEntry | None]]:
    """Read these entries in order, None for one that does not exist."""
    rows = yield from reads.one(_entries_by_id, entry_ids=arrays.uuids(list(set(entry_ids))))
    found: dict[UUID, LoadedEntry] = {}
    for *row, now in rows:
        entry = Entry(*row)
        unclaimed = entry.status == QueueEntry.Status.READY and entry.admission_expires_at is None
        is_claimable = unclaimed or entry.status == QueueEntry.Status.AWAY
        found[entry.id] = LoadedEntry(entry, is_claimable, has_lapsed(entry, now))
    return [found.get(entry_id) for entry_id in entry_ids]


_entries_by_id = sql.load("apps.queue", "entries_by_id", prepared=True)
_entry_loader: BatchLoader[UUID, LoadedEntry | None] = BatchLoader(load_entries)


def encode_status_from_token(event: events.EventView, token: str) -> bytes | None:
    """Return the response to a poll with this token if its entry certainly waits, as nearly all entries of a busy event
    do. Return None if the token and the caches do not suffice. Raises the errors of `authenticate`."""
    try:
        claims = jwt.verify(token, QUEUE_TOKEN_TYPES, audience=event.slug)
    except problems.TokenInvalid:
        if jwt.has_key_id(token):
            raise
        return None  # Another kind of token, which `authenticate` reads.
    number = number_of(claims)
    if claims.typ != "queue" or number is None:
        return None
    snapshot = _peek_snapshot(event.id, number)
    if snapshot is None or number <= snapshot.head:
        return None
    feed = _peek_feed(event.id)
    # An exceptional entry without a number is known by its id, which is not parsed here.
    if feed is None or feed.numberless or number in feed.numbers:
        return None
    return status_json.encode_status(snapshot, number)


def encode_waiting_status(entry: EntryView) -> bytes | None:
    """Return the status of an entry that has just been read as waiting, if its turn is still to come. Return
    None if `status_of_entry` has to decide."""
    if entry.number is None or entry.is_priority or entry.is_in_review or not entry.waits:
        return None
    snapshot = _peek_snapshot(entry.event_id, 0)
    if snapshot is None or entry.number <= snapshot.head:
        return None
    return status_json.encode_status(snapshot, entry.number)


async def claim_or_get_entry(event: events.EventView, caller: Caller) -> EntryView | None:
    """`positions.claim_or_get_entry` for the event loop."""
    entry_id = caller.entry_id or await entry_lookup.find_live_entry_id(event.id, caller)
    if entry_id is not None:
        return await claim_or_get_loaded(event, caller, await _entry_loader.ask(entry_id))
    return await thread_pool.run_for_client(positions.claim_or_get_entry, event, caller)


async def claim_or_get_loaded(event: events.EventView, caller: Caller, seen: LoadedEntry | None) -> EntryView | None:
    """`positions.claim_or_get_entry` for the event loop and a caller whose entry has just been read."""
    if caller.entry_id is not None and seen is not None and not caller.may_use_account(seen.entry.account_id):
        return None
    if seen is not None and seen.is_claimable and seen.entry.event_id == event.id:
        return await thread_pool.run_for_client(positions.claim_or_get_entry, event, caller)
    if seen is None or seen.entry.event_id != event.id:
        return None
    return view_of(seen.entry, event.slug, QueueEntry.Status.EXPIRED if seen.has_lapsed else None)


async def get_status(event: events.EventView, caller: Caller) -> QueueStatus | None:
    """`status.get_status` for the event loop."""
    status = await status_from_snapshot(event, caller)
    if status is not None:
        return status
    try:
        entry = await claim_or_get_entry(event, caller)
        return None if entry is None else await status_of_entry(event, entry)
    except WaitingRoom.DoesNotExist:
        return None


async def status_from_snapshot(event: events.EventView, caller: Caller) -> QueueStatus | None:
    """`status.status_from_snapshot` for the event loop."""
    if not caller.in_line or caller.entry_id is None:
        return None
    try:
        snapshot = await _get_snapshot(event.id, caller.number or 0)
    except WaitingRoom.DoesNotExist:
        return None
    drawn = None
    if entry_status.needs_drawn_number(snapshot, caller.number):
        drawn = await drawn_numbers.lookups.submit(caller.entry_id)
    return entry_status.decide_status(snapshot, await _get_feed(event.id), caller, drawn)


async def status_of_entry(event: events.EventView, entry: EntryView) -> QueueStatus:
    """`status.status_of_entry` for the event loop."""
    if not entry.waits:
        return QueueStatus(estimate(entry), entry)
    # The snapshot may be older than this number: the entry has just been read as waiting.
    snapshot = await _get_snapshot(event.id, 0)
    is_drawn = entry_status.needs_drawn_number(snapshot, entry.number)
    if entry.is_in_review and not is_drawn:
        return QueueStatus(estimate_in_review(snapshot, entry.number), entry)
    status = QueueStatus(estimate_for_number(snapshot, entry.number), entry)
    if entry.is_priority or status.estimate.ahead == 0 or is_drawn:
        return await thread_pool.run_for_client(entry_status.status_of_entry, event, entry)
    return status


async def get_room_progress(event: events.EventView) -> dict[str, Any] | None:
    """Return the progress of an event's queue, which all waiting visitors share: numbers up to `now_serving` have been
    reached. None if the event has no waiting room."""
    try:
        snapshot = await _get_snapshot(event.id, 0)
    except WaitingRoom.DoesNotExist:
        return None
    document: dict[str, Any] = {"state": snapshot.state, "now_serving": snapshot.head, "message": snapshot.message}
    if not snapshot.stage:
        document["tickets_left"] = snapshot.supply_available
        # Rounded, so that small changes of the measured rate are not published as updates.
        document["rate_per_second"] = float(f"{expected_rate(snapshot):.1g}")
    let_in = (await _get_feed(event.id)).recent_priority_numbers()
    if let_in:
        document["let_in"] = let_in
    return document


async def _get_snapshot(event_id: int, with_number: int) -> room_snapshot.RoomSnapshot:
    """`room_snapshot.get_snapshot` for the event loop."""
    cached = _peek_snapshot(event_id, with_number)
    if cached is not None:
        return cached
    read = partial(room_snapshot.get_snapshot, event_id, with_number=with_number)
    snapshot: room_snapshot.RoomSnapshot = await _snapshot_reads.wait(event_id, read)
    if snapshot.next_number > with_number:
        return snapshot
    # The shared read began before this number was assigned.
    return await thread_pool.run_for_client(read)


def _peek_snapshot(event_id: int, with_number: int) -> room_snapshot.RoomSnapshot | None:
    """Return this process's snapshot if it may still be used. If it has expired, begin to read the next one."""
    known = room_snapshot.peek(event_id)
    if known is None:
        return None
    snapshot, late_seconds = known
    if snapshot.next_number <= with_number or late_seconds >= room_snapshot.CACHE_SECONDS * SNAPSHOT_STALE_SHARE:
        return None
    if late_seconds >= 0:
        _snapshot_reads.begin(event_id, lambda: room_snapshot.get_snapshot(event_id, with_number=with_number))
    return snapshot


async def _get_feed(event_id: int) -> exceptions.ExceptionFeed:
    """Return the event's exceptional entries. If those of this process are outdated, first try to update them."""
    feed = _peek_feed(event_id)
    if feed is None:
        feed = exceptions.get_feed(event_id)
        await _feed_reads.wait(event_id, feed.refresh_if_due)
    return feed


def _peek_feed(event_id: int) -> exceptions.ExceptionFeed | None:
    """Return the event's exceptional entries if this process has read them recently. If a read is due, begin it."""
    feed = exceptions.get_feed(event_id)
    overdue_seconds = feed.overdue_seconds()
    if not feed.has_caught_up or overdue_seconds >= exceptions.FEED_SECONDS * FEED_STALE_SHARE:
        return None
    if overdue_seconds >= 0:
        _feed_reads.begin(event_id, feed.refresh_if_due)
    return feed
