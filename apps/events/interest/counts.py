"""Counts the views of the log, window by window, each exactly once.

A window of a shard has the views behind its cursor: as many as have gathered in 10 seconds, or 10,000 if these come
first. One transaction locks the cursor, judges the window's views, adds them to the counts of their event, minute, day
and referrer, and moves the cursor behind them. Killed anywhere, it leaves either all of that or nothing. Another
process that counts skips a locked cursor.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any

from django.db import DatabaseError, connection
from django.db.models import Max
from prometheus_client import Counter as Metric

from apps.events.interest.log import LOG_DAYS
from apps.events.interest.rules import ADDRESS_SECONDS
from apps.events.models import ViewCursor, ViewLog, ViewReferrer, ViewRuleSet, ViewShard
from apps.kernel import clock
from apps.kernel.db import arrays, sql, transactions

INTERVAL_SECONDS = 1.0
WINDOW_SECONDS = 10.0
WINDOW_VIEWS_MAX = 10_000
HOSTS_MAX = 100
"""Referrers of one event and day that are counted one by one."""
VERDICTS = ("counted", "bots", "staff", "short", "over_address_max", "repeated")
"""The columns of ViewMinute."""

_backlog = sql.load("apps.events", "view_backlog")
_judge = sql.load("apps.events", "judge_views")
_add_minutes = sql.load("apps.events", "add_view_minutes")
_add_days = sql.load("apps.events", "add_view_days")
_add_referrers = sql.load("apps.events", "add_view_referrers")

_counted = Metric("fairgate_views_judged", "Logged views by verdict.", ["verdict"], registry=None)
METRICS = (_counted,)


@dataclass
class Tally:
    """Judged views."""

    minutes: dict[tuple[int, datetime], Counter[str]] = field(default_factory=dict)
    """By event and minute; by verdict."""
    referrers: Counter[tuple[int, date, str]] = field(default_factory=Counter)
    """Counted views by event, day and host."""
    last_at: datetime | None = None
    size: int = 0

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        """Add rows of judge_views.sql."""
        for event_id, minute, verdict, host, count, last_at in rows:
            self.minutes.setdefault((event_id, minute), Counter())[verdict] += count
            if verdict == "counted":
                self.referrers[event_id, minute.date(), host] += count
            self.last_at = last_at if self.last_at is None else max(self.last_at, last_at)
            self.size += count

    def days(self) -> Counter[tuple[int, date]]:
        """Return the counted views by event and day."""
        found: Counter[tuple[int, date]] = Counter()
        for (event_id, minute), verdicts in self.minutes.items():
            found[event_id, minute.date()] += verdicts["counted"]
        return found


def count_views() -> int:
    """Count the windows that are due; return how many views were judged. A shard that another process counts is left
    to it."""
    with connection.cursor() as cursor:
        due = [shard for (shard,) in _backlog.rows(cursor, size_max=WINDOW_VIEWS_MAX, seconds=WINDOW_SECONDS)]
    count, failure = 0, None
    for shard in due:
        try:
            count += count_window(shard)
        except DatabaseError as error:
            # The other shards are counted all the same.
            failure = error
    if failure is not None:
        raise failure
    return count


def count_window(shard: int) -> int:
    """Count the next window of the shard, whether it is due or not; return how many views it had."""
    ViewCursor.objects.bulk_create([ViewCursor(shard=shard)], ignore_conflicts=True)
    with transactions.write():
        cursor = ViewCursor.objects.select_for_update(no_key=True, skip_locked=True).filter(shard=shard).first()
        if cursor is None:
            return 0
        # Read after the lock. All rows up to the end are committed with it.
        end = ViewShard.objects.filter(shard=shard).values_list("last_position", flat=True).first() or 0
        last = min(end, cursor.position + WINDOW_VIEWS_MAX)
        if last <= cursor.position:
            return 0
        until = _time_after(shard, cursor, last)
        tally = judge(shard, after=cursor.position, last=last, first=cursor.at, until=until)
        add_counts(tally)
        cursor.position, cursor.counted_at = last, clock.now()
        cursor.at = tally.last_at or cursor.at
        cursor.save(update_fields=["position", "at", "counted_at"])
    for verdicts in tally.minutes.values():
        for verdict, count in verdicts.items():
            _counted.labels(verdict).inc(count)
    return tally.size


def _time_after(shard: int, cursor: ViewCursor, last: int) -> datetime | None:
    """Return a time after that of the row at the position `last`, so that a window does not read all rows behind it;
    None if there are fewer rows."""
    rows = ViewLog.objects.filter(shard=shard, position__gt=cursor.position)
    if cursor.at is not None:
        rows = rows.filter(at__gte=cursor.at)
    times = rows.order_by("at", "position").values_list("at", flat=True)
    found = times[last - cursor.position - 1 : last - cursor.position].first()
    return None if found is None else found + timedelta(microseconds=1)


def judge(
    shard: int, *, last: int, after: int = 0, first: datetime | None = None, until: datetime | None = None
) -> Tally:
    """Return the judged views of a shard behind the position `after`, up to `last`, from `first` until before `until`
    (None: without a limit). The same views get the same verdicts, however they are divided into windows."""
    longest = _longest_repeat_seconds()
    since = None if first is None else first - timedelta(seconds=longest + ADDRESS_SECONDS)
    tally = Tally()
    with connection.cursor() as cursor:
        tally.add(
            _judge.rows(
                cursor,
                shard=shard,
                after=after,
                last=last,
                first=first or "-infinity",
                until=until or "infinity",
                since=since or "-infinity",
            )
        )
    return tally


def _longest_repeat_seconds() -> int:
    """Return the longest time of any set of rules under which a row of the log was judged."""
    oldest = clock.process_now() - timedelta(days=LOG_DAYS + 1)
    sets = ViewRuleSet.objects.order_by("-pk")
    before = sets.filter(since__lt=oldest).values_list("pk", flat=True).first() or 0
    return sets.filter(pk__gte=before).aggregate(longest=Max("repeat_seconds"))["longest"] or 0


def add_counts(tally: Tally) -> None:
    """Add judged views to the counts. Joins the caller's transaction, which also records that they are counted."""
    transactions.require_transaction()
    if not tally.minutes:
        return
    with connection.cursor() as cursor:
        add_minutes(cursor, tally.minutes)
        add_days(cursor, tally.days())
        add_referrers(cursor, tally.referrers)


