"""The relay: what is free, as one ready-encoded frame per event: in Redis within a fifth of a second of a commit, where
every process shows it instead of counting for itself, and every second in PostgreSQL, for when Redis is away.

Counted is what has moved (`recount`), all of it in one statement, and what has changed is written in another: an
event in which nothing happens costs next to nothing. In Redis a frame does not outlive the relay: what is there was
true a moment ago.

Those who listen are told over the channel layer, an event at most every quarter of a second, and less often where
counting takes long: the newest counts, which sections moved and which reservations; at least twice a second that there
is nothing new (`live.event_updates`). Of any number of relays one leads, the others stand by.
"""

import logging
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import DatabaseError, close_old_connections, connection
from redis import Redis

from apps.events import facade as events
from apps.kernel import clock, duty_cycle, redis
from apps.kernel.db import sql, transactions
from apps.kernel.db.leader_election import Leadership
from apps.kernel.http import idempotency
from apps.kernel.observability import log_context
from apps.kernel.push import channel_layer
from apps.kernel.push.channel_names import group_of
from apps.reservations.counts.recount import Recount
from apps.reservations.gate import gate
from apps.reservations.inventory.availability import frame_key

logger = logging.getLogger(__name__)

WINDOW_SECONDS = 1.0
"""So often it looks which events are on sale, and writes to PostgreSQL."""
REDIS_SECONDS = 0.15
"""So often it looks what has moved in them, and writes to Redis."""
REWRITE_SECONDS = 10.0
"""What has not changed is written again so often: a frame's time says that the relay lives."""
FRESH_SECONDS_MIN, FRESH_SECONDS_MAX = 1.0, 5.0
"""So long a frame stays in Redis without a relay that says it again."""
PUBLISH_SECONDS_MIN, PUBLISH_SECONDS_MAX = 0.25, 0.5
"""Listeners are told of an event no more often than the first, and at least as often as the second."""
PUBLISH_ROUNDS = 3
"""Where a round takes long there are so many rounds' time between two frames."""
FRESH_ROUNDS = 4
"""A relay that is slow, since the machine is busy, may come this many times later than it came last."""
LOCK_KEY = b"fairtell"

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
        self._recount = Recount()
        self._sections: dict[int, dict[int, str]] = {}
        """Of each event on sale, by id, what they are called."""
        self._last: dict[int, _Frame] = {}
        self._stored: dict[int, str] = {}
        """The ids of the frames that PostgreSQL has."""
        self._copied_at = float("-inf")
        self._published_at: dict[int, float] = {}
        self._published: dict[int, str] = {}
        """The ids of the frames that listeners were told."""
        self._moved: dict[int, set[str]] = {}
        self._touched: dict[int, set[bytes]] = {}
        """What listeners are still to be told of each event: sections, and reservations by their ids."""

    def run_once(self) -> int:
        """Every event on sale has a frame with the counts of this moment in PostgreSQL and, where it answers, in Redis;
        how many. Written is what has changed, and now and then the rest."""
        self._sections = events.section_slugs(events.selling_event_ids())
        begun = time.monotonic()
        self._count(begun - REWRITE_SECONDS)
        self._store()
        self._write_to_redis()
        self._publish(begun)
        return len(self._sections)

    def update_redis(self) -> None:
        """Redis, where it answered last, has the counts of this moment, of the events that were on sale then."""
        if self.has_redis:
            begun = time.monotonic()
            self._count(float("-inf"))
            self._write_to_redis()
            self._publish(begun)

    def _count(self, again_from: float) -> None:
        """Every event has a frame of this moment: a new one if its counts have changed, or it was written before that
        moment."""
        counts = self._recount.free(one for sections in self._sections.values() for one in sections)
        frames: dict[int, _Frame] = {}
        for event_id, sections in self._sections.items():
            free = {slug: counts[section_id] for section_id, slug in sections.items()}
            last = self._last.get(event_id)
            if last is None or last.counts != free or last.written_at <= again_from:
                last = self._frame(free)
            frames[event_id] = last
        self._last = frames
        self._collect_changes()

    def _collect_changes(self) -> None:
        moved = self._recount.changed_sections
        event_of = {section: event_id for event_id, sections in self._sections.items() for section in sections}
        for section_id in event_of if moved is None else moved:
            event_id = event_of.get(section_id)
            if event_id is not None:
                self._moved.setdefault(event_id, set()).add(self._sections[event_id][section_id])
        for section_id, reservation_id in self._recount.changed_reservations:
            event_id = event_of.get(section_id)
            if event_id is not None:
                self._touched.setdefault(event_id, set()).add(reservation_id.bytes)

    def _publish(self, begun: float) -> None:
        """Who listens has been told what it is time for, if Redis is there. What is not told now is told next time, and
        what gets lost is read by the listeners' own processes."""
        now = time.monotonic()
        pause = min(PUBLISH_SECONDS_MAX, max(PUBLISH_SECONDS_MIN, PUBLISH_ROUNDS * (now - begun)))
        due = {}
        for event_id, frame in self._last.items():
            is_news = self._published.get(event_id) != frame.id or event_id in self._moved or event_id in self._touched
            if now - self._published_at.get(event_id, float("-inf")) >= (pause if is_news else PUBLISH_SECONDS_MAX):
                due[event_id] = frame
        messages = [self._message(event_id, frame) for event_id, frame in due.items()]
        if not messages or not channel_layer.send_to_groups(messages):
            return
        for event_id, frame in due.items():
            self._published_at[event_id], self._published[event_id] = now, frame.id
            self._moved.pop(event_id, None)
            self._touched.pop(event_id, None)

    def _message(self, event_id: int, frame: _Frame) -> tuple[str, dict[str, Any]]:
        message: dict[str, Any] = {"type": "news", "event": event_id}
        if self._published.get(event_id) != frame.id:
            message |= {"id": frame.id, "counts": frame.text.encode()}
        if event_id in self._moved:
            message["moved"] = sorted(self._moved[event_id])
        if event_id in self._touched:
            message["reservations"] = b"".join(sorted(self._touched[event_id]))
        return group_of(event_id), message

    def _frame(self, free: Mapping[str, int]) -> _Frame:
        self.sequence += 1
        sections = [{"section_id": slug, "available_seats": count} for slug, count in free.items()]
        text = idempotency.canonical({"sections": sections, "timestamp": clock.iso(clock.process_now())})
        return _Frame(free, f"{self.epoch}-{self.sequence}", text, time.monotonic())

    def _store(self) -> None:
        """PostgreSQL has every event's frame."""
        ids = {event_id: frame.id for event_id, frame in self._last.items()}
        new = [event_id for event_id, frame_id in ids.items() if self._stored.get(event_id) != frame_id]
        if new:
            with transactions.write(), connection.cursor() as cursor:
                _publish_frames.count(
                    cursor,
                    event_ids=new,
                    epoch=self.epoch,
                    sequences=[int(ids[event_id].rpartition("-")[2]) for event_id in new],
                    frames=[self._last[event_id].text for event_id in new],
                    now=clock.now(),
                )
        self._stored = ids

    def _write_to_redis(self) -> None:
        """Redis has every event's frame, for a moment."""
        if not self._last:
            return
        now = time.monotonic()
        fresh_seconds = min(FRESH_SECONDS_MAX, max(FRESH_SECONDS_MIN, FRESH_ROUNDS * (now - self._copied_at)))
        self._copied_at = now
        try:
            client = redis.client()
            ids = _extend_expiry(client, list(self._last), fresh_seconds)
            # Also one that was there and is not: Redis was flushed, or was away, or another relay wrote its own.
            new = {event_id: frame for event_id, frame in self._last.items() if ids[event_id] != frame.id}
            if new:
                _write(client, new, fresh_seconds)
        except redis.RedisUnavailable as error:
            if self.has_redis:
                logger.warning(
                    "relay: Redis is away (%s); frames are in PostgreSQL until it answers again",
                    log_context.summarize_error(error),
                )
            self.has_redis = False
        else:
            if not self.has_redis:
                logger.warning("relay: Redis answers again; frames are in it")
            self.has_redis = True


