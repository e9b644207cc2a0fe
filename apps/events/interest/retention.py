"""Deletes what is past its time, and creates the partitions of the coming days."""

from datetime import timedelta

from django.db import connection

from apps.events.interest import log
from apps.events.interest.identities import current_day
from apps.events.models import MissedSearch, ViewBatch, ViewKey, ViewMinute, ViewReferrer
from apps.kernel import clock
from apps.kernel.db import sql, transactions

INTERVAL_SECONDS = 600.0
REFERRER_DAYS = SEARCH_DAYS = 90
_AHEAD_DAYS = 3
_DROP_LOCK_MS = 1_000
"""A partition is dropped under a lock of the whole log; if it is in use, the next run tries again."""

_drop_partitions = sql.load("apps.events", "drop_view_partitions")


def tidy() -> int:
    """Delete the partitions of the log that are older than 30 days, the keys of earlier days, and old counts by minute
    and referrer and old searches; return how many partitions were dropped. Every statement may run again."""
    today = current_day()
    with transactions.write(lock_ms=_DROP_LOCK_MS), connection.cursor() as cursor:
        log.add_partitions(cursor, [today + timedelta(days=ahead) for ahead in range(_AHEAD_DAYS)])
    # Yesterday's key until now: views that arrived before midnight may still be written, with their digests made.
    ViewKey.objects.filter(day__lt=today).delete()
    ViewBatch.objects.filter(at__lt=clock.now() - timedelta(days=1))._raw_delete(using="default")
    ViewMinute.objects.filter(minute__lt=clock.now() - timedelta(days=log.LOG_DAYS))._raw_delete(using="default")
    ViewReferrer.objects.filter(day__lt=today - timedelta(days=REFERRER_DAYS))._raw_delete(using="default")
    MissedSearch.objects.filter(day__lt=today - timedelta(days=SEARCH_DAYS))._raw_delete(using="default")
    with transactions.write(lock_ms=_DROP_LOCK_MS), connection.cursor() as cursor:
        # One day more than the counts by minute: the first minute that can be recounted needs the hour before it.
        ((dropped,),) = _drop_partitions.rows(cursor, before=today - timedelta(days=log.LOG_DAYS))
    return int(dropped)
