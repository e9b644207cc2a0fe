"""The hot list: what is at hand of each event, as readers get it, in Redis until an hour after the event has begun.

Whoever says something writes it, after the commit; whoever finds none fills it in. Neither can put an older one over a
newer one. What is lost (a process that ended between the commit and Redis, a Redis that came back empty or with what
it had saved long ago) `refresh` puts right, every few seconds.
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
    """The event's hot list; None where there is none, or no Redis."""
    text: Any = redis.attempt(lambda client: client.hget(key_of(event_id), "said"))
    if text is None:
        return None
    try:
        return queries.from_json(text if isinstance(text, bytes) else text.encode())
    except msgspec.MsgspecError:
        return None  # Of another version of this program, say: it is written anew.


def store(event_id: int, standing: CurrentAnnouncements, starts_at: datetime) -> None:
    """Redis has this list, unless it has a newer one, or is away, or the event is over."""
    until = starts_at + KEPT_AFTER
    if until > clock.process_now():
        redis.attempt(lambda client: _write(client, event_id, standing, until))


def _write(client: Redis, event_id: int, standing: CurrentAnnouncements, until: datetime) -> None:
    arguments = (standing.latest, queries.as_json(standing), int(until.timestamp() * 1_000))
    _keep.run(client, [key_of(event_id)], arguments)


def refresh() -> int:
    """Redis has no list that is older than what was committed when this began, nor one of a time that PostgreSQL knows
    nothing of; how many had to be written anew."""
    since = clock.now() - KEPT_AFTER
    soonest = (
        Event.objects.filter(starts_at__gt=since, announcement_feed__latest__gt=0)
        .order_by("-announcement_feed__latest")
        .values_list("pk", "starts_at")[:REFRESHED_MAX]
    )
    starts: Mapping[int, datetime] = dict(soonest)
    return redis.attempt(lambda client: _refresh(client, starts)) or 0 if starts else 0


def _refresh(client: Redis, starts: Mapping[int, datetime]) -> int:
    ids = list(starts)
    with client.pipeline(transaction=False) as pipe:
        for event_id in ids:
            pipe.hget(key_of(event_id), "latest")
        copies = {event_id: int(copy or 0) for event_id, copy in zip(ids, pipe.execute(), strict=True)}
    # Read after the copies: a copy that is ahead of it is of a time that PostgreSQL has forgotten, and not of a commit
    # that came in between.
    latest = queries.latest_of(ids)
    ahead = [event_id for event_id in ids if copies[event_id] > latest.get(event_id, 0)]
    if ahead:
        client.delete(*(key_of(event_id) for event_id in ahead))
    behind = [event_id for event_id in ids if copies[event_id] != latest.get(event_id, 0)]
    for event_id, standing in queries.get_current_by_event(behind).items():
        _write(client, event_id, standing, starts[event_id] + KEPT_AFTER)
    return len(behind)
