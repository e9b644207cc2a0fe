"""The announcement feed as readers get it: the current announcements, or those changed since a version."""

import hashlib
from datetime import datetime
from typing import NamedTuple

import msgspec

from apps.events import event_views
from apps.events.announcements import queries, redis_cache
from apps.events.announcements.queries import Announcement, CurrentAnnouncements
from apps.kernel.http import problems

NEXT_POLL_MS = 5_000
MAX_AGE_SECONDS = 3
NUMBER_MAX = 999_999_999
_ENCODED_MAX = 64


class EncodedFeed(NamedTuple):
    """An encoded response, the same for every reader with the same `since`."""

    body: bytes
    etag: str
    """Quoted."""


class Feed:
    """The announcements of one event at one moment, with their encoded responses."""

    __slots__ = ("_responses", "current")

    def __init__(self, current: CurrentAnnouncements) -> None:
        self.current = current
        self._responses: dict[int, EncodedFeed] = {}

    @property
    def shown(self) -> list[Announcement]:
        """The current announcements, newest first."""
        return self.current.shown

    def response_since(self, since: int) -> EncodedFeed:
        """Return the announcements changed after version `since`, the reader's last; with 0, the current ones."""
        since = min(since, self.current.latest)
        encoded = self._responses.get(since)
        if encoded is None:
            if len(self._responses) >= _ENCODED_MAX:
                self._responses.clear()
            encoded = self._responses[since] = self._encode(since)
        return encoded

    def _encode(self, since: int) -> EncodedFeed:
        current = self.current
        announcements = self.shown
        older = current.has_older
        if since:
            announcements = [one for one in current.announcements if one.version > since]
            # If the oldest current version in the feed is not newer than `since`, the reader has all older ones.
            oldest = min((one.version for one in current.announcements if one.is_current), default=0)
            older = older and oldest > since
        body = msgspec.json.encode(
            {"announcements": announcements, "latest": current.latest, "has_older": older, "next_poll": NEXT_POLL_MS}
        )
        return EncodedFeed(body, f'W/"{hashlib.sha256(body).hexdigest()[:24]}"')


def parse_since(text: str | None) -> int:
    """Parse the version that a reader sends as `since`. Raises Invalid."""
    return _parse_number(text, "since") or 0


def parse_before(text: str | None) -> int | None:
    """Parse the announcement id that a reader sends as `before`. Raises Invalid."""
    return _parse_number(text, "before")


def _parse_number(text: str | None, field: str) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(NUMBER_MAX))):
        raise problems.Invalid({field: "Send a number from an earlier response."})
    return int(text)


def feed_of_event(slug: str) -> Feed:
    """Return the event's current feed. Raises EventNotFound."""
    event = event_views.get_event(slug)
    return read(event.id, event.starts_at)


def read(event_id: int, starts_at: datetime) -> Feed:
    """Return the current feed from Redis, or from PostgreSQL if Redis has none."""
    current = redis_cache.read(event_id)
    if current is None:
        current = queries.get_current(event_id)
        redis_cache.store(event_id, current, starts_at)
    return Feed(current)
