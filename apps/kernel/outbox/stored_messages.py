"""Questions about stored messages, new attempts of given-up ones, and the deletion of old ones."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.db.models import Count, Max

from apps.kernel import clock
from apps.kernel.db import transactions
from apps.kernel.outbox.models import OutboxMessage
from apps.kernel.outbox.partitions import ORIGIN_FIELD

KEPT_DAYS = 7
SOURCE_FIELD = "source"
"""Of a message's body: who caused it, if the messages of one source are spread over time."""


class Waiting(NamedTuple):
    """Undelivered messages."""

    message_count: int
    last_at: datetime | None
    """When the last one is due."""


def is_waiting(topic: str, key: str) -> bool:
    """Return whether a message of this topic and key is undelivered and no worker has claimed it."""
    waiting = OutboxMessage.objects.filter(topic=topic, key=key, done_at__isnull=True, dead_at__isnull=True)
    return waiting.exclude(claimed_until__gt=clock.now()).exists()


def count_due(topic: str, origin: str, at_most: int) -> int:
    """Return how many messages of the topic are due whose origin begins with `origin`, for example those of all events
    of an organizer; claimed ones included. Counts no more than `at_most`."""
    due = OutboxMessage.objects.filter(
        topic=topic, done_at__isnull=True, dead_at__isnull=True, is_behind=False, available_at__lte=clock.now()
    )
    return due.filter(**{f"body__{ORIGIN_FIELD}__startswith": origin})[:at_most].count()


def read_waiting(topic: str, source: str) -> Waiting:
    """Return what this source has waiting in the topic, without messages that are repeated: those are due at times of
    their own. Reads all waiting messages of the topic."""
    waiting = OutboxMessage.objects.filter(topic=topic, done_at__isnull=True, dead_at__isnull=True, last_error="")
    found = waiting.filter(**{f"body__{SOURCE_FIELD}": source}).aggregate(count=Count("pk"), last=Max("available_at"))
    return Waiting(found["count"], found["last"])


def is_unsettled(topic: str, key: str, body: dict[str, Any]) -> bool:
    """Return whether a message with this topic, key and body is neither done nor given up."""
    return OutboxMessage.objects.filter(
        topic=topic, key=key, body=body, done_at__isnull=True, dead_at__isnull=True
    ).exists()


def retry_given_up(message_ids: Sequence[int], now: datetime) -> int:
    """Make the given-up messages among these due again, with all attempts left; return how many. The caller wakes the
    deliveries."""
    with transactions.write():
        dead = OutboxMessage.objects.select_for_update(no_key=True).filter(pk__in=message_ids, dead_at__isnull=False)
        ids = list(dead.order_by("pk").values_list("pk", flat=True))
        OutboxMessage.objects.filter(pk__in=ids).update(
            dead_at=None, attempts=0, available_at=now, claimed_until=None, receipt=None, is_behind=False
        )
    return len(ids)


def collect_garbage(limit: int = 10_000) -> int:
    """Delete up to `limit` messages that were done more than KEPT_DAYS ago; return how many."""
    old = OutboxMessage.objects.filter(done_at__lt=clock.now() - timedelta(days=KEPT_DAYS)).values("pk")[:limit]
    deleted_count, _ = OutboxMessage.objects.filter(pk__in=old).delete()
    return deleted_count
