"""The deadlines in Redis: for each event a sorted set of reservation ids by current deadline, which `redis_deadlines`
reads, and one sorted set of events by their latest deadline. Scores are seconds of PostgreSQL's clock.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from itertools import chain
from typing import Any
from uuid import UUID

from apps.kernel import redis
from apps.reservations.lifecycle.changes import DeadlineChange, Ended, Hold

EVENTS_KEY = "deadlines"


def key(event_id: int) -> str:
    return f"deadlines:{{{event_id}}}"


def update_deadlines(changes: Sequence[Hold | DeadlineChange]) -> redis.CommandBatch:
    return add_deadlines([(one.event_id, one.reservation_id, one.deadline) for one in changes])


def remove_ended(endings: Sequence[Ended]) -> redis.CommandBatch:
    members: dict[int, list[str]] = {}
    for ending in endings:
        members.setdefault(ending.event_id, []).append(str(ending.reservation_id))
    return redis.CommandBatch([("ZREM", key(event_id), *ids) for event_id, ids in members.items()])


def add_deadlines(deadlines: Iterable[tuple[int, UUID, datetime]], *, only_missing: bool = False) -> redis.CommandBatch:
    """Return the commands that write these deadlines: event id, reservation id, deadline. `only_missing`: members that
    exist keep their score."""
    by_event: dict[int, list[tuple[float, str]]] = {}
    for event_id, reservation_id, deadline in deadlines:
        by_event.setdefault(event_id, []).append((deadline.timestamp(), str(reservation_id)))
    commands: list[Sequence[Any]] = []
    for event_id, pairs in by_event.items():
        how = ["NX"] if only_missing else []
        commands.append(["ZADD", key(event_id), *how, *chain.from_iterable(pairs)])
        commands.append(["ZADD", EVENTS_KEY, "GT", max(pairs)[0], str(event_id)])
    return redis.CommandBatch(commands)
