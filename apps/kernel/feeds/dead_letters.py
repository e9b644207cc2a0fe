"""Dead letters: messages that were received as often as allowed and never deleted."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db import connection

from apps.kernel.db import sql, transactions
from apps.kernel.feeds import feed_metrics, feed_rows
from apps.kernel.feeds.models import Message

REDRIVEN_MAX = 1_000
"""Dead letters that one call sends again."""
BURIED_MAX = 1_000
LISTED_MAX = 10

_has_exhausted = sql.load("apps.kernel.feeds", "has_exhausted")
_lock_or_skip = sql.load("apps.kernel.feeds", "lock_feed_or_skip")
_bury = sql.load("apps.kernel.feeds", "bury_messages")
_unblock = sql.load("apps.kernel.feeds", "unblock_keys")
_lock_dead = sql.load("apps.kernel.feeds", "lock_dead")
_redrive = sql.load("apps.kernel.feeds", "redrive_messages")
_find_busy_keys = sql.load("apps.kernel.feeds", "find_busy_keys")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    id: str
    sequence: int
    key: str | None
    body: str
    """JSON."""
    sent_at: datetime
    receives: int
    dead_at: datetime


def bury_exhausted(feed_id: int) -> int:
    """Make dead letters of the feed's messages that have no receive left, and unblock their keys. Return how many, 0 if
    another transaction has the feed locked: a receiver waits for no lock, and the next call does it."""
    with connection.cursor() as cursor:
        ((has_exhausted,),) = _has_exhausted.rows(cursor, feed=feed_id)
    if not has_exhausted:
        return 0
    with transactions.write(), connection.cursor() as cursor:
        count = bury_locked(cursor, feed_id) if _lock_or_skip.rows(cursor, feed=feed_id) else 0
    feed_metrics.ended.labels("dead").inc(count)
    return count


def bury_locked(cursor: Any, feed_id: int) -> int:
    """Do so with up to BURIED_MAX messages of a feed that the caller's transaction has locked; return how many."""
    keys = [key for (key,) in _bury.rows(cursor, feed=feed_id, limit=BURIED_MAX)]
    if keys:
        unblock(cursor, feed_id, keys)
        feed_rows.change_counts(cursor, feed_id, dead=len(keys))
    return len(keys)


def unblock(cursor: Any, feed_id: int, keys: list[str | None]) -> None:
    """Make the first unfinished message of each of these keys receivable, after messages of them have ended."""
    named = sorted({key for key in keys if key is not None})
    if named:
        _unblock.count(cursor, feed=feed_id, keys=named)


def list_dead_letters(organizer_id: int, name: str, after: int = 0, limit: int = LISTED_MAX) -> list[DeadLetter]:
    """Return up to `limit` dead letters with sequence numbers above `after`, oldest first. Raises FeedNotFound."""
    dead = Message.objects.filter(
        feed=feed_rows.find_feed_id(organizer_id, name), state=Message.State.DEAD, sequence__gt=after
    )
    fields = "message_id", "sequence", "key", "body", "sent_at", "receives", "ended_at"
    return [DeadLetter(*row) for row in dead.order_by("sequence").values_list(*fields)[:limit]]


def redrive(organizer_id: int, name: str) -> int:
    """Send up to REDRIVEN_MAX dead letters of the feed again, oldest first; return how many. They go to the end of the
    feed and of their keys, since later messages of a key may have been processed meanwhile. Raises FeedNotFound."""
    with transactions.write(), connection.cursor() as cursor:
        feed = feed_rows.lock_feed(cursor, organizer_id, name)
        dead = _lock_dead.rows(cursor, feed=feed.id, limit=REDRIVEN_MAX)
        if dead:
            keys = [key for _, key in dead]
            _redrive.count(
                cursor,
                ids=[row_id for row_id, _ in dead],
                sequences=list(range(feed.next_sequence, feed.next_sequence + len(dead))),
                states=states_of(cursor, feed.id, keys),
                retention_seconds=feed.retention_seconds,
                receives_max=feed.receives_max,
            )
            feed_rows.change_counts(cursor, feed.id, sequences=len(dead), dead=-len(dead))
    feed_metrics.ended.labels("redriven").inc(len(dead))
    return len(dead)


def states_of(cursor: Any, feed_id: int, keys: list[str | None]) -> list[str]:
    """Return the states of new messages with these keys in this order: those with an unfinished message of their key
    before them are behind it. The caller has locked the feed."""
    named = sorted({key for key in keys if key is not None})
    busy = {key for (key,) in _find_busy_keys.rows(cursor, feed=feed_id, keys=named)} if named else set()
    states = []
    for key in keys:
        states.append(str(Message.State.BEHIND if key in busy else Message.State.READY))
        if key is not None:
            busy.add(key)
    return states
