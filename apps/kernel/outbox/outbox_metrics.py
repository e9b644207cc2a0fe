"""How the outbox is doing: counters of what each process did, and the ledger's own figures in one line."""

from dataclasses import dataclass

from django.db import connection, transaction
from prometheus_client import Counter, Histogram

from apps.kernel.db import sql

_published = Counter("fairgate_outbox_published", "Messages written and committed.", ["topic"], registry=None)
_ended = Counter(
    "fairgate_outbox_ended",
    "Ends of claims: done, failed (tried again), given up, later (asked for), overtaken (outlived its visibility).",
    ["topic", "how"],
    registry=None,
)
_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1_000)
_handled = Histogram(
    "fairgate_outbox_handled_seconds",
    "From the claim of a message to its deletion.",
    ["topic"],
    buckets=_BUCKETS,
    registry=None,
)
_delivered = Histogram(
    "fairgate_outbox_delivered_seconds",
    "From the writing of a message to its deletion.",
    ["topic"],
    buckets=_BUCKETS,
    registry=None,
)
METRICS = (_published, _ended, _handled, _delivered)

_standing = sql.load("apps.kernel.outbox", "standing")
_oldest_due = sql.load("apps.kernel.outbox", "oldest_due")


def published(topic: str) -> None:
    """One more is counted once the caller's transaction has committed."""
    transaction.on_commit(_published.labels(topic).inc, robust=True)


def ended(topic: str, how: str) -> None:
    _ended.labels(topic, how).inc()


def deleted(topic: str, handled_seconds: float, delivered_seconds: float) -> None:
    _ended.labels(topic, "done").inc()
    _handled.labels(topic).observe(handled_seconds)
    _delivered.labels(topic).observe(delivered_seconds)


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """The outbox in figures, as source document 003 wants them."""

    published_per_minute: int
    pending: int
    stuck: int
    """Claimed more than five minutes ago and not deleted."""
    given_up: int
    mean_seconds_to_deletion: float | None
    """From claim to deletion, of the last hour; None when nothing was deleted."""
    lag_seconds: float
    """How long the longest-waiting due message has waited."""


def get_status() -> OutboxStatus:
    """How the outbox stands now."""
    with connection.cursor() as cursor:
        ((published_count, pending, stuck, given_up, mean_seconds),) = _standing.rows(cursor)
    return OutboxStatus(published_count, pending, stuck, given_up, mean_seconds, oldest_due_seconds() or 0.0)


def oldest_due_seconds() -> float | None:
    """How long the longest-waiting unclaimed due message has waited, or None when none waits. What stands behind
    another of its key is not counted: that other one is what waits."""
    with connection.cursor() as cursor:
        ((waited,),) = _oldest_due.rows(cursor)
    return None if waited is None else float(waited)
