"""The feeds of an organizer: create, change, list and delete."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import connection

from apps.kernel import clock
from apps.kernel.db import sql, transactions
from apps.kernel.feeds.errors import FeedNotFound, TooManyFeeds
from apps.kernel.feeds.models import Feed

RETENTION_SECONDS_MIN, RETENTION_SECONDS_MAX = 60, 14 * 86_400
RETENTION_SECONDS_DEFAULT = 7 * 86_400
RECEIVES_MAX_DEFAULT, RECEIVES_MAX_MAX = 10, 1_000

_states = sql.load("apps.kernel.feeds", "feed_states")
_lock = sql.load("apps.kernel.feeds", "lock_feed")
_change_counts = sql.load("apps.kernel.feeds", "change_counts")


@dataclass(frozen=True, slots=True)
class FeedState:
    name: str
    retention_seconds: int
    receives_max: int
    messages: int
    """Messages that are not deleted, with dead letters."""
    bytes: int
    dead_letters: int
    oldest_due_seconds: float
    """For how long the oldest message that can be received has been waiting; 0 without one."""
    created_at: datetime


@dataclass(frozen=True, slots=True)
class LockedFeed:
    """A feed whose row the transaction has locked."""

    id: int
    next_sequence: int
    message_count: int
    byte_count: int
    retention_seconds: int
    receives_max: int


def lock_feed(cursor: Any, organizer_id: int, name: str) -> LockedFeed:
    """Lock the organizer's feed and return it. Joins the caller's transaction. Raises FeedNotFound."""
    rows = _lock.rows(cursor, organizer_id=organizer_id, name=name)
    if not rows:
        raise FeedNotFound
    return LockedFeed(*rows[0])


def change_counts(
    cursor: Any, feed_id: int, *, sequences: int = 0, messages: int = 0, size: int = 0, dead: int = 0, deleted: int = 0
) -> None:
    """Add these numbers to the counts of the locked feed; `size` in bytes."""
    _change_counts.count(
        cursor, feed=feed_id, sequences=sequences, messages=messages, bytes=size, dead=dead, deleted=deleted
    )


def find_feed_id(organizer_id: int, name: str) -> int:
    """Return the id of the organizer's feed, without a lock. Raises FeedNotFound."""
    found = Feed.objects.filter(organizer_id=organizer_id, name=name, deleted_at=None).values_list("pk", flat=True)
    feed_id = found.first()
    if feed_id is None:
        raise FeedNotFound
    return feed_id


def put_feed(
    organizer_id: int,
    name: str,
    retention_seconds: int = RETENTION_SECONDS_DEFAULT,
    receives_max: int = RECEIVES_MAX_DEFAULT,
) -> bool:
    """Create the organizer's feed, or change it; return whether it is new. Changes apply to messages sent from now on.

    Joins the caller's transaction, which has locked the organizer: of two concurrent creations the second one finds the
    first. Raises TooManyFeeds.
    """
    transactions.require_transaction()
    own = Feed.objects.filter(organizer_id=organizer_id, deleted_at=None)
    values = {"retention_seconds": retention_seconds, "receives_max": receives_max}
    if own.filter(name=name).update(**values):
        return False
    if own.count() >= settings.FEEDS_MAX:
        raise TooManyFeeds(max=settings.FEEDS_MAX)
    Feed.objects.create(organizer_id=organizer_id, name=name, created_at=clock.now(), **values)
    return True


def list_feeds(organizer_id: int) -> Sequence[FeedState]:
    """Return the organizer's feeds, by name."""
    return _read(organizer_id, None)


def get_feed(organizer_id: int, name: str) -> FeedState:
    """Return the state of the organizer's feed. Raises FeedNotFound."""
    found = _read(organizer_id, name)
    if not found:
        raise FeedNotFound
    return found[0]


def delete_feed(organizer_id: int, name: str) -> None:
    """Delete the feed: its name is free at once, and its messages can no longer be received. The rows follow in batches
    (`garbage`). Raises FeedNotFound."""
    with transactions.write():
        own = Feed.objects.filter(organizer_id=organizer_id, name=name, deleted_at=None)
        if not own.update(deleted_at=clock.now()):
            raise FeedNotFound


def _read(organizer_id: int, name: str | None) -> Sequence[FeedState]:
    with connection.cursor() as cursor:
        return [FeedState(*row) for row in _states.rows(cursor, organizer_id=organizer_id, name=name)]