def _extend_expiry(client: Redis, event_ids: Sequence[int], fresh_seconds: float) -> dict[int, str]:
    """The ids of the frames that are there; they stay for another while."""
    with client.pipeline(transaction=False) as pipe:
        for event_id in event_ids:
            pipe.hget(frame_key(event_id), "id")
            pipe.pexpire(frame_key(event_id), int(fresh_seconds * 1_000))
        found = pipe.execute()[::2]
    return {event_id: gate.text(one) for event_id, one in zip(event_ids, found, strict=True)}


def _write(client: Redis, frames: Mapping[int, _Frame], fresh_seconds: float) -> None:
    with client.pipeline(transaction=False) as pipe:
        for event_id, frame in frames.items():
            pipe.hset(frame_key(event_id), mapping={"id": frame.id, "frame": frame.text})
            pipe.pexpire(frame_key(event_id), int(fresh_seconds * 1_000))
        pipe.execute()


def loop(stopping: threading.Event) -> None:
    """Runs until `stopping` is set; a restarted database or a lost Redis costs windows, not the relay."""
    lead = Leadership("relay", LOCK_KEY)
    relay: Relay | None = None
    has_database = True
    window_at = time.monotonic()
    while not stopping.is_set():
        begun, pause = time.monotonic(), REDIS_SECONDS
        try:
            if not lead.holds():
                relay, pause = None, WINDOW_SECONDS / 2
            elif relay is None:
                relay = Relay()  # With an epoch of its own: what another told meanwhile is not what this one knows.
                relay.run_once()
            elif begun >= window_at:
                window_at = begun + (WINDOW_SECONDS if relay.has_redis else WINDOW_SECONDS / 2)
                relay.run_once()
            else:
                relay.update_redis()
            if not has_database:
                logger.warning("relay: the database answers again")
            has_database = True
        except (DatabaseError, psycopg.Error) as error:
            pause = WINDOW_SECONDS
            if isinstance(error, DatabaseError) and log_context.find_connection_error(error) is None:
                logger.exception("relay: this window failed; the next one recounts everything")
            elif has_database:
                logger.error(
                    "relay: the database is away (%s); no recount until it answers again",
                    log_context.summarize_error(error),
                )
                has_database = False
        finally:
            close_old_connections()
        stopping.wait(max(pause, duty_cycle.pause_seconds(begun)))
    lead.resign()
