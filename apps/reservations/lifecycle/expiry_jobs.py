"""Four independent ways to expire overdue reservations. Each alone finds all of them.

1. `redis_deadlines`: a watcher of the deadlines in Redis, in the relay's process. Within a second.
2. Celery beat, every second, in any worker (`tasks.sweep_expired`).
3. The maintenance loop in the gatekeeper's process, which needs only PostgreSQL (`sweep_unswept`).
4. A hold that finds too few seats sweeps its events before it refuses (`holds.service`).

A reservation is released only once: each way locks its row and reads status and deadline under the lock, so that a
second one finds it ended. The grace period delays none of them; it only applies to late payments.
"""

from django.db import connection

from apps.kernel.db import sql, transactions
from apps.reservations.lifecycle import release

UNSWEPT_SECONDS = 3.0
"""A reservation overdue for this time was missed by the first two, or they are down."""
UNSWEPT_EVERY_SECONDS = 0.5
MAINTENANCE_SECONDS_MAX = 1.0
"""Limited, since other jobs wait for it."""
LOG_KEPT_DAYS = 30
DELETE_MAX = 10_000

_forget_cleanup_logs = sql.load("apps.reservations", "forget_cleanup_logs")


def sweep_unswept() -> int:
    """Expire reservations overdue for UNSWEPT_SECONDS; return how many. If the other ways work, this costs one index
    lookup."""
    return release.sweep_all(by="maintenance", lapsed_seconds=UNSWEPT_SECONDS, seconds_max=MAINTENANCE_SECONDS_MAX)


def delete_old_cleanup_logs(limit: int = DELETE_MAX) -> int:
    """Delete up to `limit` old rows of the cleanup log; return how many."""
    with transactions.write(), connection.cursor() as cursor:
        return _forget_cleanup_logs.count(cursor, kept_days=LOG_KEPT_DAYS, limit=limit)
