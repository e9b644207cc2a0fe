"""The archive of announcements: one compressed row per event and day, with all versions and their authors.

A day is archived once all versions of its announcements are older than KEPT_DAYS, so that an archive never changes.
The same transaction deletes the rows; the database permits no other deletion of them.
"""

import gzip
from datetime import UTC, date, datetime, timedelta

import msgspec
from django.db import connection
from django.db.models.functions import TruncDate

from apps.events.announcements.queries import Announcement
from apps.events.models.announcements import AnnouncementArchive, AnnouncementVersion
from apps.kernel import clock
from apps.kernel.db import sql, transactions

KEPT_DAYS = 30
"""Counted from the start of the event and from the last version of the announcement, whichever is later."""
INTERVAL_SECONDS = 600.0
DAYS_MAX = 50
PAGE_SIZE = 50

_days = sql.load("apps.events", "announcement_days_to_archive")
_lock_skipping = sql.load("apps.events", "lock_announcements_skipping")


class Version(msgspec.Struct, frozen=True):
    """One archived version."""

    number: int
    announcement: int
    text: str
    posted_at: datetime
    at: datetime
    who: str
    key: str


def archive_event(event_id: int) -> int:
    """Archive the days of this event that are due, in the caller's transaction; return how many versions were moved."""
    transactions.require_transaction()
    before = clock.now() - timedelta(days=KEPT_DAYS)
    rows = AnnouncementVersion.objects.filter(event_id=event_id, event__starts_at__lt=before)
    days = rows.annotate(day=TruncDate("posted_at", tzinfo=UTC)).order_by("day").values_list("day", flat=True)
    return sum(_archive_day(event_id, day, before) for day in list(days.distinct()))


def archive_old(days_max: int = DAYS_MAX) -> int:
    """Archive up to `days_max` event days that are due and return how many versions were moved."""
    before = clock.now() - timedelta(days=KEPT_DAYS)
    with connection.cursor() as cursor:
        due = _days.rows(cursor, before=before, limit=days_max)
    return sum(_archive(event_id, day, before) for event_id, day in due)


def _archive(event_id: int, day: date, before: datetime) -> int:
    with transactions.write():
        return _archive_day(event_id, day, before)


def _archive_day(event_id: int, day: date, before: datetime) -> int:
    with connection.cursor() as cursor:
        if not _lock_skipping.rows(cursor, event_id=event_id):
            return 0  # Another transaction is posting; a later pass archives the day.
    # Under the lock, no version can be added while we archive.
    rows = AnnouncementVersion.objects.filter(
        event_id=event_id, posted_at__gte=_midnight(day), posted_at__lt=_midnight(day + timedelta(days=1))
    )
    versions = [Version(*row) for row in rows.order_by("number").values_list(*Version.__struct_fields__)]
    if not versions or any(version.at >= before for version in versions):
        return 0
    ids = [version.announcement for version in versions]
    AnnouncementArchive.objects.create(
        event_id=event_id,
        day=day,
        first=min(ids),
        last=max(ids),
        version_count=len(versions),
        standing_count=len(_current_announcements(versions)),
        body=gzip.compress(msgspec.json.encode(versions), mtime=0),
        archived_at=clock.now(),
    )
    rows.delete()
    return len(versions)


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def versions_in(archive: AnnouncementArchive) -> list[Version]:
    """Return the archived versions in the order in which they were posted."""
    return msgspec.json.decode(gzip.decompress(archive.body), type=list[Version])


def _current_announcements(versions: list[Version]) -> list[Announcement]:
    last = {version.announcement: version for version in versions}
    return [
        Announcement.of(one.announcement, one.number, one.text, one.posted_at, one.at)
        for one in last.values()
        if one.text
    ]


class Page(msgspec.Struct, frozen=True):
    """A page of current announcements, newest first."""

    announcements: list[Announcement]
    next_before: int | None
    """`before` of the next page; None on the last page."""


def history(event_id: int, before: int | None = None, page_size: int = PAGE_SIZE) -> Page:
    """Return a page of current announcements with ids below `before`, from the rows and the archive."""
    limit = page_size + 1
    found = _from_rows(event_id, before, limit)
    archived = AnnouncementArchive.objects.filter(event_id=event_id, standing_count__gt=0)
    if before is not None:
        archived = archived.filter(first__lt=before)
    unpacked = 0
    for archive in archived.order_by("-last")[:limit]:
        if unpacked >= limit:
            break
        current = [
            one
            for one in _current_announcements(versions_in(archive))
            if before is None or one.announcement_id < before
        ]
        found += current
        unpacked += len(current)
    found.sort(key=lambda one: one.announcement_id, reverse=True)
    page = found[:page_size]
    return Page(page, page[-1].announcement_id if len(found) > page_size else None)


def _from_rows(event_id: int, before: int | None, limit: int) -> list[Announcement]:
    rows = AnnouncementVersion.objects.filter(event_id=event_id)
    if before is not None:
        rows = rows.filter(announcement__lt=before)
    last = rows.order_by("announcement", "-number").distinct("announcement")
    current = AnnouncementVersion.objects.filter(pk__in=last.values("pk")).exclude(text="").order_by("-announcement")
    columns = current.values_list("announcement", "number", "text", "posted_at", "at")[:limit]
    return [Announcement.of(*row) for row in columns]
