"""Metrics of feeds: counters of this process, and the state of the tables."""

from dataclasses import dataclass

from django.db import connection
from prometheus_client import Counter, Histogram

from apps.kernel.db import sql

sent = Counter("fairgate_feeds_sent", "Messages sent to feeds, without repetitions.", registry=None)
received = Counter("fairgate_feeds_received", "Receives of messages, repeated ones included.", registry=None)
ended = Counter(
    "fairgate_feeds_ended",
    "Ended messages: deleted (by receivers), expired, dead; redriven: dead letters sent again; forgotten: rows of "
    "deleted messages removed.",
    ["how"],
    registry=None,
)
handled = Histogram(
    "fairgate_feeds_handled_seconds",
    "Seconds from the receive of a message to its deletion.",
    buckets=(0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 600, 3_600),
    registry=None,
)
METRICS = (sent, received, ended, handled)

_totals = sql.load("apps.kernel.feeds", "feed_totals")


@dataclass(frozen=True, slots=True)
class Totals:
    messages: int
    """Messages of all feeds that are not deleted."""
    dead: int
    oldest_due_seconds: float
    """The longest wait of a message that can be received."""


def read_totals() -> Totals:
    """Return the present state of all feeds."""
    with connection.cursor() as cursor:
        ((messages, dead, oldest),) = _totals.rows(cursor)
    return Totals(messages, dead, oldest)
