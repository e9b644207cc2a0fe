"""The relay: what is free, recounted every second, kept as one ready-encoded frame per event.

All events are counted in one statement, and what has changed is written in another: an event in which nothing happens
costs next to nothing. PostgreSQL has the last frame too, for when Redis is away; Redis is only the faster copy.
"""

import logging
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db import DatabaseError, close_old_connections, connection
from redis import Redis

from apps.events import facade as events
from apps.reservations.availability import free_counts
from ticketing.kernel import clock, idempotency, redis, resting, sql, telemetry, transactions

logger = logging.getLogger(__name__)

WINDOW_SECONDS = 1.0
AGAIN_SECONDS = 10.0
"""What has not changed is written again so often: a frame's time says that the relay lives."""
FRAME_KEPT_SECONDS = 60

_publish_frames = sql.load("apps.reservations", "publish_frames")


@dataclass(frozen=True, slots=True)
class _Frame:
    counts: Mapping[str, int]
    """By the section's public name."""
    id: str
    text: str
    written_at: float
    """On the process's monotonic clock."""


class Relay:
    """One relay's life: its epoch, the number of its last frame, and the last frame of each event. Frame ids are
    `epoch-sequence`; one that says the same again keeps its id."""

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(4)
        self.sequence = 0
        self.has_redis = True
        self._last: dict[int, _Frame] = {}

    def run_once(self) -> int:
        """Every event on sale has a frame with the counts of this moment in PostgreSQL and, where it answers, in Redis;
        how many. Written is what has changed, and now and then the rest."""
        slugs = events.section_slugs(events.selling_event_ids())
        counts = free_counts(section_id for sections in slugs.values() for section_id in sections)
        changed: dict[int, _Frame] = {}
        now, moment = clock.now(), time.monotonic()
        for event_id, sections in slugs.items():
            free = {slug: counts[section_id] for section_id, slug in sections.items()}
            last = self._last.get(event_id)
            if last is None or last.counts != free or moment - last.written_at >= AGAIN_SECONDS:
                self.sequence += 1
                text = idempotency.canonical(
                    {
                        "sections": [{"section_id": slug, "available_seats": count} for slug, count in free.items()],
                        "timestamp": clock.iso(now),
                    }
                )
                changed[event_id] = _Frame(free, f"{self.epoch}-{self.sequence}", text, moment)
        if changed:
            with transactions.write(), connection.cursor() as cursor:
                _publish_frames.count(
                    cursor,
                    event_ids=list(changed),
                    epoch=self.epoch,
                    sequences=[int(frame.id.rpartition("-")[2]) for frame in changed.values()],
                    frames=[frame.text for frame in changed.values()],
                    now=now,
                )
        self._last = {event_id: changed.get(event_id) or self._last[event_id] for event_id in slugs}
        if self._last:
            self._copy(changed)
        return len(slugs)

    def _copy(self, changed: Mapping[int, _Frame]) -> None:
        """Redis has every frame, for a while."""
        try:
            client = redis.client()
            _write(client, changed)
            unchanged = [event_id for event_id in self._last if event_id not in changed]
            # One that is not there any more cannot be kept: Redis was flushed, or was away.
            lost = [
                event_id for event_id, is_there in zip(unchanged, _keep(client, unchanged), strict=True) if not is_there
            ]
            _write(client, {event_id: self._last[event_id] for event_id in lost})
        except redis.RedisAway as error:
            if self.has_redis:
                logger.warning(
                    "relay: Redis is away (%s); frames are in PostgreSQL until it answers again", telemetry.brief(error)
                )
            self.has_redis = False
        else:
            if not self.has_redis:
                logger.warning("relay: Redis answers again; frames are in it")
            self.has_redis = True


def _key(event_id: int) -> str:
    return f"frame:{{{event_id}}}"


def _write(client: Redis, frames: Mapping[int, _Frame]) -> None:
    with client.pipeline(transaction=False) as pipe:
        for event_id, frame in frames.items():
            pipe.hset(_key(event_id), mapping={"id": frame.id, "frame": frame.text})
            pipe.expire(_key(event_id), FRAME_KEPT_SECONDS)
        pipe.execute()


def _keep(client: Redis, event_ids: Sequence[int]) -> list[bool]:
    """These frames stay for another while; which of them are there."""
    with client.pipeline(transaction=False) as pipe:
        for event_id in event_ids:
            pipe.expire(_key(event_id), FRAME_KEPT_SECONDS)
        return [bool(found) for found in pipe.execute()]


def loop(stopping: threading.Event) -> None:
    """Runs until `stopping` is set; a restarted database or a lost Redis costs windows, not the relay."""
    relay = Relay()
    has_database = True
    while not stopping.is_set():
        begun = time.monotonic()
        try:
            relay.run_once()
            if not has_database:
                logger.warning("relay: the database answers again")
            has_database = True
        except DatabaseError as error:
            if telemetry.lost_connection(error) is None:
                logger.exception("relay: this window failed; the next one recounts everything")
            elif has_database:
                logger.error(
                    "relay: the database is away (%s); no recount until it answers again", telemetry.brief(error)
                )
                has_database = False
        finally:
            close_old_connections()
        stopping.wait(max(WINDOW_SECONDS, resting.rest_seconds(begun)))
