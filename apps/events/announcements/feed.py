"""What readers get: of an event what is at hand, and of that what somebody has not read yet."""

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
_NUMBER_DIGITS_MAX = 9
_ENCODED_MAX = 64


class EncodedFeed(NamedTuple):
    """An answer, the same to everybody who asks the same."""

    body: bytes
    etag: str
    """Quoted."""


class Feed:
    """What is at hand of one event at one moment."""

    __slots__ = ("_responses", "standing")

    def __init__(self, standing: CurrentAnnouncements) -> None:
        self.standing = standing
        self._responses: dict[int, EncodedFeed] = {}

    @property
    def shown(self) -> list[Announcement]:
        """Those that stand, the newest first."""
        return self.standing.shown

    def response_since(self, since: int) -> EncodedFeed:
        """What was said after `since`, the number of what its reader has heard last; 0: what stands."""
        since = min(since, self.standing.latest)
        told = self._responses.get(since)
        if told is None:
            if len(self._responses) >= _ENCODED_MAX:
                self._responses.clear()
            told = self._responses[since] = self._encode(since)
        return told

    def _encode(self, since: int) -> EncodedFeed:
        standing = self.standing
        said = self.shown
        older = standing.has_older
        if since:
            said = [one for one in standing.announcements if one.version > since]
            # Of those that stand all that are newer are told where the oldest at hand is not new.
            oldest = min((one.version for one in standing.announcements if one.is_standing), default=0)
            older = older and oldest > since
        body = msgspec.json.encode(
            {"announcements": said, "latest": standing.latest, "has_older": older, "next_poll": NEXT_POLL_MS}
        )
        return EncodedFeed(body, f'W/"{hashlib.sha256(body).hexdigest()[:24]}"')


def parse_since(text: str | None) -> int:
    """The number that a reader sends. Raises Invalid."""
    return _parse_number(text, "since") or 0


def parse_before(text: str | None) -> int | None:
    """The announcement before which a reader wants to read on. Raises Invalid."""
    return _parse_number(text, "before")


def _parse_number(text: str | None, field: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= _NUMBER_DIGITS_MAX):
        raise problems.Invalid({field: "a number that an answer of ours gave is expected"})
    return int(text)


def feed_of_event(slug: str) -> Feed:
    """Returns the event's announcements as every reader gets them now. Raises EventNotFound."""
    event = event_views.get_event(slug)
    return read(event.id, event.starts_at)


def read(event_id: int, starts_at: datetime) -> Feed:
    """What everybody gets who asks now: the hot list, else what PostgreSQL says."""
    standing = redis_cache.read(event_id)
    if standing is None:
        standing = queries.get_current(event_id)
        redis_cache.store(event_id, standing, starts_at)
    return Feed(standing)
