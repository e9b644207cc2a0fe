"""The relay: publishes the free counts of each event on sale as one encoded frame. It writes frames to Redis within
0.2 s of a commit, so that web processes need not count, and to PostgreSQL every second, in case Redis is unavailable.

One statement counts all changed sections (`recount`) and another writes the changed frames, so an event without
changes costs almost nothing. Frames in Redis expire shortly after the relay stops.

The channel layer sends listeners the latest counts and the changed sections and reservations of an event: at most every
0.25 s, less often if counting is slow, and every 0.5 s without changes (`live.event_updates`). If several relays run,
one leads and the others stand by.
"""

import logging
import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from django.db import DatabaseError, close_old_connections, connection
from redis import Redis

from apps.events import facade as events
from apps.kernel import clock, redis
from apps.kernel.db import sql, transactions
from apps.kernel.db.leader_election import Leadership
from apps.kernel.heavy_work import duty_cycle
from apps.kernel.http import idempotency
from apps.kernel.observability import heartbeats, log_context
from apps.kernel.push import channel_layer
from apps.kernel.push.channel_names import group_of
from apps.reservations.counts.recount import Recount
from apps.reservations.gate import gate
from apps.reservations.inventory.availability import frame_key

logger = logging.getLogger(__name__)

WINDOW_SECONDS = 1.0
"""The interval of reading which events are on sale and of writing to PostgreSQL."""
REDIS_SECONDS = 0.15
"""The interval of reading changes and writing to Redis."""
REWRITE_SECONDS = 10.0
"""Unchanged frames are rewritten at this interval: their timestamp shows that the relay is alive."""
FRESH_SECONDS_MIN, FRESH_SECONDS_MAX = 1.0, 5.0
"""The expiry of a frame in Redis, which the relay extends."""
PUBLISH_SECONDS_MIN, PUBLISH_SECONDS_MAX = 0.25, 0.5
"""The shortest and the longest time between two notifications of an event."""
PUBLISH_ROUNDS = 3
"""If a round is slow, notifications are at least this many round durations apart."""
FRESH_ROUNDS = 4
"""Frames expire after this many times the last interval between writes, to allow for a relay on a busy host."""
ROUND_SECONDS_MAX = 60.0
"""Far above the time limits of a round's statements: a longer round hangs."""
LOCK_KEY = b"fairtell"

_publish_frames = sql.load("apps.reservations", "publish_frames")


@dataclass(frozen=True, slots=True)
class _Frame:
    counts: Mapping[str, int]
    """By section slug."""
    id: str
    text: str
    written_at: float
    """On the process's monotonic clock."""


class Relay:
    """The state of one leading relay: its epoch, the number of its last frame, and the last frame of each event. Frame
    ids are `epoch-sequence`; a frame with unchanged content that is sent again keeps its id."""

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(4)
        self.sequence = 0
        self.has_redis = True
        self._recount = Recount()
        self._sections: dict[int, dict[int, str]] = {}
        """Slugs by section id, for each event on sale."""
        self._last: dict[int, _Frame] = {}
        self._stored: dict[int, str] = {}
        """The ids of the frames in PostgreSQL."""
        self._copied_at = float("-inf")
        self._published_at: dict[int, float] = {}
        self._published: dict[int, str] = {}
        """The ids of the published frames."""
        self._moved: dict[int, set[str]] = defaultdict(set)
        self._touched: dict[int, set[bytes]] = defaultdict(set)
        """Changed sections (`_moved`) and reservation ids (`_touched`) by event, not yet published."""

    def run_once(self) -> int:
        """Count all events on sale and write their frames to PostgreSQL and, if available, to Redis; return how many
        events there are. Unchanged frames are written only every REWRITE_SECONDS."""
        self._sections = events.section_slugs(events.selling_event_ids())
        begun = time.monotonic()
        self._count(begun - REWRITE_SECONDS)
        self._store()
        self._write_to_redis()
        self._publish(begun)
        return len(self._sections)

    def update_redis(self) -> None:
        """Count the same events again and write to Redis, if it was available last time."""
        if self.has_redis:
            begun = time.monotonic()
            self._count(float("-inf"))
            self._write_to_redis()
            self._publish(begun)

    def _count(self, again_from: float) -> None:
        """Count all events; make a new frame where counts changed or the last frame was written before `again_from`."""
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
            if (event_id := event_of.get(section_id)) is not None:
                self._moved[event_id].add(self._sections[event_id][section_id])
        for section_id, reservation_id in self._recount.changed_reservations:
            if (event_id := event_of.get(section_id)) is not None:
                self._touched[event_id].add(reservation_id.bytes)

    def _publish(self, begun: float) -> None:
        """Notify the listeners of all due events, if Redis is available. A message that could not be sent is sent next
        time. A lost one does no harm: the listeners' processes also read the states at intervals."""
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
        """Write new frames to PostgreSQL."""
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
        """Write new frames to Redis, and extend the expiry of the others."""
        if not self._last:
            return
        now = time.monotonic()
        fresh_seconds = min(FRESH_SECONDS_MAX, max(FRESH_SECONDS_MIN, FRESH_ROUNDS * (now - self._copied_at)))
        self._copied_at = now
        try:
            client = redis.client()
            ids = _extend_expiry(client, list(self._last), fresh_seconds)
            # Includes frames that Redis lost in a flush or restart, or that another relay wrote.
            new = {event_id: frame for event_id, frame in self._last.items() if ids[event_id] != frame.id}
            if new:
                _write(client, new, fresh_seconds)
        except redis.RedisUnavailable as error:
            if self.has_redis:
                logger.warning(
                    "relay: Redis is unavailable (%s); frames are in PostgreSQL until it answers again",
                    log_context.summarize_error(error),
                )
            self.has_redis = False
        else:
            if not self.has_redis:
                logger.warning("relay: Redis answers again; frames are written to it")
            self.has_redis = True


def _extend_expiry(client: Redis, event_ids: Sequence[int], fresh_seconds: float) -> dict[int, str]:
    """Extend the expiry of these events' frames, and return the ids of those that exist."""
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
    """Run until `stopping` is set. The loop survives a restart of the database or Redis."""
    lead = Leadership("relay", LOCK_KEY)
    relay: Relay | None = None
    has_database = True
    window_at = time.monotonic()
    while not stopping.is_set():
        heartbeats.beat("relay", ROUND_SECONDS_MAX)
        begun, pause = time.monotonic(), REDIS_SECONDS
        try:
            if not lead.holds():
                relay, pause = None, WINDOW_SECONDS / 2
            elif relay is None:
                relay = Relay()  # With a new epoch: another relay may have published since.
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
                    "relay: the database is unavailable (%s); no recount until it answers again",
                    log_context.summarize_error(error),
                )
                has_database = False
        finally:
            close_old_connections()
        stopping.wait(max(pause, duty_cycle.pause_seconds(begun)))
    lead.resign()
