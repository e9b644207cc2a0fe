"""Announcements in PostgreSQL: the current feed, the changes since a version, and the lock for adding versions."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec
from django.db import connection

from apps.events.models.announcements import AnnouncementFeed
from apps.kernel import clock
from apps.kernel.db import sql, transactions

SHOWN_MAX = 30
"""Current announcements per event in the feed; older ones are in the history."""

_lock_feed = sql.load("apps.events", "lock_announcements")
_begin_feed = sql.load("apps.events", "begin_announcements")
_latest = sql.load("apps.events", "latest_announcements")


class Announcement(msgspec.Struct, frozen=True):
    """An announcement in its last version, as readers get it."""

    announcement_id: int
    version: int
    text: str | None
    """None if it was retracted."""
    posted_at: str
    changed_at: str | None
    """When it was last corrected or retracted; None if it never was."""

    @classmethod
    def of(cls, announcement: int, number: int, text: str, posted_at: datetime, at: datetime) -> "Announcement":
        changed_at = None if number == announcement else clock.iso(at)
        return cls(announcement, number, text or None, clock.iso(posted_at), changed_at)

    @property
    def is_current(self) -> bool:
        return self.text is not None

    @property
    def posted(self) -> datetime:
        return datetime.fromisoformat(self.posted_at)

    def document(self) -> bytes:
        return msgspec.json.encode(self)


@dataclass(frozen=True, slots=True)
class CurrentAnnouncements:
    """The feed of one event: the newest announcements and the newest retractions, each in its last version."""

    latest: int
    """The number of the last version."""
    announcements: tuple[Announcement, ...]
    """Newest version first, retracted announcements included."""
    has_older: bool
    """Whether the event has more current announcements than these."""

    @property
    def shown(self) -> list[Announcement]:
        """The announcements that are not retracted, newest first."""
        current = [one for one in self.announcements if one.is_current]
        return sorted(current, key=lambda one: one.announcement_id, reverse=True)


def lock_feed(event_id: int) -> int:
    """Lock the event's announcements until the caller's transaction ends and return the number of the last version."""
    transactions.require_transaction()
    with connection.cursor() as cursor:
        _begin_feed.count(cursor, event_id=event_id)
        ((latest,),) = _lock_feed.rows(cursor, event_id=event_id)
    return latest


def get_current(event_id: int) -> CurrentAnnouncements:
    """Return the feed of the event, read at one moment."""
    return get_current_by_event([event_id])[event_id]


def get_current_by_event(event_ids: Collection[int]) -> dict[int, CurrentAnnouncements]:
    """Return the feeds of several events, with one statement."""
    if not event_ids:
        return {}
    with connection.cursor() as cursor:
        # One more than the maximum shows whether there are older ones.
        rows = _latest.rows(cursor, event_ids=list(event_ids), limit=SHOWN_MAX + 1)
    latest: dict[int, int] = {}
    found: dict[int, list[Announcement]] = {event_id: [] for event_id in event_ids}
    for event_id, number, *columns in rows:
        latest[event_id] = number
        if columns[0] is not None:
            found[event_id].append(Announcement.of(*columns))
    return {event_id: _build_current(latest.get(event_id, 0), listed) for event_id, listed in found.items()}


def _build_current(latest: int, announcements: list[Announcement]) -> CurrentAnnouncements:
    current = [one for one in announcements if one.is_current]
    retracted = [one for one in announcements if not one.is_current]
    kept = sorted(current[:SHOWN_MAX] + retracted[:SHOWN_MAX], key=lambda one: one.version, reverse=True)
    return CurrentAnnouncements(latest, tuple(kept), has_older=len(current) > SHOWN_MAX)


def latest_of(event_ids: Collection[int]) -> dict[int, int]:
    """Return the number of the last version by event, without events that have no announcements."""
    rows = AnnouncementFeed.objects.filter(event_id__in=list(event_ids), latest__gt=0)
    return dict(rows.values_list("event_id", "latest"))


def changed_since(known: Mapping[int, int]) -> dict[int, CurrentAnnouncements]:
    """Return the feeds of those events whose last version is not the known one."""
    latest = latest_of(known)
    return get_current_by_event([event_id for event_id, number in latest.items() if number != known[event_id]])
