from celery import shared_task

from apps.reservations.gate import rebuild
from apps.reservations.lifecycle import expiry_jobs


@shared_task(name="reservations.sweep")
def sweep_expired() -> int:
    """Everything past its deadline is free again; how many reservations ended."""
    return expiry_jobs.sweep_for_beat()


@shared_task(name="reservations.reset_gates")
def reset_gates() -> int:
    """Every gate whose counts are due has those of this moment; how many."""
    return rebuild.reset_due()
