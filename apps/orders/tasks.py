from celery import shared_task

from apps.orders.privacy import retention
from apps.orders.provider_sync import daily_comparison, status_inquiries


@shared_task(name="orders.ask_about_money")
def reconcile_unsettled_money() -> int:
    """Schedule inquiries about unsettled payments and refunds. Return how many."""
    return status_inquiries.schedule_inquiries()


@shared_task(name="orders.compare_days")
def compare_days() -> int:
    """Schedule the comparisons with the providers' books that are due. Return how many."""
    return daily_comparison.schedule_comparisons()


@shared_task(name="orders.apply_retention")
def apply_retention() -> int:
    """Erase personal data whose retention period is over. Return how many rows changed."""
    return sum(retention.run().values())
