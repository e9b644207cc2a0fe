"""Views of events' pages for tests: appended as a process does, or written into the log at chosen times."""

import uuid
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from apps.events.interest import counts as view_counts
from apps.events.interest.identities import current_day
from apps.events.interest.log import Batch, View, add_partitions, append_call, shard_of
from apps.events.interest.rules import read_rules
from apps.events.models import ViewLog, ViewMinute, ViewShard
from apps.kernel import clock
from apps.kernel.db import sql, transactions

NOON = 12 * 3_600


def view(event_id: int, person: int = 1, address: int = 8, **values: Any) -> View:
    """Return a view that counts."""
    defaults = {"seconds": 10, "is_staff": False, "is_bot": False, "referrer": ""}
    return View(event_id, person, address, **{**defaults, "rules_id": read_rules().id, **values})


def append(views: Sequence[View], batch_id: uuid.UUID | None = None) -> None:
    """Append the views as one batch, now."""
    with transactions.write_on_django() as cursor:
        add_partitions(cursor, [current_day(), current_day() + timedelta(days=1)])
        sql.execute_batch(cursor, [append_call(Batch(batch_id or uuid.uuid4(), views))])


def noon() -> datetime:
    """Return noon of yesterday (UTC)."""
    return clock.process_now().replace(hour=12, minute=0, second=0, microsecond=0) - timedelta(days=1)


def log(moments: Sequence[tuple[float, View]]) -> None:
    """Write these views into the log, each so many seconds after noon of yesterday, in ascending order."""
    ends = {row.shard: row.last_position for row in ViewShard.objects.all()}
    rows = []
    for seconds, one in moments:
        shard = shard_of(one.address)
        ends[shard] = ends.get(shard, 0) + 1
        at = noon() + timedelta(seconds=seconds)
        rows.append(ViewLog(shard=shard, at=at, position=ends[shard], **one._asdict()))
        ViewShard.objects.update_or_create(shard=shard, defaults={"last_position": ends[shard], "last_at": at})
    with transactions.write_on_django() as cursor:
        add_partitions(cursor, [noon().date(), current_day()])
    ViewLog.objects.bulk_create(rows)


def count_all() -> None:
    """Count all views that have been appended."""
    while sum(view_counts.count_window(shard) for shard in ViewShard.objects.values_list("shard", flat=True)):
        pass


def counts(event_id: int) -> dict[str, int]:
    """Return the event's views by verdict, without those that are 0."""
    sums = dict.fromkeys(view_counts.VERDICTS, 0)
    for row in ViewMinute.objects.filter(event_id=event_id):
        for verdict in sums:
            sums[verdict] += getattr(row, verdict)
    return {verdict: count for verdict, count in sums.items() if count}
