"""The log of views: appended by group commit, in shards by address, and partitioned by day.

Views of one address are in one shard, in order, since the rules compare a view with earlier ones of its address; and an
event's views are spread over all shards, however many it has. An append locks the ends of its shards until it commits.
So what a reader sees of a shard has no gaps, and the position of a row is an offset from which counting can resume.
"""

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, NamedTuple

from psycopg import Connection

from apps.events.interest.identities import current_day
from apps.kernel.db import arrays, sql, transactions
from apps.kernel.group_commit.batcher import Batcher, decide_finds_committed

SHARDS = 8
BATCH_VIEWS_MAX = 2_000
LOG_DAYS = 30
_LOCK_MS, _STATEMENT_MS = 5_000, 10_000

_append = sql.load("apps.events", "append_views")
_add_partition = sql.load("apps.events", "add_view_partition")


class View(NamedTuple):
    """A view to be logged; the columns are those of ViewLog."""

    event_id: int
    person: int
    address: int
    seconds: int
    is_staff: bool
    is_bot: bool
    rules_id: int
    referrer: str


class Batch(NamedTuple):
    """Views that are appended together, exactly once however often the batch is submitted."""

    id: uuid.UUID
    views: Sequence[View]


class _Days:
    """The days whose partitions this process has found or created."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: frozenset[date] = frozenset()

    def missing(self, day: date) -> list[date]:
        # The next day too: the database's clock may be ahead of this process's.
        return [one for one in (day, day + timedelta(days=1)) if one not in self._known]

    def note(self, days: Sequence[date]) -> None:
        with self._lock:
            self._known |= frozenset(days)

    def clear(self) -> None:
        with self._lock:
            self._known = frozenset()


known_days = _Days()


def shard_of(address: int) -> int:
    """Return the shard of the views of an address."""
    return address % SHARDS


def append_call(batch: Batch) -> sql.Call:
    """Return the statement that appends the batch, unless it has been appended. It joins a transaction."""
    views = batch.views
    return _append.call(
        batch_id=batch.id,
        shards=arrays.numbers(shard_of(view.address) for view in views),
        event_ids=arrays.numbers(view.event_id for view in views),
        persons=arrays.numbers(view.person for view in views),
        addresses=arrays.numbers(view.address for view in views),
        seconds=arrays.numbers(view.seconds for view in views),
        are_staff=arrays.flags(view.is_staff for view in views),
        are_bots=arrays.flags(view.is_bot for view in views),
        rules_ids=arrays.numbers(view.rules_id for view in views),
        referrers=arrays.texts([view.referrer for view in views]),
    )


def _decide(connection: Connection[Any], batches: list[Batch]) -> Iterator[Mapping[int, int]]:
    """Append each batch in a transaction of its own. Most often there is one: a process submits the next batch when the
    one before is committed."""
    write_on = transactions.writes_on(connection)
    for index, batch in enumerate(batches):
        try:
            _add_partitions(write_on)
            with write_on(lock_ms=_LOCK_MS, statement_ms=_STATEMENT_MS) as cursor:
                sql.execute_batch_and_commit(cursor, [append_call(batch)])
        except BaseException:
            known_days.clear()  # Perhaps the partition has been dropped.
            raise
        yield {index: len(batch.views)}


def _add_partitions(write_on: transactions.TransactionOpener) -> None:
    """Create the partitions of today and tomorrow, unless this process knows that they exist."""
    missing = known_days.missing(current_day())
    if missing:
        with write_on(lock_ms=_LOCK_MS, statement_ms=_STATEMENT_MS) as cursor:
            add_partitions(cursor, missing)
        known_days.note(missing)


def add_partitions(cursor: sql.Cursor, days: Sequence[date]) -> None:
    """Create the partitions of these days, unless they exist. Joins the caller's transaction."""
    for day in days:
        _add_partition.rows(cursor, day=day)


appends: Batcher[Batch, int] = Batcher(
    "views", _decide, find_committed=decide_finds_committed, waiting_max=100, batch_max=8
)
"""Appends batches of views, and returns how many views each has. Nothing is appended twice (ViewBatch)."""
