"""Reconciliation of the counts of feeds with their messages. The counts limit a feed, and its pages show them."""

import random
from collections.abc import Iterator
from typing import NamedTuple

from django.db import connection

from apps.kernel.checks import reconciler
from apps.kernel.checks.reconciler import GONE, REPAIRED, Difference
from apps.kernel.db import sql, transactions
from apps.kernel.feeds import feed_rows
from apps.kernel.feeds.models import Feed

KIND = "feed_counts"
ROWS_MAX = 100_000
"""Messages that one run counts, beside those of its first feed. Further feeds are left to other runs."""
COUNT_MS = 30_000

_recount = sql.load("apps.kernel.feeds", "recount_feed")
_lock_feed = sql.load("apps.kernel.feeds", "lock_feed_by_id")


class Counts(NamedTuple):
    messages: int
    size: int
    """In bytes."""
    dead: int
    deleted: int
    next_sequence: int

    def __str__(self) -> str:
        return (
            f"{self.messages} messages, {self.size} bytes, {self.dead} dead letters, {self.deleted} deleted, next "
            f"number {self.next_sequence}"
        )


def register() -> None:
    reconciler.register("counts of feeds", "a feed's counts are those of its messages", _find, _repair, kinds=(KIND,))


def _find(event_id: int | None) -> Iterator[Difference]:
    """Count some feeds, others in each run. No feed belongs to an event."""
    if event_id is not None:
        return
    feeds = list(Feed.objects.filter(deleted_at=None).values_list("pk", "message_count", "deleted_count"))
    random.shuffle(feeds)
    left = ROWS_MAX
    for feed_id, messages, deleted in feeds:
        with connection.cursor() as cursor:
            found = _count(cursor, feed_id)
        if found is not None and found[0] != found[1]:
            stored, counted = found
            yield Difference(KIND, f"feed {feed_id}: {stored}; by its messages {counted}", feed_id)
        left -= messages + deleted
        if left <= 0:
            return


def _count(cursor: sql.Cursor, feed_id: int) -> tuple[Counts, Counts] | None:
    """Return the counts of the feed's row and those of its messages; None without the feed."""
    rows = _recount.rows(cursor, feed=feed_id)
    if not rows:
        return None
    stored, counted = Counts(*rows[0][:5]), Counts(*rows[0][5:])
    # Messages that are gone had numbers, too.
    return stored, counted._replace(next_sequence=max(stored.next_sequence, counted.next_sequence))


def _repair(difference: Difference, by: str) -> str:
    with transactions.write(statement_ms=COUNT_MS), connection.cursor() as cursor:
        # Everything that changes the counts locks the feed. The statement after the lock sees what it waited for.
        _lock_feed.rows(cursor, feed=difference.about)
        found = _count(cursor, difference.about)
        if found is None or found[0] == found[1]:
            return GONE
        stored, counted = found
        feed_rows.change_counts(
            cursor,
            difference.about,
            sequences=counted.next_sequence - stored.next_sequence,
            messages=counted.messages - stored.messages,
            size=counted.size - stored.size,
            dead=counted.dead - stored.dead,
            deleted=counted.deleted - stored.deleted,
        )
    return REPAIRED
