from celery import shared_task

from apps.reservations.gate import rebuild
from apps.reservations.lifecycle import release

BEAT_SECONDS_MAX = 0.8
"""A task is sent every second. Since each ends before the next, sweeps occupy at most one worker process and leave the
others to deliveries."""


@shared_task(name="reservations.sweep")
def sweep_expired() -> int:
    """Everything past its deadline is free again; how many reservations ended."""
    return release.sweep_all(by="beat", seconds_max=BEAT_SECONDS_MAX)


@shared_task(name="reservations.reset_gates")
def reset_gates() -> int:
    """Every gate whose counts are due has those of this moment; how many."""
    return rebuild.reset_due()
