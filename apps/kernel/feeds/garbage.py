"""Garbage collection: dead letters, expired messages, rows of deleted messages, and deleted feeds.

Rows of deleted messages, without their bodies, are kept for a week to recognize repeated calls, and at most KEPT_MAX of
a feed. All work is done in batches, each in a transaction with the feed locked, so senders wait for one batch only.
"""

import time

from django.db import connection

from apps.kernel.db import sql, transactions
from apps.kernel.feeds import dead_letters, feed_metrics, feed_rows

KEPT_DAYS = 7
KEPT_MAX = 100_000
BATCH_MAX = 1_000
"""Rows of one transaction."""
PASS_SECONDS_MAX = 20.0
"""A pass ends after this time and one batch; the next pass continues."""

_feeds_with_garbage = sql.load("apps.kernel.feeds", "feeds_with_garbage")
_lock_feed = sql.load("apps.kernel.feeds", "lock_feed_by_id")
_expire = sql.load("apps.kernel.feeds", "expire_messages")
_forget = sql.load("apps.kernel.feeds", "forget_messages")
_delete_feed = sql.load("apps.kernel.feeds", "delete_feed")


def collect_garbage() -> int:
    """Collect what is due in all feeds, for about PASS_SECONDS_MAX; return the number of messages. Safe to run
    concurrently. Feeds take turns, so that a large one does not delay the others."""
    deadline = time.monotonic() + PASS_SECONDS_MAX
    collected = 0
    with connection.cursor() as cursor:
        rows = _feeds_with_garbage.rows(cursor, kept_max=KEPT_MAX, kept_days=KEPT_DAYS)
    feed_ids = [feed_id for (feed_id,) in rows]
    while feed_ids and time.monotonic() < deadline:
        counts = {}
        for feed_id in feed_ids:
            counts[feed_id] = collect_batch(feed_id)
            if time.monotonic() >= deadline:
                break
        collected += sum(counts.values())
        feed_ids = [feed_id for feed_id, count in counts.items() if count]
    return collected


def collect_batch(feed_id: int) -> int:
    """Collect one batch of each kind in the feed; return the number of messages, 0 if nothing was due."""
    with transactions.write(), connection.cursor() as cursor:
        rows = _lock_feed.rows(cursor, feed=feed_id)
        if not rows:
            return 0  # A concurrent pass has deleted the feed.
        ((deleted_count, is_deleted),) = rows
        buried = dead_letters.bury_locked(cursor, feed_id)
        expired = _expire.rows(cursor, feed=feed_id, all=is_deleted, limit=BATCH_MAX)
        if expired:
            dead_letters.unblock(cursor, feed_id, [key for key, _, _ in expired])
        forgotten = _forget.count(
            cursor,
            feed=feed_id,
            limit=BATCH_MAX,
            surplus=deleted_count if is_deleted else max(0, deleted_count - KEPT_MAX),
            kept_days=KEPT_DAYS,
        )
        feed_rows.change_counts(
            cursor,
            feed_id,
            messages=-len(expired),
            size=-sum(size for _, size, _ in expired),
            dead=-sum(is_dead for _, _, is_dead in expired),
            deleted=-forgotten,
        )
        if is_deleted and not (expired or forgotten):
            _delete_feed.count(cursor, feed=feed_id)
    for how, count in (("dead", buried), ("expired", len(expired)), ("forgotten", forgotten)):
        feed_metrics.ended.labels(how).inc(count)
    return buried + len(expired) + forgotten
