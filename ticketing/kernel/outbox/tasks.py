from celery import shared_task

from ticketing.kernel.outbox import facade


@shared_task(name="outbox.deliver")
def deliver() -> int:
    """What was due has been delivered; how many messages. The task carries nothing: the rows are the work."""
    delivered = 0
    while count := facade.deliver():
        delivered += count
    return delivered
