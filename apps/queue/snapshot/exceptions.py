"""Places above the head that do not simply wait: left, removed, merged, or let through ahead of their turn.

A number above the head that is not among them waits, and a poll need not ask anybody. Each process keeps them as one
bit per number, and reads each second what has ended since: whoever ended it in this process is noted at once. To be
among them grants and refuses nothing: it means that the ledger is asked. Until a process has caught up, everybody is.
"""

import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import DatabaseError, connection

from apps.kernel.db import sql
from apps.kernel.observability import log_context

logger = logging.getLogger(__name__)

FEED_SECONDS = 1.0
OVERLAP_SECONDS = 5.0
"""An ending is dated under its lock and seen after its commit: so far back is looked again."""
SLICE_MAX = 5_000
"""Endings read by one poll: nobody waits for a million."""
EVENTS_MAX = 1_000
RECENT_SECONDS = 30.0
RECENT_MAX = 200

_PACKAGE = "apps.queue"
_endings = sql.load(_PACKAGE, "endings")
_marked_places = sql.load(_PACKAGE, "marked_places")
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_ID = UUID(int=0)


class NumberBitmap:
    """A set of numbers, one bit for each up to the highest."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, number: int) -> None:
        """Not for two threads at once."""
        missing = (number >> 3) + 1 - len(self._bits)
        if missing > 0:
            self._bits.extend(bytes(missing))
        self._bits[number >> 3] |= 1 << (number & 7)

    def __contains__(self, number: int) -> bool:
        return number >> 3 < len(self._bits) and bool(self._bits[number >> 3] >> (number & 7) & 1)


class ExceptionFeed:
    """One event's exceptional places as this process knows them."""

    def __init__(self, event_id: int) -> None:
        self.event_id = event_id
        self.numbers = NumberBitmap()
        self.numberless: set[UUID] = set()
        """Of the lobby, before it was drawn."""
        self.has_caught_up = False
        self._marked: set[int] = set()
        self._recent_priority: dict[int, float] = {}
        """When this process found them, on its monotonic clock."""
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._from = (_BEGINNING, _FIRST_ID)
        self._newest = _BEGINNING
        self._due_at = 0.0

    def __contains__(self, place: tuple[int | None, UUID]) -> bool:
        number, entry_id = place
        return (number is not None and number in self.numbers) or entry_id in self.numberless

    def mark_exceptional(self, number: int | None, entry_id: UUID) -> None:
        with self._writing:
            if number is None:
                self.numberless.add(entry_id)
            else:
                self.numbers.add(number)

    def recent_priority_numbers(self) -> list[int]:
        """The numbers that were let through ahead of their turn within the last RECENT_SECONDS, RECENT_MAX at most."""
        since = time.monotonic() - RECENT_SECONDS
        return sorted(number for number, at in list(self._recent_priority.items()) if at >= since)[:RECENT_MAX]

    def overdue_seconds(self) -> float:
        """For how long it has been time to read on; negative: it is not yet."""
        return time.monotonic() - self._due_at

    def refresh_if_due(self) -> None:
        """One slice more is known, if it is time and no other thread reads it just now."""
        if time.monotonic() < self._due_at or not self._reading.acquire(blocking=False):
            return
        try:
            self._read_slice()
        except DatabaseError as error:
            self._due_at = time.monotonic() + FEED_SECONDS
            logger.warning("exceptional places are as of a moment ago: %s", log_context.summarize_error(error))
        finally:
            self._reading.release()

    def _read_slice(self) -> None:
        since, since_id = self._from
        with connection.cursor() as cursor:
            ended = _endings.rows(cursor, event_id=self.event_id, since=since, since_id=since_id, most=SLICE_MAX)
            marked = _marked_places.rows(cursor, event_id=self.event_id)
        for _, entry_id, number in ended:
            self.mark_exceptional(number, entry_id)
        for entry_id, number in marked:
            self.mark_exceptional(number, entry_id)
        self._record_priority({number for _, number in marked if number is not None})
        if ended:
            self._newest = max(self._newest, ended[-1][0])
        if len(ended) == SLICE_MAX:
            self._from = (ended[-1][0], ended[-1][1])
            return
        self._from = (self._newest - timedelta(seconds=OVERLAP_SECONDS), _FIRST_ID)
        self._due_at = time.monotonic() + FEED_SECONDS
        self.has_caught_up = True

    def _record_priority(self, marked: set[int]) -> None:
        now = time.monotonic()
        # What was marked before this process knew anything is no news: whoever comes asks.
        new = marked - self._marked if self.has_caught_up else set()
        kept = {number: at for number, at in self._recent_priority.items() if at >= now - RECENT_SECONDS}
        self._recent_priority = kept | dict.fromkeys(new, now)
        self._marked = marked


_feeds: dict[int, ExceptionFeed] = {}


def get_feed(event_id: int) -> ExceptionFeed:
    """What this process knows of the event's exceptional places: nothing yet, at first."""
    feed = _feeds.get(event_id)
    if feed is None:
        if len(_feeds) >= EVENTS_MAX:
            _feeds.clear()
        feed = _feeds.setdefault(event_id, ExceptionFeed(event_id))
    return feed


def mark_exceptional(event_id: int, number: int | None, entry_id: UUID) -> None:
    """This process asks the ledger about this place from now on. To be called after the commit that ended or marked
    it; other processes hear of it within FEED_SECONDS."""
    feed = _feeds.get(event_id)
    if feed is not None:  # Else nobody has asked yet, and who does reads it.
        feed.mark_exceptional(number, entry_id)


def clear_cache() -> None:
    """As in a process that has just started."""
    _feeds.clear()
