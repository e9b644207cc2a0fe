"""Announcements as templates have them."""

from collections.abc import Iterable
from typing import Any

from apps.events.announcements.feed import Feed
from apps.events.announcements.queries import Announcement

NEWEST = 4


def to_context(announcements: Iterable[Announcement]) -> list[dict[str, Any]]:
    """As templates have them."""
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
    """What includes/announcements.html shows on a page that is about something else."""
    said = feed.shown
    return {
        "announcements": to_context(said[:most]),
        "most": most,
        "latest": feed.standing.latest,
        "has_older": len(said) > most or feed.standing.has_older,
    }
