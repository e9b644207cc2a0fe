"""The nets under what lapses. Each catches everything by itself; together they catch it once.

1. `redis_deadlines`: a set of deadlines in Redis, watched by the relay's process. Within a second.
2. Celery beat, every second (`sweep_for_beat`), in whichever worker is free.
3. The maintenance loop of the gatekeeper's process (`sweep_unswept`), which needs PostgreSQL and nothing else.
4. The hold that runs short sweeps its own events before it refuses anybody (`holds.service`).

What makes a release happen once is no key of their own: it is the reservation's row. Whoever releases has it locked
and reads status and deadline under that lock, so the one who comes second finds it ended. Grace delays none of them: it
only decides what a payment gets that comes late.
"""

from django.db import connection

from apps.kernel.db import sql, transactions
from apps.reservations.lifecycle import release

BEAT_SECONDS_MAX = 0.8
"""A task is sent every second. Done before the next one comes, sweeps never take more than one worker process, and
deliveries have the others."""
UNSWEPT_SECONDS = 3.0
"""Lapsed for so long, the first two nets have missed it or are down. The rule asks neither of them."""
UNSWEPT_EVERY_SECONDS = 0.5
MAINTENANCE_SECONDS_MAX = 1.0
"""Other jobs wait for it."""
LOG_KEPT_DAYS = 30
DELETE_MAX = 10_000

_forget_cleanup_logs = sql.load("apps.reservations", "forget_cleanup_logs")


def sweep_for_beat() -> int:
    """What has lapsed is free again, as far as the time of one task goes; how many reservations ended."""
    return release.sweep_all(by="beat", seconds_max=BEAT_SECONDS_MAX)


def sweep_unswept() -> int:
    """The same for what nobody has swept for three seconds. Where the other nets work it costs an index look-up."""
    return release.sweep_all(by="maintenance", lapsed_seconds=UNSWEPT_SECONDS, seconds_max=MAINTENANCE_SECONDS_MAX)


def delete_old_cleanup_logs(limit: int = DELETE_MAX) -> int:
    """Rows of the cleanup log past their time are gone, at most `limit` of them; how many went."""
    with transactions.write(), connection.cursor() as cursor:
        return _forget_cleanup_logs.count(cursor, kept_days=LOG_KEPT_DAYS, limit=limit)
