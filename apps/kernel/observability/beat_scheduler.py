"""The scheduler of `beat`: its schedule is in the database, and each of its rounds is a heartbeat."""

from typing import Any

from django_celery_beat.schedulers import DatabaseScheduler

from apps.kernel.observability import heartbeats

ROUND_SECONDS_MAX = 60.0
"""A round takes 5 s at most, unless the broker or the database does not answer."""


class Scheduler(DatabaseScheduler):
    def tick(self, *args: Any, **kwargs: Any) -> Any:
        """Send the due tasks, and return the seconds until the next round."""
        heartbeats.beat("schedule", ROUND_SECONDS_MAX)
        return super().tick(*args, **kwargs)
