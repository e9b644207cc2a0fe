"""Where one stands, for the lane: as status.py tells it, from what this process remembers, without a wait in the
loop's own thread. What is a moment too old is read anew in a thread, once for everybody who asks meanwhile."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection

from apps.events import facade as events
from apps.kernel.db import arrays, sql
from apps.kernel.fastpath import thread_pool
from apps.kernel.fastpath.batch_loader import BatchLoader
from apps.kernel.fastpath.cache import BatchRefreshingCache, InFlightReads
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
from apps.queue.status.estimates import estimate, estimate_for_number, expected_rate
from apps.queue.status.status import QueueStatus

SNAPSHOT_STALE_SHARE = 0.8
"""A board is given out for so much longer than its time while the next one is read: in all still less than the shortest
`next_poll` (see room_snapshot.py)."""
FEED_STALE_SHARE = 0.5
EVENTS_MAX = 1_000

# What the organiser changes (sales closed, an event canceled) holds in the lane after two seconds at the latest.
event_cache: BatchRefreshingCache[str, events.EventView] = BatchRefreshingCache(
    events.get_events, missing=events.EventNotFound, fresh_seconds=1.0, stale_seconds=1.0, most=EVENTS_MAX
)
_snapshot_reads: InFlightReads[int] = InFlightReads()
_feed_reads: InFlightReads[int] = InFlightReads()


@dataclass(frozen=True, slots=True)
class LoadedEntry:
    """An entry as it was read, with what that means at the database's moment."""

    entry: Entry
    is_claimable: bool
    """Asking is coming: something about it changes by it."""
    has_lapsed: bool


def load_entries(entry_ids: Sequence[UUID]) -> list[LoadedEntry | None]:
    """These entries as they stand, in this order; None for one that is not there. For threads."""
    with connection.cursor() as cursor:
        rows = _entries_by_id.rows(cursor, entry_ids=arrays.uuids(list(set(entry_ids))))
    found: dict[UUID, LoadedEntry] = {}
    for *row, now in rows:
        entry = Entry(*row)
        unclaimed = entry.status == QueueEntry.Status.READY and entry.admission_expires_at is None
        is_coming = unclaimed or entry.status == QueueEntry.Status.AWAY
        found[entry.id] = LoadedEntry(entry, is_coming, has_lapsed(entry, now))
    return [found.get(entry_id) for entry_id in entry_ids]


_entries_by_id = sql.load("apps.queue", "entries_by_id")
_entry_loader: BatchLoader[UUID, LoadedEntry | None] = BatchLoader(load_entries)


async def get_cached_event(slug: str) -> events.EventView:
    """The event as it was a moment ago, policy included. Raises EventNotFound."""
    return await event_cache.get(slug)


def peek_event(slug: str) -> events.EventView | None:
    """The same, if nobody has to be waited for."""
    return event_cache.peek(slug)


def encode_status_from_token(event: events.EventView, token: str) -> bytes | None:
    """The answer to a poll with this token, if it is plain that its place waits, as it is of nearly everybody in a
    crowd. None: ask in full. Raises as `authenticate` does."""
    try:
        claims = jwt.verify(token, QUEUE_TOKEN_TYPES, audience=event.slug)
    except problems.TokenInvalid:
        if jwt.has_key_id(token):
            raise
        return None  # Another kind of token, for somebody else to read.
    number = number_of(claims)
    if claims.typ != "queue" or number is None:
        return None
    board = _peek_snapshot(event.id, number)
    if board is None or number <= board.head:
        return None
    feed = _peek_feed(event.id)
    # One without a number is told of by its id, which is not looked at here.
    if feed is None or feed.numberless or number in feed.numbers:
        return None
    return status_json.encode_status(board, number)


def encode_waiting_status(entry: EntryView) -> bytes | None:
    """The answer to whoever has just been told by the ledger that this entry waits, if its turn is still to come. None:
    see how it stands in full."""
    if entry.number is None or entry.is_priority or not entry.waits:
        return None
    board = _peek_snapshot(entry.event_id, 0)
    return None if board is None or entry.number <= board.head else status_json.encode_status(board, entry.number)


async def claim_or_get_entry(event: events.EventView, caller: Caller) -> EntryView | None:
    """As `positions.claim_or_get_entry`."""
    entry_id = caller.entry_id or await entry_lookup.find_live_entry_id(event.id, caller)
    if entry_id is not None:
        return await claim_or_get_loaded(event, caller, await _entry_loader.ask(entry_id))
    return await thread_pool.run_in_thread(positions.claim_or_get_entry, event, caller)


async def claim_or_get_loaded(event: events.EventView, caller: Caller, seen: LoadedEntry | None) -> EntryView | None:
    """As `positions.claim_or_get_entry` of a caller whose entry has just been seen."""
    if seen is not None and seen.is_claimable and seen.entry.event_id == event.id:
        return await thread_pool.run_in_thread(positions.claim_or_get_entry, event, caller)
    return loaded_entry_view(event, seen)


