"""Asking where one stands: from the board and the token alone while one waits, from the ledger at the turn itself.

Whoever has a number above the head waits, unless it is an exceptional place, so the answer is a subtraction: no query,
whoever else waits. From the head down, and for exceptional places, the entry is read, and asking is coming: it claims.
A place of the lobby has no number; once everybody in it has drawn one, it is exchanged at the first poll.
"""

import time
from dataclasses import dataclass

from apps.events import facade as events
from apps.queue.entries import positions
from apps.queue.identity.caller import Caller
from apps.queue.models import WaitingRoom
from apps.queue.snapshot import exceptions, room_snapshot
from apps.queue.status import drawn_numbers
from apps.queue.status.estimates import WaitEstimate, estimate, estimate_for_number

EVENT_SECONDS = 10.0
"""So long a process remembers an event's address: slugs stay."""
EVENTS_MAX = 1_000


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """Where a visitor stands."""

    estimate: WaitEstimate
    entry: positions.EntryView | None = None
    """As the ledger has it; None: it was not asked, since the place waits."""
    drawn_number: int | None = None
    """The number that a lobby place was exchanged for: the caller is to get a token that carries it."""

    @property
    def is_ready(self) -> bool:
        return self.entry is not None and self.entry.is_ready

    @property
    def waits(self) -> bool:
        return self.entry is None or self.entry.waits


def get_status(event: events.EventView, caller: Caller) -> QueueStatus | None:
    """Where the caller stands, or None without a place. Asking is coming, as in `positions.claim_or_get_entry`."""
    try:
        place = _status_from_snapshot(event.id, caller)
    except WaitingRoom.DoesNotExist:
        return None
    if place is not None:
        return place
    entry = positions.claim_or_get_entry(event, caller)
    return None if entry is None else status_of_entry(event, entry)


def status_of_entry(event: events.EventView, entry: positions.EntryView) -> QueueStatus:
    """Where the owner of this entry stands, who is here. The head may have reached it since it was read (a tick between
    a join and its answer): then it is in, and who is here has come. Nobody who waits is told that it has passed."""
    place = QueueStatus(estimate(entry), entry)
    if entry.waits and place.estimate.ahead == 0 and not entry.is_priority:  # Nobody is ahead of a marked one anyway.
        entry = positions.claim_or_get_entry(event, Caller(entry_id=entry.id)) or entry
        place = QueueStatus(estimate(entry), entry)
    return place


def status_from_snapshot(event: events.EventView, caller: Caller) -> QueueStatus | None:
    """The place of a caller who waits for sure, from the board alone; None: the ledger is to be asked. Claims nothing,
    so a place cookie is enough for it."""
    try:
        return _status_from_snapshot(event.id, caller)
    except WaitingRoom.DoesNotExist:
        return None


def _status_from_snapshot(event_id: int, caller: Caller) -> QueueStatus | None:
    if not caller.in_line or caller.entry_id is None:
        return None
    number = caller.number
    board = room_snapshot.get_snapshot(event_id, with_number=number or 0)
    drawn = None
    if has_drawn_number(board, number):
        number = drawn = drawn_numbers.number_of(caller.entry_id)
        if number is None:
            return None
    if not is_unreached(board, number) or not exceptions.is_certainly_waiting(event_id, number, caller.entry_id):
        return None
    return QueueStatus(estimate_for_number(board, number), drawn_number=drawn)


def has_drawn_number(board: room_snapshot.RoomSnapshot, number: int | None) -> bool:
    """Whether who carries this number, or none, from a lobby has drawn one meanwhile."""
    return number is None and board.lobby_count > 0 and board.is_drawn and board.stage == ""


def is_unreached(board: room_snapshot.RoomSnapshot, number: int | None) -> bool:
    """Whether this number is still to be reached; without one, whether its lobby is still to be drawn."""
    if number is None:
        return bool(board.stage)
    return board.head < number < board.next_number


_event_cache: dict[str, tuple[float, events.EventView]] = {}


def get_cached_event(slug: str) -> events.EventView:
    """The event, as this process knew it a moment ago: for its address, not for its policy. Raises EventNotFound."""
    known = _event_cache.get(slug)
    now = time.monotonic()
    if known is not None and now < known[0]:
        return known[1]
    event = events.get_event(slug)
    if len(_event_cache) >= EVENTS_MAX:
        _event_cache.clear()
    _event_cache[slug] = (now + EVENT_SECONDS, event)
    return event


def clear_caches() -> None:
    """As in a process that has just started."""
    _event_cache.clear()
    room_snapshot.clear_cache()
    exceptions.clear_cache()