def add_minutes(cursor: sql.Cursor, minutes: dict[tuple[int, datetime], Counter[str]]) -> None:
    keys = sorted(minutes)
    _add_minutes.count(
        cursor,
        event_ids=arrays.numbers(event_id for event_id, _ in keys),
        minutes=arrays.moments(minute for _, minute in keys),
        **{verdict: arrays.numbers(minutes[key][verdict] for key in keys) for verdict in VERDICTS},
    )


def add_days(cursor: sql.Cursor, days: Counter[tuple[int, date]]) -> None:
    keys = sorted(key for key, count in days.items() if count)
    if keys:
        _add_days.count(
            cursor,
            event_ids=[event_id for event_id, _ in keys],
            days=[day for _, day in keys],
            counts=[days[key] for key in keys],
        )


def add_referrers(cursor: sql.Cursor, referrers: Counter[tuple[int, date, str]]) -> None:
    """Add views by referrer. Hosts that an event does not have yet are added up to HOSTS_MAX, those with most views
    first; the others are counted together."""
    if not referrers:
        return
    known: dict[tuple[int, date], set[str]] = {(event_id, day): set() for event_id, day, _ in referrers}
    stored = ViewReferrer.objects.filter(
        event_id__in={event_id for event_id, _ in known}, day__in={day for _, day in known}
    )
    for event_id, day, host in stored.values_list("event_id", "day", "host"):
        if (event_id, day) in known:
            known[event_id, day].add(host)
    shown: Counter[tuple[int, date, str]] = Counter()
    for (event_id, day, host), count in sorted(referrers.items(), key=lambda item: (-item[1], item[0])):
        hosts = known[event_id, day]
        if host not in hosts and len(hosts) >= HOSTS_MAX and host:
            host = ViewReferrer.OTHERS
        hosts.add(host)
        shown[event_id, day, host] += count
    keys = sorted(shown)
    _add_referrers.count(
        cursor,
        event_ids=[event_id for event_id, _, _ in keys],
        days=[day for _, day, _ in keys],
        hosts=[host for _, _, host in keys],
        counts=[shown[key] for key in keys],
    )
