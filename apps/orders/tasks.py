from celery import shared_task

from apps.orders.provider_sync import daily_comparison, status_inquiries


@shared_task(name="orders.ask_about_money")
def reconcile_unsettled_money() -> int:
    """Payments and refunds whose word never came are being asked about; how many."""
    return status_inquiries.schedule_inquiries()


@shared_task(name="orders.compare_days")
def compare_days() -> int:
    """The days that are due are being compared with the providers' books; how many."""
    return daily_comparison.schedule_comparisons()
