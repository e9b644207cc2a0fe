"""A visitor's status. While the visitor waits, the room snapshot and the token determine the status. When the visitor's
turn has come, the entry determines it.

An entry with a number above the head is waiting unless it is exceptional (`snapshot.exceptions`). So its position is
its number minus the head: no query is needed, however many other visitors wait. For numbers up to the head, and for
exceptional entries, the entry is read, and the poll counts as the visitor's arrival: it claims the admission. An entry
of the lobby has no number; its first poll after the draw looks it up.

`decide_status` decides. The functions below it read its inputs in threads; `async_status` reads them on the event loop.
"""

from dataclasses import dataclass

from apps.events import facade as events
from apps.queue.entries import positions
from apps.queue.identity.caller import Caller
from apps.queue.models import WaitingRoom
from apps.queue.snapshot import exceptions, room_snapshot
from apps.queue.status import drawn_numbers
from apps.queue.status.estimates import WaitEstimate, estimate, estimate_for_number


@dataclass(frozen=True, slots=True)
class QueueStatus:
    """A visitor's status in an event's queue."""

    estimate: WaitEstimate
    entry: positions.EntryView | None = None
    """The entry as read from the database. None: it was not read, since the visitor waits."""
    drawn_number: int | None = None
    """The number that an entry of the lobby has drawn. The caller then gets a new token that contains it."""

    @property
    def is_ready(self) -> bool:
        return self.entry is not None and self.entry.is_ready

    @property
    def waits(self) -> bool:
        return self.entry is None or self.entry.waits


def needs_drawn_number(snapshot: room_snapshot.RoomSnapshot, number: int | None) -> bool:
    """Return whether an entry's token is older than the draw: it has no number, although the lobby has been drawn
    since. `number`: the number in the token."""
    return number is None and snapshot.lobby_count > 0 and snapshot.is_drawn and snapshot.stage == ""


def decide_status(
    snapshot: room_snapshot.RoomSnapshot, feed: exceptions.ExceptionFeed, caller: Caller, drawn_number: int | None
) -> QueueStatus | None:
    """Return the status if the caller certainly waits; None if its entry must be read. `drawn_number`: the number that
    the entry drew, if it drew one; looked up only if `needs_drawn_number`."""
    number = caller.number or drawn_number
    # Without a number, an entry waits until its lobby is drawn.
    waits = bool(snapshot.stage) if number is None else snapshot.head < number < snapshot.next_number
    if not waits or caller.entry_id is None or not feed.has_caught_up or (number, caller.entry_id) in feed:
        return None
    return QueueStatus(estimate_for_number(snapshot, number), drawn_number=drawn_number)


def get_status(event: events.EventView, caller: Caller) -> QueueStatus | None:
    """Return the caller's status; None without an entry. Claims an admission, like `positions.claim_or_get_entry`."""
    status = status_from_snapshot(event, caller)
    if status is not None:
        return status
    try:
        entry = positions.claim_or_get_entry(event, caller)
        return None if entry is None else status_of_entry(event, entry)
    except WaitingRoom.DoesNotExist:
        return None


def status_from_snapshot(event: events.EventView, caller: Caller) -> QueueStatus | None:
    """Return the status if the caller certainly waits, without reading its entry; None if the entry must be read.
    Claims nothing, so a place cookie is sufficient."""
    if not caller.in_line or caller.entry_id is None:
        return None
    try:
        snapshot = room_snapshot.get_snapshot(event.id, with_number=caller.number or 0)
    except WaitingRoom.DoesNotExist:
        return None
    drawn = drawn_numbers.number_of(caller.entry_id) if needs_drawn_number(snapshot, caller.number) else None
    feed = exceptions.get_feed(event.id)
    feed.refresh_if_due()
    return decide_status(snapshot, feed, caller, drawn)


def status_of_entry(event: events.EventView, entry: positions.EntryView) -> QueueStatus:
    """Return the status of this entry, for a request of its owner.

    The head may have reached the entry's number since the entry was read (a tick between a join and its response). The
    entry is then admitted, and this request claims the admission, so that no waiting visitor is shown position 0.
    """
    status = QueueStatus(estimate(entry), entry)
    # A priority entry always has position 0, admitted or not.
    if entry.waits and status.estimate.ahead == 0 and not entry.is_priority and not entry.is_in_review:
        entry = positions.claim_or_get_entry(event, Caller(account_id=entry.account_id, entry_id=entry.id)) or entry
        status = QueueStatus(estimate(entry), entry)
    return status
