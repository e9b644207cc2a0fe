"""What PostgreSQL knows of announcements: what stands, what was changed since, and under whose lock more is said."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from django.db import connection

from apps.events.models.announcements import AnnouncementFeed
from apps.kernel import clock
from apps.kernel.db import sql, transactions

SHOWN_MAX = 30
"""So many of an event are at hand for everybody; the rest is history."""

_lock_feed = sql.load("apps.events", "lock_announcements")
_begin_feed = sql.load("apps.events", "begin_announcements")
_latest = sql.load("apps.events", "latest_announcements")


class Announcement(msgspec.Struct, frozen=True):
    """An announcement as readers get it, in its last version."""

    announcement_id: int
    version: int
    text: str | None
    """None: taken back."""
    posted_at: str
    changed_at: str | None
    """When it was corrected or taken back; None: it stands as it was posted."""

    @classmethod
    def of(cls, announcement: int, number: int, text: str, posted_at: datetime, at: datetime) -> "Announcement":
        changed_at = None if number == announcement else clock.iso(at)
        return cls(announcement, number, text or None, clock.iso(posted_at), changed_at)

    @property
    def is_standing(self) -> bool:
        return self.text is not None

    @property
    def posted(self) -> datetime:
        return datetime.fromisoformat(self.posted_at)

    def document(self) -> bytes:
        return msgspec.json.encode(self)


@dataclass(frozen=True, slots=True)
class CurrentAnnouncements:
    """What is at hand of one event: the newest by their last versions, and what was taken back last."""

    latest: int
    """The number of what was said last."""
    announcements: tuple[Announcement, ...]
    """The newest version first, those that were taken back among them."""
    has_older: bool
    """Whether more stand than these."""

    @property
    def shown(self) -> list[Announcement]:
        """Those that stand, the newest announcement first."""
        return sorted((one for one in self.announcements if one.is_standing), key=_by_id, reverse=True)


def _by_id(announcement: Announcement) -> int:
    return announcement.announcement_id


EMPTY = CurrentAnnouncements(0, (), has_older=False)


def lock_feed(event_id: int) -> int:
    """The number of what was said last at the event: nobody else says anything there until the caller's transaction
    ends."""
    transactions.require_transaction()
    with connection.cursor() as cursor:
        _begin_feed.count(cursor, event_id=event_id)
        ((latest,),) = _lock_feed.rows(cursor, event_id=event_id)
    return latest


def get_current(event_id: int) -> CurrentAnnouncements:
    """What is at hand of the event, all of one moment."""
    return get_current_by_event([event_id])[event_id]


def get_current_by_event(event_ids: Collection[int]) -> dict[int, CurrentAnnouncements]:
    """The same of many; one statement for all of them."""
    if not event_ids:
        return {}
    with connection.cursor() as cursor:
        # One more than is shown says whether there are older ones.
        rows = _latest.rows(cursor, event_ids=list(event_ids), limit=SHOWN_MAX + 1)
    latest: dict[int, int] = {}
    found: dict[int, list[Announcement]] = {event_id: [] for event_id in event_ids}
    for event_id, number, *columns in rows:
        latest[event_id] = number
        if columns[0] is not None:
            found[event_id].append(Announcement.of(*columns))
    return {event_id: _build_current(latest.get(event_id, 0), said) for event_id, said in found.items()}


def _build_current(latest: int, said: list[Announcement]) -> CurrentAnnouncements:
    stands = [one for one in said if one.is_standing]
    gone = [one for one in said if not one.is_standing]
    kept = sorted(stands[:SHOWN_MAX] + gone[:SHOWN_MAX], key=lambda one: one.version, reverse=True)
    return CurrentAnnouncements(latest, tuple(kept), has_older=len(stands) > SHOWN_MAX)


def latest_of(event_ids: Collection[int]) -> dict[int, int]:
    """The number of what was said last, of those of these events where anything was."""
    rows = AnnouncementFeed.objects.filter(event_id__in=list(event_ids), latest__gt=0)
    return dict(rows.values_list("event_id", "latest"))


def changed_since(known: Mapping[int, int]) -> dict[int, CurrentAnnouncements]:
    """What is at hand of those of these events at which something was said after the number that is known of each."""
    latest = latest_of(known)
    return get_current_by_event([event_id for event_id, number in latest.items() if number != known[event_id]])


def as_json(standing: CurrentAnnouncements) -> bytes:
    said: dict[str, Any] = {
        "latest": standing.latest,
        "has_older": standing.has_older,
        "announcements": standing.announcements,
    }
    return msgspec.json.encode(said)


class _Stored(msgspec.Struct):
    latest: int
    has_older: bool
    announcements: tuple[Announcement, ...]


def from_json(text: bytes) -> CurrentAnnouncements:
    """What `as_json` wrote. Raises msgspec.MsgspecError."""
    stored = msgspec.json.decode(text, type=_Stored)
    return CurrentAnnouncements(stored.latest, stored.announcements, stored.has_older)
