from celery import shared_task

from apps.kernel.feeds import garbage


@shared_task(name="feeds.collect")
def collect_garbage() -> int:
    """Delete what is due in all feeds, and return the number of messages."""
    return garbage.collect_garbage()
