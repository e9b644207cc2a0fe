from celery import shared_task

from apps.reservations import nets
from apps.reservations.gates import resetting


@shared_task(name="reservations.sweep")
def sweep_expired() -> int:
    """Everything past its deadline is free again; how many reservations ended."""
    return nets.sweep_for_beat()


@shared_task(name="reservations.reset_gates")
def reset_gates() -> int:
    """Every gate whose counts are due has those of this moment; how many."""
    return resetting.reset_due()
