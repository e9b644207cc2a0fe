"""Recounts views from the log, and compares the result with the counts; with a repair, the log is right."""

import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from typing import NamedTuple

from django.db import connection
from django.db.models import Sum

from apps.events.interest import counts
from apps.events.interest.counts import VERDICTS
from apps.events.interest.log import LOG_DAYS, SHARDS
from apps.events.models import ViewCursor, ViewDay, ViewMinute
from apps.kernel import clock
from apps.kernel.checks import reconciler
from apps.kernel.checks.reconciler import GONE, REPAIRED, Difference
from apps.kernel.db import transactions

KIND = "view_counts"
HOUR = timedelta(hours=1)
COUNT_MS = 120_000
FOUND_MAX = 1_000


class MinuteDifference(NamedTuple):
    """A minute whose counts are not those of the log, as text by verdict."""

    event_id: int
    minute: datetime
    stored: str
    logged: str


def recount(first: datetime, until: datetime, *, repair: bool = False) -> list[MinuteDifference]:
    """Count the views of the log from `first` until before `until`, whole minutes, and return the minutes whose counts
    differ; with `repair`, they then have the log's. Counting pauses meanwhile, so give an hour or a day at a time.

    Views behind the cursors are not counted yet, and left out. `first` must be so late that the log still has the hour
    before it.
    """
    ViewCursor.objects.bulk_create([ViewCursor(shard=shard) for shard in range(SHARDS)], ignore_conflicts=True)
    with transactions.write(lock_ms=COUNT_MS, statement_ms=COUNT_MS, idle_ms=COUNT_MS):
        # With all cursors locked, neither the counts nor what is counted can change.
        cursors = list(ViewCursor.objects.select_for_update(no_key=True).order_by("shard"))
        logged: dict[tuple[int, datetime], Counter[str]] = {}
        for cursor in cursors:
            tally = counts.judge(cursor.shard, last=cursor.position, first=first, until=until)
            for key, verdicts in tally.minutes.items():
                logged.setdefault(key, Counter()).update(verdicts)
        rows = ViewMinute.objects.filter(minute__gte=first, minute__lt=until)
        stored = {
            (event_id, minute): Counter(dict(zip(VERDICTS, counts, strict=True)))
            for event_id, minute, *counts in rows.values_list("event_id", "minute", *VERDICTS)
        }
        keys = sorted(logged.keys() | stored.keys())
        differing = [key for key in keys if logged.get(key, Counter()) != stored.get(key, Counter())]
        if repair and differing:
            _store(differing, logged)
    return [
        MinuteDifference(event_id, minute, _words(stored, event_id, minute), _words(logged, event_id, minute))
        for event_id, minute in differing
    ]


def _store(keys: list[tuple[int, datetime]], logged: dict[tuple[int, datetime], Counter[str]]) -> None:
    """Store the log's counts of these minutes, and the sums of their days, all of whose minutes are still there."""
    for event_id, minute in keys:
        ViewMinute.objects.filter(event_id=event_id, minute=minute)._raw_delete(using="default")
    with connection.cursor() as cursor:
        if present := {key: logged[key] for key in keys if key in logged}:
            counts.add_minutes(cursor, present)
    for event_id, day in sorted({(event_id, minute.date()) for event_id, minute in keys}):
        first = datetime.combine(day, time(), UTC)
        minutes = ViewMinute.objects.filter(event_id=event_id, minute__gte=first, minute__lt=first + 24 * HOUR)
        counted = minutes.aggregate(sum=Sum("counted"))["sum"] or 0
        ViewDay.objects.update_or_create(event_id=event_id, day=day, defaults={"counted": counted})


def _words(counts: dict[tuple[int, datetime], Counter[str]], event_id: int, minute: datetime) -> str:
    verdicts = counts.get((event_id, minute), Counter())
    return ", ".join(f"{verdict} {verdicts[verdict]}" for verdict in VERDICTS if verdicts[verdict]) or "none"


def whole_hours(days: int) -> Iterator[tuple[datetime, datetime]]:
    """Yield the hours of the last days, oldest first, with the current one; at most those that the log still has."""
    now = clock.now().replace(minute=0, second=0, microsecond=0)
    for hours in range(24 * min(days, LOG_DAYS - 1), -1, -1):
        yield now - hours * HOUR, now - (hours - 1) * HOUR


def register() -> None:
    reconciler.register(
        "views of events", "the views of each minute are those of the log", _find, _repair, kinds=(KIND,)
    )


def _find(event_id: int | None) -> Iterator[Difference]:
    """Check the last two hours, and one earlier hour of the log."""
    hours = list(whole_hours(LOG_DAYS))
    earlier = random.choice(hours[:-2])  # noqa: S311 - A sample, no secret.
    found = 0
    for first, until in (earlier, *hours[-2:]):
        for one in recount(first, until):
            if event_id is not None and one.event_id != event_id:
                continue
            found += 1
            if found > FOUND_MAX:
                return
            line = f"event {one.event_id}, {one.minute:%Y-%m-%d %H:%M}: {one.stored}, by the log {one.logged}"
            yield Difference(KIND, line, (one.event_id, one.minute))


def _repair(difference: Difference, by: str) -> str:
    _, minute = difference.about
    return REPAIRED if recount(minute, minute + timedelta(minutes=1), repair=True) else GONE
