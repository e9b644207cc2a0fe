"""The first net: deadlines in Redis, and a watcher that releases what is due within a second.

Per event one sorted set of reservation ids by deadline in force; beside them one that says which events have any, each
by its latest deadline. They are written after the commit that made or moved a deadline, and are a copy like everything
in Redis: a member too many is found out under the reservation's lock, a missing one is another net's.

Scores are seconds of PostgreSQL's clock, which set the deadlines, and the watcher asks PostgreSQL what time it is.
Neither Redis's clock nor this process's says anything here, so none of them can jump.

The watcher is a thread of the relay's process: that one already needs both Redis and PostgreSQL, and shares nothing
with beat, the workers or the gatekeeper, whose ends the other nets have to survive. Any number of watchers may run.
"""

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from typing import Any
from uuid import UUID

from django.db import close_old_connections, connection
from redis import Redis

from apps.kernel import clock, redis
from apps.kernel.db import sql
from apps.kernel.observability.repeated_errors import RepeatedErrors
from apps.reservations.lifecycle import after_commit
from apps.reservations.lifecycle.release import SWEEP_MAX, sweep_these

logger = logging.getLogger(__name__)

TICK_SECONDS = 0.25
RETRY_SECONDS = 1.0
"""What could not be released, because somebody else is deciding it, is tried again after so long."""
EVENTS_KEY = "deadlines"
EVENT_KEPT_SECONDS = 3_600
"""An event is forgotten so long after the last deadline it has had: whatever is left of it, other nets have caught."""
FILLED_KEY = "deadlines:filled"
FILL_PAGE = 1_000

_standing_deadlines = sql.load("apps.reservations", "standing_deadlines")
_deadlines_of = sql.load("apps.reservations", "deadlines_of")

_FROM_THE_START = (datetime.min.replace(tzinfo=UTC), UUID(int=0))

Deadlines = Mapping[int, Mapping[UUID, datetime]]
"""Reservation to deadline in force, by event."""


def key(event_id: int) -> str:
    return f"deadlines:{{{event_id}}}"


def register() -> None:
    """From now on the set hears of every commit of this process."""
    after_commit.on_held(_add_holds)
    after_commit.on_deadline(_update_deadlines)
    after_commit.on_ended(_remove_ended)


def _add_holds(holds: Sequence[after_commit.Hold]) -> redis.CommandBatch:
    return _add_errand(_by_event([(hold.event_id, hold.reservation_id, hold.deadline) for hold in holds]))


def _update_deadlines(deadlines: Sequence[after_commit.DeadlineChange]) -> redis.CommandBatch:
    return _add_errand(_by_event([(one.event_id, one.reservation_id, one.deadline) for one in deadlines]))


def _remove_ended(endings: Sequence[after_commit.Ended]) -> redis.CommandBatch:
    members: dict[int, list[str]] = {}
    for ending in endings:
        members.setdefault(ending.event_id, []).append(str(ending.reservation_id))
    return redis.CommandBatch([("ZREM", key(event_id), *ids) for event_id, ids in members.items()])


def _by_event(deadlines: Sequence[tuple[int, UUID, datetime]]) -> Deadlines:
    found: dict[int, dict[UUID, datetime]] = {}
    for event_id, reservation_id, deadline in deadlines:
        found.setdefault(event_id, {})[reservation_id] = deadline
    return found


def _add_errand(deadlines: Deadlines, *, only_missing: bool = False) -> redis.CommandBatch:
    """Puts these into the set. `only_missing`: what it has of them already stays as it is."""
    commands: list[Sequence[Any]] = []
    for event_id, of_event in deadlines.items():
        pairs = [(deadline.timestamp(), str(one)) for one, deadline in of_event.items()]
        how = ["NX"] if only_missing else []
        commands.append(["ZADD", key(event_id), *how, *chain.from_iterable(pairs)])
        commands.append(["ZADD", EVENTS_KEY, "GT", max(pairs)[0], str(event_id)])
    return redis.CommandBatch(commands)


@dataclass(frozen=True, slots=True)
class _Taken:
    is_filled: bool
    """Since it was last empty."""
    due: dict[int, list[UUID]]


