"""The feed of each event in Redis, kept until an hour after the event has begun.

A post writes the feed after the commit; a reader that finds no feed stores one. Neither replaces a newer feed.
Every few seconds `refresh` repairs outdated feeds: a process may end between its commit and its write to Redis, and
Redis may restart empty or from an old save.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec
from redis import Redis

from apps.events.announcements import queries
from apps.events.announcements.queries import CurrentAnnouncements
from apps.events.models import Event
from apps.kernel import clock, lua, redis

KEPT_AFTER = timedelta(hours=1)
REFRESH_SECONDS = 3.0
REFRESHED_MAX = 1_000
_keep = lua.load("apps.events", "keep_announcements")


def key_of(event_id: int) -> str:
    return f"announcements:{{{event_id}}}"


def read(event_id: int) -> CurrentAnnouncements | None:
    """Return the event's cached feed; None if there is none or Redis is unavailable."""
    text: Any = redis.attempt(lambda client: client.hget(key_of(event_id), "said"))
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=CurrentAnnouncements)
    except msgspec.MsgspecError:
        return None  # Written by another version of this program, for example. The caller replaces it.


def store(event_id: int, current: CurrentAnnouncements, starts_at: datetime) -> None:
    """Cache this feed unless Redis has a newer one, Redis is unavailable, or the event is over."""
    until = starts_at + KEPT_AFTER
    if until > clock.process_now():
        redis.attempt(lambda client: _write(client, event_id, current, until))


def _write(client: Redis, event_id: int, current: CurrentAnnouncements, until: datetime) -> None:
    arguments = (current.latest, msgspec.json.encode(current), int(until.timestamp() * 1_000))
    _keep.run(client, [key_of(event_id)], arguments)


def refresh() -> int:
    """Replace cached feeds that differ from PostgreSQL and return how many were replaced.

    Afterwards no cached feed is older than the commits before this call, and none is ahead of PostgreSQL."""
    since = clock.now() - KEPT_AFTER
    newest = (
        Event.objects.filter(starts_at__gt=since, announcement_feed__latest__gt=0)
        .order_by("-announcement_feed__latest")
        .values_list("pk", "starts_at")[:REFRESHED_MAX]
    )
    starts: Mapping[int, datetime] = dict(newest)
    return redis.attempt(lambda client: _refresh(client, starts)) or 0 if starts else 0


def _refresh(client: Redis, starts: Mapping[int, datetime]) -> int:
    ids = list(starts)
    with client.pipeline(transaction=False) as pipe:
        for event_id in ids:
            pipe.hget(key_of(event_id), "latest")
        copies = {event_id: int(copy or 0) for event_id, copy in zip(ids, pipe.execute(), strict=True)}
    # Read after the copies, so that a copy with a higher number means that PostgreSQL has lost that version (a restored
    # backup), not that a version was committed between the two reads.
    latest = queries.latest_of(ids)
    ahead = [event_id for event_id in ids if copies[event_id] > latest.get(event_id, 0)]
    if ahead:
        client.delete(*(key_of(event_id) for event_id in ahead))
    behind = [event_id for event_id in ids if copies[event_id] != latest.get(event_id, 0)]
    for event_id, current in queries.get_current_by_event(behind).items():
        _write(client, event_id, current, starts[event_id] + KEPT_AFTER)
    return len(behind)
