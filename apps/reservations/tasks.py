from celery import shared_task

from apps.reservations.gate import rebuild
from apps.reservations.lifecycle import release

BEAT_SECONDS_MAX = 0.8
"""A task is sent every second. Since each ends before the next, sweeps occupy at most one worker process and leave the
others to deliveries."""


@shared_task(name="reservations.sweep")
def sweep_expired() -> int:
    """Expire overdue reservations within the task's time; return how many."""
    return release.sweep_all(by="beat", seconds_max=BEAT_SECONDS_MAX)


@shared_task(name="reservations.reset_gates")
def reset_gates() -> int:
    """Reset every gate that is due; return how many were opened."""
    return rebuild.reset_due()