class Watcher:
    """Takes what is due out of the set, and releases it."""

    def __init__(self) -> None:
        self._begin_filling()

    def _begin_filling(self) -> None:
        self._is_filled = False
        self._after = _FROM_THE_START

    def run_once(self) -> bool:
        """What was due at this moment, at most a transaction's worth per event, is released; whether there is more to
        do at once. Without Redis nothing is done."""
        now = clock.now().timestamp()
        taken = redis.attempt(lambda client: self._take(client, now))
        if taken is None:
            self._begin_filling()  # Whatever is held meanwhile will not be in the set, should it come back.
            return False
        if self._is_filled and not taken.is_filled:
            self._begin_filling()  # It was flushed.
        try:
            for event_id, ids in taken.due.items():
                self._release(event_id, ids)
        except Exception:
            self._begin_filling()  # What was taken is in the set no more.
            raise
        return self._fill() or any(len(ids) == SWEEP_MAX for ids in taken.due.values())

    def _take(self, client: Redis, now: float) -> _Taken:
        """What is due is in the set no more.

        Taken out first and looked at afterwards: a deadline that moves in between is written again either by who
        moved it, after this, or by us, who then read the new one.
        """
        with client.pipeline(transaction=False) as pipe:
            pipe.exists(FILLED_KEY)
            pipe.zremrangebyscore(EVENTS_KEY, "-inf", now - EVENT_KEPT_SECONDS)
            pipe.zrange(EVENTS_KEY, 0, -1)
            is_filled, _, events = pipe.execute()
        event_ids = [int(event) for event in events if event.isdigit()]
        with client.pipeline(transaction=False) as pipe:
            for event_id in event_ids:
                pipe.zrangebyscore(key(event_id), "-inf", now, start=0, num=SWEEP_MAX)
            found = pipe.execute()
        due = {event_id: members for event_id, members in zip(event_ids, found, strict=True) if members}
        with client.pipeline(transaction=False) as pipe:
            for event_id, members in due.items():
                pipe.zrem(key(event_id), *members)
            pipe.execute()
        return _Taken(bool(is_filled), {event_id: _reservation_ids(members) for event_id, members in due.items()})

    def _release(self, event_id: int, ids: Sequence[UUID]) -> None:
        """Those of them that are past their deadline have ended; what is live still is in the set again."""
        sweep_these(ids, by="deadline", goes_round=True)
        with connection.cursor() as cursor:
            live = _deadlines_of.rows(cursor, reservation_ids=list(ids))
        if not live:
            return
        # Lapsed and not released: somebody else is deciding it just now.
        soon = clock.now().timestamp() + RETRY_SECONDS
        again = {str(one): soon if has_lapsed else deadline.timestamp() for one, deadline, has_lapsed in live}
        redis.attempt(lambda client: client.zadd(key(event_id), again, nx=True))

    def _fill(self) -> bool:
        """One page more of the ledger's live reservations is in the set, where it has to be filled; whether that goes
        on. The next to lapse come first."""
        if self._is_filled:
            return False
        after, after_id = self._after
        with connection.cursor() as cursor:
            rows = _standing_deadlines.rows(cursor, after=after, after_id=after_id, limit=FILL_PAGE)
        page = _by_event([(event_id, one, deadline) for one, event_id, deadline in rows])
        if not redis.run_command_batches([_add_errand(page, only_missing=True)] if page else []):
            self._begin_filling()
            return False
        if len(rows) == FILL_PAGE:
            self._after = (rows[-1][2], rows[-1][0])
            return True
        self._is_filled = redis.attempt(lambda client: client.set(FILLED_KEY, 1)) is not None
        self._after = _FROM_THE_START
        return False


def _reservation_ids(members: Sequence[bytes]) -> list[UUID]:
    found = []
    for member in members:
        with suppress(ValueError):  # Whoever wrote that, it is no reservation, and it is gone now.
            found.append(UUID(member.decode()))
    return found


def loop(stopping: threading.Event) -> None:
    """Watches until `stopping` is set; a restarted database or a lost Redis costs releases, never the watcher."""
    watcher, troubles = Watcher(), RepeatedErrors(logger)
    failing = "deadlines: this round failed; other nets have what it missed"
    while not stopping.is_set():
        begun, goes_on = time.monotonic(), False
        try:
            goes_on = watcher.run_once()
            troubles.over(failing)
        except Exception as error:  # noqa: BLE001 - It outlives whatever one round meets (a restarted database).
            troubles.record_failure(failing, error)
        finally:
            close_old_connections()
        if not goes_on:
            stopping.wait(max(0.0, TICK_SECONDS - (time.monotonic() - begun)))