def loaded_entry_view(event: events.EventView, seen: LoadedEntry | None) -> EntryView | None:
    """The entry that has just been seen, unless asking is coming; None: there is none in this event's line."""
    if seen is None or seen.entry.event_id != event.id:
        return None
    return view_of(seen.entry, event.slug, QueueEntry.Status.EXPIRED if seen.has_lapsed else None)


async def get_status(event: events.EventView, caller: Caller) -> QueueStatus | None:
    """As `status.get_status`."""
    place = await status_from_snapshot(event, caller)
    if place is not None:
        return place
    try:
        entry = await claim_or_get_entry(event, caller)
        return None if entry is None else await status_of_entry(event, entry)
    except WaitingRoom.DoesNotExist:
        return None


async def status_from_snapshot(event: events.EventView, caller: Caller) -> QueueStatus | None:
    """As `status.status_from_snapshot`."""
    if not caller.in_line or caller.entry_id is None:
        return None
    try:
        board = await _get_snapshot(event.id, caller.number or 0)
    except WaitingRoom.DoesNotExist:
        return None
    number, drawn = caller.number, None
    if entry_status.has_drawn_number(board, number):
        number = drawn = await drawn_numbers.lookups.submit(caller.entry_id)
        if number is None:
            return None
    if not entry_status.is_unreached(board, number):
        return None
    if not await _is_certainly_waiting(event.id, number, caller.entry_id):
        return None
    return QueueStatus(estimate_for_number(board, number), drawn_number=drawn)


async def status_of_entry(event: events.EventView, entry: EntryView) -> QueueStatus:
    """As `status.status_of_entry`."""
    if not entry.waits:
        return QueueStatus(estimate(entry), entry)
    # Whether the board has heard of this number does not matter: the ledger has just said that it waits.
    board = await _get_snapshot(event.id, 0)
    place = QueueStatus(estimate_for_number(board, entry.number), entry)
    if entry.is_priority or place.estimate.ahead == 0 or entry_status.has_drawn_number(board, entry.number):
        return await thread_pool.run_in_thread(entry_status.status_of_entry, event, entry)
    return place


async def get_room_progress(event: events.EventView) -> dict[str, Any] | None:
    """How far the line is, for everybody who waits in it: who has this number or a lower one is asked in. None: the
    event has no waiting room."""
    try:
        board = await _get_snapshot(event.id, 0)
    except WaitingRoom.DoesNotExist:
        return None
    document: dict[str, Any] = {"state": board.state, "now_serving": board.head, "message": board.message}
    if not board.stage:
        document["tickets_left"] = board.supply_available
        # In steps, so that a rate which is measured anew each second is not news each second.
        document["rate_per_second"] = float(f"{expected_rate(board):.1g}")
    feed = exceptions.get_feed(event.id)
    if _peek_feed(event.id) is None:
        await _feed_reads.wait(event.id, feed.refresh_if_due)
    let_in = feed.recent_priority_numbers()
    if let_in:
        document["let_in"] = let_in
    return document


async def _get_snapshot(event_id: int, with_number: int) -> room_snapshot.RoomSnapshot:
    """As `room_snapshot.get_snapshot`."""
    at_hand = _peek_snapshot(event_id, with_number)
    if at_hand is not None:
        return at_hand
    board = await _snapshot_reads.wait(event_id, lambda: room_snapshot.get_snapshot(event_id, with_number=with_number))
    if board.next_number > with_number:
        return board
    # That reading was begun before this number was handed out.
    return await thread_pool.run_in_thread(room_snapshot.get_snapshot, event_id, with_number=with_number)


def _peek_snapshot(event_id: int, with_number: int) -> room_snapshot.RoomSnapshot | None:
    """The board that this process has, if it may still be given out; the next one is being read if it is time."""
    known = room_snapshot.peek(event_id)
    if known is None:
        return None
    board, late_seconds = known
    if board.next_number <= with_number or late_seconds >= room_snapshot.CACHE_SECONDS * SNAPSHOT_STALE_SHARE:
        return None
    if late_seconds >= 0:
        _snapshot_reads.begin(event_id, lambda: room_snapshot.get_snapshot(event_id, with_number=with_number))
    return board


async def _is_certainly_waiting(event_id: int, number: int | None, entry_id: UUID) -> bool:
    """As `exceptions.is_certainly_waiting`."""
    feed = _peek_feed(event_id)
    if feed is None:
        feed = exceptions.get_feed(event_id)
        await _feed_reads.wait(event_id, feed.refresh_if_due)
    return feed.has_caught_up and (number, entry_id) not in feed


def _peek_feed(event_id: int) -> exceptions.ExceptionFeed | None:
    """The exceptional places that this process knows, if it knows all up to a moment ago; it reads on if it is time."""
    feed = exceptions.get_feed(event_id)
    overdue_seconds = feed.overdue_seconds()
    if not feed.has_caught_up or overdue_seconds >= exceptions.FEED_SECONDS * FEED_STALE_SHARE:
        return None
    if overdue_seconds >= 0:
        _feed_reads.begin(event_id, feed.refresh_if_due)
    return feed


def clear_caches() -> None:
    """As in a process that has just started."""
    event_cache.forget()
    entry_status.clear_caches()
