"""Exceptional entries: those above the head that are not waiting, because they left, were removed or merged, are in
review, or are admitted ahead of their turn.

Any other number above the head is waiting, so its poll needs no query. Each process keeps the exceptions as one bit per
number. It reads new exceptions every second, and adds its own at once. An exception neither grants nor refuses
anything: polls of such an entry read PostgreSQL. Until a process has read all exceptions, all its polls do.
"""

import logging
import threading
import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

from django.db import DatabaseError, connection

from apps.kernel.db import sql
from apps.kernel.fastpath import cache
from apps.kernel.observability import log_context

logger = logging.getLogger(__name__)

FEED_SECONDS = 1.0
OVERLAP_SECONDS = 5.0
"""An entry's end is dated before its commit makes it visible, so each read goes back this far before the last end."""
SLICE_MAX = 5_000
"""The most ended entries that one poll reads, so that no poll waits for a million of them."""
EVENTS_MAX = 1_000
RECENT_SECONDS = 30.0
RECENT_MAX = 200

_PACKAGE = "apps.queue"
_endings = sql.load(_PACKAGE, "endings")
_marked_entries = sql.load(_PACKAGE, "marked_entries")
_BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST_ID = UUID(int=0)


class NumberBitmap:
    """A set of numbers, with one bit for each up to the highest."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, number: int) -> None:
        """Add the number. Not thread-safe."""
        missing = (number >> 3) + 1 - len(self._bits)
        if missing > 0:
            self._bits.extend(bytes(missing))
        self._bits[number >> 3] |= 1 << (number & 7)

    def __contains__(self, number: int) -> bool:
        return number >> 3 < len(self._bits) and bool(self._bits[number >> 3] >> (number & 7) & 1)


class ExceptionFeed:
    """The exceptional entries of one event as known to this process."""

    def __init__(self, event_id: int) -> None:
        self.event_id = event_id
        self.numbers = NumberBitmap()
        self.numberless: set[UUID] = set()
        """Entries of the lobby before the draw."""
        self.has_caught_up = False
        self._marked: set[int] = set()
        self._recent_priority: dict[int, float] = {}
        """By number: when this process found the priority, on its monotonic clock."""
        self._reading = threading.Lock()
        self._writing = threading.Lock()
        self._from = (_BEGINNING, _FIRST_ID)
        self._newest = _BEGINNING
        self.due_at = time.monotonic()
        """When the next read is due, on the process's monotonic clock."""

    def __contains__(self, position: tuple[int | None, UUID]) -> bool:
        number, entry_id = position
        return (number is not None and number in self.numbers) or entry_id in self.numberless

    def mark_exceptional(self, number: int | None, entry_id: UUID) -> None:
        with self._writing:
            if number is None:
                self.numberless.add(entry_id)
            else:
                self.numbers.add(number)

    def recent_priority_numbers(self) -> list[int]:
        """Return the numbers that got priority within the last RECENT_SECONDS, at most RECENT_MAX."""
        since = time.monotonic() - RECENT_SECONDS
        return sorted(number for number, at in list(self._recent_priority.items()) if at >= since)[:RECENT_MAX]

    def overdue_seconds(self) -> float:
        """Return for how long a read has been due; negative if it is not due."""
        return time.monotonic() - self.due_at

    def refresh_if_due(self) -> None:
        """Read the next slice if one is due and no other thread is reading."""
        if time.monotonic() < self.due_at or not self._reading.acquire(blocking=False):
            return
        try:
            self._read_slice()
        except DatabaseError as error:
            self.due_at = time.monotonic() + FEED_SECONDS
            logger.warning("exceptional entries are not updated: %s", log_context.summarize_error(error))
        finally:
            self._reading.release()

    def _read_slice(self) -> None:
        since, since_id = self._from
        with connection.cursor() as cursor:
            ended = _endings.rows(cursor, event_id=self.event_id, since=since, since_id=since_id, most=SLICE_MAX)
            marked = _marked_entries.rows(cursor, event_id=self.event_id, most=SLICE_MAX)
        for _, entry_id, number in ended:
            self.mark_exceptional(number, entry_id)
        for entry_id, number, _ in marked:
            self.mark_exceptional(number, entry_id)
        self._record_priority({number for _, number, has_priority in marked if has_priority and number is not None})
        if ended:
            self._newest = max(self._newest, ended[-1][0])
        if len(ended) == SLICE_MAX:
            self._from = (ended[-1][0], ended[-1][1])
            self.due_at = time.monotonic()
            return
        self._from = (self._newest - timedelta(seconds=OVERLAP_SECONDS), _FIRST_ID)
        self.due_at = time.monotonic() + FEED_SECONDS
        self.has_caught_up = True

    def _record_priority(self, marked: set[int]) -> None:
        now = time.monotonic()
        # Entries that got priority before this process caught up are not new: their polls read PostgreSQL.
        new = marked - self._marked if self.has_caught_up else set()
        kept = {number: at for number, at in self._recent_priority.items() if at >= now - RECENT_SECONDS}
        self._recent_priority = kept | dict.fromkeys(new, now)
        self._marked = marked


_feeds: dict[int, ExceptionFeed] = cache.register({})


def get_feed(event_id: int) -> ExceptionFeed:
    """Return this process's feed of the event, an empty one at first."""
    feed = _feeds.get(event_id)
    if feed is None:
        cache.make_room(_feeds, EVENTS_MAX, lambda one: one.due_at)
        feed = _feeds.setdefault(event_id, ExceptionFeed(event_id))
    return feed


def mark_exceptional(event_id: int, number: int | None, entry_id: UUID) -> None:
    """Make polls of this entry read PostgreSQL. Call it after the commit that ended the entry or gave it priority.
    Other processes find it within FEED_SECONDS."""
    feed = _feeds.get(event_id)
    if feed is not None:  # Otherwise the first poll reads it.
        feed.mark_exceptional(number, entry_id)
