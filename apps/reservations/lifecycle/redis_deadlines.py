"""The first of four ways to expire holds: a watcher of the deadline set that releases due holds within a second.

The set (`deadline_set`) is written after the commit that set or changed a deadline, and is a copy like everything in
Redis: a wrong member is detected under the reservation's lock, and other jobs expire what the set lacks. The watcher
reads the time from PostgreSQL, so neither Redis's clock nor the process's own can release early or late.

The watcher is a thread of the relay's process, which needs both Redis and PostgreSQL anyway. It shares nothing with
beat, the workers and the gatekeeper, so they fail independently. Any number of watchers may run.
"""

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID

from django.db import close_old_connections, connection
from redis import Redis

from apps.kernel import clock, redis
from apps.kernel.db import sql
from apps.kernel.observability import heartbeats
from apps.kernel.observability.repeated_errors import RepeatedErrors
from apps.reservations.lifecycle import deadline_set
from apps.reservations.lifecycle.release import SWEEP_MAX, sweep_these

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.25
RETRY_SECONDS = 1.0
"""Reservations locked by another transaction are retried after this time."""
ROUND_SECONDS_MAX = 60.0
"""Far above the time limits of a round's statements: a longer round hangs."""
EVENT_KEPT_SECONDS = 3_600
"""An event is dropped this long after its last deadline; the other ways have expired its holds by then."""
FILLED_KEY = "deadlines:filled"
FILL_PAGE = 1_000

_live_deadlines = sql.load("apps.reservations", "live_deadlines")
_deadlines_of = sql.load("apps.reservations", "deadlines_of")

_FROM_THE_START = (datetime.min.replace(tzinfo=UTC), UUID(int=0))


@dataclass(frozen=True, slots=True)
class _Taken:
    is_filled: bool
    """Whether the set has been filled since it was last empty."""
    due: dict[int, list[UUID]]


class Watcher:
    """Removes due members from the set and releases their reservations."""

    def __init__(self) -> None:
        self._begin_filling()

    def _begin_filling(self) -> None:
        self._is_filled = False
        self._after = _FROM_THE_START

    def run_once(self) -> bool:
        """Release due reservations, at most one transaction per event; return whether more are due now. Does nothing
        without Redis."""
        now = clock.now().timestamp()
        taken = redis.attempt(lambda client: self._take(client, now))
        if taken is None:
            self._begin_filling()  # Holds made during the outage are not in the set.
            return False
        if self._is_filled and not taken.is_filled:
            self._begin_filling()  # Redis was flushed.
        try:
            for event_id, ids in taken.due.items():
                self._release(event_id, ids)
        except Exception:
            self._begin_filling()  # The taken members are no longer in the set.
            raise
        return self._fill() or any(len(ids) == SWEEP_MAX for ids in taken.due.values())

    def _take(self, client: Redis, now: float) -> _Taken:
        """Remove and return the due members.

        Members are removed first and checked afterwards. A deadline that changes in between is written again: by the
        change itself if it commits after the check, else by the watcher, which has read the new one.
        """
        with client.pipeline(transaction=False) as pipe:
            pipe.exists(FILLED_KEY)
            pipe.zremrangebyscore(deadline_set.EVENTS_KEY, "-inf", now - EVENT_KEPT_SECONDS)
            pipe.zrange(deadline_set.EVENTS_KEY, 0, -1)
            is_filled, _, events = pipe.execute()
        event_ids = [int(event) for event in events if event.isdigit()]
        with client.pipeline(transaction=False) as pipe:
            for event_id in event_ids:
                pipe.zrangebyscore(deadline_set.key(event_id), "-inf", now, start=0, num=SWEEP_MAX)
            ranges = pipe.execute()
        due = {event_id: members for event_id, members in zip(event_ids, ranges, strict=True) if members}
        with client.pipeline(transaction=False) as pipe:
            for event_id, members in due.items():
                pipe.zrem(deadline_set.key(event_id), *members)
            pipe.execute()
        return _Taken(bool(is_filled), {event_id: _reservation_ids(members) for event_id, members in due.items()})

    def _release(self, event_id: int, ids: Sequence[UUID]) -> None:
        """Expire the overdue reservations among these, and add those that are still live to the set again."""
        sweep_these(ids, by="deadline", splits=True)
        with connection.cursor() as cursor:
            live = _deadlines_of.rows(cursor, reservation_ids=list(ids))
        if not live:
            return
        # A reservation that is overdue but not released is locked by another transaction, or left to the next sweep.
        soon = clock.now().timestamp() + RETRY_SECONDS
        again = {str(one): soon if has_lapsed else deadline.timestamp() for one, deadline, has_lapsed in live}
        redis.attempt(lambda client: client.zadd(deadline_set.key(event_id), again, nx=True))

    def _fill(self) -> bool:
        """Add the next page of live reservations, by deadline, if the set must be filled; return whether to go on."""
        if self._is_filled:
            return False
        after, after_id = self._after
        with connection.cursor() as cursor:
            rows = _live_deadlines.rows(cursor, after=after, after_id=after_id, limit=FILL_PAGE)
        page = deadline_set.add_deadlines(
            [(event_id, one, deadline) for one, event_id, deadline in rows], only_missing=True
        )
        if not redis.run_command_batches([page] if rows else []):
            self._begin_filling()
            return False
        if len(rows) == FILL_PAGE:
            self._after = (rows[-1][2], rows[-1][0])
            return True
        self._is_filled = redis.attempt(lambda client: client.set(FILLED_KEY, 1)) is not None
        self._after = _FROM_THE_START
        return False


def _reservation_ids(members: Sequence[bytes]) -> list[UUID]:
    ids = []
    for member in members:
        with suppress(ValueError):  # Not a reservation's id; it has been removed from the set.
            ids.append(UUID(member.decode()))
    return ids


def loop(stopping: threading.Event) -> None:
    """Watch until `stopping` is set. The loop survives a restarted database and a lost Redis."""
    watcher, errors = Watcher(), RepeatedErrors(logger)
    failing = "deadlines: this round failed; other sweeps expire what it missed"
    while not stopping.is_set():
        heartbeats.beat("deadlines", ROUND_SECONDS_MAX)
        begun, has_more = time.monotonic(), False
        try:
            has_more = watcher.run_once()
            errors.over(failing)
        except Exception as error:  # noqa: BLE001 - The loop must survive any error (a restarted database).
            errors.record_failure(failing, error)
        finally:
            close_old_connections()
        if not has_more:
            stopping.wait(max(0.0, TICK_SECONDS - (time.monotonic() - begun)))
