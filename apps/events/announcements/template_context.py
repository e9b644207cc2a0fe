"""Template context of announcements."""

from collections.abc import Iterable
from typing import Any

from apps.events.announcements.feed import Feed
from apps.events.announcements.queries import Announcement

NEWEST = 4


def to_context(announcements: Iterable[Announcement]) -> list[dict[str, Any]]:
    """Return the context of `includes/announcement.html` for each."""
    return [
        {
            "id": one.announcement_id,
            "version": one.version,
            "text": one.text,
            "posted_at": one.posted,
            "is_corrected": one.changed_at is not None,
        }
        for one in announcements
    ]


def newest(feed: Feed, most: int = NEWEST) -> dict[str, Any]:
    """Return the context of `includes/announcements.html`, which other pages include."""
    current = feed.shown
    return {
        "announcements": to_context(current[:most]),
        "most": most,
        "latest": feed.current.latest,
        "has_older": len(current) > most or feed.current.has_older,
    }
