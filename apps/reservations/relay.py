"""The relay: what is free, recounted every second, kept as one ready-encoded frame per event.

PostgreSQL has the last frame too, for when Redis is away; Redis is only the faster copy.
"""

import logging
import secrets
import threading

from django.db import DatabaseError, close_old_connections

from apps.events import facade as events
from apps.reservations.availability import free_counts
from apps.reservations.models import AvailabilityFrame
from ticketing.kernel import clock, idempotency, redis, telemetry, transactions

logger = logging.getLogger(__name__)

WINDOW_SECONDS = 1.0
FRAME_KEPT_SECONDS = 60


def encode(event_id: int) -> str:
    """The event's frame: every section's free count, recounted now."""
    sections = events.list_sections(event_id)
    counts = free_counts(section.id for section in sections)
    return idempotency.canonical(
        {
            "sections": [{"section_id": section.slug, "available_seats": counts[section.id]} for section in sections],
            "timestamp": clock.iso(clock.now()),
        }
    )


class Relay:
    """One relay's life: its epoch, and the number of its last frame. Frame ids are `epoch-sequence`."""

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(4)
        self.sequence = 0
        self.has_redis = True

    def run_once(self) -> int:
        """Every event on sale has a frame of this moment in PostgreSQL and, where it answers, in Redis; how many."""
        event_ids = events.selling_event_ids()
        for event_id in event_ids:
            self.sequence += 1
            frame = encode(event_id)
            with transactions.write():
                AvailabilityFrame.objects.update_or_create(
                    event_id=event_id,
                    defaults={
                        "epoch": self.epoch,
                        "sequence": self.sequence,
                        "frame": frame,
                        "published_at": clock.now(),
                    },
                )
            self._copy(event_id, frame)
        return len(event_ids)

    def _copy(self, event_id: int, frame: str) -> None:
        key = f"frame:{{{event_id}}}"
        try:
            client = redis.client()
            client.hset(key, mapping={"id": f"{self.epoch}-{self.sequence}", "frame": frame})
            client.expire(key, FRAME_KEPT_SECONDS)
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


def loop(stopping: threading.Event) -> None:
    """Runs until `stopping` is set; a restarted database or a lost Redis costs windows, not the relay."""
    relay = Relay()
    has_database = True
    while not stopping.is_set():
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
        stopping.wait(WINDOW_SECONDS)
