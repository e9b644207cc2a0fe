"""The deadlines in Redis: for each event a sorted set of reservation ids by current deadline, which `redis_deadlines`
reads, and one sorted set of events by their latest deadline. Scores are seconds of PostgreSQL's clock.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any
from uuid import UUID

from apps.kernel import redis
from apps.reservations.lifecycle.changes import DeadlineChange, Ended, Hold

EVENTS_KEY = "deadlines"

Deadlines = Mapping[int, Mapping[UUID, datetime]]
"""Current deadlines by event id and reservation id."""


def key(event_id: int) -> str:
    return f"deadlines:{{{event_id}}}"


def add_holds(holds: Sequence[Hold]) -> redis.CommandBatch:
    return add_deadlines(by_event([(hold.event_id, hold.reservation_id, hold.deadline) for hold in holds]))


def update_deadlines(deadlines: Sequence[DeadlineChange]) -> redis.CommandBatch:
    return add_deadlines(by_event([(one.event_id, one.reservation_id, one.deadline) for one in deadlines]))


def remove_ended(endings: Sequence[Ended]) -> redis.CommandBatch:
    members: dict[int, list[str]] = {}
    for ending in endings:
        members.setdefault(ending.event_id, []).append(str(ending.reservation_id))
    return redis.CommandBatch([("ZREM", key(event_id), *ids) for event_id, ids in members.items()])


def by_event(deadlines: Sequence[tuple[int, UUID, datetime]]) -> Deadlines:
    found: dict[int, dict[UUID, datetime]] = {}
    for event_id, reservation_id, deadline in deadlines:
        found.setdefault(event_id, {})[reservation_id] = deadline
    return found


def add_deadlines(deadlines: Deadlines, *, only_missing: bool = False) -> redis.CommandBatch:
    """Return the commands that write these deadlines. `only_missing`: members that exist keep their score."""
    commands: list[Sequence[Any]] = []
    for event_id, of_event in deadlines.items():
        pairs = [(deadline.timestamp(), str(one)) for one, deadline in of_event.items()]
        how = ["NX"] if only_missing else []
        commands.append(["ZADD", key(event_id), *how, *chain.from_iterable(pairs)])
        commands.append(["ZADD", EVENTS_KEY, "GT", max(pairs)[0], str(event_id)])
    return redis.CommandBatch(commands)
