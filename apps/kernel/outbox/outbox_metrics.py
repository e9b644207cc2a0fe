"""Outbox metrics: counters of this process, and the state of the table."""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import prometheus_client
from django.db import connection

from apps.kernel.db import sql

_published = prometheus_client.Counter(
    "fairgate_outbox_published", "Messages written and committed.", ["topic"], registry=None
)
_ended = prometheus_client.Counter(
    "fairgate_outbox_ended",
    "Ends of claims: done, failed (to be retried), given up, later (RetryLater), overtaken (the claim expired).",
    ["topic", "how"],
    registry=None,
)
_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1_000)
_handled = prometheus_client.Histogram(
    "fairgate_outbox_handled_seconds",
    "Seconds from the claim of a message to its settlement.",
    ["topic"],
    buckets=_BUCKETS,
    registry=None,
)
_delivered = prometheus_client.Histogram(
    "fairgate_outbox_delivered_seconds",
    "Seconds from the writing of a message to its settlement.",
    ["topic"],
    buckets=_BUCKETS,
    registry=None,
)
METRICS = (_published, _ended, _handled, _delivered)

_message_counts = sql.load("apps.kernel.outbox", "message_counts")
_oldest_due = sql.load("apps.kernel.outbox", "oldest_due")


def count_published(topics: Iterable[str]) -> None:
    """Count messages of these topics that are committed."""
    for topic, count in Counter(topics).items():
        _published.labels(topic).inc(count)


def ended(topic: str, how: str) -> None:
    _ended.labels(topic, how).inc()


def deleted(topic: str, seconds: Collection[tuple[float, float]]) -> None:
    """Count settled messages of the topic, given by the seconds since their claims and since they were written."""
    if not seconds:
        return
    _ended.labels(topic, "done").inc(len(seconds))
    handled, delivered = _handled.labels(topic), _delivered.labels(topic)
    for since_claim, since_written in seconds:
        handled.observe(since_claim)
        delivered.observe(since_written)


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """The outbox's figures, as source document 003 defines them."""

    published_per_minute: int
    pending: int
    stuck: int
    """Claimed more than five minutes ago and not settled."""
    given_up: int
    mean_seconds_to_deletion: float | None
    """From claim to settlement, over the last hour; None if no message was settled."""
    lag_seconds: float
    """Seconds for which the oldest due message, mail apart, has been due."""
    mail_pending: int
    """How many of the pending messages are for mail."""
    mail_lag_seconds: float
    """Seconds for which the oldest due message for mail has been due."""


def get_status(of_mail: Sequence[str], of_others: Sequence[str]) -> OutboxStatus:
    """Return the current figures of the outbox, given the topics of mail and the other topics."""
    with connection.cursor() as cursor:
        ((published_count, pending, stuck, given_up, mean_seconds, mail_pending),) = _message_counts.rows(
            cursor, of_mail=of_mail
        )
    return OutboxStatus(
        published_count,
        pending,
        stuck,
        given_up,
        mean_seconds,
        oldest_due_seconds(of_mail) or 0.0,
        mail_pending,
        oldest_due_seconds(of_others) or 0.0,
    )


def oldest_due_seconds(others: Sequence[str]) -> float | None:
    """Return for how many seconds the oldest unclaimed message has been due, except of the topics `others`; None if
    none is due."""
    with connection.cursor() as cursor:
        ((seconds,),) = _oldest_due.rows(cursor, others=others)
    return None if seconds is None else float(seconds)
