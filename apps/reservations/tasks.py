from celery import shared_task

from apps.reservations import ending


@shared_task(name="reservations.sweep")
def sweep_expired() -> int:
    """Everything past its deadline is free again; how many reservations ended."""
    return ending.sweep_all(by="beat")
